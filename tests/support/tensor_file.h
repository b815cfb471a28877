// Tensors of a safetensors file, by name.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/status_macros.h"
#include "services/loader/formats/byte_source.h"
#include "services/loader/formats/safetensors.h"

namespace tandem::testing {

class TensorFile {
 public:
  static absl::StatusOr<TensorFile> Open(const std::string& path) {
    TANDEM_ASSIGN_OR_RETURN(auto file, loader::FileSource::Open(path));
    TANDEM_ASSIGN_OR_RETURN(auto header, loader::ParseSafetensors(file));
    return TensorFile(std::move(file), std::move(header));
  }

  // All elements of a tensor whose elements are four bytes.
  template <typename T>
  absl::StatusOr<std::vector<T>> Read(const std::string& name) const {
    static_assert(sizeof(T) == 4);
    const auto it = std::ranges::find(header_.tensors, name, &loader::FileTensor::name);
    if (it == header_.tensors.end()) return absl::NotFoundError("no tensor " + name);
    std::vector<T> values(it->num_bytes / sizeof(T));
    TANDEM_RETURN_IF_ERROR(
        file_.ReadAt(it->file_offset, std::as_writable_bytes(std::span(values))));
    return values;
  }

 private:
  TensorFile(loader::FileSource file, loader::SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}
  loader::FileSource file_;
  loader::SafetensorsHeader header_;
};

}  // namespace tandem::testing

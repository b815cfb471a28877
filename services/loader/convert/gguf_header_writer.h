// The header of a GGUF file (formats/gguf.h has its layout), written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/common/tensor/dtype.h"

namespace tandem::loader {

// What one tensor's entry says; `offset` counts from the start of the data.
struct GgufEntry {
  std::string name;
  std::vector<uint64_t> dims;  // fastest first
  DType dtype = DType::kF32;
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
};

// Collects keys and tensors; offsets are given out in the order of the tensors.
class GgufHeaderWriter {
 public:
  static constexpr uint64_t kAlignment = 32;

  void AddString(std::string_view key, std::string_view value);
  void AddU32(std::string_view key, uint32_t value);
  void AddF32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddStrings(std::string_view key, const std::vector<std::string>& values);
  void AddF32s(std::string_view key, const std::vector<float>& values);
  void AddI32s(std::string_view key, const std::vector<int32_t>& values);
  void AddBools(std::string_view key, const std::vector<bool>& values);
  void AddTensor(std::string name, std::vector<uint64_t> dims, DType dtype, uint64_t num_bytes);

  const std::vector<GgufEntry>& entries() const { return entries_; }
  uint64_t data_bytes() const { return data_bytes_; }
  // The file up to the data: version 3, padded to kAlignment.
  std::string Build() const;

 private:
  std::string keys_;  // as in the file
  uint64_t num_keys_ = 0;
  std::vector<GgufEntry> entries_;
  uint64_t data_bytes_ = 0;
};

}  // namespace tandem::loader

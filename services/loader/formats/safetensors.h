// The header of a safetensors file, checked but not interpreted.
//
//   file   = u64:header_bytes header data
//   header = JSON object: name -> {"dtype": string, "shape": [int], "data_offsets": [begin, end)},
//            and optionally "__metadata__" -> {string: string}
//
// Offsets count from the start of `data`; tensors cover it without overlaps or holes.
// Source: the safetensors format description (github.com/huggingface/safetensors).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/loader/formats/byte_source.h"
#include "services/loader/formats/decoder_tensors.h"

namespace tandem::loader {

struct SafetensorsHeader {
  uint64_t data_offset = 0;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<FileTensor> tensors;  // by offset
};

// INVALID_ARGUMENT "at byte N: reason"; headers over 100 MB are refused before they are read.
absl::StatusOr<SafetensorsHeader> ParseSafetensors(const ByteSource& source);

}  // namespace tandem::loader

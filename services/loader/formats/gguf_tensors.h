// The tensor descriptions that end a GGUF header.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "services/loader/formats/byte_source.h"
#include "services/loader/formats/gguf.h"

namespace tandem::loader {

// Reads `num_tensors` descriptions, sets header.data_offset and header.tensors.  REQUIRES
// header.alignment is set and num_tensors is bounded by the bytes that are left.
// INVALID_ARGUMENT "at byte N: reason".
absl::Status ReadGgufTensors(ByteReader& reader, uint64_t file_bytes, uint64_t num_tensors,
                             GgufHeader& header);

}  // namespace tandem::loader

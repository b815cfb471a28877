// From a file's tensor names to the parts of a Gemma 3 text decoder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

// A tensor as its file describes it, bounds already checked by the file's parser.
struct FileTensor {
  std::string name;
  std::optional<DType> dtype;   // nullopt: a format the decoder cannot use
  std::string dtype_name;       // as the file has it
  std::vector<uint64_t> shape;  // slowest dimension first; empty for a scalar
  uint64_t file_offset = 0;
  uint64_t num_bytes = 0;
  uint32_t file = 0;
};

enum class NameStyle : uint8_t { kGguf, kSafetensors };

struct DecoderTensors {
  std::vector<SourceTensor> tensors;  // by role, layer and part
  std::vector<SkippedTensor> skipped;
};

// Picks every tensor of the decoder and checks it against `config`: each exactly once, of the
// right shape, in a number format that the decoder reads.  `tied`: an output matrix is not
// looked for and one that is there is skipped (safetensors); without it the matrix is required,
// except in GGUF, where its absence means tied.
// INVALID_ARGUMENT names the tensor and both values.  A name inside a layer that is unknown is
// refused as well: leaving a bias out would silently change what the model computes.
absl::StatusOr<DecoderTensors> SelectDecoderTensors(const ModelConfig& config,
                                                    const std::vector<FileTensor>& file_tensors,
                                                    NameStyle style, bool tied);

// The name of a part in GGUF files: "blk.7.attn_q.weight".  REQUIRES the layout has the part.
std::string GgufTensorName(WeightRole role, uint32_t layer_idx, SourcePart part);

}  // namespace tandem::loader

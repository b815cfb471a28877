// From a file's tensor names to the parts of a Gemma 3 vision encoder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/model/vision_config.h"
#include "services/common/weights/vision_weights.h"
#include "services/loader/formats/decoder_tensors.h"

namespace tandem::loader {

// One tensor of the encoder in a file.  Row-major [shape.rows, shape.cols], as SourceTensor.
struct VisionTensor {
  std::string name;  // as the file has it
  DType dtype = DType::kF32;
  Shape2D shape;
  std::vector<uint64_t> file_shape;  // slowest dimension first
  uint64_t file_offset = 0;
  uint64_t num_bytes = 0;
  uint32_t file = 0;
  VisionRole role = VisionRole::kPatchWeight;
  uint32_t layer_idx = 0;
  float norm_offset = 0.0f;  // added to the projection's norm: 1 where the file holds w
};

// Whether a tensor of this name belongs to a vision encoder or its projector.
bool IsVisionName(std::string_view name, NameStyle style);

// The tensor's name in an mmproj file: "v.blk.0.attn_q.weight".
std::string GgufVisionName(VisionRole role, uint32_t layer_idx);

// Picks every tensor of the encoder and checks it against `config`: each exactly once, of the right
// shape, vectors in a plain format.  INVALID_ARGUMENT names the tensor and both values.  An unknown
// name inside the encoder is refused: leaving it out would change what the model computes.
// Safetensors names outside the encoder are passed over.
absl::StatusOr<std::vector<VisionTensor>> SelectVisionTensors(
    const VisionConfig& config, const std::vector<FileTensor>& file_tensors, NameStyle style);

}  // namespace tandem::loader

// A model's files, opened and checked but not yet packed: what every format reader produces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/common/model/vocabulary.h"
#include "services/common/tensor/dtype.h"
#include "services/common/weights/packed_tensor.h"

namespace tandem::loader {

// A part of a fused matrix, in the order in which the packer takes them.
enum class SourcePart : uint8_t { kWhole, kQ, kK, kV, kGate, kUp };

// One tensor in a file.  Row-major [shape.rows, shape.cols] (vectors: [1, n]) in `dtype`'s file
// layout; rows are RowBytes(dtype, cols) long.
struct SourceTensor {
  std::string name;  // as the file has it
  DType dtype = DType::kF32;
  Shape2D shape;
  uint64_t file_offset = 0;  // of the data in its file
  uint64_t num_bytes = 0;
  uint32_t file = 0;  // index of the file in a sharded model

  WeightRole role = WeightRole::kEmbedding;
  uint32_t layer_idx = 0;
  SourcePart part = SourcePart::kWhole;
  float norm_offset = 0.0f;  // added to norm weights: 1 where the file holds w, 0 where 1 + w
};

// A tensor the text decoder does not use (vision tower, unknown names), for inspection.
struct SkippedTensor {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  uint64_t num_bytes = 0;
};

struct SamplingDefaults {
  std::optional<uint32_t> top_k;
  std::optional<float> top_p;        // in (0, 1]
  std::optional<float> temperature;  // in [0, 100]
};

// Immutable and thread-safe after opening: packing reads it from all cores.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  virtual std::string_view format() const = 0;  // "gguf", "safetensors", "synthetic"
  virtual const ModelConfig& config() const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  virtual const std::string& chat_template() const = 0;
  // Within what requests may ask for; other values in the files are left out.
  virtual const SamplingDefaults& sampling_defaults() const = 0;
  // What was left out of the files and why, a sentence each.
  virtual const std::vector<std::string>& warnings() const = 0;
  // Every tensor the decoder needs, exactly once, shapes checked against the config.
  virtual const std::vector<SourceTensor>& tensors() const = 0;
  virtual const std::vector<SkippedTensor>& skipped() const = 0;
  // Key-value pairs of the file's own metadata, printable, in file order (long values cut).
  virtual const std::vector<std::pair<std::string, std::string>>& metadata() const = 0;
  // Identifies the content: hash over headers, sizes and modification times of the files.
  virtual const std::string& content_id() const = 0;

  // Reads `out.size()` bytes of a tensor's data from `offset` within it.  Thread-safe.
  // DATA_LOSS when the file has been cut short since it was opened (never SIGBUS).
  virtual absl::Status Read(const SourceTensor& tensor, uint64_t offset,
                            std::span<std::byte> out) const = 0;
};

}  // namespace tandem::loader

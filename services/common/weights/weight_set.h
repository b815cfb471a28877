// A model's weights as a consumer holds them: mapped, read-only, described.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/shared_memory.h"
#include "services/common/base/unique_fd.h"
#include "services/common/model/model_config.h"
#include "services/common/weights/packed_tensor.h"

namespace tandem {

// One shared-memory object of the loader, as passed to a consumer.
struct WeightRegion {
  UniqueFd fd;         // read-only memfd
  UniqueFd dmabuf_fd;  // the same pages as a dmabuf; invalid where the kernel offers none
  Mapping mapping;     // read-only, MAP_SHARED
};

// Immutable after construction, so thread-safe.
class WeightSet {
 public:
  // Validates every tensor against `config` and the regions, and that every role of every layer
  // is there exactly once (kHead may be absent: tied; an encoder's roles without config.vision).
  // INVALID_ARGUMENT names the tensor.
  static absl::StatusOr<std::unique_ptr<WeightSet>> Create(std::string model_id, ModelConfig config,
                                                           std::vector<PackedTensor> tensors,
                                                           std::vector<WeightRegion> regions);

  const std::string& model_id() const { return model_id_; }
  const ModelConfig& config() const { return config_; }
  // The decoder's.
  const std::vector<PackedTensor>& tensors() const { return tensors_; }
  // The vision encoder's; empty without one.
  const std::vector<PackedTensor>& vision_tensors() const { return vision_tensors_; }
  const std::vector<WeightRegion>& regions() const { return regions_; }

  // The tensor of a role (of a layer); nullptr only for an absent kHead or encoder.
  const PackedTensor* Find(WeightRole role, uint32_t layer_idx = 0) const;
  // kHead, or kEmbedding when the two are tied.
  const PackedTensor& head() const;
  // First byte of a shard, ShardBytes() long.
  const std::byte* ShardData(const Shard& shard) const;
  uint64_t total_bytes() const;

 private:
  WeightSet() = default;
  std::string model_id_;
  ModelConfig config_;
  std::vector<PackedTensor> tensors_, vision_tensors_;
  std::vector<WeightRegion> regions_;
  uint32_t max_layers_ = 0;     // of decoder and encoder
  std::vector<int32_t> index_;  // [role][layer] -> tensor of its list, -1 absent
};

}  // namespace tandem

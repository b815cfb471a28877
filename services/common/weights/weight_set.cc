#include "services/common/weights/weight_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<WeightSet>> WeightSet::Create(std::string model_id,
                                                             ModelConfig config,
                                                             std::vector<PackedTensor> tensors,
                                                             std::vector<WeightRegion> regions) {
  TANDEM_RETURN_IF_ERROR(config.Validate());
  std::vector<uint64_t> region_bytes;
  for (const WeightRegion& region : regions) region_bytes.push_back(region.mapping.size());
  std::unique_ptr<WeightSet> set(new WeightSet);
  set->max_layers_ = std::max(config.num_layers, config.vision ? config.vision->num_layers : 0);
  set->index_.assign(size_t{kNumWeightRoles} * set->max_layers_, -1);
  for (size_t i = 0; i < tensors.size(); ++i) {
    PackedTensor& tensor = tensors[i];
    if (static_cast<int>(tensor.role) >= kNumWeightRoles) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor %d has unknown role %d", i, static_cast<int>(tensor.role)));
    }
    TANDEM_RETURN_IF_ERROR(ValidatePackedTensor(tensor, config, region_bytes));
    const uint32_t layer = IsPerLayer(tensor.role) ? tensor.layer_idx : 0;
    int32_t& slot = set->index_[static_cast<size_t>(tensor.role) * set->max_layers_ + layer];
    if (slot != -1) {
      return absl::InvalidArgumentError(absl::StrFormat("%s appears twice", tensor.Name()));
    }
    std::vector<PackedTensor>& list = IsVision(tensor.role) ? set->vision_tensors_ : set->tensors_;
    slot = static_cast<int32_t>(list.size());
    list.push_back(std::move(tensor));
  }
  for (int role = 0; role < kNumWeightRoles; ++role) {
    const auto weight_role = static_cast<WeightRole>(role);
    if (weight_role == WeightRole::kHead) continue;
    for (uint32_t layer = 0; layer < LayersWith(weight_role, config); ++layer) {
      if (set->index_[static_cast<size_t>(role) * set->max_layers_ + layer] == -1) {
        return absl::InvalidArgumentError(
            absl::StrFormat("layer %d has no %s", layer, std::string(WeightRoleName(weight_role))));
      }
    }
  }
  set->model_id_ = std::move(model_id);
  set->config_ = std::move(config);
  set->regions_ = std::move(regions);
  return set;
}

const PackedTensor* WeightSet::Find(WeightRole role, uint32_t layer_idx) const {
  TANDEM_CHECK(layer_idx < max_layers_);
  const int32_t i = index_[static_cast<size_t>(role) * max_layers_ + layer_idx];
  if (i < 0) return nullptr;
  return &(IsVision(role) ? vision_tensors_ : tensors_)[static_cast<size_t>(i)];
}

const PackedTensor& WeightSet::head() const {
  const PackedTensor* head = Find(WeightRole::kHead);
  return head != nullptr ? *head : *Find(WeightRole::kEmbedding);
}

const std::byte* WeightSet::ShardData(const Shard& shard) const {
  return regions_[shard.region].mapping.data() + shard.offset;
}

uint64_t WeightSet::total_bytes() const {
  uint64_t bytes = 0;
  for (const WeightRegion& region : regions_) bytes += region.mapping.size();
  return bytes;
}

}  // namespace tandem

#include "services/gateway/model/model_work.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"

namespace tandem::gateway {
namespace {

uint64_t BytesOf(const PackedTensor& tensor) {
  uint64_t bytes = 0;
  for (const Shard& shard : tensor.shards) bytes += ShardBytes(tensor, shard);
  return bytes;
}

uint64_t ElementsOf(const PackedTensor& tensor) { return tensor.shape.rows * tensor.shape.cols; }

// Matrices that a step needs for its outputs alone: no later layer reads the other rows.
bool IsLastFfn(const PackedTensor& tensor, const ModelConfig& config) {
  return tensor.layer_idx + 1 == config.num_layers &&
         (tensor.role == WeightRole::kGateUp || tensor.role == WeightRole::kDown);
}

}  // namespace

uint64_t WeightBytes(const std::vector<PackedTensor>& tensors) {
  uint64_t bytes = 0;
  for (const PackedTensor& tensor : tensors) bytes += BytesOf(tensor);
  return bytes;
}

uint64_t NumParameters(const std::vector<PackedTensor>& tensors) {
  uint64_t parameters = 0;
  for (const PackedTensor& tensor : tensors) parameters += ElementsOf(tensor);
  return parameters;
}

std::string WeightFormat(const std::vector<PackedTensor>& tensors) {
  std::map<DType, uint64_t> bytes;
  for (const PackedTensor& tensor : tensors) {
    if (IsNorm(tensor.role)) continue;
    for (const Shard& shard : tensor.shards) bytes[shard.dtype] += ShardBytes(tensor, shard);
  }
  std::vector<std::pair<uint64_t, std::string>> formats;
  for (const auto& [dtype, total] : bytes) {
    formats.emplace_back(total, std::string(Traits(dtype).name));
  }
  std::sort(formats.begin(), formats.end(), std::greater<>());
  return absl::StrJoin(formats, ", ",
                       [](std::string* out, const auto& format) { out->append(format.second); });
}

v1::ModelWork WorkOf(const ModelConfig& config, const std::vector<PackedTensor>& tensors,
                     DType kv_dtype) {
  const bool tied = std::none_of(tensors.begin(), tensors.end(), [](const PackedTensor& tensor) {
    return tensor.role == WeightRole::kHead;
  });
  const WeightRole head = tied ? WeightRole::kEmbedding : WeightRole::kHead;
  uint64_t weight_bytes = 0, multiply_adds = 0, global_layers = 0;
  v1::ModelWork work;
  uint64_t output_bytes = 0, output_multiply_adds = 0;
  for (const PackedTensor& tensor : tensors) {
    if (tensor.role == WeightRole::kEmbedding && !tied) continue;
    const bool output = tensor.role == head || IsLastFfn(tensor, config);
    (output ? output_bytes : weight_bytes) += BytesOf(tensor);
    if (IsNorm(tensor.role)) continue;
    (output ? output_multiply_adds : multiply_adds) += ElementsOf(tensor);
  }
  work.set_head_weight_bytes(output_bytes);
  work.set_output_multiply_adds(output_multiply_adds);
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    global_layers += config.is_global(layer) ? 1 : 0;
  }
  const uint64_t layer_kv_bytes = 2 * RowBytes(kv_dtype, config.kv_dim());
  work.set_step_weight_bytes(weight_bytes);
  work.set_row_multiply_adds(multiply_adds);
  work.set_global_kv_bytes(global_layers * layer_kv_bytes);
  work.set_window_kv_bytes((config.num_layers - global_layers) * layer_kv_bytes);
  work.set_sliding_window(config.sliding_window);
  return work;
}

}  // namespace tandem::gateway

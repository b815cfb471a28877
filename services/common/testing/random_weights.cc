#include "services/common/testing/random_weights.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "services/common/base/check.h"
#include "services/common/tensor/quant.h"
#include "services/common/weights/dequantize.h"

namespace tandem::testing {
namespace {

uint64_t AlignUp(uint64_t value) {
  return (value + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
}

// Rows of a shard of at most `bytes` bytes: whole tiles, unless it is all of them.
uint64_t RowsThatFit(const PackedTensor& tensor, DType dtype, uint64_t rows, uint64_t bytes) {
  if (ShardBytes(tensor, dtype, rows) <= bytes) return rows;
  uint64_t fit = 0;
  for (uint64_t step = std::bit_floor(rows); step >= kTileRows; step /= 2) {
    if (fit + step < rows && ShardBytes(tensor, dtype, fit + step) <= bytes) fit += step;
  }
  return fit;
}

// First fit in order: a tensor that does not fit the rest of a region starts a new one.
class Placer {
 public:
  explicit Placer(uint64_t max_region_bytes) : max_region_bytes_(max_region_bytes) {}

  // Rows [row, end), a multiple of a tile unless it is the last row.
  void Place(PackedTensor& tensor, DType dtype, uint64_t row, uint64_t end) {
    while (row < end) {
      const uint64_t left = end - row;
      const bool whole = ShardBytes(tensor, dtype, left) <= max_region_bytes_;
      const uint64_t space = max_region_bytes_ - region_bytes_.back();
      const uint64_t rows = RowsThatFit(tensor, dtype, left, space);
      if (rows == 0 || (whole && rows < left)) {
        TANDEM_CHECK(region_bytes_.back() > 0);  // a tile must fit an empty region
        region_bytes_.push_back(0);
        continue;
      }
      uint64_t& used = region_bytes_.back();
      tensor.shards.push_back(
          {row, rows, static_cast<uint32_t>(region_bytes_.size() - 1), used, dtype});
      used = AlignUp(used + ShardBytes(tensor, dtype, rows));
      row += rows;
    }
  }
  const std::vector<uint64_t>& region_bytes() const { return region_bytes_; }

 private:
  uint64_t max_region_bytes_;
  std::vector<uint64_t> region_bytes_{0};
};

std::vector<PackedTensor> MakeTensors(const ModelConfig& config,
                                      const RandomWeightOptions& options) {
  std::vector<PackedTensor> tensors;
  for (int r = 0; r < kNumWeightRoles; ++r) {
    const auto role = static_cast<WeightRole>(r);
    if (role == WeightRole::kHead && !options.separate_head) continue;
    for (uint32_t layer = 0; layer < LayersWith(role, config); ++layer) {
      tensors.push_back(
          {.role = role, .layer_idx = layer, .shape = WeightShape(role, config), .shards = {}});
    }
  }
  return tensors;
}

void PlaceTensor(const ModelConfig& config, const RandomWeightOptions& options, Placer& placer,
                 PackedTensor& tensor) {
  const auto it = options.role_dtypes.find(tensor.role);
  DType dtype = it == options.role_dtypes.end() ? options.dtype : it->second;
  if (IsNorm(tensor.role)) dtype = DType::kF32;
  uint64_t row = 0;
  if (tensor.role == WeightRole::kQkv && options.v_dtype.has_value()) {
    row = config.q_dim() + config.kv_dim();
    placer.Place(tensor, dtype, 0, row);
    dtype = *options.v_dtype;
  }
  placer.Place(tensor, dtype, row, tensor.shape.rows);
}

bool IsVisionBias(WeightRole role) {
  if (!IsVision(role)) return false;
  switch (ToVisionRole(role)) {
    case VisionRole::kPatchBias:
    case VisionRole::kNorm1Bias:
    case VisionRole::kQBias:
    case VisionRole::kKBias:
    case VisionRole::kVBias:
    case VisionRole::kOutBias:
    case VisionRole::kNorm2Bias:
    case VisionRole::kUpBias:
    case VisionRole::kDownBias:
    case VisionRole::kPostNormBias:
      return true;
    default:
      return false;
  }
}

// Each tensor draws from its own generator, so that its numbers depend on its role, layer and the
// seed alone.
void FillTensor(const PackedTensor& tensor, uint32_t seed, const std::vector<Mapping>& regions) {
  const auto role = static_cast<uint32_t>(tensor.role);
  std::seed_seq sequence{seed, role, tensor.layer_idx};
  std::mt19937 random(sequence);
  const float deviation =
      IsNorm(tensor.role) ? 0.25f : 1.2f / std::sqrt(static_cast<float>(tensor.shape.cols));
  std::normal_distribution<float> normal(
      IsNorm(tensor.role) && !IsVisionBias(tensor.role) ? 1.0f : 0.0f, deviation);
  std::vector<float> values(tensor.shape.cols);
  for (const Shard& shard : tensor.shards) {
    std::byte* start = regions[shard.region].data() + shard.offset;
    for (uint64_t row = 0; row < shard.num_rows; ++row) {
      for (float& value : values) value = normal(random);
      if (IsNorm(tensor.role)) {
        std::memcpy(start, values.data(), values.size() * sizeof(float));
        continue;
      }
      QuantizePackedRow(shard.dtype, values,
                        RowInShard(shard.dtype, shard.num_rows, tensor.shape.cols, start, row));
    }
  }
}

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  TANDEM_CHECK(value.ok());
  return *std::move(value);
}

}  // namespace

std::shared_ptr<const WeightSet> RandomWeightSet(const ModelConfig& config,
                                                 const RandomWeightOptions& options) {
  std::vector<PackedTensor> tensors = MakeTensors(config, options);
  Placer placer(options.max_region_bytes);
  for (PackedTensor& tensor : tensors) PlaceTensor(config, options, placer, tensor);

  std::vector<UniqueFd> fds;
  std::vector<Mapping> writable;
  for (const uint64_t bytes : placer.region_bytes()) {
    fds.push_back(OrDie(CreateSharedMemory("random-weights", bytes)));
    writable.push_back(OrDie(Mapping::Map(fds.back().get(), bytes, Mapping::Access::kReadWrite)));
  }
  for (const PackedTensor& tensor : tensors) FillTensor(tensor, options.seed, writable);

  std::vector<WeightRegion> regions;
  for (size_t i = 0; i < fds.size(); ++i) {
    TANDEM_CHECK(SealSize(fds[i].get()).ok());
    WeightRegion region;
    region.fd = OrDie(ReopenReadOnly(fds[i].get()));
    if (options.memory_files_are_dmabufs) {
      region.dmabuf_fd = OrDie(ReopenReadOnly(fds[i].get()));
    }
    region.mapping =
        OrDie(Mapping::Map(region.fd.get(), writable[i].size(), Mapping::Access::kReadOnly));
    regions.push_back(std::move(region));
  }
  return OrDie(WeightSet::Create("random", config, std::move(tensors), std::move(regions)));
}

}  // namespace tandem::testing

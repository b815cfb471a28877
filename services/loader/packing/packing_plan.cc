#include "services/loader/packing/packing_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kPageBytes = 4096;

uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

uint64_t RoundRegion(uint64_t bytes) {
  return AlignUp(bytes, bytes < kHugePageBytes ? kPageBytes : kHugePageBytes);
}

// The parts a role is made of, with their shapes and places.
struct PartSpec {
  SourcePart part;
  uint64_t rows, first_row, row_step;
};

std::vector<PartSpec> PartsOf(WeightRole role, const ModelConfig& config) {
  if (role == WeightRole::kQkv) {
    const uint64_t q = config.q_dim(), kv = config.kv_dim();
    return {{SourcePart::kQ, q, 0, 1}, {SourcePart::kK, kv, q, 1}, {SourcePart::kV, kv, q + kv, 1}};
  }
  if (role == WeightRole::kGateUp) {
    return {{SourcePart::kGate, config.ffn_dim, 0, 2}, {SourcePart::kUp, config.ffn_dim, 1, 2}};
  }
  return {{SourcePart::kWhole, WeightShape(role, config).rows, 0, 1}};
}

using SourceKey = std::tuple<WeightRole, uint32_t, SourcePart>;
using SourceIndex = std::map<SourceKey, uint32_t>;

absl::StatusOr<SourceIndex> IndexSources(const std::vector<SourceTensor>& sources) {
  SourceIndex index;
  for (uint32_t i = 0; i < static_cast<uint32_t>(sources.size()); ++i) {
    const SourceTensor& source = sources[i];
    const uint32_t layer = IsPerLayer(source.role) ? source.layer_idx : 0;
    const auto [it, added] = index.insert({{source.role, layer, source.part}, i});
    if (!added) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensors '%s' and '%s' hold the same weights", sources[it->second].name, source.name));
    }
  }
  return index;
}

absl::Status CheckSource(const SourceTensor& source, const Shape2D& expected) {
  if (!(source.shape == expected)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor '%s': expected [%d, %d], file has [%d, %d]", source.name,
                        expected.rows, expected.cols, source.shape.rows, source.shape.cols));
  }
  const DTypeTraits& traits = Traits(source.dtype);
  if (expected.cols % traits.block_elements != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor '%s': %d columns are no multiple of %s's block of %d", source.name,
                        expected.cols, std::string(traits.name), traits.block_elements));
  }
  const uint64_t bytes = expected.rows * RowBytes(source.dtype, expected.cols);
  if (source.num_bytes != bytes) {
    return absl::InvalidArgumentError(absl::StrFormat("tensor '%s': expected %d bytes, file has %d",
                                                      source.name, bytes, source.num_bytes));
  }
  return absl::OkStatus();
}

// Neighbouring rows of a packed matrix in one format.
struct FormatRun {
  uint64_t first_row = 0;
  uint64_t num_rows = 0;
  DType dtype = DType::kF32;
};

bool IsBlockFormat(DType dtype) { return Traits(dtype).block_elements > 1; }

// The formats of a packed matrix: those of its parts.  Parts in different formats stay as they are
// where each is a run of whole tiles in a block format, so that all can read one input; else all
// become f16.
std::vector<FormatRun> FormatsOf(const PlannedTensor& planned,
                                 const std::vector<SourceTensor>& sources) {
  if (IsNorm(planned.tensor.role)) return {{0, planned.tensor.shape.rows, DType::kF32}};
  std::vector<FormatRun> runs;
  bool can_differ = true;
  for (const PackedPart& part : planned.parts) {
    const SourceTensor& source = sources[part.source];
    can_differ = can_differ && part.row_step == 1 && part.first_row % kTileRows == 0 &&
                 IsBlockFormat(source.dtype);
    if (!runs.empty() && runs.back().dtype == source.dtype) {
      runs.back().num_rows += source.shape.rows;
    } else {
      runs.push_back({part.first_row, source.shape.rows, source.dtype});
    }
  }
  if (runs.size() == 1 || can_differ) return runs;
  LogWarning("parts of a fused matrix differ in format, packed as f16",
             {{"tensor", planned.tensor.Name()},
              {"first", std::string(Traits(runs[0].dtype).name)},
              {"other", std::string(Traits(runs[1].dtype).name)}});
  return {{0, planned.tensor.shape.rows, DType::kF16}};
}

absl::StatusOr<PlannedTensor> PlanTensor(WeightRole role, uint32_t layer_idx,
                                         const std::vector<SourceTensor>& sources,
                                         const SourceIndex& index, const ModelConfig& config) {
  PlannedTensor planned;
  planned.tensor.role = role;
  planned.tensor.layer_idx = layer_idx;
  planned.tensor.shape = WeightShape(role, config);
  for (const PartSpec& spec : PartsOf(role, config)) {
    const auto found = index.find({role, layer_idx, spec.part});
    if (found == index.end()) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: part %d is missing from the files",
                                                        planned.tensor.Name(),
                                                        static_cast<int>(spec.part)));
    }
    TANDEM_RETURN_IF_ERROR(
        CheckSource(sources[found->second], {spec.rows, planned.tensor.shape.cols}));
    planned.parts.push_back({found->second, spec.first_row, spec.row_step});
  }
  return planned;
}

// Fills regions one after the other.
class RegionLayout {
 public:
  explicit RegionLayout(uint64_t max_region_bytes) : limit_(max_region_bytes) {}

  // What follows lies in regions of its own, which readers of the tensors before need not import.
  void BeginRegion() { begin_region_ = true; }

  // Adds shards for the rows of `run`.
  absl::Status Place(PackedTensor& tensor, const FormatRun& run) {
    const auto bytes_of = [&](uint64_t rows) { return ShardBytes(tensor, run.dtype, rows); };
    if (bytes_of(run.num_rows) <= limit_) {
      tensor.shards.push_back(Take(run, run.first_row, run.num_rows, bytes_of(run.num_rows)));
      return absl::OkStatus();
    }
    // The largest number of tiles a region holds: planes only pad, so a bound per tile is close.
    uint64_t rows = std::min(limit_ / bytes_of(kTileRows) * kTileRows, run.num_rows);
    while (rows > 0 && bytes_of(rows) > limit_) rows -= std::min<uint64_t>(rows, kTileRows);
    uint64_t step = 256;
    while (step > rows && step > kTileRows) step /= 2;
    if (step > rows) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%s: %d rows need %d bytes, the region limit is %d; raise --max-region-bytes",
          tensor.Name(), std::min<uint64_t>(kTileRows, run.num_rows), bytes_of(1), limit_));
    }
    rows -= rows % step;
    for (uint64_t done = 0; done < run.num_rows; done += rows) {
      const uint64_t count = std::min(rows, run.num_rows - done);
      tensor.shards.push_back(Take(run, run.first_row + done, count, bytes_of(count)));
    }
    return absl::OkStatus();
  }

  std::vector<uint64_t> Finish() {
    std::vector<uint64_t> sizes;
    for (const uint64_t used : used_) sizes.push_back(RoundRegion(used));
    return sizes;
  }

 private:
  Shard Take(const FormatRun& run, uint64_t first_row, uint64_t num_rows, uint64_t bytes) {
    const uint64_t offset = used_.empty() ? 0 : AlignUp(used_.back(), kShardAlignment);
    if (used_.empty() || std::exchange(begin_region_, false) || offset > limit_ ||
        bytes > limit_ - offset) {
      used_.push_back(bytes);
      return {first_row, num_rows, static_cast<uint32_t>(used_.size() - 1), 0, run.dtype};
    }
    used_.back() = offset + bytes;
    return {first_row, num_rows, static_cast<uint32_t>(used_.size() - 1), offset, run.dtype};
  }

  const uint64_t limit_;
  bool begin_region_ = false;
  std::vector<uint64_t> used_;
};

// Roles in the order in which a step reads them.
constexpr WeightRole kLayerOrder[] = {
    WeightRole::kInputNorm,   WeightRole::kQkv,    WeightRole::kQNorm,
    WeightRole::kKNorm,       WeightRole::kOut,    WeightRole::kPostAttentionNorm,
    WeightRole::kPreFfnNorm,  WeightRole::kGateUp, WeightRole::kDown,
    WeightRole::kPostFfnNorm,
};

}  // namespace

absl::StatusOr<PackingPlan> PlanPacking(const std::vector<SourceTensor>& sources,
                                        const ModelConfig& config, uint64_t max_region_bytes) {
  TANDEM_RETURN_IF_ERROR(config.Validate());
  TANDEM_ASSIGN_OR_RETURN(const SourceIndex index, IndexSources(sources));
  // Rounding regions up must not lift them over the limit.
  const uint64_t limit = max_region_bytes < kHugePageBytes
                             ? max_region_bytes / kPageBytes * kPageBytes
                             : max_region_bytes / kHugePageBytes * kHugePageBytes;
  RegionLayout layout(limit);
  PackingPlan plan;
  const auto add = [&](WeightRole role, uint32_t layer_idx) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(PlannedTensor planned,
                            PlanTensor(role, layer_idx, sources, index, config));
    for (const FormatRun& run : FormatsOf(planned, sources)) {
      TANDEM_RETURN_IF_ERROR(layout.Place(planned.tensor, run));
    }
    for (const PackedPart& part : planned.parts)
      plan.source_bytes += sources[part.source].num_bytes;
    plan.tensors.push_back(std::move(planned));
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(add(WeightRole::kEmbedding, 0));
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const WeightRole role : kLayerOrder) TANDEM_RETURN_IF_ERROR(add(role, layer));
  }
  TANDEM_RETURN_IF_ERROR(add(WeightRole::kFinalNorm, 0));
  if (index.contains({WeightRole::kHead, 0, SourcePart::kWhole})) {
    TANDEM_RETURN_IF_ERROR(add(WeightRole::kHead, 0));
  }
  layout.BeginRegion();
  for (const VisionRole role : AllVisionRoles()) {
    const WeightRole vision = ToWeightRole(role);
    for (uint32_t layer = 0; layer < LayersWith(vision, config); ++layer) {
      TANDEM_RETURN_IF_ERROR(add(vision, layer));
    }
  }
  plan.region_bytes = layout.Finish();
  for (const uint64_t bytes : plan.region_bytes) plan.packed_bytes += bytes;
  return plan;
}

}  // namespace tandem::loader

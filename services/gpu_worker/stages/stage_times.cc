#include "services/gpu_worker/stages/stage_times.h"

#include <algorithm>
#include <iterator>

#include "services/common/worker/stage_work.h"

namespace tandem::gpu {
namespace {

constexpr double kSlowestOperations = 0.1e12;  // a second
constexpr double kSlowestBytes = 5e9;

}  // namespace

double SecondsAt(const SecondsByRows& measured, uint32_t rows) {
  const auto above = measured.lower_bound(rows);
  if (above == measured.end()) {
    const auto& [last_rows, seconds] = *measured.rbegin();
    return seconds * rows / last_rows;
  }
  if (above == measured.begin() || above->first == rows) return above->second;
  const auto& [low_rows, low] = *std::prev(above);
  const auto& [high_rows, high] = *above;
  return low + (high - low) * (rows - low_rows) / (high_rows - low_rows);
}

double StageTimes::Of(uint32_t ordinal, uint32_t rows) const {
  const SecondsByRows& measured = of_stage_[ordinal];
  return measured.empty() ? 0 : SecondsAt(measured, rows);
}

std::optional<StageTimes::LongStage> StageTimes::FindLongStage(
    std::span<const uint32_t> row_buckets, uint32_t head_tile) const {
  uint32_t fitting = 0;
  for (const uint32_t bucket : row_buckets) {
    LongStage longest;
    for (uint32_t ordinal = 0; ordinal < of_stage_.size(); ++ordinal) {
      const bool is_head = ordinal + 1 == of_stage_.size();
      const uint32_t rows = is_head ? std::min(bucket, head_tile) : bucket;
      const double seconds = Of(ordinal, rows);
      if (seconds > longest.seconds) longest = {ordinal, rows, seconds, fitting};
    }
    if (longest.seconds > longest_) return longest;
    fitting = bucket;
  }
  return std::nullopt;
}

std::vector<uint32_t> CutsOf(std::span<const double> seconds, double budget) {
  std::vector<uint32_t> cuts;
  double part = 0;
  for (uint32_t i = 0; i < seconds.size(); ++i) {
    if (i > 0 && part + seconds[i] > budget) {
      cuts.push_back(i);
      part = 0;
    }
    part += seconds[i];
  }
  return cuts;
}

bool MayTakeLonger(double seconds, const Segment& segment, const WeightSet& weights,
                   const StepLimits& limits, uint64_t kv_bytes) {
  const uint32_t depth = limits.context_len - std::min(limits.context_len, limits.max_rows);
  const std::vector<RowEntry> rows(limits.max_rows, {.position = depth});
  const std::vector<OutputEntry> outputs(limits.max_outputs);
  const SequenceEntry sequence = {.num_rows = limits.max_rows};
  const SegmentWork work = SegmentCosts(segment, weights, limits.kv_dtype)
                               .Of({.rows = rows, .sequences = {&sequence, 1}, .outputs = outputs});
  double operations = 0, bytes = static_cast<double>(kv_bytes);
  for (const StageWork& stage : work) {
    operations += static_cast<double>(stage.operations);
    bytes += static_cast<double>(stage.bytes);
  }
  return operations / kSlowestOperations + bytes / kSlowestBytes > seconds;
}

}  // namespace tandem::gpu

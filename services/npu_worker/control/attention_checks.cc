#include "services/npu_worker/control/attention_checks.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kMaxPositions = 1u << 30;

absl::Status WrongAttention(const std::string& what) {
  return absl::InvalidArgumentError("attention: " + what);
}

absl::Status CheckExtents(const AttentionJob& job, const AttentionRun& run) {
  const uint32_t first_seen = FirstSeen(job, run, run.first_position);
  const uint32_t end = run.first_position + run.num_rows;
  if (run.extents.empty() || run.extents.front().first_position > first_seen) {
    return WrongAttention(absl::StrFormat("position %d lies in no extent", first_seen));
  }
  uint32_t next = run.extents.front().first_position;
  for (const CacheExtent& extent : run.extents) {
    const uint32_t slots = job.cache_slots - kZeroSlots;
    if (extent.first_position != next || extent.num_positions == 0 ||
        extent.num_positions > slots || extent.first_slot > slots - extent.num_positions) {
      return WrongAttention(absl::StrFormat(
          "an extent of %d positions from %d on in slot %d; the one before ends at %d, and the "
          "cache "
          "has %d slots",
          extent.num_positions, extent.first_position, extent.first_slot, next, slots));
    }
    next += extent.num_positions;
  }
  if (next < end) return WrongAttention(absl::StrFormat("position %d lies in no extent", next));
  return absl::OkStatus();
}

}  // namespace

uint32_t FirstSeen(const AttentionJob& job, const AttentionRun& run, uint32_t position) {
  const uint32_t first = job.window == 0 || position < job.window ? 0 : position + 1 - job.window;
  return std::min(first, run.picture_first);
}

absl::Status CheckAttentionJob(const AttentionJob& job) {
  if (job.head_dim != 64 && job.head_dim != 128 && job.head_dim != 256) {
    return WrongAttention(absl::StrFormat("heads of %d, cores have 64, 128 and 256", job.head_dim));
  }
  if (job.num_kv_heads == 0 || job.num_heads == 0 || job.num_heads % job.num_kv_heads != 0 ||
      job.num_heads > 1024) {
    return WrongAttention(
        absl::StrFormat("%d heads over %d kv heads", job.num_heads, job.num_kv_heads));
  }
  if (job.window > kMaxPositions || job.cache_slots < kZeroSlots) {
    return WrongAttention(
        absl::StrFormat("window %d, a cache of %d slots", job.window, job.cache_slots));
  }
  const uint64_t cache_bytes =
      uint64_t{job.head_dim} * kCacheElementBytes * job.num_kv_heads * job.cache_slots;
  if (cache_bytes > ~0u - std::max(job.keys.offset, job.values.offset)) {
    return WrongAttention(absl::StrFormat("a cache of %d bytes: more than 4 GiB", cache_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckAttentionRun(const AttentionJob& job, const AttentionRun& run) {
  if (run.num_rows == 0 || run.num_rows > kMaxPositions || run.first_row > kMaxPositions ||
      run.first_position > kMaxPositions) {
    return WrongAttention(absl::StrFormat("%d rows from row %d, position %d on, window %d",
                                          run.num_rows, run.first_row, run.first_position,
                                          job.window));
  }
  const uint64_t rows = uint64_t{run.first_row} + run.num_rows + kAttentionColumnQueries;
  const uint64_t row_bytes = uint64_t{job.head_dim} * kCacheElementBytes * job.num_heads * rows;
  if (row_bytes > ~0u - std::max(job.queries.offset, job.output.offset)) {
    return WrongAttention(absl::StrFormat("rows of %d bytes: more than 4 GiB", row_bytes));
  }
  return CheckExtents(job, run);
}

}  // namespace tandem::npu

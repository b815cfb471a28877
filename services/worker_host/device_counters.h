// Totals of a worker's segments since it started.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "services/common/worker/stage_work.h"
#include "services/common/worker/worker.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

// google.rpc.Code has so many.
inline constexpr int kNumStatusCodes = 17;

// Thread-safe; counters are read one after another, not as one snapshot.
class DeviceCounters {
 public:
  // Counts a segment that succeeded, of a step of `num_rows`.
  void Count(const SegmentResult& result, uint32_t num_rows, const SegmentWork& work);
  void CountFailedSegment(const absl::Status& status);
  void CountError(const absl::Status& status);
  // Segments, rows, busy time and work by stage kind, errors by code.
  void Fill(worker::v1::GetStatusResponse& status) const;

 private:
  std::atomic<uint64_t> segments_run_{0};
  std::atomic<uint64_t> segments_failed_{0};
  std::atomic<uint64_t> rows_run_{0};
  std::atomic<uint64_t> busy_ns_[kNumStageKinds] = {};
  std::atomic<uint64_t> work_bytes_[kNumStageKinds] = {};
  std::atomic<uint64_t> work_operations_[kNumStageKinds] = {};
  std::atomic<uint64_t> errors_[kNumStatusCodes] = {};
};

}  // namespace tandem

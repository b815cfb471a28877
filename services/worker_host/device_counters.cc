#include "services/worker_host/device_counters.h"

#include <algorithm>

#include "services/common/rpc/worker_convert.h"

namespace tandem {
namespace {

void Add(std::atomic<uint64_t>& counter, uint64_t amount) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

uint64_t Read(const std::atomic<uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

void DeviceCounters::Count(const SegmentResult& result, uint32_t num_rows,
                           const SegmentWork& work) {
  Add(segments_run_, 1);
  Add(rows_run_, num_rows);
  for (int kind = 0; kind < kNumStageKinds; ++kind) {
    if (work[kind].bytes == 0) continue;
    Add(work_bytes_[kind], work[kind].bytes);
    Add(work_operations_[kind], work[kind].operations);
  }
  for (const StageTime& time : result.stage_times) {
    Add(busy_ns_[static_cast<int>(time.kind)], time.device_ns);
  }
}

void DeviceCounters::CountFailedSegment(const absl::Status& status) {
  Add(segments_failed_, 1);
  CountError(status);
}

void DeviceCounters::CountError(const absl::Status& status) {
  Add(errors_[std::clamp(static_cast<int>(status.code()), 0, kNumStatusCodes - 1)], 1);
}

void DeviceCounters::Fill(worker::v1::GetStatusResponse& status) const {
  status.set_segments_run(Read(segments_run_));
  status.set_segments_failed(Read(segments_failed_));
  status.set_rows_run(Read(rows_run_));
  for (int k = 0; k < kNumStageKinds; ++k) {
    const auto kind = ToProto(static_cast<StageKind>(k));
    if (const uint64_t busy_ns = Read(busy_ns_[k]); busy_ns > 0) {
      worker::v1::StageTime* time = status.add_busy();
      time->set_kind(kind);
      time->set_device_ns(busy_ns);
    }
    if (const uint64_t bytes = Read(work_bytes_[k]); bytes > 0) {
      worker::v1::StageWork* work = status.add_work();
      work->set_kind(kind);
      work->set_bytes(bytes);
      work->set_operations(Read(work_operations_[k]));
    }
  }
  for (int code = 1; code < kNumStatusCodes; ++code) {
    worker::v1::CodeCount* errors = status.add_errors();
    errors->set_code(code);
    errors->set_count(Read(errors_[code]));
  }
}

}  // namespace tandem

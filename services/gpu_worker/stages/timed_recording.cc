#include "services/gpu_worker/stages/timed_recording.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/gpu_worker/vulkan/query_pool.h"

namespace tandem::gpu {
namespace {

constexpr absl::Duration kTimedRunTimeout = absl::Minutes(2);

}  // namespace

absl::StatusOr<RecordedTime> TimeRecording(
    const vulkan::Device& device, const RecordingContext& context, vulkan::Timeline& timeline,
    const TimedRuns& runs, absl::FunctionRef<absl::Status(vulkan::Recorder&)> record) {
  TANDEM_ASSIGN_OR_RETURN(const auto pool, vulkan::CommandPool::Create(device));
  TANDEM_ASSIGN_OR_RETURN(const auto timestamps, vulkan::TimestampPool::Create(device, 2));
  TANDEM_ASSIGN_OR_RETURN(auto recorder, vulkan::Recorder::Begin(pool, context.kernels->layout()));
  context.phases->Clear();
  recorder.ResetTimestamps(timestamps.handle(), 0, 2);
  recorder.WriteTimestamp(timestamps.handle(), 0);
  TANDEM_RETURN_IF_ERROR(record(recorder));
  recorder.WriteTimestamp(timestamps.handle(), 1);
  recorder.HostBarrier();
  TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
  TANDEM_RETURN_IF_ERROR(context.phases->Begin(pool, context.kernels->layout(), timeline));
  RecordedTime time;
  absl::Duration measured;
  for (int run = 0; run <= runs.least || (measured < runs.run_for && run <= runs.most); ++run) {
    const absl::Time start = absl::Now();
    TANDEM_RETURN_IF_ERROR(timeline.SubmitAndWait({&commands, 1}, kTimedRunTimeout));
    TANDEM_RETURN_IF_ERROR(context.phases->Check(*context.kernels));
    double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    uint64_t ticks[2];
    TANDEM_RETURN_IF_ERROR(timestamps.Read(0, ticks));
    if (const uint64_t ns = timestamps.Nanoseconds(ticks[0], ticks[1]); ns > 0) {
      seconds = 1e-9 * static_cast<double>(ns);
    }
    time.spent += absl::Seconds(seconds);
    if (run == 0) continue;
    measured += absl::Seconds(seconds);
    time.seconds = run == 1 ? seconds : std::min(time.seconds, seconds);
  }
  return time;
}

}  // namespace tandem::gpu

// The calls of DeviceHost: submitted in the order in which they come, run plan by plan in turns.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/worker_convert.h"
#include "services/worker_host/device_host.h"

namespace tandem {

uint64_t DeviceHost::Submit(const worker::v1::ExecuteRequest& request) {
  until_next_call_.WaitEnds(AdaptivePolling::Clock::now());
  Call call{.number = ++num_calls_,
            .step_id = request.step_id(),
            .segment_index = request.segment_index(),
            .lane = request.lane(),
            .epoch = request.epoch()};
  if (request.has_kv_copy()) {
    call.result = CopyKv(request, call);
  } else if (const absl::Status submitted = SubmitSegment(request, call); !submitted.ok()) {
    call.result = submitted;
  }
  calls_.push_back(std::move(call));
  until_next_call_.WaitBegins(AdaptivePolling::Clock::now());
  return num_calls_;
}

absl::Status DeviceHost::SubmitSegment(const worker::v1::ExecuteRequest& request, Call& call) {
  const HostedPlan* const hosted = plans_.Find(request.epoch());
  if (hosted == nullptr) return plans_.UnknownEpoch("call", request.epoch());
  LoadedPlan& plan = *hosted->plan;
  call.plan = hosted->number;
  // A lane holds one step at a time.
  const auto in_lane = std::find_if(calls_.rbegin(), calls_.rend(), [&](const Call& earlier) {
    return !earlier.result.has_value() && earlier.plan == call.plan &&
           earlier.lane == request.lane();
  });
  if (in_lane != calls_.rend()) EndCallsOf(call.plan, in_lane->number);
  if (!device_.ok()) return device_;
  const absl::StatusOr<SegmentRun> run = plan.Prepare(request);
  const absl::Status submitted =
      run.ok() ? Watched([&] { return worker_->Submit(*run); }) : run.status();
  if (submitted.ok()) {
    // While the device works.
    call.header = run->step->header;
    call.work = hosted->costs[request.segment_index()].Of(*run->step);
    call.awaits_masks = run->masks_follow;
    return absl::OkStatus();
  }
  if (run.ok() && absl::IsUnavailable(submitted)) DeviceLost(submitted);
  if (request.lane() < plan.num_lanes()) plan.ForgetStep(request.lane());
  return submitted;
}

absl::StatusOr<SegmentResult> DeviceHost::CopyKv(const worker::v1::ExecuteRequest& request,
                                                 Call& call) {
  call.copied.emplace();
  const HostedPlan* const hosted = plans_.Find(request.epoch());
  if (hosted == nullptr) return plans_.UnknownEpoch("copy", request.epoch());
  call.plan = hosted->number;
  EndCallsOf(call.plan, call.number);
  if (!device_.ok()) return device_;
  TANDEM_ASSIGN_OR_RETURN(const KvCopy copy, hosted->plan->PrepareCopy(request));
  const int64_t start_ns = NowNanos();
  const absl::Status copied = Watched([&] { return worker_->CopyKv(call.plan, copy); });
  if (absl::IsUnavailable(copied)) DeviceLost(copied);
  TANDEM_RETURN_IF_ERROR(copied);
  if (hosted->plan->inline_activations() && !copy.write) {
    hosted->plan->PutCopied(copy, *call.copied);
  }
  return SegmentResult{.device_ns = static_cast<uint64_t>(NowNanos() - start_ns)};
}

void DeviceHost::EndCallsOf(uint32_t plan, uint64_t last) {
  for (Call& earlier : calls_) {
    if (earlier.number <= last && earlier.plan == plan && !earlier.result) End(earlier);
  }
}

void DeviceHost::MasksReady(uint64_t number) {
  const auto call = std::ranges::find(calls_, number, &Call::number);
  if (call != calls_.end()) ReleaseMasks(*call);
}

bool DeviceHost::awaits_masks() const { return std::ranges::any_of(calls_, &Call::awaits_masks); }

void DeviceHost::ReleaseMasks(Call& call) {
  if (!std::exchange(call.awaits_masks, false)) return;
  Watched([&] {
    worker_->MasksReady(call.plan);
    return absl::OkStatus();
  }).IgnoreError();  // an error is Wait's
}

void DeviceHost::Want(uint64_t number, CallWaiter* waiter) {
  for (Call& call : calls_) {
    if (call.number == number) call.waiter = waiter;
  }
}

bool DeviceHost::busy() const {
  return std::ranges::any_of(calls_, [this](const Call& call) {
    return call.waiter != nullptr || (!call.result.has_value() && worker_->HoldsBack(call.plan));
  });
}

DeviceHost::Call* DeviceHost::NextCall() {
  Call* next = nullptr;
  for (const Call& call : calls_) {
    if (call.result.has_value()) continue;
    if (call.waiter == nullptr && !worker_->HoldsBack(call.plan)) continue;
    if (next != nullptr && last_turn_[call.plan] >= last_turn_[next->plan]) continue;
    next = &*std::ranges::find_if(calls_, [&call](const Call& oldest) {
      return oldest.plan == call.plan && !oldest.result.has_value();
    });
  }
  return next;
}

void DeviceHost::Turn() {
  if (Call* const next = NextCall(); next != nullptr) {
    last_turn_[next->plan] = ++num_plan_turns_;
    bool ends = true;
    if (shared()) {
      const auto advanced = Watched([&] { return worker_->Advance(next->plan); });
      ends = !advanced.ok() || *advanced;  // Wait returns the error
    }
    if (ends) End(*next);
  }
  TellWaiters();
}

void DeviceHost::TellWaiters() {
  // A waiter takes its answers, which removes calls.
  while (true) {
    const auto call = std::ranges::find_if(calls_, [](const Call& candidate) {
      return candidate.waiter != nullptr && candidate.result.has_value();
    });
    if (call == calls_.end()) return;
    std::exchange(call->waiter, nullptr)->CallsEnded();
  }
}

void DeviceHost::End(Call& call) {
  const bool unmasked = call.awaits_masks;
  ReleaseMasks(call);
  call.result = Watched([&] { return worker_->Wait(call.plan); });
  if (call.result->ok() && unmasked) {
    call.result = absl::AbortedError("the call had to end before its masks were there");
  }
  if (call.result->ok()) {
    counters_.Count(**call.result, call.header.num_rows, call.work);
  } else {
    if (absl::IsUnavailable(call.result->status())) DeviceLost(call.result->status());
    if (const HostedPlan* plan = plans_.Find(call.epoch)) plan->plan->ForgetStep(call.lane);
  }
  until_next_call_.WaitBegins(AdaptivePolling::Clock::now());
}

void DeviceHost::SettleAll() {
  for (Call& call : calls_) {
    if (!call.result.has_value()) End(call);
  }
}

bool DeviceHost::Ended(uint64_t number) const {
  return std::ranges::any_of(calls_, [number](const Call& call) {
    return call.number == number && call.result.has_value();
  });
}

void DeviceHost::Answer(uint64_t number, worker::v1::ExecuteResponse& response) {
  const auto call = std::ranges::find(calls_, number, &Call::number);
  response.Clear();
  response.set_epoch(call->epoch);
  response.set_step_id(call->step_id);
  response.set_segment_index(call->segment_index);
  absl::StatusOr<SegmentResult> result = *std::move(call->result);
  const HostedPlan* const plan = plans_.Find(call->epoch);
  if (result.ok() && plan == nullptr) {
    result = absl::AbortedError("the plan has been replaced while the call was under way");
  }
  if (result.ok() && call->copied.has_value()) {
    response.mutable_outputs()->Swap(&*call->copied);
  } else if (result.ok()) {
    plan->plan->PutOutputs(call->segment_index, call->lane, call->header, response);
  }
  calls_.erase(call);
  if (!result.ok()) {
    counters_.CountFailedSegment(result.status());
    response.set_code(static_cast<int32_t>(result.status().code()));
    response.set_message(std::string(result.status().message()));
    return;
  }
  response.set_device_ns(result->device_ns);
  if (power_) response.set_device_watts(power_());
  for (const StageTime& time : result->stage_times) {
    worker::v1::StageTime* proto = response.add_stage_times();
    proto->set_kind(ToProto(time.kind));
    proto->set_device_ns(time.device_ns);
  }
}

void DeviceHost::Wait(uint64_t number, worker::v1::ExecuteResponse& response) {
  for (Call& call : calls_) {
    if (call.number <= number && !call.result.has_value()) End(call);
  }
  Answer(number, response);
}

}  // namespace tandem

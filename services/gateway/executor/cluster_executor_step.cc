// ClusterExecutor: the steps under way, from their submission to their results.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/convert.h"
#include "services/common/rpc/inline_exchange.h"
#include "services/common/rpc/worker_convert.h"
#include "services/gateway/executor/cluster_executor.h"
#include "services/gateway/executor/placement_moved.h"
#include "services/gateway/executor/placement_trial.h"
#include "services/gateway/executor/prompts_apart.h"
#include "services/gateway/executor/step_power.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kPublishPause = absl::Seconds(1);

SegmentTiming TimingOf(const Segment& segment, absl::Time sent, absl::Time answered,
                       absl::Duration round_trip, const worker::v1::ExecuteResponse& response) {
  SegmentTiming timing{.segment_index = segment.index,
                       .sent = sent,
                       .answered = answered,
                       .round_trip = round_trip,
                       .worker_ns = response.worker_ns(),
                       .device_ns = response.device_ns(),
                       .device_watts = PlausibleWatts(response.device_watts())};
  for (const worker::v1::StageTime& time : response.stage_times()) {
    const int kind = time.kind() - ToProto(StageKind{});
    if (kind >= 0 && kind < kNumStageKinds) timing.stage_ns[kind] += time.device_ns();
  }
  return timing;
}

}  // namespace

uint32_t ClusterExecutor::prompt_depth() const {
  return feeds_ ? depth_ : std::min(depth_, static_cast<uint32_t>(plan_.workers.size()));
}

uint32_t ClusterExecutor::DecodeRows(uint32_t decoding) const {
  if (depth_ == 1 || feeds_) return decoding;
  const uint32_t lanes = std::min(depth_, placer_.LanesFor(decoding));
  return (decoding + lanes - 1) / lanes;
}

void ClusterExecutor::WaitUntilDue() {
  if (!feeds_ || under_way_.size() != 1 || !lost_.ok()) return;
  const Step& step = under_way_.front();
  // The answer to a step that none follows may come at any time.
  if (!step.status.ok() || !step.call.another_follows) return;
  timer_.WaitUntilDue(StepSize::Of(headers_[step.call.lane]),
                      std::max(step.steady, last_answer_.front()));
}

void ClusterExecutor::Submit(StepCall call) {
  const uint32_t lane = call.lane;
  TANDEM_CHECK(lane < num_lanes_ && under_way_.size() < depth_);
  const bool alone = under_way_.empty();
  if (!alone) under_way_.back().joined = true;
  Step& step =
      under_way_.emplace_back(Step{.call = std::move(call), .status = lost_, .alone = alone});
  if (!step.status.ok()) return;
  const auto header = HeaderOf(*exchange_, lane, limits_);
  if (!header.ok()) {
    step.status = header.status();
    return;
  }
  headers_[lane] = *header;
  step.timings.reserve(plan_.segments.size());
  step.status = SendSegment(plan_.segments.front(), step);
  timer_.Sent();
}

void ClusterExecutor::MasksReady() {
  TANDEM_CHECK(under_way_.size() == 1);
  Step& step = under_way_.front();
  if (!lost_.ok() || !step.status.ok()) return;
  const absl::Status sent = workers_[0]->client->MasksReady(DeadlineOf(0));
  if (!sent.ok()) step.status = CallFailed(plan_.segments[0], sent);
}

absl::StatusOr<std::vector<SegmentTiming>> ClusterExecutor::Wait() {
  TANDEM_CHECK(!under_way_.empty());
  Step& oldest = under_way_.front();
  // The worker keeps an answer until the next call, if one was announced.
  const bool kept = feeds_ && oldest.call.another_follows;
  const bool fed = under_way_.size() > 1 && under_way_[1].status.ok();
  if (kept && lost_.ok() && oldest.status.ok() && !fed) {
    const absl::Status flushed = workers_[0]->client->Flush(DeadlineOf(0));
    if (!flushed.ok()) oldest.status = CallFailed(plan_.segments[0], flushed);
  }
  while (lost_.ok() && GoesOn(oldest)) TakeNext(NextToAnswer());
  Step step = std::move(oldest);
  under_way_.pop_front();
  TANDEM_RETURN_IF_ERROR(lost_);
  TANDEM_RETURN_IF_ERROR(step.status);
  if (feeds_) LearnPace(step, step.timings.front());
  NotePlacement(step, step.timings);
  return std::move(step.timings);
}

uint32_t ClusterExecutor::NextToAnswer() const {
  uint32_t next = 0;
  auto earliest = std::chrono::steady_clock::time_point::max();
  for (uint32_t worker = 0; worker < unanswered_.size(); ++worker) {
    if (unanswered_[worker].empty()) continue;
    const auto start = std::max(unanswered_[worker].front()->steady, last_answer_[worker]);
    if (start < earliest) {
      earliest = start;
      next = worker;
    }
  }
  return next;
}

void ClusterExecutor::TakeNext(uint32_t worker) {
  TANDEM_CHECK(!unanswered_[worker].empty());
  Step& step = *unanswered_[worker].front();
  unanswered_[worker].pop_front();
  auto timing = AwaitSegment(plan_.segments[step.timings.size()], step);
  if (!timing.ok()) {
    step.status = timing.status();
    return;
  }
  if (!placer_.untried()) status_.Count(*timing);
  step.timings.push_back(*timing);
  if (GoesOn(step)) step.status = SendSegment(plan_.segments[step.timings.size()], step);
}

void ClusterExecutor::LearnPace(const Step& step, const SegmentTiming& timing) {
  using std::chrono::nanoseconds;
  StepPacer& pacer = timer_.pacer();
  pacer.StepRan(StepSize::Of(headers_[step.call.lane]), nanoseconds(timing.device_ns));
  if (!step.alone) return;
  pacer.CallTook(nanoseconds(absl::ToInt64Nanoseconds(timing.round_trip)) -
                 nanoseconds(timing.worker_ns));
}

void ClusterExecutor::NotePlacement(const Step& step, std::span<const SegmentTiming> timings) {
  const bool weighs = placer_.choosing() && !placer_.untried();
  if (!weighs && options_.step_log == nullptr) return;
  const auto batch = ParseStep(StepArea(step.call.lane), limits_, noted_);
  if (!batch.ok()) return;  // its worker has written to it since
  const absl::Time now = absl::Now();
  // Steps that feed each other run one after the other.
  const bool overlaps = !feeds_ && (!step.alone || step.joined);
  if (options_.step_log != nullptr) {
    const std::optional<StepShape> shape = ShapeOf(*batch, true);
    if (shape.has_value() && !shape->decodes) {
      options_.step_log->Add({*shape, SecondsOf(plan_, timings)});
    }
  }
  if (!weighs) return;
  const std::optional<Placer::Move> move = placer_.StepRan(*batch, overlaps, timings, now);
  if (now - published_ >= kPublishPause || move.has_value()) PublishPlacements(now);
  if (!move.has_value()) return;
  if (move->loads) {
    lost_ = PlacementMovedError(move->why);
    UsePromptsApart(false);
  } else {
    LogInfo("the placement changes", {{"reason", move->why}});
    UsePromptsApart(placer_.prompts_apart());
  }
}

void ClusterExecutor::UsePromptsApart(bool apart) {
  if (options_.prompts_apart != nullptr) options_.prompts_apart->use(apart);
}

void ClusterExecutor::PublishPlacements(absl::Time now) {
  published_ = now;
  status_.SetPlacements(placer_.Status(now), placer_.moves());
}

const worker::v1::ExecuteRequest& ClusterExecutor::Request(const Segment& segment,
                                                           const StepCall& call) {
  request_.Clear();
  request_.set_epoch(epoch_);
  request_.set_step_id(call.step_id);
  request_.set_segment_index(segment.index);
  request_.set_lane(call.lane);
  request_.set_another_follows(feeds_ && call.another_follows);
  request_.set_masks_follow(call.masks_follow);
  if (call.trace.step.trace_id.valid()) {
    request_.set_traceparent(FormatTraceParent(call.trace.Call(segment.index)));
    request_.set_tracestate(call.trace.state);
  }
  if (workers_[segment.worker]->client->remote()) {
    const auto first =
        std::find_if(plan_.segments.begin(), plan_.segments.end(),
                     [&segment](const Segment& other) { return other.worker == segment.worker; });
    PutInputs(*exchange_, call.lane, segment, headers_[call.lane], first->index == segment.index,
              EndsWithHead(segment, config().num_layers), *request_.mutable_inputs());
  }
  return request_;
}

absl::Status ClusterExecutor::TakeAnswer(const Segment& segment, uint32_t lane,
                                         const worker::v1::ExecuteResponse& response) {
  const StepHeader& header = headers_[lane];
  const bool head = EndsWithHead(segment, config().num_layers);
  absl::Status taken;
  if (workers_[segment.worker]->client->remote()) {
    taken = TakeOutputs(response.outputs(), *exchange_, lane, segment, header, head);
  }
  if (taken.ok() && head) taken = results_.Take(*exchange_, lane, header, feeds_);
  if (taken.ok()) return taken;
  return absl::UnavailableError(
      absl::StrFormat("its answer makes no sense: %s", std::string(taken.message())));
}

absl::Status ClusterExecutor::SendSegment(const Segment& segment, Step& step) {
  step.time = absl::Now();
  step.steady = std::chrono::steady_clock::now();
  absl::Status sent = workers_[segment.worker]->client->Submit(Request(segment, step.call),
                                                               DeadlineOf(segment.worker));
  if (!sent.ok()) return CallFailed(segment, sent);
  unanswered_[segment.worker].push_back(&step);
  return sent;
}

absl::StatusOr<SegmentTiming> ClusterExecutor::AwaitSegment(const Segment& segment,
                                                            const Step& step) {
  const auto response = workers_[segment.worker]->client->Wait(DeadlineOf(segment.worker));
  // A step that was sent behind another has the worker to itself from that one's answer on.
  auto& last_answer = last_answer_[segment.worker];
  const auto start = std::max(step.steady, last_answer);
  last_answer = std::chrono::steady_clock::now();
  if (!response.ok()) return CallFailed(segment, response.status());
  const absl::Status taken = TakeAnswer(segment, step.call.lane, **response);
  if (!taken.ok()) return CallFailed(segment, taken);
  return TimingOf(segment, step.time, step.time + absl::FromChrono(last_answer - step.steady),
                  absl::FromChrono(last_answer - start), **response);
}

absl::Status ClusterExecutor::CallFailed(const Segment& segment, const absl::Status& status) {
  std::string reason = std::string(status.message());
  absl::StatusCode code = status.code();
  // ABORTED: the worker holds another plan or none, so that its KV cache is not this one's.
  if (code == absl::StatusCode::kAborted) code = absl::StatusCode::kUnavailable;
  if (code != absl::StatusCode::kUnavailable && code != absl::StatusCode::kDataLoss) {
    // A call that the worker refuses is no mistake of the client whose request is in the step.
    reason = absl::StrFormat("%s: %s", absl::StatusCodeToString(code), reason);
    code = absl::StatusCode::kInternal;
  }
  absl::Status failed(code, absl::StrFormat("segment %d, %s on %s: %s", segment.index,
                                            DescribeSegment(segment, config().num_layers),
                                            plan_.workers[segment.worker].name, reason));
  if (absl::IsUnavailable(failed)) Lose(segment.worker, failed);
  return failed;
}

const OutputResult& ClusterExecutor::Output(uint32_t lane, uint32_t o) const {
  TANDEM_CHECK(lane < num_lanes_ && o < limits_.max_outputs);
  return results_.Output(lane, o);
}

uint32_t ClusterExecutor::Guess(uint32_t lane, uint32_t o) const {
  TANDEM_CHECK(lane < num_lanes_ && o < limits_.max_outputs);
  return results_.Guess(lane, o);
}

std::span<const float> ClusterExecutor::Logits(uint32_t lane, uint32_t o) const {
  TANDEM_CHECK(lane < num_lanes_ && o < limits_.max_logit_outputs);
  const ExchangeArea& logits = exchange_->layout.logits;
  const std::span<std::byte> row =
      exchange_->Area(lane, logits).subspan(o * logits.row_bytes, logits.row_bytes);
  return {reinterpret_cast<const float*>(row.data()), config().vocab_size};
}

std::span<const float> ClusterExecutor::Pooled(uint32_t lane, uint32_t p) const {
  TANDEM_CHECK(lane < num_lanes_ && p < limits_.max_sequences);
  const ExchangeArea& pooled = exchange_->layout.pooled;
  const std::span<std::byte> row =
      exchange_->Area(lane, pooled).subspan(p * pooled.row_bytes, pooled.row_bytes);
  return {reinterpret_cast<const float*>(row.data()), config().hidden_dim};
}

}  // namespace tandem::gateway

#include "services/common/rpc/worker_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/client_text.h"
#include "services/common/base/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/grpc_worker_transport.h"
#include "services/common/rpc/worker_convert.h"

namespace tandem {
namespace {

// What a worker says of itself in words goes to status pages and terminals.
worker::v1::LoadPlanReport Fit(worker::v1::LoadPlanReport report) {
  for (std::string* words : {report.mutable_weight_import(), report.mutable_exchange_import(),
                             report.mutable_tuning()}) {
    *words = FitMessage(*words);
  }
  return report;
}

constexpr char kGone[] = "is gone";

std::string NoAnswer(absl::Duration timeout) {
  return absl::StrFormat(
      "did not answer within %s; if it is only slow, lower --max-rows or raise --segment-deadline",
      absl::FormatDuration(timeout));
}

}  // namespace

void HopStatistics::Add(int64_t hop_ns) {
  const uint64_t count = count_.load(std::memory_order_relaxed);
  const int64_t bounded = std::clamp<int64_t>(hop_ns, 0, UINT32_MAX);
  hop_ns_[count % kWindow].store(static_cast<uint32_t>(bounded), std::memory_order_relaxed);
  count_.store(count + 1, std::memory_order_release);
}

HopStatistics::Quantiles HopStatistics::Read() const {
  const uint64_t count = std::min<uint64_t>(count_.load(std::memory_order_acquire), kWindow);
  if (count == 0) return {};
  std::vector<uint32_t> sorted(count);
  for (size_t i = 0; i < count; ++i) sorted[i] = hop_ns_[i].load(std::memory_order_relaxed);
  std::sort(sorted.begin(), sorted.end());
  return {sorted[(count - 1) / 2] * 1e-3, sorted[(count - 1) * 99 / 100] * 1e-3};
}

WorkerClient::WorkerClient(std::string target)
    : WorkerClient({.text = target, .address = target},
                   std::shared_ptr<grpc::ChannelCredentials>()) {}

WorkerClient::WorkerClient(WorkerTarget target,
                           std::shared_ptr<grpc::ChannelCredentials> credentials)
    : target_(std::move(target)),
      transport_(MakeGrpcWorkerTransport(target_, std::move(credentials))) {}

WorkerClient::WorkerClient(WorkerTarget target, std::unique_ptr<WorkerTransport> transport)
    : target_(std::move(target)), transport_(std::move(transport)) {}

WorkerClient::~WorkerClient() = default;

absl::StatusOr<RemoteWorker> WorkerClient::Describe(absl::Duration timeout) {
  TANDEM_ASSIGN_OR_RETURN(const worker::v1::DescribeResponse response,
                          transport_->Describe(timeout));
  RemoteWorker worker;
  TANDEM_ASSIGN_OR_RETURN(worker.description, DescriptionFromProto(response));
  worker.pid = response.pid();
  worker.highest_epoch = response.highest_epoch();
  for (const worker::v1::PlanMemory& plan : response.plans()) {
    worker.plans.push_back({plan.plan_id(), plan.bytes()});
  }
  worker.description.remote = remote();
  worker.execution_target = transport_->ExecutionTarget(response);
  return worker;
}

absl::StatusOr<worker::v1::LoadPlanReport> WorkerClient::LoadPlan(
    const worker::v1::LoadPlanRequest& request, const Progress& progress, absl::Duration timeout) {
  absl::StatusOr<worker::v1::LoadPlanReport> report =
      absl::InternalError(absl::StrFormat("worker at %s sent no report", target()));
  const auto on_message = [&](worker::v1::LoadPlanResponse message) {
    if (message.has_report()) {
      report = Fit(std::move(*message.mutable_report()));
    } else if (progress) {
      progress(message.progress().fraction(), FitMessage(message.progress().phase()));
    }
  };
  TANDEM_RETURN_IF_ERROR(transport_->LoadPlan(request, on_message, timeout));
  return report;
}

absl::Status WorkerClient::UnloadPlan(uint64_t epoch, const std::string& plan_token,
                                      absl::Duration timeout) {
  worker::v1::UnloadPlanRequest request;
  request.set_epoch(epoch);
  request.set_plan_token(plan_token);
  return transport_->UnloadPlan(request, timeout);
}

absl::StatusOr<worker::v1::GetStatusResponse> WorkerClient::GetStatus(absl::Duration timeout) {
  return transport_->GetStatus(timeout);
}

absl::StatusOr<worker::v1::MeasureCeilingsResponse> WorkerClient::MeasureCeilings(
    absl::Duration timeout) {
  return transport_->MeasureCeilings(timeout);
}

void WorkerClient::Open(const std::string& execution_target) {
  Close();
  stream_ = transport_->Open(execution_target);
}

void WorkerClient::Close() {
  stream_.reset();
  sent_.clear();
}

absl::Status WorkerClient::Lost(const std::string& why) {
  Close();
  return absl::UnavailableError(absl::StrFormat("worker at %s %s", target(), why));
}

absl::Status WorkerClient::Send(const worker::v1::ExecuteRequest& request, absl::Duration timeout) {
  if (stream_ == nullptr) {
    return absl::UnavailableError(absl::StrFormat("worker at %s: no stream is open", target()));
  }
  switch (stream_->Send(request, absl::Now() + timeout)) {
    case ExecutionStream::Outcome::kEnded:
      return Lost(kGone);
    case ExecutionStream::Outcome::kLate:
      return Lost(NoAnswer(timeout));
    case ExecutionStream::Outcome::kDone:
      break;
  }
  if (remote()) sent_bytes_.fetch_add(request.ByteSizeLong(), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status WorkerClient::Submit(const worker::v1::ExecuteRequest& request,
                                  absl::Duration timeout) {
  const int64_t start_ns = NowNanos();
  TANDEM_RETURN_IF_ERROR(Send(request, timeout));
  sent_.push_back({start_ns, request.epoch(), request.step_id(), request.segment_index()});
  return absl::OkStatus();
}

absl::Status WorkerClient::Flush(absl::Duration timeout) {
  worker::v1::ExecuteRequest flush;
  flush.set_flush(true);
  return Send(flush, timeout);
}

absl::Status WorkerClient::MasksReady(absl::Duration timeout) {
  worker::v1::ExecuteRequest ready;
  ready.set_masks_ready(true);
  return Send(ready, timeout);
}

absl::Status WorkerClient::AwaitAnswer(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const absl::Time until = remote() ? std::min(deadline, absl::Now() + kSilence) : deadline;
    const ExecutionStream::Outcome outcome = stream_->Receive(until);
    if (outcome == ExecutionStream::Outcome::kDone) return absl::OkStatus();
    if (outcome == ExecutionStream::Outcome::kEnded) return Lost(kGone);
    if (absl::Now() >= deadline) return Lost(NoAnswer(timeout));
    const auto status = GetStatus(std::min(kSilence, deadline - absl::Now()));
    if (absl::IsUnavailable(status.status())) {
      return Lost(absl::StrFormat("is silent and its host cannot be reached: %s",
                                  std::string(status.status().message())));
    }
  }
}

absl::StatusOr<const worker::v1::ExecuteResponse*> WorkerClient::Wait(absl::Duration timeout) {
  if (stream_ == nullptr) {
    return absl::UnavailableError(absl::StrFormat("worker at %s: no stream is open", target()));
  }
  TANDEM_CHECK(!sent_.empty());
  TANDEM_RETURN_IF_ERROR(AwaitAnswer(timeout));
  const worker::v1::ExecuteResponse& response = stream_->response();
  const Sent call = sent_.front();
  if (response.epoch() != call.epoch || response.step_id() != call.step_id ||
      response.segment_index() != call.segment_index) {
    return Lost(absl::StrFormat(
        "answered epoch %d, step %d, segment %d where epoch %d, step %d, segment %d was due",
        response.epoch(), response.step_id(), response.segment_index(), call.epoch, call.step_id,
        call.segment_index));
  }
  hops_.Add(NowNanos() - call.start_ns - static_cast<int64_t>(response.worker_ns()));
  sent_.pop_front();
  if (remote()) received_bytes_.fetch_add(response.ByteSizeLong(), std::memory_order_relaxed);
  if (response.code() != 0) {
    const bool known = response.code() > 0 && response.code() <= 16;
    return absl::Status(
        known ? static_cast<absl::StatusCode>(response.code()) : absl::StatusCode::kInternal,
        response.message());
  }
  return &response;
}

}  // namespace tandem

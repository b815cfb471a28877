#include "services/common/rpc/worker_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/client_text.h"
#include "services/common/base/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/adaptive_polling.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/execution_address.h"
#include "services/common/rpc/socket_trust.h"
#include "services/common/rpc/status.h"
#include "services/common/rpc/worker_convert.h"

namespace tandem {
namespace {

void SetTimeout(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

// A worker that is too slow is as lost as one that is gone.
absl::Status FromCall(const grpc::Status& status, const std::string& target) {
  if (status.ok()) return absl::OkStatus();
  absl::StatusCode code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kDeadlineExceeded || code == absl::StatusCode::kCancelled) {
    code = absl::StatusCode::kUnavailable;
  }
  return absl::Status(
      code, absl::StrFormat("worker at %s: %s", target, FitMessage(status.error_message())));
}

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
  return absl::StrFormat("did not answer within %s", absl::FormatDuration(timeout));
}

// gRPC's words for a connection that did not come about, and what they mean.
std::string ConnectionError(const std::string& message, bool tls) {
  struct Meaning {
    const char* words;
    bool tls;
    const char* meaning;
  };
  static constexpr char kRefused[] =
      "it may have refused this gateway's certificate: its log says why";
  static constexpr char kExpectsTls[] = "if it expects TLS, name it tls://";
  static constexpr Meaning kMeanings[] = {
      {"certificate verify failed", true,
       "its certificate is not signed by an authority of --tls-ca, or has expired, or has not "
       "begun"},
      {"Hostname Verification Check failed", true, "its certificate is for another name"},
      {"wrong version number", true, "does it speak TLS?"},
      {"Handshake read failed", true, "no answer to the handshake"},
      {"Socket closed", true, kRefused},
      {"Connection reset", true, kRefused},
      {"Socket closed", false, kExpectsTls},
      {"Connection reset", false, kExpectsTls}};
  for (const Meaning& known : kMeanings) {
    if (known.tls != tls || message.find(known.words) == std::string::npos) continue;
    return absl::StrFormat("%s (%s)", known.meaning, message);
  }
  return message;
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

// The engine thread waits on a completion queue of its own and thereby polls the connection
// itself: no other thread takes part in a call.
class WorkerClient::Stream {
 public:
  explicit Stream(worker::v1::Execution::Stub& stub) {
    context_.set_wait_for_ready(true);
    stream_ = stub.AsyncExecute(&context_, &queue_, &started_);
  }

  ~Stream() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  enum class Outcome { kDone, kEnded, kLate };

  Outcome Send(const worker::v1::ExecuteRequest& request, absl::Time deadline) {
    const Outcome outcome = Await({&started_, &written_}, absl::ToChronoTime(deadline));
    if (outcome != Outcome::kDone) return outcome;
    written_ = Operation::kUnderWay;
    stream_->Write(request, &written_);
    return outcome;
  }

  // Done when the next answer has come.  Late: to be called again for the same answer.
  Outcome Receive(absl::Time deadline) {
    if (read_ == Operation::kDone) {
      read_ = Operation::kUnderWay;
      stream_->Read(&response_, &read_);
      polling_.WaitBegins(AdaptivePolling::Clock::now());
    }
    const Outcome outcome = Await({&written_, &read_}, absl::ToChronoTime(deadline));
    polling_.WaitEnds(AdaptivePolling::Clock::now());
    return outcome;
  }

  const worker::v1::ExecuteResponse& response() const { return response_; }

 private:
  enum class Operation { kUnderWay, kDone };

  // Takes events until all of `operations` are done, one fails or the time is up.
  Outcome Await(std::initializer_list<const Operation*> operations,
                std::chrono::system_clock::time_point until) {
    const auto under_way = [](const Operation* o) { return *o == Operation::kUnderWay; };
    while (std::any_of(operations.begin(), operations.end(), under_way)) {
      void* tag = nullptr;
      bool ok = false;
      const auto next = polling_.Next(queue_, &tag, &ok, until);
      if (next == grpc::CompletionQueue::TIMEOUT) return Outcome::kLate;
      if (next != grpc::CompletionQueue::GOT_EVENT || !ok) return Outcome::kEnded;
      *static_cast<Operation*>(tag) = Operation::kDone;
    }
    return Outcome::kDone;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  AdaptivePolling polling_;
  worker::v1::ExecuteResponse response_;
  Operation started_ = Operation::kUnderWay;  // these are the tags of their operations
  Operation written_ = Operation::kDone;
  Operation read_ = Operation::kDone;
  std::unique_ptr<
      grpc::ClientAsyncReaderWriter<worker::v1::ExecuteRequest, worker::v1::ExecuteResponse>>
      stream_;
};

WorkerClient::WorkerClient(std::string target)
    : WorkerClient({.text = target, .address = target}, nullptr) {}

WorkerClient::WorkerClient(WorkerTarget target,
                           std::shared_ptr<grpc::ChannelCredentials> credentials)
    : target_(std::move(target)), credentials_(std::move(credentials)) {
  TANDEM_CHECK(!target_.remote || credentials_ != nullptr);
  Reconnect();
}

void WorkerClient::Reconnect() {
  auto channel = target_.remote ? CreateRemoteChannel(target_.address, credentials_, Keepalive::kOn)
                                : CreateChannel(target_.address);
  absl::MutexLock lock(&mutex_);
  channel_ = std::move(channel);
  stub_ = worker::v1::Worker::NewStub(channel_);
}

std::shared_ptr<worker::v1::Worker::Stub> WorkerClient::stub() const {
  absl::MutexLock lock(&mutex_);
  return stub_;
}

WorkerClient::~WorkerClient() = default;

absl::StatusOr<RemoteWorker> WorkerClient::Describe(absl::Duration timeout) {
  if (!remote()) TANDEM_RETURN_IF_ERROR(CheckTargetPeer(target_.address));
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  context.set_wait_for_ready(true);
  worker::v1::DescribeResponse response;
  const grpc::Status status = stub()->Describe(&context, {}, &response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(absl::StrFormat("worker at %s is not there%s", target(),
                                                  remote() ? ": " + Cause(timeout) : ""));
  }
  TANDEM_RETURN_IF_ERROR(FromCall(status, target()));
  RemoteWorker worker;
  TANDEM_ASSIGN_OR_RETURN(worker.description, DescriptionFromProto(response));
  worker.pid = response.pid();
  worker.highest_epoch = response.highest_epoch();
  for (const worker::v1::PlanMemory& plan : response.plans()) {
    worker.plans.push_back({plan.plan_id(), plan.bytes()});
  }
  worker.description.remote = remote();
  worker.execution_target = ExecutionAddress(target_.address, response.execution_port());
  return worker;
}

std::string WorkerClient::Cause(absl::Duration timeout) {
  std::shared_ptr<grpc::Channel> channel;
  {
    absl::MutexLock lock(&mutex_);
    channel = channel_;
  }
  if (channel->GetState(false) == GRPC_CHANNEL_READY) {
    Reconnect();
    return "connected, but silent";
  }
  // A call that does not wait gives the error of the attempt before.
  grpc::ClientContext context;
  SetTimeout(context, timeout / 2);
  worker::v1::DescribeResponse response;
  const grpc::Status status =
      worker::v1::Worker::NewStub(channel)->Describe(&context, {}, &response);
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return ConnectionError(status.error_message(), target_.tls);
  }
  return "no answer to attempts to connect";
}

absl::StatusOr<worker::v1::LoadPlanReport> WorkerClient::LoadPlan(
    const worker::v1::LoadPlanRequest& request, const Progress& progress, absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  const auto calls = stub();
  const auto reader = calls->LoadPlan(&context, request);
  worker::v1::LoadPlanResponse message;
  absl::StatusOr<worker::v1::LoadPlanReport> report =
      absl::InternalError(absl::StrFormat("worker at %s sent no report", target()));
  while (reader->Read(&message)) {
    if (message.has_report()) {
      report = Fit(std::move(*message.mutable_report()));
    } else if (progress) {
      progress(message.progress().fraction(), FitMessage(message.progress().phase()));
    }
  }
  TANDEM_RETURN_IF_ERROR(FromCall(reader->Finish(), target()));
  return report;
}

absl::Status WorkerClient::UnloadPlan(uint64_t epoch, const std::string& plan_token,
                                      absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  worker::v1::UnloadPlanRequest request;
  request.set_epoch(epoch);
  request.set_plan_token(plan_token);
  worker::v1::UnloadPlanResponse response;
  return FromCall(stub()->UnloadPlan(&context, request, &response), target());
}

absl::StatusOr<worker::v1::GetStatusResponse> WorkerClient::GetStatus(absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  worker::v1::GetStatusResponse response;
  TANDEM_RETURN_IF_ERROR(FromCall(stub()->GetStatus(&context, {}, &response), target()));
  return response;
}

absl::StatusOr<worker::v1::MeasureCeilingsResponse> WorkerClient::MeasureCeilings(
    absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  worker::v1::MeasureCeilingsResponse response;
  TANDEM_RETURN_IF_ERROR(FromCall(stub()->MeasureCeilings(&context, {}, &response), target()));
  return response;
}

void WorkerClient::Open(const std::string& execution_target) {
  Close();
  // No keepalive: the worker does not look at its socket while a segment runs.
  if (remote()) {
    execution_stub_ = worker::v1::Execution::NewStub(
        CreateRemoteChannel(execution_target, credentials_, Keepalive::kOff));
  } else if (execution_stub_ == nullptr || execution_target != execution_target_) {
    execution_stub_ =
        worker::v1::Execution::NewStub(CreateChannel(execution_target, Keepalive::kOff));
  }
  execution_target_ = execution_target;
  stream_ = std::make_unique<Stream>(*execution_stub_);
}

void WorkerClient::Close() {
  stream_.reset();
  sent_.clear();
}

bool WorkerClient::connected() const {
  absl::MutexLock lock(&mutex_);
  return channel_->GetState(false) == GRPC_CHANNEL_READY;
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
    case Stream::Outcome::kEnded:
      return Lost(kGone);
    case Stream::Outcome::kLate:
      return Lost(NoAnswer(timeout));
    case Stream::Outcome::kDone:
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

absl::Status WorkerClient::AwaitAnswer(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const absl::Time until = remote() ? std::min(deadline, absl::Now() + kSilence) : deadline;
    const Stream::Outcome outcome = stream_->Receive(until);
    if (outcome == Stream::Outcome::kDone) return absl::OkStatus();
    if (outcome == Stream::Outcome::kEnded) return Lost(kGone);
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

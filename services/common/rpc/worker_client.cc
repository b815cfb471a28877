#include "services/common/rpc/worker_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/execution_address.h"
#include "services/common/rpc/status.h"
#include "services/common/rpc/wake_ahead.h"
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
  return absl::Status(code, absl::StrFormat("worker at %s: %s", target, status.error_message()));
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

  // False when the stream has ended or the time is up.
  bool Send(const worker::v1::ExecuteRequest& request, absl::Time deadline) {
    if (!Await({&started_, &written_}, absl::ToChronoTime(deadline))) return false;
    written_ = Operation::kUnderWay;
    stream_->Write(request, &written_);
    return true;
  }

  // True when the next answer has come; false when the stream has ended or the time is up.
  bool Receive(absl::Time deadline) {
    read_ = Operation::kUnderWay;
    stream_->Read(&response_, &read_);
    wake_ahead_.WaitBegins(WakeAhead::Clock::now());
    const bool answered = Await({&written_, &read_}, absl::ToChronoTime(deadline));
    wake_ahead_.WaitEnds(WakeAhead::Clock::now());
    return answered;
  }

  const worker::v1::ExecuteResponse& response() const { return response_; }

 private:
  enum class Operation { kUnderWay, kDone };

  // Takes events until all of `operations` are done; false when one fails or the time is up.
  bool Await(std::initializer_list<const Operation*> operations,
             std::chrono::system_clock::time_point until) {
    const auto under_way = [](const Operation* o) { return *o == Operation::kUnderWay; };
    while (std::any_of(operations.begin(), operations.end(), under_way)) {
      void* tag = nullptr;
      bool ok = false;
      if (wake_ahead_.Next(queue_, &tag, &ok, until) != grpc::CompletionQueue::GOT_EVENT || !ok) {
        return false;
      }
      *static_cast<Operation*>(tag) = Operation::kDone;
    }
    return true;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  WakeAhead wake_ahead_;
  worker::v1::ExecuteResponse response_;
  Operation started_ = Operation::kUnderWay;  // these are the tags of their operations
  Operation written_ = Operation::kDone;
  Operation read_ = Operation::kDone;
  std::unique_ptr<
      grpc::ClientAsyncReaderWriter<worker::v1::ExecuteRequest, worker::v1::ExecuteResponse>>
      stream_;
};

WorkerClient::WorkerClient(std::string target)
    : target_(std::move(target)),
      channel_(CreateChannel(target_)),
      stub_(worker::v1::Worker::NewStub(channel_)) {}

WorkerClient::~WorkerClient() = default;

absl::StatusOr<RemoteWorker> WorkerClient::Describe(absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  context.set_wait_for_ready(true);
  worker::v1::DescribeResponse response;
  const grpc::Status status = stub_->Describe(&context, {}, &response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(absl::StrFormat("worker at %s is not there", target_));
  }
  TANDEM_RETURN_IF_ERROR(FromCall(status, target_));
  RemoteWorker worker;
  TANDEM_ASSIGN_OR_RETURN(worker.description, DescriptionFromProto(response));
  worker.pid = response.pid();
  worker.execution_target = ExecutionAddress(target_, response.execution_port());
  return worker;
}

absl::StatusOr<worker::v1::LoadPlanReport> WorkerClient::LoadPlan(
    const worker::v1::LoadPlanRequest& request, const Progress& progress, absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  const auto reader = stub_->LoadPlan(&context, request);
  worker::v1::LoadPlanResponse message;
  absl::StatusOr<worker::v1::LoadPlanReport> report =
      absl::InternalError(absl::StrFormat("worker at %s sent no report", target_));
  while (reader->Read(&message)) {
    if (message.has_report()) {
      report = message.report();
    } else if (progress) {
      progress(message.progress().fraction(), message.progress().phase());
    }
  }
  TANDEM_RETURN_IF_ERROR(FromCall(reader->Finish(), target_));
  return report;
}

absl::Status WorkerClient::UnloadPlan(uint64_t epoch, absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  worker::v1::UnloadPlanRequest request;
  request.set_epoch(epoch);
  worker::v1::UnloadPlanResponse response;
  return FromCall(stub_->UnloadPlan(&context, request, &response), target_);
}

absl::StatusOr<worker::v1::GetStatusResponse> WorkerClient::GetStatus(absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  worker::v1::GetStatusResponse response;
  TANDEM_RETURN_IF_ERROR(FromCall(stub_->GetStatus(&context, {}, &response), target_));
  return response;
}

absl::StatusOr<worker::v1::MeasureCeilingsResponse> WorkerClient::MeasureCeilings(
    absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  worker::v1::MeasureCeilingsResponse response;
  TANDEM_RETURN_IF_ERROR(FromCall(stub_->MeasureCeilings(&context, {}, &response), target_));
  return response;
}

void WorkerClient::Open(const std::string& execution_target) {
  Close();
  if (execution_stub_ == nullptr || execution_target != execution_target_) {
    // No keepalive: the worker does not look at its socket while a segment runs.
    execution_stub_ =
        worker::v1::Execution::NewStub(CreateChannel(execution_target, Keepalive::kOff));
    execution_target_ = execution_target;
  }
  stream_ = std::make_unique<Stream>(*execution_stub_);
}

void WorkerClient::Close() {
  stream_.reset();
  sent_ns_.clear();
}

bool WorkerClient::connected() const { return channel_->GetState(false) == GRPC_CHANNEL_READY; }

absl::Status WorkerClient::Lost(int64_t start_ns, absl::Duration timeout) {
  Close();
  const bool late = NowNanos() - start_ns >= absl::ToInt64Nanoseconds(timeout);
  return absl::UnavailableError(late ? absl::StrFormat("worker at %s did not answer within %s",
                                                       target_, absl::FormatDuration(timeout))
                                     : absl::StrFormat("worker at %s is gone", target_));
}

absl::Status WorkerClient::Send(const worker::v1::ExecuteRequest& request, absl::Duration timeout) {
  if (stream_ == nullptr) {
    return absl::UnavailableError(absl::StrFormat("worker at %s: no stream is open", target_));
  }
  const int64_t start_ns = NowNanos();
  if (!stream_->Send(request, absl::Now() + timeout)) return Lost(start_ns, timeout);
  if (!request.flush()) sent_ns_.push_back(start_ns);
  return absl::OkStatus();
}

absl::StatusOr<const worker::v1::ExecuteResponse*> WorkerClient::Receive(absl::Duration timeout) {
  if (stream_ == nullptr) {
    return absl::UnavailableError(absl::StrFormat("worker at %s: no stream is open", target_));
  }
  TANDEM_CHECK(!sent_ns_.empty());
  const int64_t start_ns = NowNanos();
  if (!stream_->Receive(absl::Now() + timeout)) return Lost(start_ns, timeout);
  const worker::v1::ExecuteResponse& response = stream_->response();
  hops_.Add(NowNanos() - sent_ns_.front() - static_cast<int64_t>(response.worker_ns()));
  sent_ns_.pop_front();
  if (response.code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(response.code()), response.message());
  }
  return &response;
}

absl::StatusOr<const worker::v1::ExecuteResponse*> WorkerClient::Execute(
    const worker::v1::ExecuteRequest& request, absl::Duration timeout) {
  TANDEM_RETURN_IF_ERROR(Send(request, timeout));
  return Receive(timeout);
}

}  // namespace tandem

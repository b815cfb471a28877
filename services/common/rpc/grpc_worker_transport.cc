#include "services/common/rpc/grpc_worker_transport.h"

#include <grpcpp/channel.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "services/common/base/check.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/adaptive_polling.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/execution_address.h"
#include "services/common/rpc/socket_trust.h"
#include "services/common/rpc/unix_socket.h"
#include "tandem/worker/v1/worker.grpc.pb.h"

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

// The engine thread waits on a completion queue of its own and thereby polls the connection
// itself: no other thread takes part in a call.
class GrpcExecutionStream final : public ExecutionStream {
 public:
  explicit GrpcExecutionStream(worker::v1::Execution::Stub& stub) {
    context_.set_wait_for_ready(true);
    stream_ = stub.AsyncExecute(&context_, &queue_, &started_);
  }

  ~GrpcExecutionStream() override {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  Outcome Send(const worker::v1::ExecuteRequest& request, absl::Time deadline) override {
    const Outcome outcome = Await({&started_, &written_}, absl::ToChronoTime(deadline));
    if (outcome != Outcome::kDone) return outcome;
    written_ = Operation::kUnderWay;
    stream_->Write(request, &written_);
    return outcome;
  }

  Outcome Receive(absl::Time deadline) override {
    if (read_ == Operation::kDone) {
      read_ = Operation::kUnderWay;
      stream_->Read(&response_, &read_);
      polling_.WaitBegins(AdaptivePolling::Clock::now());
    }
    const Outcome outcome = Await({&written_, &read_}, absl::ToChronoTime(deadline));
    polling_.WaitEnds(AdaptivePolling::Clock::now());
    return outcome;
  }

  const worker::v1::ExecuteResponse& response() const override { return response_; }

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

class GrpcWorkerTransport final : public WorkerTransport {
 public:
  GrpcWorkerTransport(WorkerTarget target, std::shared_ptr<grpc::ChannelCredentials> credentials)
      : target_(std::move(target)), credentials_(std::move(credentials)) {
    TANDEM_CHECK(!target_.remote || credentials_ != nullptr);
    Reconnect();
  }

  bool Listens() const override {
    const auto socket = UnixSocketPath(target_.text);
    return !socket.has_value() || SocketAnswers(*socket);
  }
  absl::StatusOr<worker::v1::DescribeResponse> Describe(absl::Duration timeout) override;
  absl::Status LoadPlan(const worker::v1::LoadPlanRequest& request, const OnLoadMessage& on_message,
                        absl::Duration timeout) override;
  absl::Status UnloadPlan(const worker::v1::UnloadPlanRequest& request,
                          absl::Duration timeout) override;
  absl::StatusOr<worker::v1::GetStatusResponse> GetStatus(absl::Duration timeout) override;
  absl::StatusOr<worker::v1::MeasureCeilingsResponse> MeasureCeilings(
      absl::Duration timeout) override;
  std::string ExecutionTarget(const worker::v1::DescribeResponse& description) const override {
    return ExecutionAddress(target_.address, description.execution_port());
  }
  std::unique_ptr<ExecutionStream> Open(const std::string& execution_target) override;
  bool connected() const override { return channel()->GetState(false) == GRPC_CHANNEL_READY; }

 private:
  // Replaces the connection.
  void Reconnect();
  std::shared_ptr<grpc::Channel> channel() const {
    absl::MutexLock lock(&mutex_);
    return channel_;
  }
  // Shared with calls under way.
  std::shared_ptr<worker::v1::Worker::Stub> stub() const {
    absl::MutexLock lock(&mutex_);
    return stub_;
  }
  // Why a remote worker cannot be reached.
  std::string Cause(absl::Duration timeout);

  const WorkerTarget target_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;  // of a remote target
  mutable absl::Mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<worker::v1::Worker::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  std::string execution_target_;
  std::unique_ptr<worker::v1::Execution::Stub> execution_stub_;
};

void GrpcWorkerTransport::Reconnect() {
  auto channel = target_.remote ? CreateRemoteChannel(target_.address, credentials_, Keepalive::kOn)
                                : CreateChannel(target_.address);
  absl::MutexLock lock(&mutex_);
  channel_ = std::move(channel);
  stub_ = worker::v1::Worker::NewStub(channel_);
}

absl::StatusOr<worker::v1::DescribeResponse> GrpcWorkerTransport::Describe(absl::Duration timeout) {
  if (!target_.remote) TANDEM_RETURN_IF_ERROR(CheckTargetPeer(target_.address));
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  context.set_wait_for_ready(true);
  worker::v1::DescribeResponse response;
  const grpc::Status status = stub()->Describe(&context, {}, &response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(absl::StrFormat("worker at %s is not there%s", target_.text,
                                                  target_.remote ? ": " + Cause(timeout) : ""));
  }
  TANDEM_RETURN_IF_ERROR(FromCall(status, target_.text));
  return response;
}

std::string GrpcWorkerTransport::Cause(absl::Duration timeout) {
  const std::shared_ptr<grpc::Channel> broken = channel();
  if (broken->GetState(false) == GRPC_CHANNEL_READY) {
    Reconnect();
    return "connected, but silent";
  }
  // A call that does not wait gives the error of the attempt before.
  grpc::ClientContext context;
  SetTimeout(context, timeout / 2);
  worker::v1::DescribeResponse response;
  const grpc::Status status =
      worker::v1::Worker::NewStub(broken)->Describe(&context, {}, &response);
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return ConnectionError(status.error_message(), target_.tls);
  }
  return "no answer to attempts to connect";
}

absl::Status GrpcWorkerTransport::LoadPlan(const worker::v1::LoadPlanRequest& request,
                                           const OnLoadMessage& on_message,
                                           absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  const auto calls = stub();
  const auto reader = calls->LoadPlan(&context, request);
  worker::v1::LoadPlanResponse message;
  while (reader->Read(&message)) on_message(std::move(message));
  return FromCall(reader->Finish(), target_.text);
}

absl::Status GrpcWorkerTransport::UnloadPlan(const worker::v1::UnloadPlanRequest& request,
                                             absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  worker::v1::UnloadPlanResponse response;
  return FromCall(stub()->UnloadPlan(&context, request, &response), target_.text);
}

absl::StatusOr<worker::v1::GetStatusResponse> GrpcWorkerTransport::GetStatus(
    absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  worker::v1::GetStatusResponse response;
  TANDEM_RETURN_IF_ERROR(FromCall(stub()->GetStatus(&context, {}, &response), target_.text));
  return response;
}

absl::StatusOr<worker::v1::MeasureCeilingsResponse> GrpcWorkerTransport::MeasureCeilings(
    absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  worker::v1::MeasureCeilingsResponse response;
  TANDEM_RETURN_IF_ERROR(FromCall(stub()->MeasureCeilings(&context, {}, &response), target_.text));
  return response;
}

std::unique_ptr<ExecutionStream> GrpcWorkerTransport::Open(const std::string& execution_target) {
  // No keepalive: the worker does not look at its socket while a segment runs.
  if (target_.remote) {
    execution_stub_ = worker::v1::Execution::NewStub(
        CreateRemoteChannel(execution_target, credentials_, Keepalive::kOff));
  } else if (execution_stub_ == nullptr || execution_target != execution_target_) {
    execution_stub_ =
        worker::v1::Execution::NewStub(CreateChannel(execution_target, Keepalive::kOff));
  }
  execution_target_ = execution_target;
  return std::make_unique<GrpcExecutionStream>(*execution_stub_);
}

}  // namespace

std::unique_ptr<WorkerTransport> MakeGrpcWorkerTransport(
    WorkerTarget target, std::shared_ptr<grpc::ChannelCredentials> credentials) {
  return std::make_unique<GrpcWorkerTransport>(std::move(target), std::move(credentials));
}

}  // namespace tandem

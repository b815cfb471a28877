// The gateway's client of a worker.
#pragma once

#include <grpcpp/security/credentials.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/plan/planner.h"
#include "services/common/rpc/worker_target.h"
#include "services/common/rpc/worker_transport.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

struct RemoteWorker {
  WorkerDescription description;
  int32_t pid = 0;
  uint64_t highest_epoch = 0;    // a plan's must be above it
  std::string execution_target;  // what WorkerClient::Open takes
  struct Plan {
    std::string id;
    uint64_t bytes = 0;  // of WorkerDescription::memory_available_bytes
  };
  std::vector<Plan> plans;  // that it holds
};

// The hop to a worker: round trip without the worker's own time, over the last kWindow calls.  One
// thread adds, any thread reads.
class HopStatistics {
 public:
  static constexpr size_t kWindow = 4096;
  struct Quantiles {
    double p50_us = 0.0;
    double p99_us = 0.0;
  };

  void Add(int64_t hop_ns);
  // Zero before the first call.
  Quantiles Read() const;

 private:
  std::atomic<uint64_t> count_{0};
  std::atomic<uint32_t> hop_ns_[kWindow] = {};
};

// Open, Submit, Flush, MasksReady, Wait and Close belong to one engine thread; everything else is
// thread-safe.
// All calls block, at most for their timeout.
class WorkerClient {
 public:
  using Progress = std::function<void(double fraction, std::string_view phase)>;

  // Over gRPC (grpc_worker_transport.h).
  explicit WorkerClient(std::string target);
  // The same; `credentials`: for a remote target.
  WorkerClient(WorkerTarget target, std::shared_ptr<grpc::ChannelCredentials> credentials);
  WorkerClient(WorkerTarget target, std::unique_ptr<WorkerTransport> transport);
  ~WorkerClient();
  WorkerClient(const WorkerClient&) = delete;
  WorkerClient& operator=(const WorkerClient&) = delete;

  const std::string& target() const { return target_.text; }
  bool remote() const { return target_.remote; }
  bool tls() const { return target_.tls; }
  // Whether a process listens there; true where only a call can tell.
  bool Listens() const { return transport_->Listens(); }

  // Waits up to `timeout` for the worker.  UNAVAILABLE: it did not answer; for a remote worker the
  // message says why the connection failed.
  // FAILED_PRECONDITION: it is of another protocol version, or its self-test has failed.
  // PERMISSION_DENIED: another user listens on its socket.
  absl::StatusOr<RemoteWorker> Describe(absl::Duration timeout);
  // Errors as the worker gives them; UNAVAILABLE when it is lost or too slow.
  absl::StatusOr<worker::v1::LoadPlanReport> LoadPlan(const worker::v1::LoadPlanRequest& request,
                                                      const Progress& progress,
                                                      absl::Duration timeout);
  absl::Status UnloadPlan(uint64_t epoch, const std::string& plan_token, absl::Duration timeout);
  absl::StatusOr<worker::v1::GetStatusResponse> GetStatus(absl::Duration timeout);
  absl::StatusOr<worker::v1::MeasureCeilingsResponse> MeasureCeilings(absl::Duration timeout);

  // Opens the stream of Execute at RemoteWorker::execution_target; closes one that is open.
  void Open(const std::string& execution_target);
  // Sends a call over the stream.
  // UNAVAILABLE: no stream is open, the worker has died, or it did not read within `timeout`; the
  // stream is closed then.
  absl::Status Submit(const worker::v1::ExecuteRequest& request, absl::Duration timeout);
  // Withdraws another_follows of the last call; errors as Submit's.
  absl::Status Flush(absl::Duration timeout);
  // The masks of the last call, which were to follow, are written; errors as Submit's.
  absl::Status MasksReady(absl::Duration timeout);
  // Returns the answer to the oldest unanswered call; it is valid until the next Wait.
  // UNAVAILABLE: as Submit, or the answer is to another call; the stream is closed then, and late
  // answers are dropped.  Other codes are the worker's answer.
  // If a remote worker is silent for kSilence, the client asks for its status; a failure counts as
  // a lost worker.  So a cut-off host is found before the deadline of a long segment.
  // REQUIRES an unanswered call.
  absl::StatusOr<const worker::v1::ExecuteResponse*> Wait(absl::Duration timeout);
  // Cancels the stream, if one is open.
  void Close();
  // Whether there is a connection now.
  bool connected() const { return transport_->connected(); }

  const HopStatistics& hops() const { return hops_; }
  // Bytes of the calls and answers of Execute, with a remote worker.
  uint64_t sent_bytes() const { return sent_bytes_.load(std::memory_order_relaxed); }
  uint64_t received_bytes() const { return received_bytes_.load(std::memory_order_relaxed); }

  static constexpr absl::Duration kSilence = absl::Seconds(2);

 private:
  // Waits for an answer.  If none comes: UNAVAILABLE, and the stream is closed.
  absl::Status AwaitAnswer(absl::Duration timeout);
  // Closes the stream and returns UNAVAILABLE with `why`.
  absl::Status Lost(const std::string& why);
  absl::Status Send(const worker::v1::ExecuteRequest& request, absl::Duration timeout);
  // A call that has had no answer.
  struct Sent {
    int64_t start_ns = 0;
    uint64_t epoch = 0;
    uint64_t step_id = 0;
    uint32_t segment_index = 0;
  };

  const WorkerTarget target_;
  const std::unique_ptr<WorkerTransport> transport_;
  std::unique_ptr<ExecutionStream> stream_;
  std::deque<Sent> sent_;  // oldest first
  std::atomic<uint64_t> sent_bytes_{0};
  std::atomic<uint64_t> received_bytes_{0};
  HopStatistics hops_;
};

}  // namespace tandem

// What carries a WorkerClient's calls to its worker: gRPC, or a simulated network.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

// A stream of Execute.  Destruction cancels it.  Single-thread.
class ExecutionStream {
 public:
  enum class Outcome { kDone, kEnded, kLate };

  virtual ~ExecutionStream() = default;
  // Done when the message is on its way.
  virtual Outcome Send(const worker::v1::ExecuteRequest& request, absl::Time deadline) = 0;
  // Done when the next answer has come.  Late: to be called again for the same answer.
  virtual Outcome Receive(absl::Time deadline) = 0;
  // The answer received last.
  virtual const worker::v1::ExecuteResponse& response() const = 0;
};

// Calls block, at most for their timeout, and fail with UNAVAILABLE if the worker is lost or too
// slow; otherwise as the worker says.  Open belongs to one thread; everything else is thread-safe.
class WorkerTransport {
 public:
  using OnLoadMessage = std::function<void(worker::v1::LoadPlanResponse)>;

  virtual ~WorkerTransport() = default;

  // Whether a process listens there; true where only a call can tell.
  virtual bool Listens() const = 0;
  // Waits for the worker.  PERMISSION_DENIED: another user listens on its socket.
  virtual absl::StatusOr<worker::v1::DescribeResponse> Describe(absl::Duration timeout) = 0;
  // Progress and the report, in order.
  virtual absl::Status LoadPlan(const worker::v1::LoadPlanRequest& request,
                                const OnLoadMessage& on_message, absl::Duration timeout) = 0;
  virtual absl::Status UnloadPlan(const worker::v1::UnloadPlanRequest& request,
                                  absl::Duration timeout) = 0;
  virtual absl::StatusOr<worker::v1::GetStatusResponse> GetStatus(absl::Duration timeout) = 0;
  virtual absl::StatusOr<worker::v1::MeasureCeilingsResponse> MeasureCeilings(
      absl::Duration timeout) = 0;
  // `description`: the worker's last.
  virtual std::string ExecutionTarget(const worker::v1::DescribeResponse& description) const = 0;
  // Opens a stream at ExecutionTarget.
  virtual std::unique_ptr<ExecutionStream> Open(const std::string& execution_target) = 0;
  // Whether there is a connection now.
  virtual bool connected() const = 0;
};

}  // namespace tandem

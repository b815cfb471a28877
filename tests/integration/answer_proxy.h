// A proxy of a worker: passes every call on to a real worker and corrupts its answers.
#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "tandem/worker/v1/worker.grpc.pb.h"

namespace tandem::testing {

// Thread-safe.
class AnswerProxy {
 public:
  // Called with each answer before it is passed on, on a thread of the stream; returns how often to
  // send it.
  using Fault = std::function<int(worker::v1::ExecuteResponse& answer)>;

  // Listens at unix:`socket` and unix:`socket`.exec, and calls the worker at unix:`worker_socket`.
  AnswerProxy(const std::string& socket, const std::string& worker_socket);
  ~AnswerProxy();

  // Messages that the gateway has sent on Execute streams.
  int num_requests() const { return num_requests_; }
  // Applies from the next answer on; null: answers pass unchanged.
  void SetFault(Fault fault);

 private:
  class WorkerCalls;
  class ExecutionCalls;
  int Spoil(worker::v1::ExecuteResponse& answer);

  std::atomic<int> num_requests_{0};
  std::mutex mutex_;
  Fault fault_;
  std::unique_ptr<WorkerCalls> worker_calls_;
  std::unique_ptr<ExecutionCalls> execution_calls_;
  std::unique_ptr<grpc::Server> server_, execution_server_;
};

}  // namespace tandem::testing

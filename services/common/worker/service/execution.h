// The gRPC service tandem.worker.v1.Execution, as the device thread serves it.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "services/common/worker/service/device_thread.h"
#include "tandem/worker/v1/worker.grpc.pb.h"

namespace tandem {

class ExecuteStream;

// Takes Execute streams, `max_streams` at a time.  Everything happens on the device thread, so
// that nothing is locked: a call is read, run and answered before the next one is looked at, of
// whichever stream.  What a client sends meanwhile waits in its socket.
class Execution {
 public:
  // All borrowed; must outlive this.
  Execution(worker::v1::Execution::AsyncService& service, DeviceHost& host, uint32_t max_streams);
  ~Execution();

  // On the device thread: waits for the first stream on `queue`.
  void Begin(grpc::ServerCompletionQueue* queue);
  // On the device thread: whether every stream has ended, as they do once the server shuts down.
  bool ended() const { return streams_.empty(); }

 private:
  friend class ExecuteStream;
  void AcceptOne();
  // Ends a stream's life.
  void Forget(ExecuteStream* stream) { streams_.erase(stream); }
  // Streams beside the one that waits for its client.
  bool full() const { return streams_.size() > max_streams_ + 1; }

  worker::v1::Execution::AsyncService& service_;
  DeviceHost& host_;
  const uint32_t max_streams_;
  grpc::ServerCompletionQueue* queue_ = nullptr;
  absl::flat_hash_map<ExecuteStream*, std::unique_ptr<ExecuteStream>> streams_;
};

// One client's stream.  A read and a write are under way at most, and no read while more than one
// answer waits to be written.  The answer to a call that another one follows is held back until
// that one has been submitted to the device, so that the device goes from one to the next by
// itself:
//
//   read 1 (another follows): submit 1         read 3 (none follows): submit 3, wait for 2,
//   read 2 (another follows): submit 2,                               answer 2, wait for 3,
//                             wait for 1, answer 1                    answer 3
//
// A flush ends the wait for a call that was announced and does not come.
//
// Calls of a client that has gone are dropped once that is known; those that had been read before
// may still run.
class ExecuteStream {
 public:
  explicit ExecuteStream(Execution& owner);

 private:
  // An operation under way, by what its end calls.
  struct Event final : DeviceEvent {
    Event(ExecuteStream* s, void (ExecuteStream::*h)(bool)) : stream(s), handler(h) {}
    void Happened(bool ok) override { (stream->*handler)(ok); }
    ExecuteStream* stream;
    void (ExecuteStream::*handler)(bool ok);
  };

  void OnAccepted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnDone(bool ok);
  void Take();
  void ReadNext();
  // Waits for the call that is held back, if one is, and answers it.
  void Release();
  // Writes the answer that waits longest, if none is being written.
  void Write();
  void Finish(const grpc::Status& status);
  void MaybeForget();

  Execution& owner_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<worker::v1::ExecuteResponse, worker::v1::ExecuteRequest> stream_;
  worker::v1::ExecuteRequest request_;
  struct Held {
    uint64_t call = 0;
    int64_t arrival_ns = 0;
  };
  std::optional<Held> held_;
  std::deque<worker::v1::ExecuteResponse> answers_;  // the first is being written; few
  bool reading_ = false;
  bool reads_ended_ = false;
  bool gone_ = false;  // nobody takes the answers any more
  bool finished_ = false;
  bool done_ = false;
  Event accepted_{this, &ExecuteStream::OnAccepted};
  Event read_{this, &ExecuteStream::OnRead};
  Event written_{this, &ExecuteStream::OnWritten};
  Event finish_{this, &ExecuteStream::OnFinished};
  Event end_{this, &ExecuteStream::OnDone};
};

}  // namespace tandem

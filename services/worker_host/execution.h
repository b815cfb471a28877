// The gRPC service tandem.worker.v1.Execution, as the device thread serves it.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/worker_host/device_thread.h"
#include "tandem/worker/v1/worker.grpc.pb.h"

namespace tandem {

class ExecuteStream;

// Serves Execute streams, `max_streams` at a time.  Everything runs on the device thread, so there
// are no locks: with one plan, a call is read, run and answered before the next call of any stream
// is read.  With several, calls of other plans are read between the submissions of a call.  Further
// calls wait in their sockets.
class Execution {
 public:
  // Borrowed; all must outlive this.
  Execution(worker::v1::Execution::AsyncService& service, DeviceHost& host, uint32_t max_streams);
  ~Execution();

  // On the device thread: waits for the first stream on `queue`.
  void Begin(grpc::ServerCompletionQueue* queue);
  // On the device thread: whether every stream has ended.  All end when the server shuts down.
  bool ended() const { return streams_.empty(); }

 private:
  friend class ExecuteStream;
  void AcceptOne();
  // Deletes a stream.
  void Forget(ExecuteStream* stream) { streams_.erase(stream); }
  // Number of streams, without the one that waits for a client.
  bool full() const { return streams_.size() > max_streams_ + 1; }

  worker::v1::Execution::AsyncService& service_;
  DeviceHost& host_;
  const uint32_t max_streams_;
  grpc::ServerCompletionQueue* queue_ = nullptr;
  absl::flat_hash_map<ExecuteStream*, std::unique_ptr<ExecuteStream>> streams_;
};

// One client's stream.  At most one read and one write are pending, and no read while a call runs
// whose answer is due or while more than one answer waits to be written.  If another call follows a call, its answer is held back until that
// call is submitted, so that the device goes from one segment to the next without a pause:
//
//   read 1 (another follows): submit 1         read 3 (none follows): submit 3, wait for 2,
//   read 2 (another follows): submit 2,                               answer 2, wait for 3,
//                             wait for 1, answer 1                    answer 3
//
// A call whose masks follow begins at once, and is waited for when they are there:
//
//   read 2 (masks follow): submit 2, wait for 1, answer 1
//   read masks ready: go on with 2
//
// A flush ends the wait for an announced call that does not come.  A device that runs a
// segment only while it is waited for (Worker::runs_in_wait) gains nothing by that: its answers are
// never held back, and the next call waits in the socket.
//
// When a client disconnects, its unread calls are dropped; calls already read may still run.
class ExecuteStream final : public CallWaiter {
 public:
  explicit ExecuteStream(Execution& owner);

  void CallsEnded() override;

 private:
  // A pending operation, and the function to call at its end.
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
  void TakeMasks();
  void ReadNext();
  // The answer to the held-back call, if there is one, is due.
  void Release();
  // Likewise, unless it waits for something.
  void ReleaseIfDue();
  bool has_answers() const { return !answers_.empty() || !due_.empty(); }
  // Writes the oldest answer, unless a write is pending.
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
    bool announced = false;  // another call follows
    bool awaits_masks = false;
  };
  std::optional<Held> held_;
  std::vector<Held> due_;                            // not answered yet, oldest first; at most two
  std::deque<worker::v1::ExecuteResponse> answers_;  // the first is being written; few
  bool reading_ = false;
  bool reads_ended_ = false;
  bool gone_ = false;  // the client has disconnected
  bool finished_ = false;
  bool done_ = false;
  Event accepted_{this, &ExecuteStream::OnAccepted};
  Event read_{this, &ExecuteStream::OnRead};
  Event written_{this, &ExecuteStream::OnWritten};
  Event finish_{this, &ExecuteStream::OnFinished};
  Event end_{this, &ExecuteStream::OnDone};
};

}  // namespace tandem

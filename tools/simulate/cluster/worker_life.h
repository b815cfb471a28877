// One life of a simulated worker: of worker_process.cc and simulated_transport.cc alone.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tools/simulate/cluster/toy_device.h"
#include "tools/simulate/cluster/worker_process.h"

namespace tandem::simulate {

// A stream of Execute, as both ends see it.  Answers are taken in the order in which they were sent.
class WorkerProcess::Connection {
 public:
  // Sends an answer.
  void Put(absl::Time due, worker::v1::ExecuteResponse answer) {
    MutexLock lock(mutex_);
    if (!answers_.empty()) due = std::max(due, answers_.back().due);
    answers_.push_back({due, std::move(answer)});
    changed_.SignalAll();
  }
  // Breaks it: the client finds no more answers.
  void Break() {
    MutexLock lock(mutex_);
    broken_ = true;
    changed_.SignalAll();
  }
  bool broken() const {
    MutexLock lock(mutex_);
    return broken_;
  }
  ExecutionStream::Outcome Take(absl::Time deadline, worker::v1::ExecuteResponse& answer) {
    MutexLock lock(mutex_);
    while (true) {
      const absl::Time now = absl::Now();
      if (!answers_.empty() && answers_.front().due <= now) {
        answer = std::move(answers_.front().answer);
        answers_.pop_front();
        return ExecutionStream::Outcome::kDone;
      }
      if (broken_) return ExecutionStream::Outcome::kEnded;
      if (now >= deadline) return ExecutionStream::Outcome::kLate;
      changed_.WaitUntil(mutex_,
                         answers_.empty() ? deadline : std::min(deadline, answers_.front().due));
    }
  }
  // When a message sent now arrives: after those sent before.
  absl::Time ArrivesBy(absl::Time due) {
    MutexLock lock(mutex_);
    last_sent_ = std::max(due, last_sent_);
    return last_sent_;
  }

  // The call whose answer waits for the next, or for its masks; the device thread's.
  struct Held {
    uint64_t call = 0;
    bool announced = false, awaits_masks = false;
  };
  std::optional<Held> held;

 private:
  struct Answer {
    absl::Time due;
    worker::v1::ExecuteResponse answer;
  };
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Answer> answers_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_sent_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
};

class WorkerProcess::Life {
 public:
  explicit Life(WorkerProcess& process);

  // The device thread.
  void Run();
  void Kill();
  bool killed() const {
    MutexLock lock(mutex_);
    return killed_;
  }
  // Has the device thread run something.
  void Post(absl::Time due, std::function<void(Life&)> message);
  // Waits; false: killed meanwhile.
  bool Sleep(absl::Duration time);
  // A stream that breaks with this life.
  void Attach(const std::shared_ptr<Connection>& connection);
  // Called when this life ends.
  void WhenKilled(std::function<void()> call);
  // On the device thread: a message of a stream.
  void Take(const std::shared_ptr<Connection>& connection,
            const worker::v1::ExecuteRequest& request);

  // On the device thread: the client of a stream has gone.
  void Release(Connection& connection) {
    if (connection.held) Answer(connection, std::exchange(connection.held, std::nullopt)->call);
  }

  DeviceHost& host() { return host_; }

 private:
  struct Message {
    absl::Time due;
    std::function<void(Life&)> run;
  };
  // The next message that is due; nullopt: killed, or nothing came before `deadline`.
  std::optional<Message> Next(absl::Time deadline);
  // The held call has its masks, or no other follows it.
  void GoOn(Connection& connection, bool with_masks);
  // Runs a call and answers it.
  void Answer(Connection& connection, uint64_t call);

  WorkerProcess& process_;
  const std::unique_ptr<WeightSource> source_;
  DeviceHost host_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool killed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Message> mailbox_ ABSL_GUARDED_BY(mutex_);  // in the order of `due`
  std::vector<std::weak_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::simulate

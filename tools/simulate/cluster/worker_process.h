// A worker's process in a simulation: the device thread of a real worker over a toy device, reached
// through a network that delays, loses and repeats messages, and which can die.
//
//   threads of the gateway                      the worker's thread (Life::Run)
//
//   SimulatedStream   --call, due later-->      Life's mailbox --> DeviceHost --> ToyDevice
//                     <--answer, due later--    Connection (one for each stream)
//   SimulatedTransport: other calls, likewise
//
// A life ends with Kill: its plans, its KV cache and the messages in its mailbox are lost, and its
// streams and calls break.  Restart begins another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/common/rpc/worker_transport.h"
#include "services/worker_host/device_host.h"
#include "tools/simulate/cluster/random_source.h"
#include "tools/simulate/cluster/simulated_loader.h"

namespace tandem::simulate {

// What goes wrong for a while.
struct WorkerTrouble {
  double lose = 0.0;       // a message of Execute, by probability
  double repeat = 0.0;     // an answer comes twice
  double stray = 0.0;      // the answer to another call comes before that to a call
  double late = 0.0;       // a message takes up to `late_by` longer
  double fail_step = 0.0;  // a segment ends with an error; the device goes on
  double lose_device = 0.0;
  double refuse_load = 0.0;
  absl::Duration late_by;
  absl::Duration stall;  // the next segment takes so much longer, once
  uint32_t slower = 1;   // segments take so many times as long

  // Both together.
  void Add(const WorkerTrouble& other);
};

struct WorkerSetup {
  WorkerDescription description;
  std::string target;
  bool remote = false;
  bool keeps_answers = false;   // ToyDevice
  uint32_t wrong_guess_in = 0;  // likewise
  absl::Duration per_segment = absl::Milliseconds(1);
  absl::Duration per_row_stage = absl::Microseconds(2);
};

// Thread-safe.
class WorkerProcess {
 public:
  struct Report {
    std::function<void(std::string)> note;       // for the log
    std::function<void(std::string)> violation;  // something that must never happen
  };
  // Begins its first life.  Borrowed; must outlive this.
  WorkerProcess(WorkerSetup setup, SimulatedLoader& loader, RandomSource& random, Report report);
  // REQUIRES that no client is left.
  ~WorkerProcess();

  void Kill();
  void Restart();
  void SetTrouble(WorkerTrouble trouble);
  std::unique_ptr<WorkerTransport> Connect();
  const WorkerSetup& setup() const { return setup_; }

 private:
  friend class SimulatedTransport;
  friend class SimulatedStream;
  class Life;
  class Connection;

  // Null: it is dead.
  std::shared_ptr<Life> life() const;
  absl::Duration Latency();
  WorkerTrouble trouble() const;
  absl::Status RunSegment(Life& life, uint32_t num_rows, uint32_t num_stages);
  absl::Status RefuseLoad();

  const WorkerSetup setup_;
  SimulatedLoader& loader_;
  RandomSource& random_;
  const Report report_;
  mutable Mutex mutex_;
  WorkerTrouble trouble_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Life> life_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);  // of all lives
};

}  // namespace tandem::simulate

// Replicas whose workers are found by name: --replica-names.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "services/gateway/replica_workers.h"

namespace tandem::gateway {

enum class NameAnswer {
  kThere,
  kGone,
  kUnknown,  // nobody who would know has answered
};

// Of a worker's target: whether its host has an address now, or its unix socket exists.
// Blocks as getaddrinfo does.
NameAnswer LookUp(const std::string& target);

// INVALID_ARGUMENT: not one {} where a target has its host or path; or no target with a number there.
absl::Status CheckReplicaNames(const std::string& pattern);

// The targets that `pattern` stands for, with 0, 1, 2... in place of {}: each is a replica while its
// name is there.  Numbers may be missing, two in a row at most.
class ReplicaNames {
 public:
  // A name that was there is given up when it was gone at so many looks in a row: a worker that is
  // started again loses its name for a while, and an answer may be lost.
  static constexpr int kLooks = 3;

  // REQUIRES CheckReplicaNames(pattern).
  explicit ReplicaNames(std::string pattern,
                        std::function<NameAnswer(const std::string&)> look_up = LookUp)
      : pattern_(std::move(pattern)), look_up_(std::move(look_up)) {}

  // Looks each name up, once.  Returns whether replicas() or found() changed.
  bool Look();
  // Whether a name was ever there.
  bool found() const { return found_; }
  // In the order of numbers.  Never empty: where no name is there, the last that was, at first the
  // one of number 0.
  std::vector<ReplicaWorkers> replicas() const;

 private:
  std::string Target(int number) const;

  std::string pattern_;
  std::function<NameAnswer(const std::string&)> look_up_;
  bool found_ = false;
  // Looks in a row without it, of each replica.  What nobody has seen yet is given up at once.
  std::map<int, int> missed_ = {{0, kLooks - 1}};
};

// Looks again and again, until destroyed, on a thread of its own.
class ReplicaNamesWatch {
 public:
  // `changed` is called on that thread with the replicas that there are now.
  ReplicaNamesWatch(ReplicaNames names, absl::Duration pause,
                    std::function<void(std::vector<ReplicaWorkers>)> changed);
  // Waits for a look that is under way.
  ~ReplicaNamesWatch();

 private:
  absl::Notification end_;
  std::thread thread_;
};

}  // namespace tandem::gateway

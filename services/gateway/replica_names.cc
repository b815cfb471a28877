#include "services/gateway/replica_names.h"

#include <netdb.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/worker_target.h"

namespace tandem::gateway {
namespace {

constexpr std::string_view kNumber = "{}";
constexpr int kMostReplicas = 256;
constexpr int kMostMissing = 2;  // in a row

}  // namespace

NameAnswer LookUp(const std::string& target) {
  constexpr std::string_view kUnix = "unix:";
  if (target.starts_with(kUnix)) {
    std::error_code error;
    const bool there = std::filesystem::exists(target.substr(kUnix.size()), error);
    return there ? NameAnswer::kThere : NameAnswer::kGone;
  }
  const auto parsed = ParseWorkerTarget(target);
  if (!parsed.ok()) return NameAnswer::kUnknown;
  const size_t colon = parsed->address.rfind(':');
  const std::string host = parsed->address.substr(0, colon);
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, [](addrinfo* list) {
    if (list != nullptr) ::freeaddrinfo(list);
  });
  if (error == 0) return NameAnswer::kThere;
  const bool known = error == EAI_NONAME || error == EAI_NODATA;
  return known ? NameAnswer::kGone : NameAnswer::kUnknown;
}

absl::Status CheckReplicaNames(const std::string& pattern) {
  const size_t at = pattern.find(kNumber);
  if (at == std::string::npos || pattern.find(kNumber, at + 1) != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s': must have one {}, which stands for 0, 1, 2...: tls://worker-{}.workers:7001",
        pattern));
  }
  std::string target = pattern;
  target.replace(at, kNumber.size(), "0");
  TANDEM_ASSIGN_OR_RETURN(const WorkerTarget parsed, ParseWorkerTarget(target));
  if (at < parsed.address.rfind(':') + (target.size() - parsed.address.size()) ||
      target.starts_with("unix:")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("'%s': {} must be in the host's name, not in its port", pattern));
}

std::string ReplicaNames::Target(int number) const {
  std::string target = pattern_;
  return target.replace(target.find(kNumber), kNumber.size(), absl::StrCat(number));
}

bool ReplicaNames::Look() {
  std::map<int, int> missed;
  int highest = missed_.rbegin()->first;
  for (int i = 0; i <= highest + kMostMissing + 1 && i < kMostReplicas; ++i) {
    const auto before = missed_.find(i);
    const bool was = before != missed_.end();
    const NameAnswer answer = look_up_(Target(i));
    if (answer == NameAnswer::kThere) {
      missed[i] = 0;
      highest = std::max(highest, i);
    } else if (was && answer == NameAnswer::kUnknown) {
      missed[i] = before->second;
    } else if (was && before->second + 1 < kLooks) {
      missed[i] = before->second + 1;
    }
  }
  if (missed.empty()) return false;
  const bool first = !found_ && std::ranges::any_of(missed, [](const auto& replica) {
    return replica.second == 0;
  });
  found_ = found_ || first;
  const bool same = std::ranges::equal(missed, missed_, {}, &std::pair<const int, int>::first,
                                       &std::pair<const int, int>::first);
  missed_ = std::move(missed);
  return first || !same;
}

std::vector<ReplicaWorkers> ReplicaNames::replicas() const {
  std::vector<ReplicaWorkers> replicas;
  for (const auto& [number, unused] : missed_) replicas.push_back({.workers = {Target(number)}});
  return replicas;
}

ReplicaNamesWatch::ReplicaNamesWatch(ReplicaNames names, absl::Duration pause,
                                     std::function<void(std::vector<ReplicaWorkers>)> changed)
    : thread_([this, names = std::move(names), pause, changed = std::move(changed)]() mutable {
        while (!end_.WaitForNotificationWithTimeout(pause)) {
          if (names.Look()) changed(names.replicas());
        }
      }) {}

ReplicaNamesWatch::~ReplicaNamesWatch() {
  end_.Notify();
  thread_.join();
}

}  // namespace tandem::gateway

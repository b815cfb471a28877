#include "services/gateway/replica_workers.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/worker_target.h"
#include "services/common/tensor/kv_format.h"

namespace tandem::gateway {
namespace {

constexpr std::string_view kNpu = "npu=", kRole = "role=", kKv = "kv=", kLayers = "layers=npu";

absl::StatusOr<ReplicaRole> ParseRole(const std::string& name) {
  for (const ReplicaRole role : {ReplicaRole::kPrompts, ReplicaRole::kDecode}) {
    if (RoleName(role) == name) return role;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("role '%s': must be prompts or decode, or left out for both", name));
}

absl::Status SetWord(std::string_view word, ReplicaWorkers& replica) {
  const bool is_role = word.starts_with(kRole);
  const bool known = is_role ? replica.role != ReplicaRole::kBoth : replica.kv_dtype.has_value();
  if (known) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: the line has said another before", std::string(word)));
  }
  if (is_role) {
    TANDEM_ASSIGN_OR_RETURN(replica.role, ParseRole(std::string(word.substr(kRole.size()))));
  } else {
    TANDEM_ASSIGN_OR_RETURN(replica.kv_dtype, ParseKvDType(std::string(word.substr(kKv.size()))));
  }
  return absl::OkStatus();
}

absl::StatusOr<ReplicaWorkers> ParseLine(const std::string& line) {
  ReplicaWorkers replica;
  std::set<std::string> seen;
  std::istringstream words(line);
  for (std::string target; words >> target;) {
    if (target.starts_with(kRole) || target.starts_with(kKv)) {
      TANDEM_RETURN_IF_ERROR(SetWord(target, replica));
      continue;
    }
    if (target == kLayers) {
      replica.layers_on_npu = true;
      continue;
    }
    const bool npu = target.starts_with(kNpu);
    if (npu) target.erase(0, kNpu.size());
    TANDEM_RETURN_IF_ERROR(ParseWorkerTarget(target).status());
    if (!seen.insert(target).second) {
      return absl::InvalidArgumentError(absl::StrFormat("%s is named twice", target));
    }
    (npu ? replica.npu_workers : replica.workers).push_back(target);
  }
  if (replica.workers.empty()) {
    return absl::InvalidArgumentError("a replica needs a worker beside its NPU's");
  }
  if (replica.layers_on_npu &&
      (replica.npu_workers.empty() || replica.role != ReplicaRole::kPrompts)) {
    return absl::InvalidArgumentError("layers=npu needs npu=TARGET and role=prompts on the line");
  }
  return replica;
}

// No worker is in two replicas, but for those that have Embed and Head for the layers of NPUs.
absl::Status CheckShared(const ReplicaWorkers& replica, const std::vector<ReplicaWorkers>& before) {
  const auto named_in = [](const std::vector<std::string>& targets, const std::string& target) {
    return std::ranges::find(targets, target) != targets.end();
  };
  for (const ReplicaWorkers& other : before) {
    const bool may_share = replica.layers_on_npu || other.layers_on_npu;
    std::vector<std::string> targets = replica.npu_workers;
    targets.insert(targets.end(), replica.workers.begin(), replica.workers.end());
    for (const std::string& target : targets) {
      const bool gpu_of_both = named_in(replica.workers, target) && named_in(other.workers, target);
      const bool taken = named_in(other.workers, target) || named_in(other.npu_workers, target);
      if (!taken || (gpu_of_both && may_share)) continue;
      return absl::InvalidArgumentError(
          absl::StrFormat("%s is named twice: a worker belongs to one replica", target));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRoles(const std::vector<ReplicaWorkers>& replicas) {
  const bool decodes = std::ranges::any_of(replicas, [](const ReplicaWorkers& replica) {
    return replica.role != ReplicaRole::kPrompts;
  });
  if (decodes) return absl::OkStatus();
  return absl::InvalidArgumentError("every replica is for prompts: at least one must decode");
}

}  // namespace

std::string ReplicaWorkers::key() const {
  std::string key = absl::StrJoin(workers, " ");
  for (const std::string& npu : npu_workers)
    absl::StrAppendFormat(&key, " %s%s", std::string(kNpu), npu);
  if (role != ReplicaRole::kBoth) {
    absl::StrAppend(&key, " ", std::string(kRole), std::string(RoleName(role)));
  }
  if (kv_dtype.has_value()) {
    absl::StrAppend(&key, " ", std::string(kKv), std::string(Traits(*kv_dtype).name));
  }
  if (layers_on_npu) absl::StrAppend(&key, " ", std::string(kLayers));
  return key;
}

absl::StatusOr<std::vector<ReplicaWorkers>> DivideWorkers(
    const std::vector<std::string>& workers, const std::vector<std::string>& npu_workers,
    uint32_t num_replicas, uint32_t num_prompts) {
  if (num_prompts >= num_replicas) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--prompt-replicas %d: of %d replicas at least one must decode",
                        num_prompts, num_replicas));
  }
  if (num_replicas == 1) {
    return std::vector<ReplicaWorkers>{{.workers = workers, .npu_workers = npu_workers}};
  }
  if (workers.empty() || workers.size() % num_replicas != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--replicas %d: %d workers cannot be divided among them: each replica needs as many",
        num_replicas, workers.size()));
  }
  const size_t share = workers.size() / num_replicas;
  std::vector<ReplicaWorkers> replicas(num_replicas);
  for (size_t w = 0; w < workers.size(); ++w) replicas[w / share].workers.push_back(workers[w]);
  if (npu_workers.size() > num_replicas) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--replicas %d: %d NPU workers are more than one for each replica",
                        num_replicas, npu_workers.size()));
  }
  for (size_t n = 0; n < npu_workers.size(); ++n) replicas[n].npu_workers = {npu_workers[n]};
  for (uint32_t r = 0; r < num_replicas && num_prompts > 0; ++r) {
    replicas[r].role = r < num_prompts ? ReplicaRole::kPrompts : ReplicaRole::kDecode;
  }
  return replicas;
}

absl::StatusOr<std::vector<ReplicaWorkers>> DivideBesideNpu(
    const std::vector<std::string>& workers, const std::vector<std::string>& npu_workers,
    uint32_t num_replicas) {
  if (npu_workers.empty()) return absl::InvalidArgumentError("--npu-prompts needs --npu-worker");
  TANDEM_ASSIGN_OR_RETURN(std::vector<ReplicaWorkers> replicas,
                          DivideWorkers(workers, {}, num_replicas));
  for (ReplicaWorkers& replica : replicas) replica.role = ReplicaRole::kDecode;
  // Embed and Head are on the NPU's machine.
  const auto is_here = [](const std::string& target) {
    const auto parsed = ParseWorkerTarget(target);
    return parsed.ok() && !parsed->remote;
  };
  const auto beside = std::ranges::find_if(replicas, [&](const ReplicaWorkers& replica) {
    return std::ranges::any_of(replica.workers, is_here);
  });
  if (beside == replicas.end()) {
    return absl::InvalidArgumentError(
        "--npu-prompts needs a --worker on this machine, for the embedding and the head");
  }
  replicas.push_back(BesideNpu({.workers = beside->workers, .npu_workers = npu_workers}));
  return replicas;
}

ReplicaWorkers BesideNpu(const ReplicaWorkers& decode) {
  return {.workers = decode.workers,
          .npu_workers = decode.npu_workers,
          .role = ReplicaRole::kPrompts,
          .layers_on_npu = true};
}

absl::StatusOr<std::vector<ReplicaWorkers>> ParseReplicas(const std::string& text) {
  std::vector<ReplicaWorkers> replicas;
  int number = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    auto replica = ParseLine(line);
    const absl::Status status = replica.ok() ? CheckShared(*replica, replicas) : replica.status();
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("line %d: %s", number, std::string(status.message())));
    }
    replicas.push_back(*std::move(replica));
  }
  if (replicas.empty()) return absl::InvalidArgumentError("no line names a replica's workers");
  TANDEM_RETURN_IF_ERROR(CheckRoles(replicas));
  return replicas;
}

absl::StatusOr<std::vector<ReplicaWorkers>> ReadReplicaFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: it cannot be read, or is empty", path));
  }
  auto replicas = ParseReplicas(text.str());
  if (replicas.ok()) return replicas;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: %s", path, std::string(replicas.status().message())));
}

}  // namespace tandem::gateway

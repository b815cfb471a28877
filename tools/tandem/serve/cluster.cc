#include "tools/tandem/serve/cluster.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/strings/str_format.h"
#include "services/common/base/exit_codes.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/pull/model_store.h"
#include "services/common/rpc/worker_absence.h"
#include "services/loader/synthetic/synthetic_spec.h"
#include "services/loader/vision/vision_source.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

absl::Status MakePrivateDirectory(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::InvalidArgumentError(
        absl::StrFormat("runtime directory %s: %s", path, std::strerror(errno)));
  }
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s is not a directory", path));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && info.st_uid == ::geteuid()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "runtime directory %s has mode %04o: other users could put sockets of theirs there: `chmod "
        "go-w %s`, or choose another with --runtime-dir",
        path, info.st_mode & 07777, path));
  }
  if (info.st_uid != ::geteuid()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("runtime directory %s belongs to uid %d, not to %d: choose another with "
                        "--runtime-dir",
                        path, info.st_uid, ::geteuid()));
  }
  return absl::OkStatus();
}

std::string Socket(const ClusterOptions& options, const std::string& name) {
  return absl::StrFormat("unix:%s/%s.sock", options.runtime_dir, name);
}

ServiceSpec Service(const ClusterOptions& options, const std::string& name,
                    const std::string& executable, int metrics_port,
                    std::vector<std::string> arguments) {
  if (options.metrics) {
    arguments.insert(arguments.end(), {"--metrics", MetricsAddress(options, metrics_port)});
  }
  ServiceSpec spec;
  spec.process.name = name;
  spec.process.argv = {options.bin_dir + "/" + executable};
  for (std::string& argument : arguments) spec.process.argv.push_back(std::move(argument));
  if (options.log_format != "text") {
    spec.process.argv.insert(spec.process.argv.end(), {"--log-format", options.log_format});
  }
  if (!options.log_dir.empty()) spec.process.log_path = options.log_dir + "/" + name + ".log";
  spec.fatal_exit_codes = {std::begin(kPermanentExitCodes), std::end(kPermanentExitCodes)};
  // A library that is missing, a program of another machine.
  spec.fatal_exit_codes.insert({126, 127});
  return spec;
}

// Whether there is to be an NPU worker: for the model, or for the draft model alone.
NpuPolicy NpuWorkerPolicy(const ClusterOptions& options) {
  if (options.npu != NpuPolicy::kOff || options.draft.empty()) return options.npu;
  if (options.draft_device == "npu") return NpuPolicy::kRequire;
  return options.draft_device == "emulate" ? NpuPolicy::kEmulate : NpuPolicy::kOff;
}

// Where links from `file` lead, up to the last name of a GGUF file; canonical if the last file has
// such a name, and for folders.
fs::path FollowLinks(const fs::path& file, std::error_code& error) {
  const fs::path target = fs::canonical(file, error);
  if (error || target.extension() == ".gguf" || !fs::is_regular_file(target, error)) return target;
  fs::path named = file;
  // canonical() succeeded, so the links have an end.
  while (fs::is_symlink(named, error)) {
    const fs::path next = named.parent_path() / fs::read_symlink(named, error);
    if (error) return target;
    if (next.extension() != ".gguf") break;
    named = next;
  }
  if (named.extension() != ".gguf") return target;
  const fs::path folder = named.parent_path();
  return fs::canonical(folder.empty() ? "." : folder, error) / named.filename();
}

// The loader looks for a name in the folders in order, so the draft's must not be in the model's.
absl::Status CheckDraftIsFound(const ModelPlace& model, const ModelPlace& draft) {
  if (draft.root == model.root || draft.root.empty() || model.root.empty()) return absl::OkStatus();
  std::error_code error;
  const fs::path other = fs::path(model.root) / draft.name;
  if (!fs::exists(other, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "draft model %s/%s: %s would be loaded in its place, for it has the same name "
      "in the model's folder: rename one of them",
      draft.root, draft.name, other.string()));
}

// The devices of the GPU workers; an empty one: the worker's choice.
std::vector<std::string> GpuDevices(const ClusterOptions& options) {
  return options.gpu_devices.empty() ? std::vector<std::string>{options.gpu_device}
                                     : options.gpu_devices;
}

// "gpu", "gpu1", "gpu2": of a GPU worker's socket.
std::string GpuSocket(const ClusterOptions& options, size_t gpu) {
  return Socket(options, gpu == 0 ? "gpu" : absl::StrFormat("gpu%d", gpu));
}

ServiceSpec GpuWorker(const ClusterOptions& options, size_t gpu, const std::string& device) {
  std::vector<std::string> arguments = {
      "--listen",       GpuSocket(options, gpu),
      "--name",         absl::StrFormat("gpu%d", gpu),
      "--gpu",          std::string(GpuPolicyName(options.gpu)),
      "--max-rows",     absl::StrFormat("%d", options.max_rows),
      "--tune",         options.tune,
      "--tune-seconds", absl::StrFormat("%g", options.tune_seconds)};
  if (!device.empty()) arguments.insert(arguments.end(), {"--device", device});
  const int port =
      gpu == 0 ? MetricsPorts::kGpu : MetricsPorts::kSupervisor + static_cast<int>(gpu);
  ServiceSpec spec =
      Service(options, gpu == 0 ? "gpu_worker" : absl::StrFormat("gpu_worker%d", gpu),
              "tandem-gpu-worker", port, std::move(arguments));
  spec.stop_rank = 1;
  return spec;
}

ServiceSpec Gateway(const ClusterOptions& options, const ModelPlace& model,
                    const std::string& draft) {
  std::vector<std::string> arguments = {"--listen", Socket(options, "gateway"),
                                        "--loader", Socket(options, "loader"),
                                        "--model",  model.name,
                                        "--npu",    std::string(NpuPolicyName(options.npu)),
                                        "--gpu",    std::string(GpuPolicyName(options.gpu)),
                                        "--http",   options.http};
  const size_t num_gpus = GpuDevices(options).size();
  for (size_t gpu = 0; gpu < num_gpus; ++gpu) {
    arguments.insert(arguments.end(), {"--worker", GpuSocket(options, gpu)});
  }
  const size_t by_default = options.split ? 1 : num_gpus;
  const size_t replicas = options.replicas == 0 ? by_default : options.replicas;
  if (replicas > 1) {
    arguments.insert(arguments.end(), {"--replicas", absl::StrFormat("%d", replicas)});
  } else if (num_gpus > 1) {
    arguments.insert(arguments.end(), {"--gpus", "0"});
  }
  if (options.prompt_replicas > 0) {
    arguments.insert(arguments.end(),
                     {"--prompt-replicas", absl::StrFormat("%d", options.prompt_replicas)});
  }
  if (options.npu_prompts) arguments.emplace_back("--npu-prompts");
  if (options.pan_and_scan) arguments.emplace_back("--pan-and-scan");
  arguments.insert(arguments.end(), options.gateway_arguments.begin(),
                   options.gateway_arguments.end());
  if (!model.alias.empty()) arguments.insert(arguments.end(), {"--alias", model.alias});
  const auto add = [&arguments](const char* flag, uint64_t value) {
    arguments.emplace_back(flag);
    arguments.push_back(absl::StrFormat("%d", value));
  };
  // With --npu off too: the gateway then reports the worker as absent, and so no alert waits for it.
  arguments.insert(arguments.end(), {"--npu-worker", Socket(options, "npu")});
  arguments.insert(arguments.end(), options.host_arguments.begin(), options.host_arguments.end());
  if (options.out_on_npu) arguments.emplace_back("--out-on-npu");
  arguments.insert(arguments.end(),
                   {"--kv-type", options.kv_type, "--prefix-cache", options.prefix_cache});
  if (!options.speculate.empty()) {
    arguments.insert(arguments.end(), {"--speculate", options.speculate});
  }
  if (!draft.empty()) {
    arguments.insert(arguments.end(), {"--draft", draft, "--draft-device", options.draft_device});
  }
  add("--max-sequences", options.max_sequences);
  add("--max-rows", options.max_rows);
  if (!options.queue_steps) arguments.emplace_back("--no-queued-steps");
  if (options.port != 0) add("--port", static_cast<uint64_t>(options.port));
  if (options.context_len != 0) add("--context", options.context_len);
  if (options.kv_tokens != 0) add("--kv-tokens", options.kv_tokens);
  ServiceSpec gateway =
      Service(options, "gateway", "tandem-gateway", MetricsPorts::kGateway, std::move(arguments));
  gateway.stop_rank = 2;
  gateway.takes_hangup = true;
  gateway.stop_grace = absl::Seconds(35);  // it drains its requests for up to 30
  return gateway;
}

}  // namespace

absl::StatusOr<ModelPlace> FindModel(const std::string& model) {
  if (loader::IsSyntheticName(model)) {
    TANDEM_RETURN_IF_ERROR(loader::ParseSyntheticName(model).status());
    return ModelPlace{"", model};
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string file, pull::PathOrPulled(model));
  std::error_code error;
  const fs::path path = FollowLinks(file, error);
  const fs::path target = error ? fs::path() : fs::canonical(path, error);
  if (error) {
    return absl::NotFoundError(absl::StrFormat("model %s: %s", model, error.message()));
  }
  ModelPlace place{path.parent_path().string(), path.filename().string(),
                   file == model ? "" : model};
  if (target.parent_path() != path.parent_path()) {
    place.target_root = target.parent_path().string();
  }
  return place;
}

absl::StatusOr<std::string> FindMmproj(const std::string& mmproj) {
  if (mmproj == "none") return mmproj;
  std::error_code error;
  const fs::path path = fs::canonical(mmproj, error);
  if (error) return absl::NotFoundError(absl::StrFormat("%s: %s", mmproj, error.message()));
  if (!loader::IsVisionFile(path.string())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is no mmproj file: its general.architecture is not clip", mmproj));
  }
  return path.string();
}

namespace {

// Whether there is an NPU worker to start.  If the policy does without one and no worker is
// installed, a note tells the gateway.
absl::StatusOr<bool> PrepareNpuWorker(const ClusterOptions& options) {
  const std::string target = Socket(options, "npu");
  RemoveAbsence(target);  // of a run before
  const NpuPolicy policy = NpuWorkerPolicy(options);
  if (policy == NpuPolicy::kOff) return false;
  const std::string executable = options.bin_dir + "/tandem-npu-worker";
  if (!NpuIsOptional(policy) || ::access(executable.c_str(), X_OK) == 0) return true;
  TANDEM_RETURN_IF_ERROR(
      WriteAbsence(target, {.kind = "npu",
                            .name = "npu0",
                            .reason = absl::StrFormat("%s is not installed", executable)}));
  return false;
}

// Tells the gateway of an NPU worker that died before it could leave a note itself.
void NoteNpuGivenUp(const std::string& target, const std::string& reason) {
  WorkerAbsence absence{.kind = "npu", .name = "npu0", .reason = reason};
  std::error_code error;
  for (fs::directory_iterator it("/dev/accel", error), end; !error && it != end;
       it.increment(error)) {
    absence.device_present |= it->path().filename().string().starts_with("accel");
  }
  const absl::Status written = WriteAbsence(target, absence);
  if (written.ok()) return;
  LogWarning("the gateway will take the NPU worker for lost",
             {{"reason", std::string(written.message())}});
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListedGpus(const std::string& listed) {
  std::vector<std::string> devices;
  std::istringstream lines(listed);
  for (std::string line; std::getline(lines, line);) {
    devices.push_back(line.substr(0, line.find('\t')));
  }
  if (!devices.empty()) return devices;
  return absl::NotFoundError(
      "--gpus all: there is no GPU that can be used; `tandem doctor` says why, and without --gpus "
      "one worker takes what there is");
}

std::string MetricsAddress(const ClusterOptions& options, int port) {
  return absl::StrFormat("127.0.0.1:%d", options.metrics_port + port - MetricsPorts::kGateway);
}

std::string GatewayTarget(const ClusterOptions& options) { return Socket(options, "gateway"); }

absl::Status MakeDirectories(const ClusterOptions& options) {
  TANDEM_RETURN_IF_ERROR(MakePrivateDirectory(options.runtime_dir));
  if (!options.log_dir.empty()) TANDEM_RETURN_IF_ERROR(MakePrivateDirectory(options.log_dir));
  // The longest name is the loader's descriptor socket.
  const std::string longest = options.runtime_dir + "/loader.sock.fds";
  if (longest.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "runtime directory %s: socket names may have %d bytes, %s has %d: choose a shorter one "
        "with --runtime-dir",
        options.runtime_dir, sizeof(sockaddr_un::sun_path) - 1, longest, longest.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ServiceSpec>> PlanCluster(const ClusterOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const ModelPlace model, FindModel(options.model));
  ModelPlace draft;  // its name is empty without --draft
  if (!options.draft.empty()) {
    TANDEM_ASSIGN_OR_RETURN(draft, FindModel(options.draft));
    TANDEM_RETURN_IF_ERROR(CheckDraftIsFound(model, draft));
  }
  TANDEM_RETURN_IF_ERROR(MakeDirectories(options));
  std::vector<ServiceSpec> services;
  std::vector<std::string> loading = {"--listen", Socket(options, "loader"), "--root",
                                      model.root.empty() ? options.runtime_dir : model.root};
  std::set<std::string> roots = {model.root};
  for (const std::string& root : {model.target_root, draft.root, draft.target_root}) {
    if (!root.empty() && roots.insert(root).second) {
      loading.insert(loading.end(), {"--root", root});
    }
  }
  if (!options.mmproj.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string mmproj, FindMmproj(options.mmproj));
    loading.insert(loading.end(), {"--mmproj", absl::StrFormat("%s=%s", model.name, mmproj)});
  }
  if (!options.packed_cache) loading.emplace_back("--no-packed-cache");
  services.push_back(
      Service(options, "loader", "tandem-loader", MetricsPorts::kLoader, std::move(loading)));
  const std::vector<std::string> devices = GpuDevices(options);
  for (size_t gpu = 0; gpu < devices.size(); ++gpu) {
    services.push_back(GpuWorker(options, gpu, devices[gpu]));
  }
  TANDEM_ASSIGN_OR_RETURN(const bool has_npu_worker, PrepareNpuWorker(options));
  if (has_npu_worker) {
    services.push_back(Service(options, "npu_worker", "tandem-npu-worker", MetricsPorts::kNpu,
                               {"--listen", Socket(options, "npu"), "--name", "npu0", "--npu",
                                std::string(NpuPolicyName(NpuWorkerPolicy(options))), "--max-rows",
                                absl::StrFormat("%d", options.max_rows)}));
    services.back().stop_rank = 1;
    if (NpuIsOptional(options.npu)) {
      // With wrong answers it is a fault, but not the end of the cluster.
      services.back().final_exit_codes = {kExitNothingToDo, kExitWrongAnswers};
      services.back().give_up = [target = Socket(options, "npu")](const std::string& reason) {
        NoteNpuGivenUp(target, reason);
      };
    }
  }
  services.push_back(Gateway(options, model, draft.name));
  return services;
}

}  // namespace tandem

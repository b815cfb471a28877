// The four services of one machine, as processes: flags in, service specifications out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/plan/planner.h"
#include "tools/tandem/supervisor/supervisor.h"

namespace tandem {

struct ClusterOptions {
  std::string model;        // as for FindModel
  std::string mmproj;       // file of its vision encoder, or "none"; empty: the one beside it
  std::string bin_dir;      // where the services' executables are
  std::string runtime_dir;  // sockets; made with mode 0700
  std::string log_dir;      // one file a service; empty: they write to our standard error
  NpuPolicy npu = NpuPolicy::kAuto;
  GpuPolicy gpu = GpuPolicy::kPrefer;
  bool out_on_npu = false;
  std::string gpu_device;  // the GPU worker's --device; empty: its choice
  // Of several GPU workers, in place of it: indices (kAllGpus: REQUIRES none are left at PlanCluster).
  std::vector<std::string> gpu_devices;
  uint32_t replicas = 0;                       // the gateway's; 0: one for each of gpu_devices
  uint32_t prompt_replicas = 0;                // of them, for prompts alone
  bool pan_and_scan = false;                   // the gateway's
  bool npu_prompts = false;                    // the gateway's.  REQUIRES RequireNpuForPrompts
  bool split = false;                          // one replica over all of gpu_devices
  int port = 0;                                // gRPC on 127.0.0.1; 0: the unix socket alone
  std::string http = "off";                    // the gateway's --http
  std::vector<std::string> gateway_arguments;  // its other flags of HTTP and tracing
  std::vector<std::string> host_arguments;     // its flags for workers on other hosts
  uint32_t max_sequences = 16;
  uint32_t max_rows = 512;
  uint32_t context_len = 0;  // 0: the model's
  uint64_t kv_tokens = 0;    // 0: chosen by memory
  std::string kv_type = "f16";
  std::string prefix_cache = "on";
  std::string speculate;             // empty: as ChooseDrafters says
  std::string draft;                 // as for FindModel; may be empty
  std::string draft_device = "gpu";  // the gateway's --draft-device
  bool queue_steps = true;           // the gateway sends a step while another runs
  bool packed_cache = true;          // the loader keeps packed weights on disk
  std::string tune = "first-start";  // the GPU worker's --tune
  double tune_seconds = 30;          // of the device, for "now"
  bool metrics = false;              // pages for Prometheus on loopback
  int metrics_port = 9464;           // of the gateway's page; the others follow it
  std::string log_format = "text";   // of every service: "text" or "json"
  LogRotation rotation;              // of the files in log_dir
};

// Of gpu_devices: every GPU there is.
inline constexpr char kAllGpus[] = "all";

// The devices in what `tandem-gpu-worker --list` prints.  NOT_FOUND: none.
absl::StatusOr<std::vector<std::string>> ListedGpus(const std::string& listed);

// Default ports of the metrics pages.  Those of further GPU workers follow the last.
struct MetricsPorts {
  static constexpr int kGateway = 9464;
  static constexpr int kGpu = 9465;
  static constexpr int kNpu = 9466;
  static constexpr int kLoader = 9467;
  static constexpr int kSupervisor = 9468;
};
// "127.0.0.1:9465": `port` is one of MetricsPorts, shifted as options.metrics_port.
std::string MetricsAddress(const ClusterOptions& options, int port);

// unix:RUNTIME_DIR/gateway.sock
std::string GatewayTarget(const ClusterOptions& options);

// The model for the loader: folder and name.
struct ModelPlace {
  std::string root;  // empty: a synthetic model without a file
  std::string name;
  std::string alias;             // its name when pulled, for clients; may be empty
  std::string target_root = {};  // of the file that the name, a link, leads to; empty: of `root`
};
// `model`: a path, a synthetic name, or the name of a pulled model (docs/models.md).  Links are
// followed up to the last name that ends with ".gguf": in the hub's cache FILE.gguf is a link to
// blobs/HASH.
// INVALID_ARGUMENT: a wrong name; NOT_FOUND: no such model.
absl::StatusOr<ModelPlace> FindModel(const std::string& model);

// The canonical path of an mmproj file; "none" as it is.  NOT_FOUND; INVALID_ARGUMENT: another file.
absl::StatusOr<std::string> FindMmproj(const std::string& mmproj);

// Creates the runtime directory and the log directory.  INVALID_ARGUMENT: one is too long for a
// socket's name, belongs to another user or cannot be created.
absl::Status MakeDirectories(const ClusterOptions& options);

// Creates the directories and describes the processes.  INVALID_ARGUMENT: the model's path, a
// runtime directory too long for a socket's name or of another user; NOT_FOUND: no such model.
absl::StatusOr<std::vector<ServiceSpec>> PlanCluster(const ClusterOptions& options);

}  // namespace tandem

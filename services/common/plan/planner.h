// The planner: worker descriptions and a policy in, a placement out.  Plain data on both sides.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/common/plan/layer_ranges.h"
#include "services/common/plan/stage.h"
#include "services/common/tensor/dtype.h"

namespace tandem {

enum class DeviceKind : uint8_t { kGpu, kNpu };

// What a worker says of itself.
struct WorkerDescription {
  std::string name;    // unique in the cluster: "gpu0"
  std::string device;  // "llvmpipe (LLVM 15.0.6, 256 bits)"
  std::string driver;  // with its version: "radv Mesa 25.0.7"; empty: `device` says it
  DeviceKind kind = DeviceKind::kGpu;
  // The processor does the device's work: an NPU's emulator, or a software driver in a GPU's place.
  bool emulated = false;
  bool remote = false;  // on another host than the gateway: every activation crosses a network
  // It takes a step while the one before it runs, and feeds its rows from that one's guesses.
  bool feeds_steps = false;
  // Its Embed takes soft tokens, and its Attend lets a picture's rows see each other.
  bool takes_pictures = false;
  bool copies_kv = false;            // Worker::CopyKv
  std::vector<StageKind> stages;     // stage kinds it can run
  std::vector<DType> weight_dtypes;  // weight formats its matrix kernels read
  std::vector<uint32_t> head_dims;   // head sizes its attention reads; empty: any
  std::vector<DType> kv_dtypes;      // formats its KV cache can have; empty: float16 alone
  // Formats that q, k, v and attention can have where they cross to or from another worker, the one it
  // prefers first; empty: float16 alone, which every worker has.
  std::vector<DType> attend_port_dtypes;  // of what its Attend takes and passes on
  std::vector<DType> matrix_port_dtypes;  // of what its Qkv passes on and its Out takes
  uint32_t max_rows = 0;                  // rows in one step
  // About what it computes in steps of some rows, where that bounds their rows: a software driver.
  // 0: no bound.
  double operations_per_second = 0;
  uint64_t memory_bytes = 0;  // that its buffers can take together
  uint64_t memory_available_bytes = 0;
};

// What to do about the NPU.
enum class NpuPolicy : uint8_t {
  kAuto,     // as kPrefer, unless steps are faster with Attend on the GPU (alternatives.h)
  kRequire,  // Attend on an NPU (not an emulated one) or no plan
  kPrefer,   // Attend on an NPU (not an emulated one) if there is one that can, else on a GPU,
             // and the plan says so
  kEmulate,  // Attend on an emulated NPU or no plan
  kOff,      // NPU workers are left out
};
// "auto", "require", "prefer", "emulate" or "off"; INVALID_ARGUMENT for anything else.
absl::StatusOr<NpuPolicy> ParseNpuPolicy(std::string_view text);
std::string_view NpuPolicyName(NpuPolicy policy);
inline constexpr char kNpuPolicyHelp[] =
    "auto (where steps are measured to be faster), require, prefer, emulate or off";
inline constexpr char kNpuPromptsHelp[] =
    "The NPU computes prompts, all layers of them, while the GPU decodes, with the KV that it is "
    "handed (docs/replicas.md)";
// The policy where prompts are an NPU's: kAuto becomes kRequire.  INVALID_ARGUMENT: kPrefer or kOff.
absl::Status RequireNpuForPrompts(NpuPolicy& policy);
// Whether a plan without an NPU is one too, and no fault.
constexpr bool NpuIsOptional(NpuPolicy policy) {
  return policy == NpuPolicy::kAuto || policy == NpuPolicy::kPrefer;
}

// What to do about the GPU, whose place a software driver (Mesa's lavapipe) can take.
enum class GpuPolicy : uint8_t {
  kRequire,   // a GPU, or no plan
  kPrefer,    // a GPU if there is one, else a software driver, and the plan says so
  kSoftware,  // software drivers alone, as what was asked for
};
// "require", "prefer" or "software"; INVALID_ARGUMENT for anything else.
absl::StatusOr<GpuPolicy> ParseGpuPolicy(std::string_view text);
std::string_view GpuPolicyName(GpuPolicy policy);

struct PlacementPolicy {
  NpuPolicy npu = NpuPolicy::kPrefer;
  GpuPolicy gpu = GpuPolicy::kPrefer;
  bool out_on_npu = false;  // Out(i) beside Attend(i), where the NPU reads the weights
  // GPUs that share the layers, each a range of them, in the order they are listed; 0: all that
  // can run every stage but Attend.  Fewer are used when there are fewer, and the plan says so.
  // The ranges are as long as the memory each GPU has, where all say what they have, else equal.
  uint32_t num_gpus = 1;
  DType kv_dtype = DType::kF16;  // of every KV cache (tensor/kv_format.h)
  std::string why_no_npu;        // for the plan's notice; empty: not known
  // The ranges themselves, in order, of every layer; num_gpus means nothing then.
  std::vector<LayerRange> layers;
  // NPUs run all layers, whole; a GPU has Embed and Head.  REQUIRES layers.empty().
  bool layers_on_npu = false;
};

struct Plan {
  std::vector<WorkerDescription> workers;  // those that have a segment, in order of first use
  std::vector<Segment> segments;           // cover every stage exactly once, in order
  uint32_t max_rows = 0;                   // smallest of the workers'
  // Of q, k, v and attention where they cross workers: kF16 or kBf16 (port_formats.h).
  DType port_dtype = DType::kF16;
  std::string notice;  // why the plan differs from what the policy prefers; empty if it does not

  // Of a decoder's plan: why its steps cannot have pictures; empty if they can.
  std::string why_no_pictures() const;
};

// Assigns every stage to a worker and cuts the order of stages into maximal segments.
// Liveness decides the ports: a tensor is exported when its next reader runs elsewhere, so the
// residual stays on the GPU while attention runs on the NPU.  A tensor is imported by every
// segment that reads it first and whose worker did not write it last.
// A worker on another host gets a range of whole layers or nothing: no activation but the residual
// crosses hosts.  Attend of its layers therefore runs on it and not on an NPU, and an NPU on
// another host is left out; the plan says so. FAILED_PRECONDITION names the stage that nobody can
// run, the missing NPU or GPU under kRequire, the worker that cannot take the range it is given, or why
// no NPU runs layers that are to be on one.
// INVALID_ARGUMENT: two workers of one name, one that takes no rows, or ranges that do not cover
// the layers once, in order.
// `weight_dtypes`: formats of the model's matrices; a matrix worker must read all of them.
absl::StatusOr<Plan> MakePlan(const ModelConfig& config, const std::vector<DType>& weight_dtypes,
                              const std::vector<WorkerDescription>& workers,
                              const PlacementPolicy& policy);

// The plan of Vision on the first worker that can run it, GPUs of this machine first.
// FAILED_PRECONDITION: the model has no vision encoder, or no worker runs it; names the reasons.
// Otherwise as MakePlan.  `weight_dtypes`: formats of the encoder's matrices.
absl::StatusOr<Plan> MakeVisionPlan(const ModelConfig& config,
                                    const std::vector<DType>& weight_dtypes,
                                    const std::vector<WorkerDescription>& workers,
                                    const PlacementPolicy& policy);

// "Attend x12 on npu0 (emulated ...), the rest on gpu0 (llvmpipe ...)".
std::string DescribePlacement(const Plan& plan, const ModelConfig& config);

// "Out(3)+Ffn(3)+Qkv(4)"; "Embed..Head" where there are more than four stages.
std::string DescribeSegment(const Segment& segment, uint32_t num_layers);

}  // namespace tandem

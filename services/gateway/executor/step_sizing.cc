#include "services/gateway/executor/step_sizing.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/step/kv_copy.h"
#include "services/common/tensor/kv_format.h"

namespace tandem::gateway {
namespace {

constexpr uint64_t kMinBlocks = 2;
// Of a step on a device that computes on the processor; and as few rows as its matmuls compute
// efficiently.
constexpr double kSoftwareStepSeconds = 10;
constexpr uint32_t kLeastSoftwareRows = 8;
constexpr uint64_t kLogitBytes = uint64_t{64} << 20;
// Parts of a GPU's memory: for activations and code; for KV at least, whatever the weights take.
constexpr uint64_t kActivationsPart = 32, kLeastKvPart = 64;
constexpr uint64_t kMaxBlocks = uint64_t{1} << 30;  // ids are 32 bits, and never kNoBlock

// Keys, or values, of a layer are one buffer, and drivers of GPUs allocate no more at once (NVIDIA's
// maxMemoryAllocationSize; Mesa's RADV: 2 MiB more).
constexpr uint64_t kMostLayerBytes = 0xFFE00000;
// On an NPU keys and values of a layer are one buffer, which control code addresses with 32 bits: as
// bfloat16, with zeros behind each head's positions (npu_worker/operators/kv_slabs.h).
constexpr uint64_t kMostSlabBytes = 0xFFFFFFFF;
constexpr uint64_t kSlabZeros = 32;  // positions

uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

absl::Status CheckOptions(const ModelConfig& config, const SizingOptions& options) {
  const std::pair<const char*, uint32_t> positive[] = {{"max_rows", options.max_rows},
                                                       {"max_sequences", options.max_sequences},
                                                       {"block_tokens", options.block_tokens}};
  for (const auto& [name, value] : positive) {
    if (value == 0) return absl::InvalidArgumentError(absl::StrFormat("%s is 0", name));
  }
  if (options.context_len > config.context_len) {
    return absl::InvalidArgumentError(absl::StrFormat("context_len is %d, the model's is %d",
                                                      options.context_len, config.context_len));
  }
  return absl::OkStatus();
}

// What a worker's memory holds, in bytes.
struct MemorySum {
  uint64_t available = 0;  // 0: it knows no bound
  // Weights count where they take memory from the cache: on a GPU, also one that shares the host's
  // memory, for its driver has a limit of its own.  Elsewhere they lie in memory that was taken
  // before the worker began.
  uint64_t weights = 0;      // the vision encoder's too
  uint64_t activations = 0;  // and code: recordings and pipelines
  bool shared = false;       // with the host's other uses

  uint64_t left() const { return available - std::min(available, weights + activations); }
};

// What a worker that runs Vision holds of a picture between its kernels, about: float32 and float16
// rows of patches.
uint64_t PictureBytes(const VisionConfig& vision) {
  const uint64_t wide = std::max(3 * vision.hidden_dim, vision.ffn_dim);
  return uint64_t{vision.num_patches()} * (24ull * vision.hidden_dim + 6 * wide);
}

MemorySum SumOf(const ModelConfig& config, const Plan& plan, const SizingOptions& options,
                uint32_t worker) {
  const WorkerDescription& self = plan.workers[worker];
  MemorySum sum{.available = self.memory_available_bytes};
  sum.shared = self.kind != DeviceKind::kGpu || self.emulated;
  if (sum.shared) return sum;
  sum.weights = WeightBytesOn(config, plan, worker, options.weights);
  sum.activations = sum.available / kActivationsPart;
  const bool encodes = std::ranges::find(self.stages, StageKind::kVision) != self.stages.end();
  if (encodes && options.vision_bytes > 0 && config.vision.has_value() &&
      plan.why_no_pictures().empty()) {
    sum.weights += options.vision_bytes;
    sum.activations += PictureBytes(*config.vision);
  }
  return sum;
}

// What a worker's KV cache takes where nobody says; 0: it knows no bound.  The rest is for
// other plans, a draft model's, and for other users of the device.
uint64_t KvBudget(const ModelConfig& config, const Plan& plan, const SizingOptions& options,
                  uint32_t worker) {
  const MemorySum sum = SumOf(config, plan, options, worker);
  if (sum.shared) return sum.available / 4;
  return std::max(sum.left() / 4 * 3, sum.available / kLeastKvPart);
}

// Whether KV pools that were asked for fit every worker.
absl::Status CheckPools(const ModelConfig& config, const Plan& plan, const SizingOptions& options,
                        uint64_t global_blocks, uint64_t window_blocks) {
  for (uint32_t w = 0; w < plan.workers.size(); ++w) {
    const auto pool_bytes = [&](KvGroup group, uint64_t num_blocks) {
      return num_blocks *
             KvBlockBytes(config, plan, w, group, options.kv_dtype, options.block_tokens);
    };
    const uint64_t global = pool_bytes(kGlobalGroup, global_blocks);
    const uint64_t window = pool_bytes(kWindowGroup, window_blocks);
    const MemorySum sum = SumOf(config, plan, options, w);
    if (sum.available == 0 || global + window <= sum.left()) continue;
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%d tokens of KV do not fit %s: %d MiB of KV in global layers + %d MiB in windows + %d MiB "
        "of weights + %d MiB for activations and code = %d MiB, and %d MiB are available; lower "
        "kv_tokens or max_sequences",
        options.kv_tokens, plan.workers[w].name, global >> 20, window >> 20, sum.weights >> 20,
        sum.activations >> 20, (global + window + sum.weights + sum.activations) >> 20,
        sum.available >> 20));
  }
  return absl::OkStatus();
}

// Blocks of a pool that one buffer of a layer holds, on every worker that attends.  `what` tells of the
// tightest worker.
uint64_t BlocksOfABuffer(const ModelConfig& config, const Plan& plan, const SizingOptions& options,
                         std::string& what) {
  const uint64_t head_numbers = uint64_t{config.num_kv_heads} * config.head_dim;
  const uint64_t slab_slots = kMostSlabBytes / (2 * head_numbers * sizeof(uint16_t));
  const uint64_t of_slab = (slab_slots - std::min(slab_slots, kSlabZeros)) / options.block_tokens;
  const uint64_t of_keys =
      kMostLayerBytes /
      (config.num_kv_heads * KvPageBytes(options.kv_dtype, options.block_tokens, config.head_dim));
  uint64_t most = kMaxBlocks;
  for (uint32_t w = 0; w < plan.workers.size(); ++w) {
    const auto block_bytes = [&](KvGroup group) {
      return KvBlockBytes(config, plan, w, group, options.kv_dtype, options.block_tokens);
    };
    if (block_bytes(kGlobalGroup) + block_bytes(kWindowGroup) == 0) continue;
    const WorkerDescription& worker = plan.workers[w];
    const bool is_npu = worker.kind == DeviceKind::kNpu;
    const uint64_t blocks = is_npu ? of_slab : of_keys;
    if (blocks >= most) continue;
    most = blocks;
    what = absl::StrFormat("%s: %s of a layer are one buffer, which holds %d tokens", worker.name,
                           is_npu ? "keys and values" : "keys", blocks * options.block_tokens);
  }
  return most;
}

// Window blocks that leave half of every worker's budget to the global ones, where it has any.
uint64_t WindowBlocksThatFit(const ModelConfig& config, const Plan& plan,
                             const SizingOptions& options) {
  uint64_t fit = kMaxBlocks;
  for (uint32_t w = 0; w < plan.workers.size(); ++w) {
    const auto block_bytes = [&](KvGroup group) {
      return KvBlockBytes(config, plan, w, group, options.kv_dtype, options.block_tokens);
    };
    const uint64_t window = block_bytes(kWindowGroup);
    const uint64_t budget = KvBudget(config, plan, options, w);
    if (budget == 0 || window == 0) continue;
    const uint64_t share = block_bytes(kGlobalGroup) > 0 ? 2 : 1;
    fit = std::min(fit, budget / share / window);
  }
  return fit;
}

// Blocks that fit the memory of every worker, once `window_blocks` are taken.  `what` tells of
// the tightest worker.
uint64_t GlobalBlocksThatFit(const ModelConfig& config, const Plan& plan,
                             const SizingOptions& options, uint64_t window_blocks,
                             std::string& what) {
  uint64_t fit = kMaxBlocks;
  for (uint32_t w = 0; w < plan.workers.size(); ++w) {
    const uint64_t budget = KvBudget(config, plan, options, w);
    const auto block_bytes = [&](KvGroup group) {
      return KvBlockBytes(config, plan, w, group, options.kv_dtype, options.block_tokens);
    };
    const uint64_t global = block_bytes(kGlobalGroup);
    const uint64_t window = block_bytes(kWindowGroup) * window_blocks;
    if (budget == 0 || global + window == 0) continue;
    const uint64_t rest = budget > window ? budget - window : 0;
    const uint64_t blocks = global == 0 ? (rest > 0 ? kMaxBlocks : 0) : rest / global;
    if (blocks >= fit) continue;
    fit = blocks;
    what = absl::StrFormat(
        "%s has %d MiB available, %d of them for KV beside %d MiB of weights; the window pool "
        "takes %d MiB, a block of all sequences' positions %d bytes",
        plan.workers[w].name, plan.workers[w].memory_available_bytes >> 20, budget >> 20,
        SumOf(config, plan, options, w).weights >> 20, window >> 20, global);
  }
  return fit;
}

// The weights of a worker's stages: by role, and by layer where each layer has its own.
std::set<std::pair<WeightRole, uint32_t>> NeededWeights(const ModelConfig& config, const Plan& plan,
                                                        uint32_t worker) {
  std::set<std::pair<WeightRole, uint32_t>> needed;
  for (const Segment& segment : plan.segments) {
    if (segment.worker != worker) continue;
    for (uint32_t s = segment.first_ordinal; s <= segment.last_ordinal; ++s) {
      const Stage stage = StageAt(s, config.num_layers);
      for (const WeightRole role : RolesOfStage(stage.kind)) {
        needed.insert({role, IsPerLayer(role) ? stage.layer_idx : 0});
      }
    }
  }
  return needed;
}

// Of a row in the layers of a worker, without attention and head.
double OperationsOfRow(const ModelConfig& config, const Plan& plan, uint32_t worker,
                       std::span<const PackedTensor> weights) {
  const auto needed = NeededWeights(config, plan, worker);
  double operations = 0;
  for (const PackedTensor& tensor : weights) {
    if (IsNorm(tensor.role) || !IsPerLayer(tensor.role)) continue;
    if (!needed.contains({tensor.role, tensor.layer_idx})) continue;
    operations += 2.0 * static_cast<double>(tensor.shape.rows * tensor.shape.cols);
  }
  return operations;
}

uint32_t MaxRows(const ModelConfig& config, const Plan& plan, const SizingOptions& options) {
  const uint32_t most = std::min(options.max_rows, plan.max_rows);
  uint32_t least = kLeastSoftwareRows;
  if (config.vision.has_value() && plan.why_no_pictures().empty()) {
    least = std::max(least, config.vision->tokens_per_image);  // a picture is in one step
  }
  double rows = most;
  for (uint32_t w = 0; w < plan.workers.size(); ++w) {
    const double rate = plan.workers[w].operations_per_second;
    if (rate <= 0) continue;
    const double operations = OperationsOfRow(config, plan, w, options.weights);
    if (operations > 0) rows = std::min(rows, kSoftwareStepSeconds * rate / operations);
  }
  return std::min(most, std::max(least, static_cast<uint32_t>(rows)));
}

}  // namespace

uint64_t WeightBytesOn(const ModelConfig& config, const Plan& plan, uint32_t worker,
                       std::span<const PackedTensor> weights) {
  const auto needed = NeededWeights(config, plan, worker);
  uint64_t bytes = 0;
  for (const PackedTensor& tensor : weights) {
    if (!needed.contains({tensor.role, tensor.layer_idx})) continue;
    for (const Shard& shard : tensor.shards) bytes += ShardBytes(tensor, shard);
  }
  return bytes;
}

uint64_t KvBlockBytes(const ModelConfig& config, const Plan& plan, uint32_t worker, KvGroup group,
                      DType kv_dtype, uint32_t block_tokens) {
  uint64_t num_layers = 0;
  for (const Segment& segment : plan.segments) {
    if (segment.worker != worker) continue;
    for (uint32_t s = segment.first_ordinal; s <= segment.last_ordinal; ++s) {
      const Stage stage = StageAt(s, config.num_layers);
      const KvGroup of_stage = config.is_global(stage.layer_idx) ? kGlobalGroup : kWindowGroup;
      if (stage.kind == StageKind::kAttend && of_stage == group) ++num_layers;
    }
  }
  return num_layers * 2 * config.num_kv_heads *
         KvPageBytes(kv_dtype, block_tokens, config.head_dim);
}

uint64_t KvAreaBytes(const ModelConfig& config, const Plan& plan, const StepLimits& limits,
                     uint64_t wanted) {
  const bool all_copy = std::ranges::all_of(
      plan.workers, [](const WorkerDescription& worker) { return worker.copies_kv; });
  if (!all_copy) return 0;
  const KvCopyLayout layout(config, limits);
  uint64_t least = 0, whole = 0;
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    least += layout.BlockBytes(group);
    whole += layout.BlockBytes(group) * limits.num_blocks[group];
  }
  const uint64_t bytes = std::max(least, std::min(whole, wanted));
  return bytes <= kMaxKvAreaBytes ? bytes : 0;
}

absl::StatusOr<StepLimits> MakeStepLimits(const ModelConfig& config, const Plan& plan,
                                          const SizingOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckOptions(config, options));
  const uint64_t block = options.block_tokens;
  StepLimits limits;
  limits.max_rows = MaxRows(config, plan, options);
  limits.max_sequences = std::min(options.max_sequences, limits.max_rows);
  limits.max_outputs = limits.max_rows;
  limits.max_logit_outputs = std::max<uint64_t>(
      limits.max_sequences,
      std::min<uint64_t>(limits.max_rows, kLogitBytes / (config.vocab_size * sizeof(float))));
  limits.vocab_size = config.vocab_size;
  limits.block_tokens = options.block_tokens;
  limits.kv_dtype = options.kv_dtype;
  limits.sliding_window = config.sliding_window;
  if (config.vision.has_value() && plan.why_no_pictures().empty()) {
    limits.picture_rows = config.vision->tokens_per_image;
    limits.max_pictures = limits.max_rows / limits.picture_rows;
  }
  limits.context_len = options.context_len == 0 ? config.context_len : options.context_len;

  const uint64_t context_blocks = CeilDiv(limits.context_len, block);
  const uint64_t window_blocks = std::min(
      CeilDiv(uint64_t{limits.sliding_window} + limits.max_rows, block) + 1, context_blocks);
  uint64_t global = options.kv_tokens != 0 ? CeilDiv(options.kv_tokens, block)
                                           : context_blocks * limits.max_sequences;
  uint64_t window = window_blocks * limits.max_sequences;
  std::string tightest;
  if (options.kv_tokens == 0) {
    window = std::min(window, std::max(window_blocks, WindowBlocksThatFit(config, plan, options)));
    global = std::min(
        global, GlobalBlocksThatFit(config, plan, options, std::min(global, window), tightest));
  }
  std::string smallest;
  const uint64_t most = BlocksOfABuffer(config, plan, options, smallest);
  if (options.kv_tokens != 0 && global > most) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d tokens of KV do not fit %s; lower kv_tokens, or use several replicas",
                        options.kv_tokens, smallest));
  }
  global = std::min({global, most, kMaxBlocks});
  if (global < std::min(kMinBlocks, context_blocks)) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "no room for KV: %s; lower max_sequences, max_rows or context_len", tightest));
  }
  window = std::min(global, window);
  if (options.kv_tokens != 0) {
    TANDEM_RETURN_IF_ERROR(CheckPools(config, plan, options, global, window));
  }
  limits.num_blocks[kGlobalGroup] = global;
  limits.num_blocks[kWindowGroup] = window;
  limits.context_len = std::min<uint64_t>(limits.context_len, global * block);
  limits.max_table_len = kNumKvGroups * CeilDiv(limits.context_len, block) * limits.max_sequences;
  return limits;
}

}  // namespace tandem::gateway

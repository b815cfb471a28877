// Sizes of steps and of the KV pools.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/common/plan/planner.h"
#include "services/common/step/step_batch.h"
#include "services/common/weights/packed_tensor.h"

namespace tandem::gateway {

struct SizingOptions {
  uint32_t max_rows = 0;
  uint32_t max_sequences = 0;
  uint32_t context_len = 0;  // 0: the model's
  uint32_t block_tokens = 0;
  uint64_t kv_tokens = 0;  // 0: chosen here
  DType kv_dtype = DType::kF16;
  std::span<const PackedTensor> weights;  // the model's; empty: they take no memory
  // Of the vision encoder's weights, where the model has one and pictures are served.
  uint64_t vision_bytes = 0;
};

// Bytes of the weights that a worker's stages read, each tensor once.
uint64_t WeightBytesOn(const ModelConfig& config, const Plan& plan, uint32_t worker,
                       std::span<const PackedTensor> weights);

// Bytes of KV cache that one block takes in the layers of a group whose Attend runs on `worker` of
// the plan.
uint64_t KvBlockBytes(const ModelConfig& config, const Plan& plan, uint32_t worker, KvGroup group,
                      DType kv_dtype, uint32_t block_tokens);

// Of the exchange region's area for copies of KV: `wanted`, or more where a block of each group takes
// more, or less where the whole cache takes less.  0: a worker of the plan makes no copies, or a block
// is too large for them.
uint64_t KvAreaBytes(const ModelConfig& config, const Plan& plan, const StepLimits& limits,
                     uint64_t wanted);

// Limits that every worker of the plan can take.
//   rows      at most the plan's max_rows; where a worker has operations_per_second, as many as take
//             10 s, at least 8 and a picture's; sequences at most the rows; an output for every row,
//             whole logits for as many as fit 64 MiB, at least one a sequence
//   window    per sequence ceil((window + max_rows) / block) + 1 blocks, at most its context's;
//             if that takes more than half of the memory for KV, the blocks of that half, at
//             least one sequence's; then fewer sequences run at once
//   global    kv_tokens, or max_sequences whole contexts, or what the worker with least has for KV,
//             the window pool included: three quarters of what weights, activations and code leave
//             on a GPU; a quarter of the available memory elsewhere, where it is the host's; at most
//             what one buffer of a layer holds: keys on a GPU, keys and values on an NPU, of 4 GiB
// The window pool is capped by the global one.  A context longer than the global pool is cut to
// it: no sequence could ever be longer.
// INVALID_ARGUMENT: a zero, a context longer than the model's.  RESOURCE_EXHAUSTED: not even two
// blocks fit, or the kv_tokens that were asked for do not, with the sum.
absl::StatusOr<StepLimits> MakeStepLimits(const ModelConfig& config, const Plan& plan,
                                          const SizingOptions& options);

}  // namespace tandem::gateway

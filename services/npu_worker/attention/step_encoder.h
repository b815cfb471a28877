// Steps and layers as the kernels read them (kernel_abi.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "services/common/model/model_config.h"
#include "services/common/step/exchange_layout.h"
#include "services/common/step/step_batch.h"
#include "services/common/weights/packed_tensor.h"
#include "services/common/worker/worker.h"
#include "services/npu_worker/attention/kernel_abi.h"

namespace tandem::npu {

// Bytes of a step descriptor that holds any step within `limits`.
size_t StepDescriptorBytes(const StepLimits& limits);

struct EncodedStep {
  size_t bytes = 0;
  uint32_t num_positions = 0;  // one past the highest position of any row
};
// Lays a checked step out at the start of `out`.  `picture_rows`: of a picture.  REQUIRES it is
// within the limits that `out` was sized for.
EncodedStep EncodeStep(const StepBatch& step, uint32_t picture_rows, std::span<std::byte> out);

// `kv_offset`: of the layer in its group's buffer.
AttendParameters MakeAttendParameters(const ModelConfig& config, uint32_t layer_idx,
                                      const ExchangeLayout& layout, const KvSpec& kv,
                                      uint64_t kv_offset);

// `weight_offset`: of the shard in the weight buffer.
OutParameters MakeOutParameters(const ModelConfig& config, const PackedTensor& weight,
                                const Shard& shard, const ExchangeLayout& layout,
                                uint64_t weight_offset);

}  // namespace tandem::npu

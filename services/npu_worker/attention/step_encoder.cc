#include "services/npu_worker/attention/step_encoder.h"

#include <algorithm>
#include <cstring>

#include "services/common/base/check.h"

namespace tandem::npu {
namespace {

size_t BytesFor(uint64_t num_sequences, uint64_t table_len) {
  return sizeof(StepDescriptor) + num_sequences * sizeof(SequenceDescriptor) +
         table_len * sizeof(uint32_t);
}

}  // namespace

size_t StepDescriptorBytes(const StepLimits& limits) {
  return BytesFor(limits.max_sequences, limits.max_table_len);
}

EncodedStep EncodeStep(const StepBatch& step, std::span<std::byte> out) {
  const size_t bytes = BytesFor(step.sequences.size(), step.block_table.size());
  TANDEM_CHECK(bytes <= out.size());
  StepDescriptor header = {.num_rows = step.header.num_rows,
                           .num_sequences = static_cast<uint32_t>(step.sequences.size()),
                           .table_len = static_cast<uint32_t>(step.block_table.size())};
  std::byte* sequences = out.data() + sizeof(header);
  for (const SequenceEntry& entry : step.sequences) {
    SequenceDescriptor sequence = {.first_row = entry.first_row,
                                   .num_rows = entry.num_rows,
                                   .first_position = step.rows[entry.first_row].position};
    std::ranges::copy(entry.table_offset, sequence.table_offset);
    header.num_positions =
        std::max(header.num_positions, sequence.first_position + sequence.num_rows);
    std::memcpy(sequences, &sequence, sizeof(sequence));
    sequences += sizeof(sequence);
  }
  if (!step.block_table.empty()) {
    std::memcpy(sequences, step.block_table.data(), step.block_table.size_bytes());
  }
  std::memcpy(out.data(), &header, sizeof(header));
  return {bytes, header.num_positions};
}

AttendParameters MakeAttendParameters(const ModelConfig& config, uint32_t layer_idx,
                                      const ExchangeLayout& layout, const KvSpec& kv,
                                      uint64_t kv_offset) {
  const bool global = config.is_global(layer_idx);
  const KvGroup group = global ? kGlobalGroup : kWindowGroup;
  return {.layer_idx = layer_idx,
          .head_dim = config.head_dim,
          .num_heads = config.num_heads,
          .num_kv_heads = config.num_kv_heads,
          .group = group,
          .window = global ? 0 : config.sliding_window,
          .block_tokens = kv.block_tokens,
          .num_blocks = kv.num_blocks[group],
          .scale = config.attention_scale,
          .q_offset = layout.port(Port::kQ).offset,
          .k_offset = layout.port(Port::kK).offset,
          .v_offset = layout.port(Port::kV).offset,
          .attention_offset = layout.port(Port::kAttention).offset,
          .kv_offset = kv_offset};
}

OutParameters MakeOutParameters(const ModelConfig& config, const PackedTensor& weight,
                                const Shard& shard, const ExchangeLayout& layout,
                                uint64_t weight_offset) {
  return {.layer_idx = weight.layer_idx,
          .weight_dtype = static_cast<uint32_t>(shard.dtype),
          .num_rows = static_cast<uint32_t>(shard.num_rows),
          .num_cols = static_cast<uint32_t>(weight.shape.cols),
          .first_row = static_cast<uint32_t>(shard.first_row),
          .hidden_dim = config.hidden_dim,
          .attention_offset = layout.port(Port::kAttention).offset,
          .projection_offset = layout.port(Port::kProjection).offset,
          .weight_offset = weight_offset};
}

}  // namespace tandem::npu

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

// A picture is a run of rows, and so is what follows it.
uint64_t MostRuns(uint64_t num_sequences, uint64_t num_pictures) {
  return num_sequences + 2 * num_pictures;
}

// Calls put(descriptor) for each run of rows of one sequence, in order.  `picture`: the first that is
// not of an earlier sequence; moved past this one's.
template <typename Put>
void CutRuns(const StepBatch& step, const SequenceEntry& entry, uint32_t picture_rows,
             std::span<const PictureEntry>::iterator& picture, const Put& put) {
  const uint32_t end = entry.first_row + entry.num_rows;
  uint32_t row = entry.first_row;
  const auto put_run = [&](uint32_t run_end, uint32_t picture_first) {
    if (run_end == row) return;
    SequenceDescriptor run = {.first_row = row,
                              .num_rows = run_end - row,
                              .first_position = step.rows[row].position,
                              .picture_first = picture_first};
    std::ranges::copy(entry.table_offset, run.table_offset);
    put(run);
    row = run_end;
  };
  for (; picture != step.pictures.end() && picture->first_row < end; ++picture) {
    put_run(picture->first_row, kNoPicture);
    put_run(picture->first_row + picture->num_rows,
            FirstPosition(*picture, step.rows, picture_rows));
  }
  put_run(end, kNoPicture);
}

}  // namespace

size_t StepDescriptorBytes(const StepLimits& limits) {
  return BytesFor(MostRuns(limits.max_sequences, limits.max_pictures), limits.max_table_len);
}

EncodedStep EncodeStep(const StepBatch& step, uint32_t picture_rows, std::span<std::byte> out) {
  TANDEM_CHECK(BytesFor(MostRuns(step.sequences.size(), step.pictures.size()),
                        step.block_table.size()) <= out.size());
  StepDescriptor header = {.num_rows = step.header.num_rows,
                           .table_len = static_cast<uint32_t>(step.block_table.size())};
  std::byte* next = out.data() + sizeof(header);
  auto picture = step.pictures.begin();
  for (const SequenceEntry& entry : step.sequences) {
    CutRuns(step, entry, picture_rows, picture, [&](const SequenceDescriptor& run) {
      header.num_positions = std::max(header.num_positions, run.first_position + run.num_rows);
      ++header.num_sequences;
      std::memcpy(next, &run, sizeof(run));
      next += sizeof(run);
    });
  }
  if (!step.block_table.empty()) {
    std::memcpy(next, step.block_table.data(), step.block_table.size_bytes());
    next += step.block_table.size_bytes();
  }
  std::memcpy(out.data(), &header, sizeof(header));
  return {static_cast<size_t>(next - out.data()), header.num_positions};
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

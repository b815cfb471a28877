#include "services/npu_worker/emulator/kernels/attend.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/emulator/address_space.h"
#include "services/npu_worker/emulator/kernels/arithmetic.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint32_t kRowsPerTask = 16;
constexpr uint32_t kMaxCount = 1u << 20;  // of rows, heads, tokens: keeps products in 64 bits

// Everything checked; pointers into the buffers.
struct Job {
  const StepView& step;
  const AttendParameters& layer;
  const uint16_t* q;
  const uint16_t* k;
  const uint16_t* v;
  uint16_t* attention;
  uint16_t* cache;
  uint64_t block_elements;

  uint32_t FirstVisible(const SequenceDescriptor& sequence, uint32_t position) const {
    const uint32_t first =
        layer.window == 0 || position + 1 <= layer.window ? 0 : position + 1 - layer.window;
    return std::min(first, sequence.picture_first);
  }
  static uint32_t LastVisible(const SequenceDescriptor& sequence, uint32_t position) {
    if (sequence.picture_first == kNoPicture) return position;
    return sequence.first_position + sequence.num_rows - 1;
  }
  uint32_t Block(const SequenceDescriptor& sequence, uint32_t position) const {
    return step.block_table[sequence.table_offset[layer.group] + position / layer.block_tokens];
  }
  // k of one position and kv head; v lies half a block further.
  uint16_t* Cached(const SequenceDescriptor& sequence, uint32_t position, uint32_t kv_head) const {
    const uint64_t slot = uint64_t{kv_head} * layer.block_tokens + position % layer.block_tokens;
    return cache + Block(sequence, position) * block_elements + slot * layer.head_dim;
  }
};

struct Task {
  uint32_t sequence;
  uint32_t kv_head;
  uint32_t first_row;  // within the sequence
  uint32_t num_rows;
};

absl::Status CheckLayer(const AttendParameters& layer) {
  if (layer.magic != kAttendParametersMagic || layer.version != kAbiVersion) {
    return absl::InvalidArgumentError(
        absl::StrFormat("attend: parameters %#x version %d", layer.magic, layer.version));
  }
  const bool counts_hold =
      layer.head_dim % kLanes == 0 && layer.head_dim >= kLanes && layer.head_dim <= 1024 &&
      layer.num_kv_heads >= 1 && layer.num_heads <= kMaxCount &&
      layer.num_heads >= layer.num_kv_heads && layer.num_heads % layer.num_kv_heads == 0 &&
      layer.group < kNumKvGroups && layer.block_tokens >= 1 && layer.block_tokens <= kMaxCount;
  if (!counts_hold) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "attend: layer %d: head_dim %d, %d heads on %d kv heads, group %d, blocks of %d",
        layer.layer_idx, layer.head_dim, layer.num_heads, layer.num_kv_heads, layer.group,
        layer.block_tokens));
  }
  return absl::OkStatus();
}

absl::Status CheckBlocks(const Job& job) {
  for (const SequenceDescriptor& sequence : job.step.sequences) {
    const uint32_t last = sequence.first_position + sequence.num_rows - 1;
    const uint64_t entries = last / job.layer.block_tokens + 1;
    const uint64_t offset = sequence.table_offset[job.layer.group];
    if (offset + entries > job.step.block_table.size()) {
      return absl::OutOfRangeError(absl::StrFormat("attend: table [%d, +%d) of %d entries", offset,
                                                   entries, job.step.block_table.size()));
    }
    const uint32_t first =
        job.FirstVisible(sequence, sequence.first_position) / job.layer.block_tokens;
    for (uint64_t i = first; i < entries; ++i) {
      const uint32_t block = job.step.block_table[offset + i];
      if (block >= job.layer.num_blocks) {
        return absl::OutOfRangeError(
            absl::StrFormat("attend: block %d of a pool of %d", block, job.layer.num_blocks));
      }
    }
  }
  return absl::OkStatus();
}

void Append(const Job& job) {
  const AttendParameters& layer = job.layer;
  const size_t bytes = layer.head_dim * sizeof(uint16_t);
  for (const SequenceDescriptor& sequence : job.step.sequences) {
    for (uint32_t i = 0; i < sequence.num_rows; ++i) {
      const uint64_t row = sequence.first_row + i;
      for (uint32_t g = 0; g < layer.num_kv_heads; ++g) {
        uint16_t* slot = job.Cached(sequence, sequence.first_position + i, g);
        const uint64_t source = (row * layer.num_kv_heads + g) * layer.head_dim;
        std::memcpy(slot, job.k + source, bytes);
        std::memcpy(slot + job.block_elements / 2, job.v + source, bytes);
      }
    }
  }
}

// Rows [first_row, first_row + num_rows) of a sequence against one kv head.
void RunTask(const Job& job, const Task& task, const Arithmetic& math) {
  const AttendParameters& layer = job.layer;
  const SequenceDescriptor& sequence = job.step.sequences[task.sequence];
  const size_t dim = layer.head_dim;
  const uint32_t heads = layer.num_heads / layer.num_kv_heads;
  const uint32_t first_position = sequence.first_position + task.first_row;
  const uint32_t last_position = Job::LastVisible(sequence, first_position + task.num_rows - 1);

  thread_local std::vector<float> scratch;
  const size_t lines = size_t{task.num_rows} * heads;
  scratch.assign(2 * lines * dim + 2 * kTilePositions * dim, 0.0f);
  float* const q = scratch.data();
  float* const accumulators = q + lines * dim;
  float* const k_tile = accumulators + lines * dim;
  float* const v_tile = k_tile + kTilePositions * dim;
  thread_local std::vector<AttentionState> states;
  states.resize(lines);
  const auto row_offset = [&](uint32_t i) {
    const uint64_t row = sequence.first_row + task.first_row + i;
    return (row * layer.num_heads + uint64_t{task.kv_head} * heads) * dim;
  };
  for (uint32_t i = 0; i < task.num_rows; ++i) {
    math.half_to_float(job.q + row_offset(i), q + i * heads * dim, heads * dim);
  }
  for (size_t i = 0; i < lines * dim; ++i) q[i] *= layer.scale;
  for (size_t i = 0; i < lines; ++i) {
    states[i] = {-std::numeric_limits<float>::infinity(), 0.0f, accumulators + i * dim};
  }

  const uint32_t first_visible = job.FirstVisible(sequence, first_position);
  for (uint32_t base = first_visible / kTilePositions * kTilePositions; base <= last_position;
       base += kTilePositions) {
    const uint32_t begin = std::max(base, first_visible);
    const uint32_t end = std::min(base + kTilePositions - 1, last_position);
    for (uint32_t position = begin; position <= end; ++position) {
      const uint16_t* cached = job.Cached(sequence, position, task.kv_head);
      math.half_to_float(cached, k_tile + (position - base) * dim, dim);
      math.half_to_float(cached + job.block_elements / 2, v_tile + (position - base) * dim, dim);
    }
    for (uint32_t i = 0; i < task.num_rows; ++i) {
      const uint32_t position = first_position + i;
      const uint32_t first = std::max(base, job.FirstVisible(sequence, position));
      const uint32_t last =
          std::min(base + kTilePositions - 1, Job::LastVisible(sequence, position));
      if (first > last) continue;
      for (uint32_t h = 0; h < heads; ++h) {
        const size_t line = size_t{i} * heads + h;
        math.attend_tile(q + line * dim, k_tile, v_tile, dim, static_cast<int>(first - base),
                         static_cast<int>(last - base), &states[line]);
      }
    }
  }
  for (uint32_t i = 0; i < task.num_rows; ++i) {
    uint16_t* out = job.attention + row_offset(i);
    for (size_t e = 0; e < heads * dim; ++e) {
      const AttentionState& state = states[i * heads + e / dim];
      out[e] = FloatToHalf(state.accumulator[e % dim] / state.sum);
    }
  }
}

}  // namespace

absl::StatusOr<StepView> ReadStep(std::span<const std::byte> buffer) {
  StepView step;
  if (buffer.size() < sizeof(step.header)) {
    return absl::OutOfRangeError(absl::StrFormat("step: buffer of %d bytes", buffer.size()));
  }
  std::memcpy(&step.header, buffer.data(), sizeof(step.header));
  const StepDescriptor& header = step.header;
  if (header.magic != kStepDescriptorMagic || header.version != kAbiVersion) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step: descriptor %#x version %d", header.magic, header.version));
  }
  const uint64_t sequence_bytes = uint64_t{header.num_sequences} * sizeof(SequenceDescriptor);
  const uint64_t table_bytes = uint64_t{header.table_len} * sizeof(uint32_t);
  if (header.num_rows == 0 || header.num_rows > kMaxCount ||
      sequence_bytes + table_bytes > buffer.size() - sizeof(header)) {
    return absl::OutOfRangeError(
        absl::StrFormat("step: %d rows, %d sequences, %d table entries in a buffer of %d bytes",
                        header.num_rows, header.num_sequences, header.table_len, buffer.size()));
  }
  const std::byte* sequences = buffer.data() + sizeof(header);
  step.sequences = {reinterpret_cast<const SequenceDescriptor*>(sequences), header.num_sequences};
  step.block_table = {reinterpret_cast<const uint32_t*>(sequences + sequence_bytes),
                      header.table_len};
  for (const SequenceDescriptor& sequence : step.sequences) {
    const uint64_t end_row = uint64_t{sequence.first_row} + sequence.num_rows;
    const uint64_t end_position = uint64_t{sequence.first_position} + sequence.num_rows;
    if (sequence.num_rows == 0 || end_row > header.num_rows ||
        end_position > header.num_positions) {
      return absl::OutOfRangeError(absl::StrFormat(
          "step: sequence with rows [%d, %d) of %d up to position %d of %d", sequence.first_row,
          end_row, header.num_rows, end_position, header.num_positions));
    }
  }
  return step;
}

absl::StatusOr<std::span<std::byte>> Attend(const StepView& step, const AttendParameters& layer,
                                            std::span<std::byte> exchange, std::span<std::byte> kv,
                                            ParallelFor& parallel_for) {
  TANDEM_RETURN_IF_ERROR(CheckLayer(layer));
  const uint64_t q_bytes =
      uint64_t{step.header.num_rows} * layer.num_heads * layer.head_dim * sizeof(uint16_t);
  const uint64_t kv_bytes = q_bytes / layer.num_heads * layer.num_kv_heads;
  const uint64_t block_elements =
      KvBlockElements(layer.num_kv_heads, layer.block_tokens, layer.head_dim);
  if (layer.num_blocks > (uint64_t{1} << 62) / (block_elements * sizeof(uint16_t))) {
    return absl::OutOfRangeError(absl::StrFormat("attend: %d blocks", layer.num_blocks));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto q, Within(exchange, layer.q_offset, q_bytes, "q"));
  TANDEM_ASSIGN_OR_RETURN(const auto k, Within(exchange, layer.k_offset, kv_bytes, "k"));
  TANDEM_ASSIGN_OR_RETURN(const auto v, Within(exchange, layer.v_offset, kv_bytes, "v"));
  TANDEM_ASSIGN_OR_RETURN(const auto out,
                          Within(exchange, layer.attention_offset, q_bytes, "attention"));
  TANDEM_ASSIGN_OR_RETURN(
      const auto cache,
      Within(kv, layer.kv_offset, layer.num_blocks * block_elements * sizeof(uint16_t), "kv"));
  if ((layer.q_offset | layer.k_offset | layer.v_offset | layer.attention_offset |
       layer.kv_offset) %
          alignof(uint64_t) !=
      0) {
    return absl::InvalidArgumentError("attend: an offset is not a multiple of 8");
  }
  const Job job{step,
                layer,
                reinterpret_cast<const uint16_t*>(q.data()),
                reinterpret_cast<const uint16_t*>(k.data()),
                reinterpret_cast<const uint16_t*>(v.data()),
                reinterpret_cast<uint16_t*>(out.data()),
                reinterpret_cast<uint16_t*>(cache.data()),
                block_elements};
  TANDEM_RETURN_IF_ERROR(CheckBlocks(job));
  Append(job);

  static thread_local std::vector<Task> tasks;
  tasks.clear();
  for (uint32_t s = 0; s < step.sequences.size(); ++s) {
    for (uint32_t row = 0; row < step.sequences[s].num_rows; row += kRowsPerTask) {
      const uint32_t rows = std::min(kRowsPerTask, step.sequences[s].num_rows - row);
      for (uint32_t g = 0; g < layer.num_kv_heads; ++g) tasks.push_back({s, g, row, rows});
    }
  }
  const std::vector<Task>& list = tasks;  // the helper's own `tasks` is another
  const Arithmetic& math = HostArithmetic();
  parallel_for.Run(static_cast<int>(list.size()),
                   [&job, &list, &math](int i) { RunTask(job, list[i], math); });
  return out;
}

}  // namespace tandem::npu::emulator

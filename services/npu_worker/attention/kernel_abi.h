// The contract between the host and an NPU kernel package: arguments, descriptors, KV layout.
// README.md in this folder says it in prose; a kernel for AIE cores is written to the two.
//
// Calling convention (mlir-aie's): kernel `MLIR_AIE`, arguments
//   0 opcode u64 = 3 | 1 instruction buffer | 2 its length in 32-bit words | 3.. data buffers
//
//   data buffer   Attend                          Out
//   0 step        StepDescriptor and what follows the same
//   1 layer       AttendParameters                OutParameters
//   2 exchange    one lane: q, k, v in, attention out;  attention in, projection out
//   3 kv          a KV group's cache, in and out  the step buffer again, unused
//   4 weights     the step buffer again, unused   a weight region or a copy of one shard
//
// Everything is little-endian.  Offsets are bytes from the start of the data buffer named.
#pragma once

#include <cstddef>
#include <cstdint>

#include "services/common/step/step_batch.h"

namespace tandem::npu {

inline constexpr char kKernelName[] = "MLIR_AIE";
inline constexpr uint64_t kRunOpcode = 3;
inline constexpr int kFirstDataArgument = 3;
inline constexpr int kNumDataBuffers = 5;
enum DataBuffer : int {
  kStepBuffer = 0,
  kLayerBuffer = 1,
  kExchangeBuffer = 2,
  kKvBuffer = 3,
  kWeightBuffer = 4,
};

inline constexpr uint32_t kAbiVersion = 3;                      // 3: rows of pictures
inline constexpr uint32_t kStepDescriptorMagic = 0x53504E54;    // "TNPS"
inline constexpr uint32_t kAttendParametersMagic = 0x41504E54;  // "TNPA"
inline constexpr uint32_t kOutParametersMagic = 0x4F504E54;     // "TNPO"

// Data buffer 0, written once a step and read by every layer of it:
//   StepDescriptor | SequenceDescriptor[num_sequences] | uint32 block_table[table_len]
struct StepDescriptor {
  uint32_t magic = kStepDescriptorMagic;
  uint32_t version = kAbiVersion;
  uint32_t num_rows = 0;
  uint32_t num_sequences = 0;
  uint32_t table_len = 0;
  uint32_t num_positions = 0;  // one past the highest position of any row: picks the bucket
  uint32_t reserved[10] = {};
};
static_assert(sizeof(StepDescriptor) == 64);

inline constexpr uint32_t kNoPicture = 0xFFFFFFFFu;

// Rows [first_row, first_row + num_rows) hold positions first_position, first_position + 1, ...
// Position p lies in block block_table[table_offset[group] + p / block_tokens].  A sequence of the
// step has one descriptor, or, with pictures, one for each run of rows of one picture or of none.
struct SequenceDescriptor {
  uint32_t first_row = 0;
  uint32_t num_rows = 0;
  uint32_t first_position = 0;
  uint32_t table_offset[kNumKvGroups] = {};
  // Position of the picture's first row, at or before first_position; the descriptor's last row is
  // the picture's.  kNoPicture: rows of text.
  uint32_t picture_first = kNoPicture;
  uint32_t reserved[2] = {};
};
static_assert(sizeof(SequenceDescriptor) == 32);

// Data buffer 1 of Attend, written at load.  For each row r at position p of its sequence and
// each head h, with kv head g = h / (num_heads / num_kv_heads):
//   cache[p] = k[r, g], v[r, g]
//   attention[r, h] = sum_j softmax_j(scale * q[r, h] . k[j, g]) v[j, g],  first <= j <= last
// where first = 0 when window is 0, max(0, p + 1 - window) otherwise, and last = p.  A row of a picture
// has the lower of first and picture_first, and for last its descriptor's last position.  Every row of
// the step is in the cache before any is attended to.
struct AttendParameters {
  uint32_t magic = kAttendParametersMagic;
  uint32_t version = kAbiVersion;
  uint32_t layer_idx = 0;
  uint32_t head_dim = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t group = 0;   // KvGroup: which table of a sequence to use
  uint32_t window = 0;  // positions a row sees, itself included; 0: all
  uint32_t block_tokens = 0;
  uint32_t num_blocks = 0;
  float scale = 0.0f;
  uint32_t reserved = 0;
  uint64_t q_offset = 0;          // in exchange, f16 [max_rows, num_heads, head_dim]
  uint64_t k_offset = 0;          // in exchange, f16 [max_rows, num_kv_heads, head_dim]
  uint64_t v_offset = 0;          // in exchange, f16 [max_rows, num_kv_heads, head_dim]
  uint64_t attention_offset = 0;  // in exchange, f16 [max_rows, num_heads, head_dim]
  uint64_t kv_offset = 0;         // of this layer's blocks in kv
  uint64_t reserved_tail[5] = {};
};
static_assert(sizeof(AttendParameters) == 128);

// One layer of the KV cache is f16 [num_blocks][2: k, v][num_kv_heads][block_tokens][head_dim]:
// what one head reads of one block is contiguous.
inline constexpr uint64_t KvBlockElements(uint32_t num_kv_heads, uint32_t block_tokens,
                                          uint32_t head_dim) {
  return uint64_t{2} * num_kv_heads * block_tokens * head_dim;
}

// Data buffer 1 of Out, written at load; one command per shard of the weight.
//   projection[r, first_row + i] = sum_c weight[i, c] attention[r, c],  i < num_rows, c < num_cols
struct OutParameters {
  uint32_t magic = kOutParametersMagic;
  uint32_t version = kAbiVersion;
  uint32_t layer_idx = 0;
  uint32_t weight_dtype = 0;  // tandem::DType
  uint32_t num_rows = 0;      // of the shard: outputs
  uint32_t num_cols = 0;      // num_heads * head_dim
  uint32_t first_row = 0;
  uint32_t hidden_dim = 0;         // outputs of the whole matrix: the projection's row stride
  uint64_t attention_offset = 0;   // in exchange, f16 [max_rows, num_cols]
  uint64_t projection_offset = 0;  // in exchange, f32 [max_rows, hidden_dim]
  uint64_t weight_offset = 0;      // in weights, of the shard (layout: weights/packed_tensor.h)
  uint64_t reserved_tail[9] = {};
};
static_assert(sizeof(OutParameters) == 128);

}  // namespace tandem::npu

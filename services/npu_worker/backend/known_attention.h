// Attention whose answer is known: what the self-tests of both backends ask for.
//
// A chunk of a prompt in one sequence, and a single row, deep in a sliding window, of another, whose blocks
// lie in every way that an array reads: by themselves, four side by side, four at a constant distance.  All
// numbers are ones that both float16 and bfloat16 have.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::npu::known_attention {

inline constexpr uint32_t kGroupHeads = 2;  // that share a kv head
inline constexpr uint32_t kNumRows = 6;
inline constexpr uint32_t kChunkRows = 5;       // sequence 0, positions 0 ..
inline constexpr uint32_t kDeepPosition = 149;  // sequence 1, a single row
inline constexpr uint32_t kWindow = 133;        // from position 17 on
inline constexpr uint32_t kBlockTokens = 16;
inline constexpr uint32_t kNumBlocks = 16;
// Sequence 0: block 2; sequence 1: the others.
inline constexpr uint32_t kTable[] = {2, 3, 0, 4, 5, 6, 7, 9, 11, 13, 15};
// Answers are from 0.5 to 1.5 in size.  Scores, probabilities, values and results are rounded, each by
// 2^-8 of the largest at most, in block floating point by 2^-7 (npu4).
inline constexpr float kTolerance = 0.06f;

struct Place {
  uint32_t sequence;
  uint32_t position;
};
Place PlaceOf(uint32_t row);

// Element `d` of a head, of a kv head.
float Query(uint32_t row, uint32_t head, uint32_t d);
float Key(uint32_t kv_head, uint32_t sequence, uint32_t position, uint32_t d);
float Value(uint32_t kv_head, uint32_t sequence, uint32_t position, uint32_t d);

// [kNumRows][num_kv_heads * kGroupHeads][head_dim], computed in float64, with a scale of
// 1 / sqrt(head_dim).
std::vector<float> Expected(uint32_t num_kv_heads, uint32_t head_dim);

}  // namespace tandem::npu::known_attention

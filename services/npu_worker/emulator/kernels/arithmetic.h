// The inner loops of the emulated kernels: plain C++ over 16-wide vectors, compiled once per
// instruction set (arithmetic.cc) and chosen when the process starts.
//
// Each function's result depends on its arguments alone, operation by operation in a fixed
// order, so a row's result cannot depend on what else is in a batch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::npu::emulator {

inline constexpr int kTilePositions = 16;  // positions of a tile; also the width of a vector
inline constexpr int kLanes = 16;

// Softmax of one row and head, as far as it has come (Milakov and Gimelshein 2018).
struct AttentionState {
  float max;           // of the scores so far; -infinity at the start
  float sum;           // of exp(score - max)
  float* accumulator;  // [head_dim], sum of exp(score - max) v
};

struct Arithmetic {
  const char* name;
  // out[i] = f16 bits in[i]; any n.
  void (*half_to_float)(const uint16_t* in, float* out, size_t n);
  // Takes positions [first, last] of a tile into `state`.  q: [head_dim], already scaled;
  // k, v: [kTilePositions, head_dim]; head_dim is a multiple of kLanes.
  void (*attend_tile)(const float* q, const float* k, const float* v, size_t head_dim, int first,
                      int last, AttentionState* state);
  // out[j] = x . rows[j], j < 4; rows: [4, n], n a multiple of kLanes.
  void (*dot_four)(const float* x, const float* rows, size_t n, float* out);
  // One row of a packed matrix (weights/packed_tensor.h): `dtype` is a tandem::DType, `planes`
  // point at the row's first piece in each plane.
  void (*dequantize)(uint32_t dtype, const uint8_t* const* planes, size_t n, float* out);
};

// The best that this processor runs.
const Arithmetic& HostArithmetic();

}  // namespace tandem::npu::emulator

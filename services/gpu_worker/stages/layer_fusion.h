// Chooses, before recording, which kernels the layers of a segment use and which launches are fused.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/gpu_worker/kernels/matmul.h"

namespace tandem::gpu {

// A layer's matrices, of the stages that the segment has.  Borrowed.
struct LayerWeights {
  std::span<const DeviceTensor> qkv;  // its parts by format; empty: no Qkv
  bool attends = false;
  const DeviceTensor* out = nullptr;      // null: no Out
  const DeviceTensor* gate_up = nullptr;  // null: no Ffn
  const DeviceTensor* down = nullptr;     // likewise
};

// Where the norm of Qkv's input is computed.
enum class QkvNorm : uint8_t {
  kAlone,    // in a launch of its own
  kWithAdd,  // in the launch that adds the previous layer's Ffn to the residual
  kInQkv,    // in Qkv's matmuls, which also add the previous layer's Ffn
};

struct LayerFusion {
  std::vector<Matmul> qkv;  // by part
  QkvNorm qkv_norm = QkvNorm::kAlone;
  // Reads attention as the other worker writes it if Attend runs elsewhere; if it runs here, as int8 or
  // fragments where both agree on it, else as f16.
  Matmul out;
  uint32_t out_split_k = 1;       // partial sums of Out that the Ffn adds
  bool gate_up_has_norm = false;  // gate_up computes the norm of its input
  Matmul gate_up;
  Matmul down;
};

struct AttentionFormats {
  bool writes_own = false;  // Attend of this worker can write the format that Out reads best
  ActivationFormat from_elsewhere = ActivationFormat::kF16;  // of another worker's attention
};

// By layer.  `hidden_dim`: elements of the residual.  `rows`: of the row bucket.
std::vector<LayerFusion> ChooseFusions(const Tuning& tuning, std::span<const LayerWeights> layers,
                                       uint32_t hidden_dim, const AttentionFormats& attention,
                                       uint32_t rows);

}  // namespace tandem::gpu

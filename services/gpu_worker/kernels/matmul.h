// Which kernel computes a matmul for a row bucket, and the formats of its input and output.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/launches.h"
#include "services/gpu_worker/kernels/matrix_launches.h"
#include "services/gpu_worker/kernels/matvec_launches.h"

namespace tandem::gpu {

enum class MatmulKernel : uint8_t {
  kPlain,   // matmul.comp: any device, any number of rows
  kMatvec,  // matvec.comp: few rows
  kMatrix,  // coop_matmul.comp: many rows
};

// The choice for one row bucket.
struct Matmul {
  MatmulKernel kernel = MatmulKernel::kPlain;
  ActivationFormat input = ActivationFormat::kF32;  // of x
  float input_scale = 1.0f;                         // of f16
  MatvecShape shape;
  // Partial sums in the output, which the consumer adds.
  uint32_t split_k() const { return kernel == MatmulKernel::kMatvec ? shape.split_k : 1; }
};

// The input format is the one that the kernel reads best.  `can_split`: the consumer adds the
// partial sums of split-K.
Matmul ChooseMatmul(const Tuning& tuning, const DeviceTensor& weights, bool geglu, bool can_split,
                    uint32_t max_rows);

// For a matrix whose `parts` have several formats and one input.  If their best kernels read
// different input formats, all use the plain kernel.
std::vector<Matmul> ChooseMatmuls(const Tuning& tuning, std::span<const DeviceTensor> parts,
                                  uint32_t max_rows);

// Whether the matmul computes its input itself, from the output of the matmul before (InputNorm).
// Only with one row.
bool TakesInputNorm(const Tuning& tuning, const Matmul& matmul, const DeviceTensor& weights,
                    uint32_t max_rows);
// Sets the input of `matmul` to attention's format: kF16, or kBf16 that another worker wrote.
void TakeAttention(Matmul& matmul, ActivationFormat format);
// Chooses the format between the matmul with GeGLU over `weights` and the matmul that reads it.
void MatchGeglu(const Matmul& geglu, const DeviceTensor& weights, Matmul& reader);

struct MatmulArgs {
  uint64_t count = 0;  // address of the number of rows
  uint64_t x = 0;
  uint64_t destination = 0;
  uint32_t out_stride = 0;
  uint32_t split_stride = 0;  // elements between the partial sums of split-K
  bool geglu = false;         // rows 2i and 2i + 1 of the weights make column i
  ActivationFormat out_format = ActivationFormat::kF32;  // with geglu
  uint32_t first_row = 0;
  uint32_t max_rows = 0;
  std::optional<InputNorm> norm;  // if TakesInputNorm
  MatrixWorkspace workspace;
};
Launch MatmulLaunch(const Tuning& tuning, const Matmul& matmul, const DeviceTensor& weights,
                    const DeviceShard& shard, const MatmulArgs& args);

}  // namespace tandem::gpu

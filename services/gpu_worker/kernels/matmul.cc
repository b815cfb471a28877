#include "services/gpu_worker/kernels/matmul.h"

#include <algorithm>

namespace tandem::gpu {

Matmul ChooseMatmul(const Tuning& tuning, const DeviceTensor& weights, bool geglu, bool can_split,
                    uint32_t max_rows) {
  Matmul matmul;
  const bool narrow = UsesNarrowMatrices(tuning, weights.dtype, max_rows);
  if (!narrow && UsesMatrixUnits(tuning, weights.dtype, max_rows)) {
    matmul.kernel = MatmulKernel::kMatrix;
    matmul.input = ActivationFormat::kF16;
  } else if (narrow || (max_rows <= tuning.matvec_max_rows && HasMatvec(weights.dtype))) {
    matmul.kernel = MatmulKernel::kMatvec;
    matmul.input = narrow ? ActivationFormat::kFragments : MatvecInput(weights.dtype);
    matmul.shape = ChooseMatvecShape(tuning, weights, geglu, can_split, max_rows);
  }
  return matmul;
}

std::vector<Matmul> ChooseMatmuls(const Tuning& tuning, std::span<const DeviceTensor> parts,
                                  uint32_t max_rows) {
  std::vector<Matmul> matmuls;
  for (const DeviceTensor& part : parts) {
    matmuls.push_back(ChooseMatmul(tuning, part, false, false, max_rows));
    if (matmuls.back().input != matmuls[0].input) return std::vector<Matmul>(parts.size());
  }
  return matmuls;
}

bool TakesInputNorm(const Tuning& tuning, const Matmul& matmul, const DeviceTensor& weights,
                    uint32_t max_rows) {
  // Others leave fewer registers: on an H200 q8_0 lost a fifth by it, q4_k 2%.
  return tuning.norm_inputs != 0 && weights.dtype == DType::kQ4_0 && max_rows == 1 &&
         matmul.kernel == MatmulKernel::kMatvec && matmul.input == ActivationFormat::kInt8 &&
         CanNormInput(tuning, weights, matmul.shape);
}

void TakeAttention(Matmul& matmul, ActivationFormat format) { matmul.input = format; }

void MatchGeglu(const Matmul& geglu, const DeviceTensor& weights, Matmul& reader) {
  const bool whole_blocks =
      std::all_of(weights.shards.begin(), weights.shards.end(),
                  [](const DeviceShard& shard) { return shard.first_row % 64 == 0; });
  const bool is_matvec = geglu.kernel == MatmulKernel::kMatvec;
  const auto can_write = [&] {
    switch (reader.input) {
      case ActivationFormat::kF32:
        return true;
      case ActivationFormat::kF16:
        return geglu.kernel != MatmulKernel::kPlain;
      case ActivationFormat::kInt8:
        return is_matvec && !geglu.shape.narrow && whole_blocks;
      case ActivationFormat::kFragments:
        return is_matvec && geglu.shape.narrow;
      case ActivationFormat::kBf16:
        break;
    }
    return false;
  };
  if (!can_write()) {
    if (reader.input != ActivationFormat::kInt8) reader.kernel = MatmulKernel::kPlain;
    reader.input = ActivationFormat::kF32;
  }
  if (reader.input == ActivationFormat::kF16 || reader.input == ActivationFormat::kFragments) {
    reader.input_scale = kGegluHalfScale;
  }
}

Launch MatmulLaunch(const Tuning& tuning, const Matmul& matmul, const DeviceTensor& weights,
                    const DeviceShard& shard, const MatmulArgs& args) {
  switch (matmul.kernel) {
    case MatmulKernel::kMatvec:
      return MatvecLaunch(tuning, weights, shard, matmul.shape,
                          {.count = args.count,
                           .x = args.x,
                           .x_format = matmul.input,
                           .x_scale = matmul.input_scale,
                           .destination = args.destination,
                           .out_stride = args.out_stride,
                           .split_stride = args.split_stride,
                           .geglu = args.geglu,
                           .out_format = args.out_format,
                           .first_row = args.first_row,
                           .max_rows = args.max_rows,
                           .norm = args.norm});
    case MatmulKernel::kMatrix:
      return MatrixMatmulLaunch(
          tuning, weights, shard,
          {.count = args.count,
           .x = args.x,
           .x_format = matmul.input,
           .x_scale = matmul.input_scale,
           .output = !args.geglu                                 ? MatrixOutput::kF32
                     : args.out_format == ActivationFormat::kF16 ? MatrixOutput::kGegluF16
                                                                 : MatrixOutput::kGegluF32,
           .destination = args.destination,
           .out_stride = args.out_stride,
           .first_row = args.first_row,
           .max_rows = args.max_rows,
           .workspace = args.workspace});
    case MatmulKernel::kPlain:
      break;
  }
  return PlainMatmulLaunch(tuning, weights, shard,
                           {.count = args.count,
                            .x = args.x,
                            .x_format = matmul.input,
                            .destination = args.destination,
                            .out_stride = args.out_stride,
                            .geglu = args.geglu,
                            .first_row = args.first_row,
                            .max_rows = args.max_rows});
}

}  // namespace tandem::gpu

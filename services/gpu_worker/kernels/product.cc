#include "services/gpu_worker/kernels/product.h"

#include <algorithm>

namespace tandem::gpu {

Product ChooseProduct(const Tuning& tuning, const DeviceTensor& weights, bool geglu, bool can_split,
                      uint32_t max_rows) {
  Product product;
  const bool bytes = UsesByteMatrices(tuning, weights, max_rows);
  if (!bytes && UsesMatrixUnits(tuning, weights.dtype, max_rows)) {
    product.kernel = ProductKernel::kMatrix;
    product.input = ActivationFormat::kF16;
  } else if (bytes || (max_rows <= tuning.matvec_max_rows && HasMatvec(weights.dtype))) {
    product.kernel = ProductKernel::kMatvec;
    product.input = MatvecInput(weights.dtype);
    product.shape = ChooseMatvecShape(tuning, weights, geglu, can_split, max_rows);
  }
  return product;
}

std::vector<Product> ChooseProducts(const Tuning& tuning, std::span<const DeviceTensor> parts,
                                    uint32_t max_rows) {
  // The int8 matrix kernel takes all parts or none: its input has another format.
  Tuning common = tuning;
  common.matrix.byte_sums = std::ranges::all_of(
      parts, [&](const DeviceTensor& part) { return UsesByteMatrices(tuning, part, max_rows); });
  std::vector<Product> products;
  for (const DeviceTensor& part : parts) {
    products.push_back(ChooseProduct(common, part, false, false, max_rows));
    if (products.back().input != products[0].input) return std::vector<Product>(parts.size());
  }
  return products;
}

bool TakesInputNorm(const Tuning& tuning, const Product& product, const DeviceTensor& weights,
                    uint32_t max_rows) {
  // Others leave fewer registers: on an H200 q8_0 lost a fifth by it, q4_k 2%.
  return tuning.norm_inputs != 0 && weights.dtype == DType::kQ4_0 && max_rows == 1 &&
         product.kernel == ProductKernel::kMatvec && product.input == ActivationFormat::kInt8 &&
         CanNormInput(tuning, weights, product.shape);
}

void TakeAttention(Product& product) { product.input = ActivationFormat::kF16; }

void MatchGeglu(const Product& geglu, const DeviceTensor& weights, Product& reader) {
  const bool whole_blocks =
      std::all_of(weights.shards.begin(), weights.shards.end(),
                  [](const DeviceShard& shard) { return shard.first_row % 64 == 0; });
  const bool can_write =
      reader.input == ActivationFormat::kF32 ||
      (geglu.kernel == ProductKernel::kMatvec &&
       (reader.input == ActivationFormat::kF16 || whole_blocks)) ||
      (geglu.kernel == ProductKernel::kMatrix && reader.input == ActivationFormat::kF16);
  if (!can_write) {
    reader.input = ActivationFormat::kF32;
    if (reader.kernel == ProductKernel::kMatrix) reader.kernel = ProductKernel::kPlain;
  }
  if (reader.input == ActivationFormat::kF16) reader.input_scale = kGegluHalfScale;
}

Launch ProductLaunch(const Tuning& tuning, const Product& product, const DeviceTensor& weights,
                     const DeviceShard& shard, const ProductArgs& args) {
  switch (product.kernel) {
    case ProductKernel::kMatvec:
      return MatvecLaunch(tuning, weights, shard, product.shape,
                          {.count = args.count,
                           .x = args.x,
                           .x_format = product.input,
                           .destination = args.destination,
                           .out_stride = args.out_stride,
                           .slice_stride = args.slice_stride,
                           .geglu = args.geglu,
                           .out_format = args.out_format,
                           .first_row = args.first_row,
                           .max_rows = args.max_rows,
                           .norm = args.norm});
    case ProductKernel::kMatrix:
      return MatrixMatmulLaunch(
          tuning, weights, shard,
          {.count = args.count,
           .x = args.x,
           .x_scale = product.input_scale,
           .output = !args.geglu                                 ? MatrixOutput::kF32
                     : args.out_format == ActivationFormat::kF16 ? MatrixOutput::kGegluF16
                                                                 : MatrixOutput::kGegluF32,
           .destination = args.destination,
           .out_stride = args.out_stride,
           .first_row = args.first_row,
           .max_rows = args.max_rows,
           .workspace = args.workspace});
    case ProductKernel::kPlain:
      break;
  }
  return MatmulLaunch(tuning, weights, shard,
                      {.count = args.count,
                       .x = args.x,
                       .x_f16 = product.input == ActivationFormat::kF16,
                       .destination = args.destination,
                       .out_stride = args.out_stride,
                       .geglu = args.geglu,
                       .first_row = args.first_row,
                       .max_rows = args.max_rows});
}

}  // namespace tandem::gpu

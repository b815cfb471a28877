// Which kernel makes a product of a row bucket, and in what formats it goes in and out.
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

enum class ProductKernel : uint8_t {
  kPlain,   // matmul.comp: any device, any number of rows
  kMatvec,  // matvec.comp: few rows
  kMatrix,  // coop_matmul.comp: many
};

// A product as one row bucket gets it.
struct Product {
  ProductKernel kernel = ProductKernel::kPlain;
  ActivationFormat input = ActivationFormat::kF32;  // of x
  float input_scale = 1.0f;                         // of f16
  MatvecShape shape;
  // Sums that the output lies in, for the consumer to add.
  uint32_t slices() const { return kernel == ProductKernel::kMatvec ? shape.slices : 1; }
};

// The input is what the kernel reads best.  `can_split`: the consumer adds slices.
Product ChooseProduct(const Tuning& tuning, const DeviceTensor& weights, bool geglu, bool can_split,
                      uint32_t max_rows);

// Products of one matrix's `parts` in several formats, all of one input: where the best kernels
// read different ones, the plain kernel for all.
std::vector<Product> ChooseProducts(const Tuning& tuning, std::span<const DeviceTensor> parts,
                                    uint32_t max_rows);

// Whether the product makes its input itself, of what the one before has left: of one row it may.
bool TakesInputNorm(const Tuning& tuning, const Product& product, const DeviceTensor& weights,
                    uint32_t max_rows);
// Makes `product` read attention's float16.
void TakeAttention(Product& product);
// Chooses the format between a product with GeGLU over `weights` and the product that reads it.
void MatchGeglu(const Product& geglu, const DeviceTensor& weights, Product& reader);

struct ProductArgs {
  uint64_t count = 0;  // address of the number of rows
  uint64_t x = 0;
  uint64_t destination = 0;
  uint32_t out_stride = 0;
  uint32_t slice_stride = 0;  // elements between slices
  bool geglu = false;         // rows 2i and 2i + 1 of the weights make column i
  ActivationFormat out_format = ActivationFormat::kF32;  // with geglu
  uint32_t first_row = 0;
  uint32_t max_rows = 0;
  std::optional<InputNorm> norm;  // of products that take it
  MatrixWorkspace workspace;
};
Launch ProductLaunch(const Tuning& tuning, const Product& product, const DeviceTensor& weights,
                     const DeviceShard& shard, const ProductArgs& args);

}  // namespace tandem::gpu

// How a device's lanes hold the left matrix (float16) and the sums (float32) of a product of
// cooperative matrices, 16 x 16 in a subgroup of 32.  Vulkan does not say, but it does not change:
// the device is asked once.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/device.h"
#include "services/gpu_worker/vulkan/pipeline.h"

namespace tandem::gpu {

// The kernels' ways to fill it: shaders/linear/coop.glsl.
enum class MatrixPath : uint8_t {
  kNone,    // no such matrices
  kShared,  // through shared memory, whatever the pattern
  kQuads,   // four lanes share two rows, eight apart
  kRows,    // a lane has a row, the two halves of the subgroup the same
};

struct MatrixPattern {
  MatrixPath path = MatrixPath::kNone;
  // kQuads: bit p: the lane's elements 2p and 2p + 1 lie in its second row; in the upper columns.
  uint32_t pair_rows = 0;
  uint32_t pair_halves = 0;
  // Whether a lane holds elements of the sums in the same two rows and eight columns, and where: as
  // above.
  bool quad_sums = false;
  uint32_t sum_pair_rows = 0;
  uint32_t sum_pair_halves = 0;
  // kRows: whether lanes g and g + 16 hold column g of the sums, its even and its odd rows.
  bool column_sums = false;

  bool operator==(const MatrixPattern&) const = default;
};

inline constexpr uint32_t kPatternMaxElements = 16;  // of a lane

// `elements_a`, `elements_c`: a lane's elements of the left matrix and of the sum.
// `positions`, `sums`: [32, kPatternMaxElements] 16 row + column of the left matrix's and the
// sum's.
MatrixPattern ClassifyMatrixPattern(uint32_t elements_a, uint32_t elements_c,
                                    std::span<const uint32_t> positions,
                                    std::span<const uint32_t> sums);

// Whether a lane holds sums of products of signed bytes, 16 x 8, as shaders/linear/byte_matrix.glsl
// expects.  `elements`: of a lane; `positions`: [32, kPatternMaxElements] 8 row + column.
bool HasByteSums(uint32_t elements, std::span<const uint32_t> positions);

// Runs the probe; kNone where the device has no such matrices.
absl::StatusOr<MatrixPattern> ProbeMatrixPattern(const vulkan::Device& device,
                                                 const vulkan::PipelineLayout& layout,
                                                 VkPipelineCache cache);
// HasByteSums of the device; false where it has no such matrices.
absl::StatusOr<bool> ProbeByteSums(const vulkan::Device& device,
                                   const vulkan::PipelineLayout& layout, VkPipelineCache cache);

}  // namespace tandem::gpu

// Fragment layouts: which elements of a cooperative matrix each lane of a subgroup holds.  Vulkan
// leaves the layout of a device open, but it never changes, so a probe runs once.  The matrices are
// the left one (float16) and the sums (float32) of a 16 x 16 multiplication in a subgroup of 32.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/device.h"
#include "services/gpu_worker/vulkan/pipeline.h"

namespace tandem::gpu {

// How kernels fill the left matrix: shaders/linear/coop.glsl.
enum class MatrixPath : uint8_t {
  kNone,    // the device has no such matrices
  kShared,  // through shared memory, for any layout
  kQuads,   // four lanes share two rows, eight apart
  kRows,    // lanes g and g + 16 both hold row g
};

struct FragmentLayout {
  MatrixPath path = MatrixPath::kNone;
  // kQuads: bit p is set if the lane's elements 2p and 2p + 1 lie in its second row (pair_rows), in
  // the upper eight columns (pair_halves).
  uint32_t pair_rows = 0;
  uint32_t pair_halves = 0;
  // Whether the sums are in quads too, and their bits as above.
  bool sums_in_quads = false;
  uint32_t sum_pair_rows = 0;
  uint32_t sum_pair_halves = 0;
  // kRows: whether lanes g and g + 16 hold the even and the odd rows of column g of the sums.
  bool sums_in_columns = false;

  bool operator==(const FragmentLayout&) const = default;
};

inline constexpr uint32_t kMaxFragmentElements = 16;  // of a lane

// `elements_a`, `elements_c`: elements that a lane holds of the left matrix and of the sums.
// `positions`, `sums`: [32, kMaxFragmentElements] 16 * row + column of these elements.
FragmentLayout ClassifyFragmentLayout(uint32_t elements_a, uint32_t elements_c,
                                      std::span<const uint32_t> positions,
                                      std::span<const uint32_t> sums);

// Whether lanes hold the right matrix and the sums of a multiplication with eight columns as
// shaders/linear/coop.glsl expects.  `elements_b`, `elements_c`: of a lane; `positions`, `sums`:
// [32, kMaxFragmentElements] 8 * row + column of these elements.
bool HasNarrowLayout(uint32_t elements_b, uint32_t elements_c, std::span<const uint32_t> positions,
                     std::span<const uint32_t> sums);

// Runs the probe.  The path is kNone if the device has no such matrices.
absl::StatusOr<FragmentLayout> ProbeFragmentLayout(const vulkan::Device& device,
                                                   const vulkan::PipelineLayout& layout,
                                                   VkPipelineCache cache);
// HasNarrowLayout of the device; false if it has no such matrices.
absl::StatusOr<bool> ProbeNarrowMatrices(const vulkan::Device& device,
                                         const vulkan::PipelineLayout& layout,
                                         VkPipelineCache cache);

}  // namespace tandem::gpu

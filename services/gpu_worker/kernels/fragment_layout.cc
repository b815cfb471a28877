#include "services/gpu_worker/kernels/fragment_layout.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/launch.h"
#include "services/gpu_worker/kernels/push_constants.h"
#include "services/gpu_worker/vulkan/buffer.h"
#include "services/gpu_worker/vulkan/command_buffer.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kElementsC = 8;  // what the kernels count on

bool IsRows(std::span<const uint32_t> positions) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t e = 0; e < 16; ++e) {
      if (positions[lane * kMaxFragmentElements + e] != lane % 16 * 16 + e) return false;
    }
  }
  return true;
}

bool IsColumns(std::span<const uint32_t> sums) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t e = 0; e < kElementsC; ++e) {
      if (sums[lane * kMaxFragmentElements + e] != (2 * e + lane / 16) * 16 + lane % 16)
        return false;
    }
  }
  return true;
}

// Takes the pairs' places from lane 0 and expects all others to be alike.
bool IsQuads(std::span<const uint32_t> positions, uint32_t& pair_rows, uint32_t& pair_halves) {
  pair_rows = pair_halves = 0;
  for (uint32_t p = 0; p < 4; ++p) {
    const uint32_t row = positions[2 * p] / 16, column = positions[2 * p] % 16;
    pair_rows |= (row == 8 ? 1u : 0u) << p;
    pair_halves |= (column == 8 ? 1u : 0u) << p;
  }
  uint32_t seen = 0;  // all four of two rows and two halves
  for (uint32_t p = 0; p < 4; ++p) {
    seen |= 1u << ((pair_rows >> p & 1) * 2 + (pair_halves >> p & 1));
  }
  if (seen != 15) return false;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t e = 0; e < 8; ++e) {
      const uint32_t p = e / 2;
      const uint32_t row = lane / 4 + 8 * (pair_rows >> p & 1);
      const uint32_t column = lane % 4 * 2 + e % 2 + 8 * (pair_halves >> p & 1);
      if (positions[lane * kMaxFragmentElements + e] != 16 * row + column) return false;
    }
  }
  return true;
}

bool Has(const vulkan::Device& device, const vulkan::MatrixShape& shape) {
  const auto& shapes = device.info().matrix_shapes;
  return device.info().subgroup_size == kLanes &&
         std::find(shapes.begin(), shapes.end(), shape) != shapes.end();
}

// What a probe writes: two numbers, then positions of one matrix, or two.
absl::StatusOr<std::vector<uint32_t>> RunProbe(const vulkan::Device& device,
                                               const vulkan::PipelineLayout& layout,
                                               VkPipelineCache cache, KernelId probe) {
  constexpr uint32_t kWords = 2 + 2 * kLanes * kMaxFragmentElements;
  TANDEM_ASSIGN_OR_RETURN(const vulkan::Buffer result,
                          vulkan::Buffer::Allocate(device, kWords * sizeof(uint32_t),
                                                   vulkan::MemoryKind::kExchange, "matrix probe"));
  const KernelTraits& traits = Traits(probe);
  TANDEM_ASSIGN_OR_RETURN(const vulkan::Pipeline pipeline,
                          vulkan::Pipeline::Create(device, layout, cache, traits.name, traits.spirv,
                                                   {{kLocalSize, kLanes}}));
  TANDEM_ASSIGN_OR_RETURN(const vulkan::CommandPool pool, vulkan::CommandPool::Create(device));
  TANDEM_ASSIGN_OR_RETURN(const auto timeline, vulkan::Timeline::Create(device));
  TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder, vulkan::Recorder::Begin(pool, layout));
  const ProbePush push{.destination = result.address()};
  recorder.Dispatch(pipeline, std::as_bytes(std::span(&push, 1)), 1);
  recorder.HostBarrier();
  TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
  TANDEM_RETURN_IF_ERROR(timeline->SubmitAndWait({&commands, 1}, absl::Minutes(1)));
  std::vector<uint32_t> words(kWords);
  std::memcpy(words.data(), result.mapped().data(), kWords * sizeof(uint32_t));
  return words;
}

std::span<const uint32_t> Positions(const std::vector<uint32_t>& words, size_t matrix = 0) {
  constexpr size_t kPositions = kLanes * kMaxFragmentElements;
  return std::span(words).subspan(2 + matrix * kPositions, kPositions);
}

}  // namespace

FragmentLayout ClassifyFragmentLayout(uint32_t elements_a, uint32_t elements_c,
                                      std::span<const uint32_t> positions,
                                      std::span<const uint32_t> sums) {
  if (elements_c != kElementsC) return {};
  if (elements_a == 16 && IsRows(positions)) {
    return {.path = MatrixPath::kRows, .sums_in_columns = IsColumns(sums)};
  }
  FragmentLayout quads{.path = MatrixPath::kQuads};
  if (elements_a == 8 && IsQuads(positions, quads.pair_rows, quads.pair_halves)) {
    quads.sums_in_quads = IsQuads(sums, quads.sum_pair_rows, quads.sum_pair_halves);
    return quads;
  }
  return {.path = MatrixPath::kShared};
}

bool HasNarrowLayout(uint32_t elements_b, uint32_t elements_c, std::span<const uint32_t> positions,
                     std::span<const uint32_t> sums) {
  if (elements_b != 4 || elements_c != 4) return false;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t at = lane * kMaxFragmentElements + e;
      const uint32_t row_b = lane % 4 * 2 + e % 2 + 8 * (e / 2), column_b = lane / 4;
      const uint32_t row_c = lane / 4 + 8 * (e / 2), column_c = lane % 4 * 2 + e % 2;
      if (positions[at] != 8 * row_b + column_b || sums[at] != 8 * row_c + column_c) return false;
    }
  }
  return true;
}

absl::StatusOr<FragmentLayout> ProbeFragmentLayout(const vulkan::Device& device,
                                                   const vulkan::PipelineLayout& layout,
                                                   VkPipelineCache cache) {
  constexpr vulkan::MatrixShape kShape = {16, 16, 16};  // f16 f16 f32 f32
  if (!Has(device, kShape)) return FragmentLayout{};
  TANDEM_ASSIGN_OR_RETURN(const auto words, RunProbe(device, layout, cache, KernelId::kCoopProbe));
  return ClassifyFragmentLayout(words[0], words[1], Positions(words), Positions(words, 1));
}

absl::StatusOr<bool> ProbeNarrowMatrices(const vulkan::Device& device,
                                         const vulkan::PipelineLayout& layout,
                                         VkPipelineCache cache) {
  constexpr vulkan::MatrixShape kShape = {16, 8, 16};  // f16 f16 f32 f32
  if (!Has(device, kShape)) return false;
  TANDEM_ASSIGN_OR_RETURN(const auto words,
                          RunProbe(device, layout, cache, KernelId::kNarrowProbe));
  return HasNarrowLayout(words[0], words[1], Positions(words), Positions(words, 1));
}

}  // namespace tandem::gpu

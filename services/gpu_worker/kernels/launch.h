// One launch of a kernel as plain data, and helpers for the tables of launches.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "services/gpu_worker/vulkan/pipeline.h"
#include "services/gpu_worker/vulkan/texel_sets.h"

namespace tandem::gpu {

enum class KernelId : uint8_t {
  kEmbed,
  kCopyRows,
  kCopyPages,
  kAddSplitK,
  kPool,
  kRmsNorm,
  kAddNorm,
  kAddNormTexels,
  kAddNormWide,
  kMatmul,
  kMatvec,
  kTexelMatmulF32,
  kTexelMatmulF16,
  kTexelMatmulBf16,
  kCoopMatvec,
  kQkNormRope,
  kQkNormRopeTexels,
  kKvAppend,
  kAttention,
  kAttentionTexels,
  kDecode,
  kTiled,
  kTiledCooperative,
  kTiledQuads,
  kTiledRows,
  kChains,
  kHeadSlice,
  kHeadSliceTexels,
  kHeadMerge,
  kCutPatches,
  kAddLayerNorm,
  kSplitHeads,
  kBiasGelu,
  kPoolPatches,
  kCoopMatmulShared,
  kCoopMatmulQuads,
  kCoopMatmulRows,
  kCoopProbe,
  kNarrowProbe,
  kNumKernels,  // not one
};
inline constexpr int kNumKernels = static_cast<int>(KernelId::kNumKernels);

struct KernelTraits {
  std::string_view name;
  std::span<const uint32_t> spirv;
};
const KernelTraits& Traits(KernelId id);

struct Launch {
  KernelId kernel = KernelId::kEmbed;
  vulkan::Specialization constants;  // id 0 is the workgroup's size
  std::array<std::byte, vulkan::kPushConstantBytes> push = {};
  uint32_t push_bytes = 0;
  uint32_t groups_x = 1;
  uint32_t groups_y = 1;
  std::optional<vulkan::TexelViews> texels;  // that the kernel reads
};

// Constant id of the workgroup's size in every shader.
inline constexpr uint32_t kLocalSize = 0;

inline uint32_t DivideUp(uint64_t value, uint64_t by) {
  return static_cast<uint32_t>((value + by - 1) / by);
}

// The texel views of a kernel that has only these.  REQUIRES one or more.
inline vulkan::TexelViews Bind(std::initializer_list<vulkan::TexelView> views) {
  vulkan::TexelViews bound;
  bound.fill(*views.begin());
  std::copy(views.begin(), views.end(), bound.begin());
  return bound;
}

template <typename Push>
Launch MakeLaunch(KernelId kernel, uint32_t local_size, const Push& push, uint32_t groups_x,
                  uint32_t groups_y) {
  static_assert(sizeof(Push) <= vulkan::kPushConstantBytes);
  Launch launch;
  launch.kernel = kernel;
  launch.constants[kLocalSize] = local_size;
  std::memcpy(launch.push.data(), &push, sizeof(Push));
  launch.push_bytes = sizeof(Push);
  launch.groups_x = groups_x;
  launch.groups_y = groups_y;
  return launch;
}

}  // namespace tandem::gpu

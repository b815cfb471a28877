// Shapes that a device's matrix units multiply for a subgroup (VK_KHR_cooperative_matrix).
#pragma once

#include <vulkan/vulkan_core.h>

#include <cstdint>
#include <string>
#include <vector>

#include "services/gpu_worker/vulkan/api.h"

namespace tandem::vulkan {

// result[m, n] = a[m, k] b[k, n] + c[m, n].
struct MatrixShape {
  uint32_t m = 0;
  uint32_t n = 0;
  uint32_t k = 0;
  VkComponentTypeKHR a = VK_COMPONENT_TYPE_FLOAT16_KHR;
  VkComponentTypeKHR b = VK_COMPONENT_TYPE_FLOAT16_KHR;
  VkComponentTypeKHR c = VK_COMPONENT_TYPE_FLOAT32_KHR;
  VkComponentTypeKHR result = VK_COMPONENT_TYPE_FLOAT32_KHR;
  bool saturating = false;

  bool operator==(const MatrixShape&) const = default;
};

// Whether a or b are 8-bit integers, which need shaderInt8.
bool IsByte(VkComponentTypeKHR type);

// "16x16x16 f16 f16 f32 f32", with " saturating" where it is so.
std::string DescribeMatrixShape(const MatrixShape& shape);

// The shapes that `device`, which has the extension, supports in compute shaders at subgroup scope;
// empty if it lacks a required feature.
std::vector<MatrixShape> FindMatrixShapes(const InstanceTable& vk, VkPhysicalDevice device);

}  // namespace tandem::vulkan

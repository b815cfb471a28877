#include "services/gpu_worker/vulkan/matrix_shapes.h"

#include "absl/strings/str_format.h"

namespace tandem::vulkan {
namespace {

std::string ComponentName(VkComponentTypeKHR type) {
  // Of VK_KHR_shader_bfloat16, which is younger than the headers.
  constexpr auto kBfloat16 = static_cast<VkComponentTypeKHR>(1000141000);
  if (type == kBfloat16) return "bf16";
  switch (type) {
    case VK_COMPONENT_TYPE_FLOAT16_KHR:
      return "f16";
    case VK_COMPONENT_TYPE_FLOAT32_KHR:
      return "f32";
    case VK_COMPONENT_TYPE_FLOAT64_KHR:
      return "f64";
    case VK_COMPONENT_TYPE_SINT8_KHR:
      return "s8";
    case VK_COMPONENT_TYPE_UINT8_KHR:
      return "u8";
    case VK_COMPONENT_TYPE_SINT32_KHR:
      return "s32";
    case VK_COMPONENT_TYPE_UINT32_KHR:
      return "u32";
    default:
      return absl::StrFormat("type %d", static_cast<int>(type));
  }
}

}  // namespace

bool IsByte(VkComponentTypeKHR type) {
  return type == VK_COMPONENT_TYPE_SINT8_KHR || type == VK_COMPONENT_TYPE_UINT8_KHR;
}

std::string DescribeMatrixShape(const MatrixShape& shape) {
  return absl::StrFormat("%dx%dx%d %s %s %s %s%s", shape.m, shape.n, shape.k,
                         ComponentName(shape.a), ComponentName(shape.b), ComponentName(shape.c),
                         ComponentName(shape.result), shape.saturating ? " saturating" : "");
}

std::vector<MatrixShape> FindMatrixShapes(const InstanceTable& vk, VkPhysicalDevice device) {
  const auto& query = vk.GetPhysicalDeviceCooperativeMatrixPropertiesKHR;
  if (!query.available()) return {};
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
  VkPhysicalDeviceVulkan12Features v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                          &matrices};
  VkPhysicalDeviceFeatures2 features = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &v12};
  vk.GetPhysicalDeviceFeatures2(device, &features);
  VkPhysicalDeviceCooperativeMatrixPropertiesKHR stages = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
  VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                            &stages};
  vk.GetPhysicalDeviceProperties2(device, &properties);
  if (matrices.cooperativeMatrix == VK_FALSE || v12.vulkanMemoryModel == VK_FALSE ||
      (stages.cooperativeMatrixSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0) {
    return {};
  }
  uint32_t count = 0;
  if (query(device, &count, nullptr) != VK_SUCCESS) return {};
  std::vector<VkCooperativeMatrixPropertiesKHR> found(
      count, {VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR});
  if (query(device, &count, found.data()) != VK_SUCCESS) return {};
  std::vector<MatrixShape> shapes;
  for (const VkCooperativeMatrixPropertiesKHR& p : found) {
    if (p.scope != VK_SCOPE_SUBGROUP_KHR) continue;
    if (IsByte(p.AType) && v12.shaderInt8 == VK_FALSE) continue;
    shapes.push_back({p.MSize, p.NSize, p.KSize, p.AType, p.BType, p.CType, p.ResultType,
                      p.saturatingAccumulation == VK_TRUE});
  }
  return shapes;
}

}  // namespace tandem::vulkan

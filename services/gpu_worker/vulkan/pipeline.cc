#include "services/gpu_worker/vulkan/pipeline.h"

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/gpu_worker/vulkan/texel_sets.h"

namespace tandem::vulkan {

absl::StatusOr<PipelineLayout> PipelineLayout::Create(const Device& device) {
  PipelineLayout layout;
  layout.device_ = &device;
  const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, kPushConstantBytes};
  TANDEM_ASSIGN_OR_RETURN(layout.texels_, CreateTexelLayout(device));
  VkPipelineLayoutCreateInfo info = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  info.setLayoutCount = layout.texels_ == VK_NULL_HANDLE ? 0 : 1;
  info.pSetLayouts = &layout.texels_;
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &range;
  TANDEM_RETURN_IF_ERROR(device.Check(
      device.vk().CreatePipelineLayout(device.handle(), &info, nullptr, &layout.handle_),
      "vkCreatePipelineLayout"));
  return layout;
}

PipelineLayout& PipelineLayout::operator=(PipelineLayout&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  device_ = std::exchange(other.device_, nullptr);
  handle_ = std::exchange(other.handle_, VK_NULL_HANDLE);
  texels_ = std::exchange(other.texels_, VK_NULL_HANDLE);
  return *this;
}

void PipelineLayout::Reset() {
  if (device_ == nullptr) return;
  device_->vk().DestroyPipelineLayout(device_->handle(), handle_, nullptr);
  device_->vk().DestroyDescriptorSetLayout(device_->handle(), texels_, nullptr);
  device_ = nullptr;
}

absl::StatusOr<Pipeline> Pipeline::Create(const Device& device, const PipelineLayout& layout,
                                          VkPipelineCache cache, std::string_view name,
                                          std::span<const uint32_t> spirv,
                                          const Specialization& specialization) {
  const std::string label = absl::StrFormat("pipeline %s", std::string(name));
  VkShaderModuleCreateInfo module_info = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module_info.codeSize = spirv.size_bytes();
  module_info.pCode = spirv.data();
  VkShaderModule module = VK_NULL_HANDLE;
  TANDEM_RETURN_IF_ERROR(device.Check(
      device.vk().CreateShaderModule(device.handle(), &module_info, nullptr, &module), label));

  std::vector<VkSpecializationMapEntry> entries;
  std::vector<uint32_t> values;
  for (const auto& [id, value] : specialization) {
    entries.push_back({id, static_cast<uint32_t>(values.size() * sizeof(uint32_t)), 4});
    values.push_back(value);
  }
  const VkSpecializationInfo constants = {static_cast<uint32_t>(entries.size()), entries.data(),
                                          values.size() * sizeof(uint32_t), values.data()};
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup = {
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO};
  subgroup.requiredSubgroupSize = device.info().subgroup_size;
  VkComputePipelineCreateInfo info = {VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  info.layout = layout.handle();
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  if (device.info().can_require_subgroup_size) info.stage.pNext = &subgroup;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &constants;
  Pipeline pipeline;
  pipeline.device_ = &device;
  const VkResult result = device.vk().CreateComputePipelines(device.handle(), cache, 1, &info,
                                                             nullptr, &pipeline.handle_);
  device.vk().DestroyShaderModule(device.handle(), module, nullptr);
  TANDEM_RETURN_IF_ERROR(device.Check(result, label));
  return pipeline;
}

Pipeline& Pipeline::operator=(Pipeline&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  device_ = std::exchange(other.device_, nullptr);
  handle_ = std::exchange(other.handle_, VK_NULL_HANDLE);
  return *this;
}

void Pipeline::Reset() {
  if (handle_ == VK_NULL_HANDLE) return;
  device_->vk().DestroyPipeline(device_->handle(), handle_, nullptr);
  handle_ = VK_NULL_HANDLE;
}

}  // namespace tandem::vulkan

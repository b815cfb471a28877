#include "services/gpu_worker/vulkan/texel_sets.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::vulkan {
namespace {

constexpr VkDescriptorType kType = VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER;
constexpr uint32_t kSetsPerPool = 256;

uint64_t TexelBytes(VkFormat format) {
  switch (format) {
    case VK_FORMAT_R32_UINT:
      return 4;
    case VK_FORMAT_R16G16B16A16_SFLOAT:
    case VK_FORMAT_R16G16B16A16_UINT:
      return 8;
    default:
      return 16;
  }
}

}  // namespace

absl::StatusOr<VkDescriptorSetLayout> CreateTexelLayout(const Device& device) {
  VkDescriptorSetLayout layout = VK_NULL_HANDLE;
  if (!device.info().reads_texels) return layout;
  std::array<VkDescriptorSetLayoutBinding, kTexelViews> bindings = {};
  for (uint32_t i = 0; i < kTexelViews; ++i) {
    bindings[i] = {i, kType, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
  }
  VkDescriptorSetLayoutCreateInfo info = {VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO};
  info.bindingCount = kTexelViews;
  info.pBindings = bindings.data();
  TANDEM_RETURN_IF_ERROR(
      device.Check(device.vk().CreateDescriptorSetLayout(device.handle(), &info, nullptr, &layout),
                   "vkCreateDescriptorSetLayout"));
  return layout;
}

TexelSets::~TexelSets() {
  for (const VkDescriptorPool pool : pools_) {
    device_.vk().DestroyDescriptorPool(device_.handle(), pool, nullptr);
  }
  for (const auto& [key, view] : views_) {
    device_.vk().DestroyBufferView(device_.handle(), view, nullptr);
  }
}

absl::StatusOr<VkDescriptorSet> TexelSets::Find(VkDescriptorSetLayout layout,
                                                const TexelViews& views) {
  const auto it = sets_.find(views);
  if (it != sets_.end()) return it->second;
  std::array<VkBufferView, kTexelViews> handles = {};
  std::array<VkWriteDescriptorSet, kTexelViews> writes = {};
  TANDEM_ASSIGN_OR_RETURN(const VkDescriptorSet set, Allocate(layout));
  for (uint32_t i = 0; i < kTexelViews; ++i) {
    TANDEM_ASSIGN_OR_RETURN(handles[i], View(views[i]));
    writes[i] = {VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET};
    writes[i].dstSet = set;
    writes[i].dstBinding = i;
    writes[i].descriptorCount = 1;
    writes[i].descriptorType = kType;
    writes[i].pTexelBufferView = &handles[i];
  }
  device_.vk().UpdateDescriptorSets(device_.handle(), kTexelViews, writes.data(), 0, nullptr);
  sets_.emplace(views, set);
  return set;
}

absl::StatusOr<VkBufferView> TexelSets::View(const TexelView& view) {
  const auto it = views_.find(view);
  if (it != views_.end()) return it->second;
  const Device::BufferRange range = device_.FindBuffer(view.address);
  const uint64_t texels = std::min(view.bytes, range.bytes) / TexelBytes(view.format);
  if (texels == 0 || texels > device_.info().max_texels || range.offset % kTexelAlignment != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d bytes at device address 0x%x, %d in its buffer, are no texel buffer: "
        "one has 1 to %d texels at a multiple of %d bytes",
        view.bytes, view.address, range.offset, device_.info().max_texels, kTexelAlignment));
  }
  VkBufferViewCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO};
  info.buffer = range.buffer;
  info.format = view.format;
  info.offset = range.offset;
  info.range = texels * TexelBytes(view.format);
  VkBufferView handle = VK_NULL_HANDLE;
  TANDEM_RETURN_IF_ERROR(
      device_.Check(device_.vk().CreateBufferView(device_.handle(), &info, nullptr, &handle),
                    "vkCreateBufferView"));
  views_.emplace(view, handle);
  return handle;
}

absl::StatusOr<VkDescriptorSet> TexelSets::Allocate(VkDescriptorSetLayout layout) {
  if (left_ == 0) {
    const VkDescriptorPoolSize size = {kType, kSetsPerPool * kTexelViews};
    VkDescriptorPoolCreateInfo info = {VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
    info.maxSets = kSetsPerPool;
    info.poolSizeCount = 1;
    info.pPoolSizes = &size;
    VkDescriptorPool pool = VK_NULL_HANDLE;
    TANDEM_RETURN_IF_ERROR(
        device_.Check(device_.vk().CreateDescriptorPool(device_.handle(), &info, nullptr, &pool),
                      "vkCreateDescriptorPool"));
    pools_.push_back(pool);
    left_ = kSetsPerPool;
  }
  VkDescriptorSetAllocateInfo info = {VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO};
  info.descriptorPool = pools_.back();
  info.descriptorSetCount = 1;
  info.pSetLayouts = &layout;
  VkDescriptorSet set = VK_NULL_HANDLE;
  TANDEM_RETURN_IF_ERROR(
      device_.Check(device_.vk().AllocateDescriptorSets(device_.handle(), &info, &set),
                    "vkAllocateDescriptorSets"));
  --left_;
  return set;
}

}  // namespace tandem::vulkan

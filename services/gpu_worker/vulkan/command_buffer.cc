#include "services/gpu_worker/vulkan/command_buffer.h"

#include <algorithm>

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::vulkan {

absl::StatusOr<CommandPool> CommandPool::Create(const Device& device) {
  CommandPool pool;
  pool.device_ = &device;
  pool.texels_ = std::make_unique<TexelSets>(device);
  VkCommandPoolCreateInfo info = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  info.queueFamilyIndex = device.info().compute_queue_family;
  TANDEM_RETURN_IF_ERROR(
      device.Check(device.vk().CreateCommandPool(device.handle(), &info, nullptr, &pool.handle_),
                   "vkCreateCommandPool"));
  return pool;
}

CommandPool& CommandPool::operator=(CommandPool&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  device_ = std::exchange(other.device_, nullptr);
  handle_ = std::exchange(other.handle_, VK_NULL_HANDLE);
  texels_ = std::move(other.texels_);
  return *this;
}

void CommandPool::Reset() {
  if (handle_ == VK_NULL_HANDLE) return;
  device_->vk().DestroyCommandPool(device_->handle(), handle_, nullptr);
  handle_ = VK_NULL_HANDLE;
  texels_.reset();
}

absl::StatusOr<Recorder> Recorder::Begin(const CommandPool& pool, const PipelineLayout& layout) {
  const Device& device = pool.device();
  Recorder recorder(pool, layout);
  VkCommandBufferAllocateInfo allocate = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  allocate.commandPool = pool.handle();
  allocate.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  allocate.commandBufferCount = 1;
  TANDEM_RETURN_IF_ERROR(device.Check(
      device.vk().AllocateCommandBuffers(device.handle(), &allocate, &recorder.commands_),
      "vkAllocateCommandBuffers"));
  const VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  TANDEM_RETURN_IF_ERROR(device.Check(device.vk().BeginCommandBuffer(recorder.commands_, &begin),
                                      "vkBeginCommandBuffer"));
  return recorder;
}

absl::Status Recorder::BindTexels(const TexelViews& views) {
  TANDEM_ASSIGN_OR_RETURN(const VkDescriptorSet set, texels_->Find(layout_->texels(), views));
  if (set == bound_set_) return absl::OkStatus();
  device_->vk().CmdBindDescriptorSets(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, layout_->handle(),
                                      0, 1, &set, 0, nullptr);
  bound_set_ = set;
  return absl::OkStatus();
}

void Recorder::Dispatch(const Pipeline& pipeline, std::span<const std::byte> constants,
                        uint32_t groups_x, uint32_t groups_y) {
  TANDEM_CHECK(constants.size() <= kPushConstantBytes && constants.size() % 4 == 0);
  const DeviceTable& vk = device_->vk();
  if (pipeline.handle() != bound_) {
    vk.CmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.handle());
    bound_ = pipeline.handle();
  }
  vk.CmdPushConstants(commands_, layout_->handle(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                      static_cast<uint32_t>(constants.size()), constants.data());
  vk.CmdDispatch(commands_, groups_x, groups_y, 1);
}

void Recorder::MemoryBarrier(const VkMemoryBarrier2& memory) {
  VkDependencyInfo info = {VK_STRUCTURE_TYPE_DEPENDENCY_INFO};
  info.memoryBarrierCount = 1;
  info.pMemoryBarriers = &memory;
  device_->vk().CmdPipelineBarrier2(commands_, &info);
}

void Recorder::Barrier() {
  VkMemoryBarrier2 memory = {VK_STRUCTURE_TYPE_MEMORY_BARRIER_2};
  memory.srcStageMask = memory.dstStageMask = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT;
  memory.srcAccessMask = VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_2_SHADER_STORAGE_READ_BIT | VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT;
  MemoryBarrier(memory);
}

void Recorder::TransferBarrier() {
  VkMemoryBarrier2 memory = {VK_STRUCTURE_TYPE_MEMORY_BARRIER_2};
  memory.srcStageMask = memory.dstStageMask =
      VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT;
  memory.srcAccessMask = VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_2_SHADER_STORAGE_READ_BIT |
                         VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT | VK_ACCESS_2_TRANSFER_READ_BIT |
                         VK_ACCESS_2_TRANSFER_WRITE_BIT;
  MemoryBarrier(memory);
}

void Recorder::HostBarrier() {
  VkMemoryBarrier2 memory = {VK_STRUCTURE_TYPE_MEMORY_BARRIER_2};
  memory.srcStageMask = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_COPY_BIT |
                        VK_PIPELINE_STAGE_2_CLEAR_BIT;
  memory.srcAccessMask = VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT;
  memory.dstStageMask = VK_PIPELINE_STAGE_2_HOST_BIT;
  memory.dstAccessMask = VK_ACCESS_2_HOST_READ_BIT;
  MemoryBarrier(memory);
}

void Recorder::ResetTimestamps(VkQueryPool pool, uint32_t first, uint32_t count) {
  device_->vk().CmdResetQueryPool(commands_, pool, first, count);
}

void Recorder::WriteTimestamp(VkQueryPool pool, uint32_t index) {
  device_->vk().CmdWriteTimestamp2(commands_, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, pool, index);
}

void Recorder::CopyTimestamps(const TimestampPool& pool, uint32_t first, uint32_t count) {
  if (pool.copies() == nullptr) return;
  device_->vk().CmdCopyQueryPoolResults(
      commands_, pool.handle(), first, count, pool.copies()->handle(), first * sizeof(uint64_t),
      sizeof(uint64_t), VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
}

void Recorder::Copy(const Buffer& from, uint64_t from_offset, const Buffer& to, uint64_t to_offset,
                    uint64_t bytes) {
  const VkBufferCopy copy = {from_offset, to_offset, bytes};
  device_->vk().CmdCopyBuffer(commands_, from.handle(), to.handle(), 1, &copy);
}

void Recorder::Fill(const Buffer& buffer, uint32_t word) {
  device_->vk().CmdFillBuffer(commands_, buffer.handle(), 0, VK_WHOLE_SIZE, word);
}

void Recorder::Update(const Buffer& buffer, uint64_t offset, std::span<const std::byte> bytes) {
  constexpr size_t kMost = 65536;  // Vulkan's limit
  while (!bytes.empty()) {
    const size_t now = std::min(bytes.size(), kMost);
    device_->vk().CmdUpdateBuffer(commands_, buffer.handle(), offset, now, bytes.data());
    offset += now;
    bytes = bytes.subspan(now);
  }
}

absl::StatusOr<VkCommandBuffer> Recorder::End() {
  TANDEM_RETURN_IF_ERROR(
      device_->Check(device_->vk().EndCommandBuffer(commands_), "vkEndCommandBuffer"));
  return commands_;
}

}  // namespace tandem::vulkan

#include "services/gpu_worker/stages/kv_copier.h"

#include <utility>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/stages/device_plan.h"

namespace tandem::gpu {

absl::StatusOr<KvCopier> KvCopier::Create(const vulkan::Device& device, vulkan::Timeline& timeline,
                                          const ExchangeAccess& exchange,
                                          const std::map<uint32_t, KvBuffers>& kv,
                                          KvCopyLayout layout) {
  KvCopier copier(device, timeline, exchange, kv, std::move(layout));
  TANDEM_ASSIGN_OR_RETURN(copier.pipelines_, vulkan::PipelineLayout::Create(device));
  return copier;
}

absl::Status KvCopier::Copy(const KvCopy& copy) {
  const uint64_t bytes = layout_.Bytes(copy);
  if (bytes == 0 || kv_->empty()) return absl::OkStatus();
  if (copy.write) exchange_->CopyInKv(bytes);
  TANDEM_ASSIGN_OR_RETURN(commands_, vulkan::CommandPool::Create(*device_));
  TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder,
                          vulkan::Recorder::Begin(commands_, pipelines_));
  recorder.TransferBarrier();
  const uint64_t half = layout_.half_bytes();
  const uint64_t area = exchange_->layout().kv.offset;
  layout_.ForEachPart(copy, [&](uint32_t layer_idx, uint32_t block, uint64_t offset) {
    const auto cache = kv_->find(layer_idx);
    if (cache == kv_->end()) return;
    uint64_t at = area + offset;
    for (const vulkan::Buffer* pages : {&cache->second.k, &cache->second.v}) {
      if (copy.write) {
        recorder.Copy(exchange_->buffer(), at, *pages, block * half, half);
      } else {
        recorder.Copy(*pages, block * half, exchange_->buffer(), at, half);
      }
      at += half;
    }
  });
  recorder.TransferBarrier();
  recorder.HostBarrier();
  TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
  TANDEM_RETURN_IF_ERROR(
      timeline_->SubmitAndWait({&commands, 1}, DevicePlan::StepTimeout(*timeline_)));
  if (!copy.write) exchange_->CopyOutKv(bytes);
  return absl::OkStatus();
}

}  // namespace tandem::gpu

#include "services/gpu_worker/stages/kv_copier.h"

#include <utility>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/launches.h"
#include "services/gpu_worker/stages/device_plan.h"

namespace tandem::gpu {
namespace {

// An entry of copy_pages.comp's table.
struct PagePlaces {
  VkDeviceAddress from, to;
};

}  // namespace

absl::StatusOr<KvCopier> KvCopier::Create(const vulkan::Device& device, KernelSet& kernels,
                                          vulkan::Timeline& timeline,
                                          const ExchangeAccess& exchange,
                                          const std::map<uint32_t, KvBuffers>& kv,
                                          KvCopyLayout layout) {
  KvCopier copier(device, kernels, timeline, exchange, kv, std::move(layout));
  const uint64_t most_pages = copier.layout_.max_halves();
  if (most_pages == 0 || kv.empty()) return copier;
  TANDEM_ASSIGN_OR_RETURN(copier.table_,
                          vulkan::Buffer::Allocate(device, most_pages * sizeof(PagePlaces),
                                                   vulkan::MemoryKind::kUpload, "KV copies"));
  // Builds the pipeline.
  TANDEM_RETURN_IF_ERROR(copier.Record(1).status());
  return copier;
}

uint32_t KvCopier::WriteTable(const KvCopy& copy) {
  const uint64_t half = layout_.half_bytes();
  const VkDeviceAddress area = exchange_->buffer().address() + exchange_->layout().kv.offset;
  auto* const table = reinterpret_cast<PagePlaces*>(table_.mapped().data());
  uint32_t num_pages = 0;
  layout_.ForEachPart(copy, [&](uint32_t layer_idx, uint32_t block, uint64_t offset) {
    const auto cache = kv_->find(layer_idx);
    if (cache == kv_->end()) return;
    VkDeviceAddress in_area = area + offset;
    for (const vulkan::Buffer* pages : {&cache->second.k, &cache->second.v}) {
      const VkDeviceAddress in_cache = pages->address() + block * half;
      table[num_pages++] =
          copy.write ? PagePlaces{in_area, in_cache} : PagePlaces{in_cache, in_area};
      in_area += half;
    }
  });
  return num_pages;
}

absl::StatusOr<VkCommandBuffer> KvCopier::Record(uint32_t num_pages) {
  TANDEM_ASSIGN_OR_RETURN(commands_, vulkan::CommandPool::Create(*device_));
  TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder,
                          vulkan::Recorder::Begin(commands_, kernels_->layout()));
  recorder.Barrier();
  TANDEM_RETURN_IF_ERROR(kernels_->Record(
      CopyPagesLaunch(kernels_->tuning(), table_.address(), num_pages, layout_.half_bytes()),
      recorder));
  recorder.Barrier();
  recorder.HostBarrier();
  return recorder.End();
}

absl::Status KvCopier::Copy(const KvCopy& copy) {
  const uint64_t bytes = layout_.Bytes(copy);
  if (bytes == 0 || kv_->empty()) return absl::OkStatus();
  const uint32_t num_pages = WriteTable(copy);
  if (num_pages == 0) return absl::OkStatus();
  if (copy.write) exchange_->CopyInKv(bytes);
  TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, Record(num_pages));
  TANDEM_RETURN_IF_ERROR(
      timeline_->SubmitAndWait({&commands, 1}, DevicePlan::StepTimeout(*timeline_)));
  if (!copy.write) exchange_->CopyOutKv(bytes);
  return absl::OkStatus();
}

}  // namespace tandem::gpu

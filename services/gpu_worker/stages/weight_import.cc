#include "services/gpu_worker/stages/weight_import.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"

namespace tandem::gpu {
namespace {
constexpr uint64_t kMaxGap = uint64_t{1} << 20;
}  // namespace

absl::StatusOr<std::vector<RegionSpan>> CutRegions(const std::vector<const PackedTensor*>& tensors,
                                                   uint64_t max_bytes, uint64_t max_gap) {
  std::vector<RegionSpan> shards;
  for (const PackedTensor* tensor : tensors) {
    for (const Shard& shard : tensor->shards) {
      const uint64_t bytes = ShardBytes(*tensor, shard);
      if (bytes > max_bytes) {
        return absl::ResourceExhaustedError(
            absl::StrFormat("%s: a shard of %d bytes, the device allocates at most %d at once",
                            tensor->Name(), bytes, max_bytes));
      }
      shards.push_back({shard.region, shard.offset, shard.offset + bytes});
    }
  }
  std::sort(shards.begin(), shards.end(), [](const RegionSpan& a, const RegionSpan& b) {
    return std::pair(a.region, a.begin) < std::pair(b.region, b.begin);
  });
  std::vector<RegionSpan> spans;
  for (const RegionSpan& shard : shards) {
    if (!spans.empty()) {
      RegionSpan& last = spans.back();
      const uint64_t end = std::max(last.end, shard.end);
      if (last.region == shard.region && shard.begin <= last.end + max_gap &&
          end - last.begin <= max_bytes) {
        last.end = end;
        continue;
      }
    }
    spans.push_back(shard);
  }
  return spans;
}

absl::StatusOr<std::unique_ptr<WeightImport>> WeightImport::Create(
    const vulkan::Device& device, vulkan::Uploader& uploader,
    std::shared_ptr<const WeightSet> weights, const std::vector<const PackedTensor*>& tensors,
    const std::function<void(double)>& progress) {
  std::unique_ptr<WeightImport> import(new WeightImport);
  const vulkan::FinishUploads before_it_goes(uploader);
  import->weights_ = std::move(weights);
  if (!device.info().unified_memory()) {
    import->note_ = "a discrete device reads its own memory faster than the host's";
  }
  // An import may reach to the end of a page.
  const uint64_t max_bytes =
      std::min(device.info().max_allocation_bytes, device.info().max_buffer_bytes) -
      kShardAlignment;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<RegionSpan> spans,
                          CutRegions(tensors, max_bytes, kMaxGap));
  for (size_t i = 0; i < spans.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(import->ImportSpan(device, uploader, spans[i]));
    progress(static_cast<double>(i + 1) / static_cast<double>(spans.size()));
  }
  TANDEM_RETURN_IF_ERROR(uploader.Finish());
  for (const PackedTensor* tensor : tensors) import->MapTensor(*tensor);
  import->WarnOfCopies(device);
  return import;
}

const DeviceTensor& WeightImport::Find(const PackedTensor& tensor) const {
  const std::span<const DeviceTensor> parts = Parts(tensor);
  TANDEM_CHECK(parts.size() == 1);
  return parts[0];
}

void WeightImport::Note(ImportPath path, const absl::Status& reason) {
  const std::string name(ImportPathName(path));
  if (absl::StrContains(note_, name + ": ")) return;  // the first says it
  absl::StrAppend(&note_, note_.empty() ? "" : "; ", name, ": ", reason.message());
}

void WeightImport::WarnOfCopies(const vulkan::Device& device) const {
  if (copied_bytes_ == 0 || !device.info().unified_memory()) return;
  LogWarning("weights are copied: the loader's memory and the device's copy are both taken",
             {{"weights_mib", bytes_ >> 20},
              {"memory_mib", (bytes_ + copied_bytes_) >> 20},
              {"reason", note_},
              {"remedy", "let the loader export dmabufs; tandem doctor says how"}});
}

absl::Status WeightImport::ImportSpan(const vulkan::Device& device, vulkan::Uploader& uploader,
                                      const RegionSpan& span) {
  const WeightRegion& region = weights_->regions()[span.region];
  std::byte* const data = region.mapping.data() + span.begin;
  const uint64_t bytes = span.end - span.begin;
  bytes_ += bytes;
  const auto taken = [&](ImportPath path, uint64_t address) {
    // Report the worst: the enumerators are in order of preference.
    path_ = std::max(path_, path);
    addresses_.emplace_back(span, address);
    return absl::OkStatus();
  };
  if (device.info().unified_memory()) {
    if (dmabufs_.contains(span.region)) {
      return taken(ImportPath::kDmabuf, dmabufs_[span.region] + span.begin);
    }
    absl::StatusOr<vulkan::Buffer> buffer =
        region.dmabuf_fd.valid()
            ? vulkan::Buffer::ImportDmabuf(device, region.dmabuf_fd.get(), region.mapping.size())
            : absl::UnimplementedError("the loader has exported none");
    if (buffer.ok()) {
      dmabufs_[span.region] = buffer->address();
      const uint64_t address = buffer->address() + span.begin;
      buffers_.push_back(*std::move(buffer));
      return taken(ImportPath::kDmabuf, address);
    }
    Note(ImportPath::kDmabuf, buffer.status());
    buffer = vulkan::Buffer::ImportHostPointer(device, data, bytes);
    if (buffer.ok()) {
      const uint64_t address = buffer->address();
      buffers_.push_back(*std::move(buffer));
      return taken(ImportPath::kHostPointer, address);
    }
    Note(ImportPath::kHostPointer, buffer.status());
  }
  TANDEM_ASSIGN_OR_RETURN(
      vulkan::Buffer buffer,
      vulkan::Buffer::Allocate(device, bytes, vulkan::MemoryKind::kDevice, "weights"));
  TANDEM_RETURN_IF_ERROR(uploader.Upload({data, bytes}, buffer, 0));
  copied_bytes_ += bytes;
  const uint64_t address = buffer.address();
  buffers_.push_back(std::move(buffer));
  return taken(ImportPath::kUpload, address);
}

void WeightImport::MapTensor(const PackedTensor& tensor) {
  std::vector<DeviceTensor>& parts = tensors_[&tensor];
  parts.clear();
  for (const Shard& shard : tensor.shards) {
    if (parts.empty() || parts.back().dtype != shard.dtype) {
      parts.push_back({shard.dtype, tensor.shape.rows, PackedColumns(tensor.shape.cols), {}});
    }
    const auto it = std::find_if(addresses_.begin(), addresses_.end(), [&shard](const auto& entry) {
      const RegionSpan& span = entry.first;
      return span.region == shard.region && span.begin <= shard.offset && shard.offset < span.end;
    });
    TANDEM_CHECK(it != addresses_.end());
    const uint64_t base = it->second + (shard.offset - it->first.begin);
    DeviceShard& on_device = parts.back().shards.emplace_back();
    on_device.first_row = shard.first_row;
    on_device.num_rows = shard.num_rows;
    const auto planes = PlanesOf(shard.dtype, shard.num_rows, tensor.shape.cols);
    for (size_t p = 0; p < planes.size(); ++p) on_device.plane[p] = base + planes[p].offset;
  }
}

}  // namespace tandem::gpu

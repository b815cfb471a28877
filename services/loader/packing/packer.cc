#include "services/loader/packing/packer.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/shared_memory.h"
#include "services/common/base/status_macros.h"
#include "services/loader/packing/crew.h"
#include "services/loader/packing/memory_budget.h"
#include "services/loader/packing/pack_rows.h"
#include "services/loader/packing/packing_plan.h"
#include "services/loader/packing/region_memory.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kBytesPerRange = 1 << 20;
constexpr uint64_t kBytesPerPopulate = 16 << 20;

class Packer {
 public:
  Packer(const ModelSource& source, PackingPlan plan, const PackOptions& options,
         const std::function<bool(const PackProgress&)>& progress)
      : source_(source), progress_(progress), plan_(std::move(plan)) {
    num_threads_ = ThreadCount(options.num_threads);
    scratch_.resize(static_cast<size_t>(num_threads_));
    numbers_.resize(static_cast<size_t>(num_threads_));
  }

  absl::StatusOr<PackedModel> Run() {
    TANDEM_RETURN_IF_ERROR(CheckMemoryBudget(plan_.packed_bytes));
    ranges_ = SplitRows(plan_, source_.tensors(), kBytesPerRange);
    PackedModel model;
    model.source_bytes = plan_.source_bytes;
    size_t next_range = 0;
    for (uint32_t region = 0; region < plan_.region_bytes.size(); ++region) {
      TANDEM_ASSIGN_OR_RETURN(PackedRegion packed, PackRegion(region, next_range));
      model.regions.push_back(std::move(packed));
    }
    for (PlannedTensor& planned : plan_.tensors) model.tensors.push_back(std::move(planned.tensor));
    if (progress_) progress_({"packed", plan_.source_bytes, plan_.source_bytes});
    return model;
  }

 private:
  const Shard& ShardOf(const RowRange& range) const {
    return plan_.tensors[range.tensor].tensor.shards[range.shard];
  }

  absl::StatusOr<PackedRegion> PackRegion(uint32_t region, size_t& next_range) {
    const uint64_t bytes = plan_.region_bytes[region];
    TANDEM_ASSIGN_OR_RETURN(RegionMemory memory, MakeRegionMemory(bytes));
    const Mapping& mapping = memory.mapping;
    const auto watch = [this] { return Report(); };
    const size_t num_pieces =
        static_cast<size_t>((bytes + kBytesPerPopulate - 1) / kBytesPerPopulate);
    const auto populate = [&](size_t i, int) {
      const uint64_t offset = i * kBytesPerPopulate;
      return Populate(mapping.data() + offset, std::min(kBytesPerPopulate, bytes - offset));
    };
    TANDEM_RETURN_IF_ERROR(RunCrew(num_threads_, num_pieces, populate, watch));
    const size_t first = next_range;
    while (next_range < ranges_.size() && ShardOf(ranges_[next_range]).region == region) {
      ++next_range;
    }
    const auto pack = [&](size_t i, int thread) {
      const size_t index = first + i;
      current_.store(index, std::memory_order_relaxed);
      return Pack(ranges_[index], mapping.data(), thread);
    };
    TANDEM_RETURN_IF_ERROR(RunCrew(num_threads_, next_range - first, pack, watch));
    return PackedRegion{std::move(memory.fd), bytes};
  }

  absl::Status Pack(const RowRange& range, std::byte* region_data, int thread) {
    const auto t = static_cast<size_t>(thread);
    TANDEM_RETURN_IF_ERROR(PackRows(source_, plan_, range, region_data + ShardOf(range).offset,
                                    scratch_[t], numbers_[t]));
    const PlannedTensor& planned = plan_.tensors[range.tensor];
    const SourceTensor& from = source_.tensors()[planned.parts[range.part].source];
    done_bytes_.fetch_add(range.num_rows * RowBytes(from.dtype, from.shape.cols),
                          std::memory_order_relaxed);
    return absl::OkStatus();
  }

  absl::Status Report() {
    if (!progress_) return absl::OkStatus();
    const RowRange& range = ranges_[current_.load(std::memory_order_relaxed)];
    const std::string phase =
        absl::StrFormat("packing %s", plan_.tensors[range.tensor].tensor.Name());
    if (progress_({phase, done_bytes_.load(std::memory_order_relaxed), plan_.source_bytes})) {
      return absl::OkStatus();
    }
    return absl::CancelledError("packing was stopped");
  }

  const ModelSource& source_;
  const std::function<bool(const PackProgress&)>& progress_;
  int num_threads_ = 1;
  PackingPlan plan_;
  std::vector<RowRange> ranges_;
  std::atomic<size_t> current_{0};
  std::atomic<uint64_t> done_bytes_{0};
  std::vector<std::vector<std::byte>> scratch_;  // one per thread
  std::vector<std::vector<float>> numbers_;
};

}  // namespace

absl::StatusOr<PackedModel> PackModel(const ModelSource& source, const PackOptions& options,
                                      const std::function<bool(const PackProgress&)>& progress) {
  TANDEM_ASSIGN_OR_RETURN(PackingPlan plan,
                          PlanPacking(source.tensors(), source.config(), options.max_region_bytes));
  return PackModel(source, std::move(plan), options, progress);
}

absl::StatusOr<PackedModel> PackModel(const ModelSource& source, PackingPlan plan,
                                      const PackOptions& options,
                                      const std::function<bool(const PackProgress&)>& progress) {
  return Packer(source, std::move(plan), options, progress).Run();
}

}  // namespace tandem::loader

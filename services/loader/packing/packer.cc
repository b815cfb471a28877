#include "services/loader/packing/packer.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/shared_memory.h"
#include "services/common/base/status_macros.h"
#include "services/loader/packing/memory_budget.h"
#include "services/loader/packing/pack_rows.h"
#include "services/loader/packing/packing_plan.h"
#include "services/loader/packing/parallel_for.h"
#include "services/loader/packing/region_memory.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kBytesPerRange = 1 << 20;
constexpr uint64_t kBytesPerPopulate = 4 << 20;

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
    std::vector<RegionMemory> regions;
    for (const uint64_t bytes : plan_.region_bytes) {
      TANDEM_ASSIGN_OR_RETURN(RegionMemory memory, MakeRegionMemory(bytes));
      regions.push_back(std::move(memory));
    }
    const auto watch = [this] { return Report(); };
    TANDEM_RETURN_IF_ERROR(PopulateAll(regions, watch));
    const auto pack = [&](size_t i, int thread) {
      current_.store(i, std::memory_order_relaxed);
      return Pack(ranges_[i], regions[ShardOf(ranges_[i]).region].mapping.data(), thread);
    };
    TANDEM_RETURN_IF_ERROR(ParallelFor(num_threads_, ranges_.size(), pack, watch));
    PackedModel model;
    model.source_bytes = plan_.source_bytes;
    for (RegionMemory& memory : regions) {
      const uint64_t bytes = memory.mapping.size();
      model.regions.push_back({std::move(memory.fd), bytes});
    }
    for (PlannedTensor& planned : plan_.tensors) model.tensors.push_back(std::move(planned.tensor));
    if (progress_) progress_({"packed", plan_.source_bytes, plan_.source_bytes});
    return model;
  }

 private:
  const Shard& ShardOf(const RowRange& range) const {
    return plan_.tensors[range.tensor].tensor.shards[range.shard];
  }

  // All regions side by side: the kernel hands out pages of one memfd to one thread at a time.
  absl::Status PopulateAll(const std::vector<RegionMemory>& regions,
                           const std::function<absl::Status()>& watch) {
    std::vector<std::span<std::byte>> pieces;
    const uint64_t most = *std::max_element(plan_.region_bytes.begin(), plan_.region_bytes.end());
    for (uint64_t at = 0; at < most; at += kBytesPerPopulate) {
      for (const RegionMemory& region : regions) {
        if (at >= region.mapping.size()) continue;
        pieces.push_back(region.mapping.bytes().subspan(
            at, std::min<uint64_t>(kBytesPerPopulate, region.mapping.size() - at)));
      }
    }
    const auto populate = [&](size_t i, int) {
      return Populate(pieces[i].data(), pieces[i].size());
    };
    return ParallelFor(num_threads_, pieces.size(), populate, watch);
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

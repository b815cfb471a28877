// A model's segments, made ready on the NPU: everything a step needs exists before the first.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/worker/worker.h"
#include "services/npu_worker/attention/kernel_package.h"
#include "services/npu_worker/attention/kv_cache.h"
#include "services/npu_worker/attention/shared_buffers.h"
#include "services/npu_worker/backend/backend.h"
#include "services/npu_worker/xrt/npu_kernel.h"
#include "services/npu_worker/xrt/npu_run.h"

namespace tandem::npu {

// Single-thread.  Per step: one write of the step descriptor, one command (or list) a segment.
class NpuPlan final : public BackendPlan {
 public:
  // FAILED_PRECONDITION: a stage, head size, length or weight format without a kernel;
  // RESOURCE_EXHAUSTED: memory, with the amounts.
  // `device` and `package`: Borrowed; must outlive this.
  static absl::StatusOr<std::unique_ptr<NpuPlan>> Create(
      NpuKernel& npu, const KernelPackage& package, ModelLoad load,
      const std::function<void(double, std::string_view)>& progress);

  LoadReport report() const override;

  // As BlockingWorker::Run.
  absl::StatusOr<SegmentResult> Run(const SegmentRun& run, absl::Duration timeout) override;
  absl::Status CopyKv(const KvCopy& copy) override;

 private:
  // One command in the making: what differs between lanes and buckets is filled in later.
  struct Command {
    StageKind kind = StageKind::kAttend;
    const NpuBuffer* layer = nullptr;
    const NpuBuffer* kv = nullptr;       // nullptr: not used
    const NpuBuffer* weights = nullptr;  // nullptr: not used
    DType weight_dtype = DType::kF16;
  };
  // The commands of a segment for one lane and length bucket.
  struct Bucket {
    uint32_t max_positions = 0;
    std::vector<NpuRun> runs;
    std::unique_ptr<NpuRunList> list;
  };
  struct LoadedSegment {
    bool attends = false;
    bool projects = false;
    std::vector<StageKind> kinds;              // of its commands
    std::vector<std::vector<Bucket>> buckets;  // [lane], shortest first
  };
  struct Lane {
    NpuBuffer step;
    uint32_t num_positions = 0;
  };
  struct Program {
    NpuCode code;
  };

  NpuPlan(NpuKernel& npu, const KernelPackage& package, ModelLoad load)
      : npu_(npu), package_(package), load_(std::move(load)), weights_(load_.weights) {}
  absl::Status Prepare(const std::function<void(double, std::string_view)>& progress);
  absl::StatusOr<std::vector<Stage>> StagesOf(const Segment& segment) const;
  absl::Status MakeBuffers();
  absl::Status MakeSegment(const Segment& segment);
  absl::StatusOr<std::vector<Command>> MakeCommands(const std::vector<Stage>& stages);
  absl::StatusOr<Bucket> MakeBucket(const std::vector<Command>& commands, uint32_t lane,
                                    const AttendKernel* attend);
  // The next slot of the layer buffer, holding `parameters` (128 bytes).
  absl::StatusOr<const NpuBuffer*> AddLayer(const void* parameters);
  absl::StatusOr<const Program*> FindProgram(const std::vector<uint32_t>& words);
  absl::Status WriteStep(const SegmentRun& run);

  NpuKernel& npu_;                // Borrowed.
  const KernelPackage& package_;  // Borrowed.
  ModelLoad load_;
  WeightBuffers weights_;
  KvCache kv_;
  KvCopyLayout kv_layout_;
  ExchangeBuffers exchange_;
  NpuBuffer layers_;  // parameters of every command, a slice each
  std::vector<std::unique_ptr<NpuBuffer>> layer_slices_;
  std::vector<std::pair<const std::vector<uint32_t>*, std::unique_ptr<Program>>> programs_;
  std::vector<Lane> lanes_;
  std::vector<std::unique_ptr<LoadedSegment>> segments_;  // by index in the plan
  std::vector<int64_t> run_ns_;                           // scratch of Run
};

}  // namespace tandem::npu

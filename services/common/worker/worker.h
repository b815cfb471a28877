// A device that runs segments.  One implementation per kind of device; the service skeleton in
// service/ does the rest (RPC, queue, epochs, health).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/base/shared_memory.h"
#include "services/common/plan/planner.h"
#include "services/common/plan/stage.h"
#include "services/common/step/exchange_layout.h"
#include "services/common/step/kv_copy.h"
#include "services/common/step/step_batch.h"
#include "services/common/weights/weight_set.h"

namespace tandem {

// KV cache the worker must hold for every layer whose Attend it runs.
struct KvSpec {
  uint32_t block_tokens = 16;
  uint32_t num_blocks[kNumKvGroups] = {};
  DType dtype = DType::kF16;  // one that the worker's description lists
};

// The exchange region as a worker holds it.
struct Exchange {
  UniqueFd fd;      // read-write memfd
  Mapping mapping;  // read-write
  ExchangeLayout layout;

  std::span<std::byte> Area(uint32_t lane, const ExchangeArea& area) const {
    return mapping.bytes().subspan(lane * layout.lane_bytes + area.offset, area.bytes);
  }
};

// Plans that a worker holds at once.
inline constexpr uint32_t kMaxPlans = 8;

struct ModelLoad {
  uint32_t plan = 0;                         // which of the worker's plans this is, below kMaxPlans
  std::shared_ptr<const WeightSet> weights;  // shared with the skeleton
  std::vector<Segment> segments;             // this worker's, by index in the plan
  StepLimits limits;
  KvSpec kv;
  // Of q, k, v and attention that cross workers; one that the worker's description lists.
  DType port_dtype = DType::kF16;
  std::shared_ptr<const Exchange> exchange;  // shared with the skeleton
};

// How weights reached the device.
enum class ImportPath : uint8_t { kNone, kDmabuf, kHostPointer, kUserPointer, kUpload };
std::string_view ImportPathName(ImportPath path);

struct LoadReport {
  ImportPath weight_import = ImportPath::kNone;  // kNone: this worker reads no weights
  ImportPath exchange_import = ImportPath::kNone;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  std::string note;    // why a better path failed, if one was tried
  std::string tuning;  // the table that chose the kernels, for display; empty: there is no choice
};

struct StageTime {
  StageKind kind = StageKind::kEmbed;
  // Sum over the segment's stages of that kind.  All kinds add up to device_ns, which is measured;
  // the shares may be estimates from an earlier step.
  uint64_t device_ns = 0;
};

struct SegmentRun {
  uint32_t plan = 0;           // of ModelLoad
  uint32_t segment_index = 0;  // a segment of the plan that was loaded
  uint32_t lane = 0;
  const StepBatch* step = nullptr;  // Borrowed for the call; already checked
  bool first_of_step = false;       // first segment of this step on this worker
  bool masks_follow = false;        // masks of the step are written until MasksReady
};

struct SegmentResult {
  uint64_t device_ns = 0;
  std::vector<StageTime> stage_times;
};

// The device's ceilings, measured on it.
struct DeviceCeilings {
  double read_bytes_per_second = 0;    // over as much memory as a step of the model reads
  double fma_flops_per_second = 0;     // float32; a multiply-add is two
  double matrix_flops_per_second = 0;  // float16 into float32 on matrix units; 0: there are none
};

// Holds up to kMaxPlans plans at once, each with its own weights, KV cache, recordings and exchange
// region: models that work together, or parts of one model.  Plans share the device, one submission
// of one of them after another.
//
// Single-thread: the skeleton calls every method from one device thread.
class Worker {
 public:
  virtual ~Worker() = default;

  virtual const WorkerDescription& description() const = 0;

  // Prepares all that must not take time in a step: imports, buffers, KV cache, pipelines,
  // recordings.  `progress` gets (fraction 0..1, current activity).  Replaces the plan `load.plan`;
  // others stay, unless the device was lost, which loses them too.
  // RESOURCE_EXHAUSTED: memory, with the amounts; FAILED_PRECONDITION: a stage it cannot run.
  // REQUIRES that no segment of any plan is submitted.
  virtual absl::StatusOr<LoadReport> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) = 0;
  // Drops a plan; no effect if it is not loaded.  REQUIRES as Load.
  virtual void Unload(uint32_t plan) = 0;

  // Queues a segment on the device.  The segments of one plan run in the order of Submit; several
  // plans take turns.  Submitted segments of a plan are of different lanes; `run.step` must stay
  // valid until its Wait.  After an error the segment is not submitted.
  virtual absl::Status Submit(const SegmentRun& run) = 0;
  // For several plans: a long segment is cut into submissions, and few of them are on the device's
  // queue, so that another plan's segment comes between.  Waits until one more submission of `plan`
  // has ended, and queues those that are due.  True: the oldest submitted segment of `plan` has
  // nothing more to wait for than Wait itself.  Errors as Wait's, which follows and returns them.
  // REQUIRES a submitted segment of `plan`.
  virtual absl::StatusOr<bool> Advance(uint32_t /*plan*/) { return true; }
  // Whether submissions of `plan` still wait for their turn: they need Advance to get on.
  virtual bool HoldsBack(uint32_t /*plan*/) const { return false; }
  // The masks of the segment of `plan` submitted last, which had masks_follow, are written.
  virtual void MasksReady(uint32_t /*plan*/) {}
  // Returns once the outputs of the oldest submitted segment of `plan` are in the exchange region.
  // Errors of Submit and Wait: UNAVAILABLE: the device is lost or timed out; a reload may help.
  // REQUIRES: one Wait for each Submit, and MasksReady before it where masks follow.
  virtual absl::StatusOr<SegmentResult> Wait(uint32_t plan) = 0;
  // Whether a submitted segment does not begin before its Wait.  Its answer is then never held back
  // for the call that follows.
  virtual bool runs_in_wait() const { return false; }

  // Copies blocks of the plan's layers between the KV cache and the exchange region's area for them.
  // Errors as Wait's.
  // REQUIRES description().copies_kv, that no segment of the plan is submitted, and a copy that
  // KvCopyLayout::Check has allowed.
  virtual absl::Status CopyKv(uint32_t /*plan*/, const KvCopy& /*copy*/) {
    return absl::UnimplementedError("this kind of device copies no KV");
  }

  // Cheap check that the device still answers; called while idle.
  virtual absl::Status CheckHealth() = 0;

  // Measures the ceilings.  Returns the best of all calls since the last Load, because other
  // programs on the machine can only lower the figures.  UNIMPLEMENTED: this kind of device is not
  // measured.  RESOURCE_EXHAUSTED: too little free memory.
  virtual absl::StatusOr<DeviceCeilings> Ceilings() {
    return absl::UnimplementedError("this kind of device is not measured");
  }
};

// For devices that run a segment in one blocking call: Submit keeps the segment, Wait runs it.
class BlockingWorker : public Worker {
 public:
  absl::Status Submit(const SegmentRun& run) final;
  absl::StatusOr<SegmentResult> Wait(uint32_t plan) final;
  bool runs_in_wait() const override { return true; }

 private:
  // Runs one segment and returns when its outputs are in the exchange region; errors as Wait's.
  virtual absl::StatusOr<SegmentResult> Run(const SegmentRun& run) = 0;

  std::deque<SegmentRun> submitted_;  // oldest first
};

}  // namespace tandem

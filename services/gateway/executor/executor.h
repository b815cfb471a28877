// Runs steps over the workers: plan, exchange region, one long-lived stream per worker.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/restart_times.h"
#include "services/common/model/vocabulary.h"
#include "services/common/plan/planner.h"
#include "services/common/rpc/tls.h"
#include "services/common/step/exchange_layout.h"
#include "services/common/step/kv_copy.h"
#include "services/common/step/step_batch.h"
#include "services/common/trace/trace_context.h"
#include "services/gateway/placement/placement_choice.h"
#include "tandem/loader/v1/loader.pb.h"
#include "tandem/v1/generation.pb.h"

namespace tandem {
class ClusterNetwork;
}

namespace tandem::gateway {

struct PromptsApart;
class StepLog;

struct ExecutorOptions {
  std::shared_ptr<ClusterNetwork> network;  // null: gRPC
  std::string loader_target;                // "unix:/run/tandem/loader.sock"
  std::vector<std::string> worker_targets;  // as ParseWorkerTarget takes them
  std::vector<std::string> npu_targets;     // the same for NPU workers; ignored with kOff
  TlsFiles tls;                             // for tls:// targets.  REQUIRES CheckTlsFiles
  std::string model_name;                   // as the loader lists it
  // The plan's name at the workers, which hold one plan of each name for a gateway.
  std::string plan_id = "main";
  // The gateway's, the same for all its plans (NewPlanToken); empty: the executor makes one.
  std::string plan_token;
  // The plan takes only memory that the gateway's other plans leave, and gives it back to one of
  // them that needs it.
  bool yields = false;
  std::string only_worker;       // a worker's name: the plan is on this one alone; empty: any
  uint32_t context_at_most = 0;  // where context_len is 0: the model's up to this; 0: the model's
  PlacementPolicy policy;
  // Under NpuPolicy::kAuto: how placements are weighed, and the file that keeps what their steps take.
  // Without one they are tried at every start.
  ChoiceOptions choice;
  Favour favour = Favour::kLatency;
  std::string costs_file;
  // Likewise: prompts on another replica are one of the placements; null: they are not.
  std::shared_ptr<PromptsApart> prompts_apart;
  bool npu_layers = true;             // likewise: ranges of layers on an NPU
  std::shared_ptr<StepLog> step_log;  // where steps of parts of prompts are noted; null: nowhere
  uint32_t max_rows = 512;
  uint32_t max_sequences = 16;
  uint32_t context_len = 0;  // 0: the model's
  uint32_t block_tokens = 16;
  uint64_t kv_tokens = 0;  // positions in the global KV pool; 0: chosen by memory
  uint32_t num_lanes = 1;  // at least this many, and depth()
  // Of the area for CopyKv, where the workers can; 0: none.  More where a block takes more.
  uint64_t kv_area_bytes = 0;
  bool queue_steps = true;  // submit a step while one runs: fed by it, or on another device (lanes)
  absl::Duration segment_deadline = absl::Seconds(30);
  // Of a software driver in a GPU's place, which does not hang; null: the same.
  std::optional<absl::Duration> software_segment_deadline;
  absl::Duration worker_wait = kWorkerWait;  // how long to wait for a missing worker
  // After this time a plan without the missing workers is accepted, if the policy allows one.
  absl::Duration worker_grace = absl::Seconds(5);
  absl::Duration load_deadline = absl::Minutes(10);  // for a worker to load its part
};

// What a worker has for a segment.
inline absl::Duration SegmentDeadline(const ExecutorOptions& options,
                                      const WorkerDescription& worker) {
  const bool software = worker.kind == DeviceKind::kGpu && worker.emulated;
  return software ? options.software_segment_deadline.value_or(options.segment_deadline)
                  : options.segment_deadline;
}

// Random, so that no other gateway has the same.
std::string NewPlanToken();
// With a plan_id that no other of this gateway has had: of two plans with the same one, a worker drops the
// older.
ExecutorOptions WithNewPlanId(ExecutorOptions options);

struct SegmentTiming {
  uint32_t segment_index = 0;
  absl::Time sent;
  absl::Time answered;
  // To `answered` from the later of `sent` and the answer to the step before.
  absl::Duration round_trip;
  uint64_t worker_ns = 0;  // of the round trip, in the worker
  uint64_t device_ns = 0;
  double device_watts = 0.0;  // mean of about the last second; 0: not readable
  std::array<uint64_t, kNumStageKinds> stage_ns = {};  // of device_ns, by StageKind
};

// A written step to submit.
struct StepCall {
  uint32_t lane = 0;  // its step area; no other step under way uses it
  uint64_t step_id = 0;
  // Another Submit is expected before the Wait for this step.  If Wait comes first, it costs an
  // extra message.
  bool another_follows = false;
  // Masks of the step are written after Submit, until MasksReady.  REQUIRES takes_late_masks().
  bool masks_follow = false;
  StepTrace trace;  // the parent of the spans of the workers' calls; sent to the workers
};

// Thread rule: Start, Recover, steps and CheckWorkers from one engine thread; Status from any
// thread.
class Executor {
 public:
  // Calls never overlap, but may come from several threads.  May be empty.
  using Progress = std::function<void(std::string_view phase, double fraction)>;

  // Loads the model at the loader, connects to every worker, makes a plan and the exchange region
  // under its own lease, and lets the workers load their parts in parallel.
  // UNAVAILABLE: the loader or a worker that the policy needs (named) is missing after
  // worker_wait.  FAILED_PRECONDITION: no plan under the policy, or a worker of another protocol
  // version.  INVALID_ARGUMENT: an option out of range.  Otherwise as the loader and the workers.
  static absl::StatusOr<std::unique_ptr<Executor>> Start(ExecutorOptions options,
                                                         const Progress& progress);
  virtual ~Executor() = default;

  virtual const loader::v1::Model& model() const = 0;
  virtual const ModelConfig& config() const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  virtual const Plan& plan() const = 0;
  virtual const StepLimits& limits() const = 0;
  virtual std::string placement() const = 0;
  // The epoch of the plan in force; each Recover raises it.
  virtual uint64_t epoch() const = 0;

  // The step area of a lane, to be filled by WriteStep.
  virtual std::span<std::byte> StepArea(uint32_t lane) = 0;
  // Mask number `mask` of the step in a lane: MaskWords(vocab_size) words, filled before Submit, or
  // before MasksReady.
  // REQUIRES mask < limits().max_sequences.
  virtual std::span<std::byte> MaskArea(uint32_t lane, uint32_t mask) = 0;
  // The rows of a picture of the step in a lane, [PictureEntry::num_rows, hidden_dim], written
  // before Submit.
  // REQUIRES rows that the limits allow, and limits().max_pictures > 0.
  virtual void WriteSoftTokens(uint32_t lane, uint32_t first_row,
                               std::span<const float> soft_tokens) = 0;
  // Steps that can be under way at once, in lanes [0, depth): two if a plan of one worker feeds a
  // step with the speculative tokens of the step before; MostLanes if several workers share the layers,
  // so that one step is on one of them while others are elsewhere; else one.  Only Recover changes it.
  virtual uint32_t depth() const = 0;
  // Of those, how many may have rows of prompts: no more than there are workers.
  virtual uint32_t prompt_depth() const { return depth(); }
  // Whether a step takes speculative tokens of the one that is under way.  If not, steps under way
  // at once share no sequence but one whose prompt they compute.
  virtual bool feeds() const { return depth() > 1; }
  // Whether a step's masks may be written while its workers have begun.
  virtual bool takes_late_masks() const { return false; }
  // Of `decoding` sequences that decode, how many one step should have: all, or a half, a third or a
  // quarter of them, where so many steps at once take less time.
  virtual uint32_t DecodeRows(uint32_t decoding) const { return decoding; }
  // Returns when it is time to choose the next step: as late as the device still gets it before the
  // step under way ends.  At once if no time would be gained, or none is known.  A request that
  // comes meanwhile is in that step.
  virtual void WaitUntilDue() = 0;
  // Hands a step to the workers, which run it after the steps submitted before.  Its Wait returns
  // errors.  REQUIRES fewer than depth() steps under way.
  virtual void Submit(StepCall call) = 0;
  // The masks of the step submitted last are written.
  // REQUIRES StepCall::masks_follow, and that the steps before it have been waited for.
  virtual void MasksReady() {}
  // Waits until the oldest step under way has run all segments of the plan; returns one timing per
  // segment.
  // UNAVAILABLE: a worker is lost, missed its deadline, answered another call or sent results that
  // do not fit the step.  The KV cache and all steps under way are lost: call Recover.  DATA_LOSS,
  // INTERNAL: the step failed or was refused; the workers are alive.
  // REQUIRES a step under way, with its masks.
  virtual absl::StatusOr<std::vector<SegmentTiming>> Wait() = 0;
  // Results of the last step in `lane`, o < its num_outputs.
  virtual const OutputResult& Output(uint32_t lane, uint32_t o) const = 0;
  virtual std::span<const float> Logits(uint32_t lane, uint32_t o) const = 0;
  // Sums of hidden states, [hidden_dim], p < num_pooled of the step.
  virtual std::span<const float> Pooled(uint32_t lane, uint32_t p) const = 0;
  // The speculative token that the device chose and feeds to the next step's rows.  Undefined
  // without feeds().
  virtual uint32_t Guess(uint32_t lane, uint32_t o) const = 0;

  // At the end: the workers drop the plan.
  virtual void Unload() {}

  // Where CopyKv copies from and to (KvCopyLayout); empty: the workers copy no KV.
  virtual std::span<std::byte> KvArea() { return {}; }
  // Copies whole blocks between the workers' KV caches and KvArea.  UNAVAILABLE as Wait; any other
  // error concerns this copy alone.
  // REQUIRES no step under way, and a copy that fits the area.
  virtual absl::Status CopyKv(const KvCopy& /*copy*/) {
    return absl::UnimplementedError("the workers copy no KV");
  }

  // For idle times between steps: checks that every worker of the plan answers and still holds the
  // plan, and looks for workers that the plan does without.  UNAVAILABLE names a lost or new
  // worker: call Recover.
  virtual absl::Status CheckWorkers() = 0;

  // After UNAVAILABLE: waits up to worker_wait for the workers, makes a new plan under a higher
  // epoch (under kPrefer the placement may change) and loads it.  Afterwards the KV cache is empty,
  // limits() may have changed, and StepArea and MaskArea move.  Errors as Start's; try again, except after
  // ModelChangedError, which leaves nothing usable but the status.
  virtual absl::Status Recover(const Progress& progress) = 0;

  // Fills workers and segments of the public status.  Thread-safe.
  virtual void FillStatus(v1::GetStatusResponse& status) const = 0;
};

}  // namespace tandem::gateway

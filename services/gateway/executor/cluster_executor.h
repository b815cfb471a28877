// The Executor over a loader and workers.
//
//   loader --lease, exchange region--> executor --LoadPlan(epoch)--> workers
//                                      Submit: segment 0, on the stream of its worker
//                                      Wait: its answer, then segment 1, 2, ... one after another
//
// A plan of one segment may have a depth of two: its next step is sent while one runs, shortly
// before that one ends (step_pacer.h).  So may a plan of several workers: while it waits for the one
// step, it sends the segments of the step behind, each as soon as the one before has been answered.
// Every worker runs the segments of the first step before the same ones of the second.
//
//   GPU   a0 b0    a2 b2    a4 b4
//   NPU      a1 b1    a3 b3 ...
//
// After the loss of a worker Recover rebuilds everything: a new epoch, a new lease, a new exchange
// region.  A worker of the old plan writes to the old region, which is no longer read.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "services/common/worker/worker.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/executor/executor_status.h"
#include "services/gateway/executor/leased_model.h"
#include "services/gateway/executor/model_file_watch.h"
#include "services/gateway/executor/placer.h"
#include "services/gateway/executor/step_pacer.h"
#include "services/gateway/executor/step_results.h"
#include "services/gateway/executor/worker_finder.h"

namespace tandem::gateway {

class ClusterExecutor final : public Executor {
 public:
  static absl::StatusOr<std::unique_ptr<ClusterExecutor>> Create(ExecutorOptions options);
  ~ClusterExecutor() override;

  // Model, plan, exchange region and the workers' loads, for the first time or again.
  // Retries until worker_wait has passed if a worker is lost meanwhile.
  absl::Status Build(const Progress& progress);

  const loader::v1::Model& model() const override { return model_->model(); }
  const ModelConfig& config() const override { return model_->config(); }
  const Vocabulary& vocabulary() const override { return model_->vocabulary(); }
  const Plan& plan() const override { return plan_; }
  const StepLimits& limits() const override { return limits_; }
  std::string placement() const override { return DescribePlacement(plan_, config()); }
  uint64_t epoch() const override { return epoch_; }
  std::span<std::byte> StepArea(uint32_t lane) override;
  std::span<std::byte> MaskArea(uint32_t lane, uint32_t mask) override;
  void WriteSoftTokens(uint32_t lane, uint32_t first_row,
                       std::span<const float> soft_tokens) override;
  uint32_t depth() const override { return depth_; }
  uint32_t prompt_depth() const override;
  bool feeds() const override { return feeds_; }
  bool takes_late_masks() const override { return feeds_ && !workers_[0]->client->remote(); }
  uint32_t DecodeRows(uint32_t decoding) const override;
  void WaitUntilDue() override;
  void Submit(StepCall call) override;
  void MasksReady() override;
  absl::StatusOr<std::vector<SegmentTiming>> Wait() override;
  std::span<std::byte> KvArea() override { return exchange_->Area(0, exchange_->layout.kv); }
  absl::Status CopyKv(const KvCopy& copy) override;
  void Unload() override;
  absl::Status CheckWorkers() override;
  uint32_t Guess(uint32_t lane, uint32_t o) const override;
  const OutputResult& Output(uint32_t lane, uint32_t o) const override;
  std::span<const float> Logits(uint32_t lane, uint32_t o) const override;
  std::span<const float> Pooled(uint32_t lane, uint32_t p) const override;
  absl::Status Recover(const Progress& progress) override;
  void FillStatus(v1::GetStatusResponse& status) const override;

 private:
  // `peers`: of MakePeers.
  ClusterExecutor(ExecutorOptions options, std::vector<WorkerPeer> peers);

  // A step that was submitted and not waited for.
  struct Step {
    StepCall call;
    absl::Status status;                 // of the segments so far
    bool alone = true;                   // no other step was under way
    bool joined = false;                 // another was submitted behind it
    std::vector<SegmentTiming> timings;  // of the segments that were answered
    // When its last segment was sent: by the clock that never jumps, and the one people read.
    std::chrono::steady_clock::time_point steady;
    absl::Time time;
  };

  // A worker of the plan that holds KV.
  struct KvCopier {
    const Segment* segment = nullptr;  // its first
    std::vector<bool> layers;          // that it holds
  };

  // Releases memory when no more steps will come.
  void LetGo();
  // The workers; if the plan yields, with the memory that other plans leave.
  std::vector<WorkerDescription> Available(std::vector<WorkerDescription> workers) const;
  // Makes plan and limits from the workers that answer.
  absl::Status MakePlacement(absl::Duration wait);
  // Chooses among the plans that the policy leaves.  `plan`: MakePlan's, whose notice all of them have.
  absl::Status ChoosePlacement(const Plan& plan);
  // One more, if there is one: the GPU's alone, beside a replica that computes prompts.
  void AddPromptsApart(const std::vector<WorkerDescription>& workers,
                       std::vector<Placement>& placements) const;
  // One more, if there is one: the GPU, and an NPU that has so many of the layers, whole.
  void AddNpuLayers(const std::vector<WorkerDescription>& workers, uint32_t npu_layers,
                    std::vector<Placement>& placements) const;
  // Adds to the plan's notice, unless empty.
  void AddNotice(const std::string& notice);
  absl::StatusOr<StepLimits> Limits(const Plan& plan) const;
  // The workers have loaded the plan: tries it, if that is due.  False: another is to be loaded.
  absl::StatusOr<bool> BeginPlan(const Progress& progress);
  // Workers that the plan does without drop what they hold of an earlier one.
  void UnloadOthers();
  // Ends the plan if the step that has run says that another placement is better.
  void NotePlacement(const Step& step, std::span<const SegmentTiming> timings);
  // Whether another replica is to compute prompts.
  void UsePromptsApart(bool apart);
  void PublishPlacements(absl::Time now);
  void FindKvCopiers();
  // Every epoch has a region of its own.
  absl::Status MakeExchange();
  // Loads all workers of the plan in parallel, then opens their streams.
  absl::Status LoadWorkers(const Progress& progress);
  worker::v1::LoadPlanRequest LoadRequest(uint32_t worker) const;
  bool GoesOn(const Step& step) const {
    return step.status.ok() && step.timings.size() < plan_.segments.size();
  }
  // The worker that began its call first.  With steps of equal size on devices that take about as long
  // it answers first; a device that takes longer than the others has its next call before it ends.
  // REQUIRES an unanswered call.
  uint32_t NextToAnswer() const;
  // Waits for the next answer of a worker, and sends the next segment of its step.
  void TakeNext(uint32_t worker);
  // Sends the step's call of a segment.
  absl::Status SendSegment(const Segment& segment, Step& step);
  // Waits for the answer to the call sent last.
  absl::StatusOr<SegmentTiming> AwaitSegment(const Segment& segment, const Step& step);
  // What a step that was answered says about the time of later ones.  REQUIRES one segment.
  void LearnPace(const Step& step, const SegmentTiming& timing);
  const worker::v1::ExecuteRequest& Request(const Segment& segment, const StepCall& call);
  // Copies a remote worker's answer into the exchange region, and takes the results of a head.
  // UNAVAILABLE: the answer does not fit the step; the worker is not trusted until it has loaded
  // again.
  absl::Status TakeAnswer(const Segment& segment, uint32_t lane,
                          const worker::v1::ExecuteResponse& response);
  // What a worker of the plan is asked to copy, and with what it answers.
  const worker::v1::ExecuteRequest& CopyRequest(const KvCopy& copy, const KvCopier& copier);
  absl::Status TakeCopied(const KvCopy& copy, const KvCopier& copier);
  // The error of a call, as Wait returns it.
  absl::Status CallFailed(const Segment& segment, const absl::Status& status);
  // Of a worker of the plan, for a segment.
  absl::Duration DeadlineOf(uint32_t worker) const {
    return SegmentDeadline(options_, plan_.workers[worker]);
  }
  // Closes every stream: the KV caches no longer match.
  void Lose(uint32_t worker, const absl::Status& why);
  // Looks again for workers of this machine that the plan does without.  UNAVAILABLE names one that
  // answers now: Recover takes it into the plan.
  absl::Status LookForMissing();

  const ExecutorOptions options_;
  std::unique_ptr<LeasedModel> model_;
  std::unique_ptr<ModelFileWatch> file_watch_;  // since the first Build succeeded

  std::vector<WorkerPeer> peers_;               // by worker target
  std::vector<const WorkerPeer*> workers_;      // by worker of the plan; in peers_
  std::map<const WorkerPeer*, uint64_t> held_;  // epoch of the plan that each was given last
  uint32_t depth_ = 1;
  bool feeds_ = false;
  uint32_t num_lanes_ = 1;
  std::deque<Step> under_way_;  // oldest first; few
  // By worker of the plan: steps whose call it has not answered, oldest first; of under_way_.
  std::vector<std::deque<Step*>> unanswered_;
  std::vector<std::chrono::steady_clock::time_point> last_answer_;  // by worker of the plan
  Plan plan_;
  StepLimits limits_;
  const std::string plan_token_;  // tells which plans of the workers are this gateway's
  uint64_t epoch_ = 0;
  uint32_t exchange_region_id_ = 0;
  std::unique_ptr<Exchange> exchange_;
  KvCopyLayout kv_layout_;
  std::vector<KvCopier> kv_copiers_;
  uint64_t num_copies_ = 0;
  // When a new worker may next be taken into the plan, and the pause after that.  The plan is
  // loaded again each time, so a worker that comes and goes must not cause this often.
  absl::Time next_return_ = absl::InfinitePast();
  absl::Duration return_pause_;
  // OK: every worker has loaded the plan and no stream has ended since.  Else what steps end with.
  absl::Status lost_;
  StepTimer timer_;
  Placer placer_;
  uint32_t better_npu_layers_ = 0;  // Placer::BetterNpuLayers of the placements that there are
  std::vector<std::byte> noted_;    // a step, parsed
  absl::Time published_ = absl::InfinitePast();
  std::vector<StepHeader> headers_;  // by lane, of the step submitted last
  StepResults results_;
  worker::v1::ExecuteRequest request_;
  ExecutorStatus status_;
};

}  // namespace tandem::gateway

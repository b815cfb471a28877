// A decoder's part on one device, from Load to Unload.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/worker/worker.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/stages/device_plan.h"
#include "services/gpu_worker/stages/exchange_access.h"
#include "services/gpu_worker/stages/kv_copier.h"
#include "services/gpu_worker/stages/model_buffers.h"
#include "services/gpu_worker/stages/model_tuning.h"
#include "services/gpu_worker/stages/segment_program.h"
#include "services/gpu_worker/stages/stage_shares.h"
#include "services/gpu_worker/stages/stage_times.h"
#include "services/gpu_worker/stages/submission_queue.h"
#include "services/gpu_worker/stages/weight_import.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

// FAILED_PRECONDITION names what the kernels cannot read: dims that are not multiples of 32, head
// sizes over 256 or not multiples of 8, more positions than a software device's loops reach.
absl::Status CheckSupported(const ModelLoad& load, const Tuning& tuning);

// A decoder's part: the stages of the plan's segments that are this worker's.
class LoadedModel : public DevicePlan {
 public:
  using Progress = std::function<void(double, std::string_view)>;

  // `device`, `kernels`, `timeline`: borrowed; must outlive this.  Changes the kernels' tuning as
  // `tune` says.  `longest_submission`: steps that may take longer are cut; infinite: none is.
  static absl::StatusOr<std::unique_ptr<LoadedModel>> Create(
      const vulkan::Device& device, KernelSet& kernels, vulkan::Timeline& timeline, ModelLoad load,
      const TuneOptions& tune, absl::Duration longest_submission, const Progress& progress);

  ~LoadedModel() override;

  LoadReport report() const override;
  void Share(bool shared) override { shared_ = shared; }
  absl::Status Submit(const SegmentRun& run) override;
  void MasksReady() override;
  absl::StatusOr<bool> Advance() override;
  bool HoldsBack() const override { return !flights_.empty() && !flights_.back().rests(); }
  absl::StatusOr<SegmentResult> Wait() override;
  bool idle() const override { return flights_.empty(); }
  absl::Status CopyKv(const KvCopy& copy) override { return kv_copier_->Copy(copy); }
  void QueueDue() override;

 private:
  // A segment that was submitted.
  struct Flight {
    const SegmentProgram* program = nullptr;
    SegmentProgram::Submission submission;
    StepHeader header;
    uint32_t lane = 0;
    bool whole = false;  // the end of every stage is recorded
    StageShares* shares = nullptr;
    uint32_t next_recording = 0, next_part = 0;  // of `submission`: the first not queued
    uint64_t done = 0;                           // the timeline's value after those queued
    bool awaits_masks = false;                   // its head is not queued yet
    absl::Status failed;                         // why nothing more can be queued

    // Of the recordings, those that may be queued now.
    uint32_t num_ready() const { return submission.num_recordings - (awaits_masks ? 1 : 0); }
    // Whether nothing more can be queued now.
    bool rests() const { return next_recording >= num_ready() || !failed.ok(); }
    bool all_queued() const { return next_recording == submission.num_recordings || !failed.ok(); }
  };
  LoadedModel(KernelSet& kernels, vulkan::Timeline& timeline, ModelLoad load)
      : kernels_(kernels), timeline_(timeline), load_(std::move(load)) {}
  absl::Status Import(const vulkan::Device& device, const TuneOptions& tune,
                      const Progress& progress);
  // The objects that recordings refer to; REQUIRES the buffers.
  RecordingContext context() const;
  // Measures, and keeps a table.  UNAVAILABLE: the device is lost.
  absl::Status Tune(const vulkan::Device& device, const TuneOptions& tune,
                    const Progress& progress);
  // Measures stages where a step may be too long, and warns of a stage that is too long by itself.
  absl::Status MeasureStages(const vulkan::Device& device, absl::Duration longest,
                             const Progress& progress);
  absl::Status RecordSegments(const vulkan::Device& device, const Progress& progress);
  void LogCuts() const;
  // Queues the next submission of a flight.  REQUIRES !flight.rests().
  absl::Status QueueNext(Flight& flight);
  // Queues all of them that are ready.  An error is the flight's, too.
  absl::Status QueueReady(Flight& flight);
  // Queues all of them; returns the timeline's value when they are done.
  absl::StatusOr<uint64_t> SubmitAll(const SegmentProgram::Submission& submission);
  // Whether the device has done all of the oldest flight.
  bool OldestHasRun() const {
    const Flight& oldest = flights_.front();
    return oldest.all_queued() && queued_.IsPast(oldest.done);
  }
  // Runs every recording once over no rows, so that drivers that compile late compile now.
  absl::Status WarmUp(const Progress& progress);
  void WriteRows(uint32_t lane, const StepBatch& step);
  void FinishResults(uint32_t lane, const StepHeader& header);
  absl::StatusOr<SegmentResult> ReadTimes(const Flight& flight);

  KernelSet& kernels_;          // Borrowed.
  vulkan::Timeline& timeline_;  // Borrowed.
  ModelLoad load_;
  std::vector<Stage> stages_;
  std::unique_ptr<WeightImport> weights_;  // null: no stage reads any
  std::unique_ptr<ExchangeAccess> exchange_;
  std::unique_ptr<ModelBuffers> buffers_;
  std::optional<KvCopier> kv_copier_;  // from Import on
  std::unique_ptr<DependencyCounters> phases_;
  ModelTuning tuning_;
  std::optional<StageTimes> times_;  // null: no step is cut
  vulkan::TimestampPool timestamps_;
  vulkan::CommandPool commands_;
  std::map<uint32_t, SegmentProgram> programs_;  // by the segment's index in the plan
  std::map<std::tuple<uint32_t, size_t, Sequences>, StageShares> shares_;  // segment, bucket
  std::vector<uint64_t> ticks_;
  std::deque<Flight> flights_;  // oldest first
  bool shared_ = false;
  SubmissionQueue queued_{timeline_};  // if shared
};

}  // namespace tandem::gpu

// A vision encoder on one device, from Load to Unload.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/worker/worker.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/stages/device_plan.h"
#include "services/gpu_worker/stages/exchange_access.h"
#include "services/gpu_worker/stages/loaded_model.h"
#include "services/gpu_worker/stages/submission_queue.h"
#include "services/gpu_worker/stages/vision_buffers.h"
#include "services/gpu_worker/stages/vision_recorder.h"
#include "services/gpu_worker/stages/weight_import.h"
#include "services/gpu_worker/vulkan/command_buffer.h"
#include "services/gpu_worker/vulkan/query_pool.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

// FAILED_PRECONDITION names what the kernels cannot read: hidden_dim must be a multiple of 32, ffn_dim
// of 4, a head's dimensions of 8 and at most 256; a software device's loops reach so many patches.
absl::Status CheckVisionSupported(const WeightSet& weights, const Tuning& tuning);

// A picture is recorded in parts, each a layer; a submission has so many that it takes about
// kSubmissionSeconds.  Two of them at most are on the queue, so that a step of the decoder waits no
// longer than that.
class LoadedVision : public DevicePlan {
 public:
  static constexpr double kSubmissionSeconds = 2e-3;

  // As LoadedModel::Create.
  static absl::StatusOr<std::unique_ptr<LoadedVision>> Create(
      const vulkan::Device& device, KernelSet& kernels, vulkan::Timeline& timeline, ModelLoad load,
      const LoadedModel::Progress& progress);
  ~LoadedVision() override;

  LoadReport report() const override;
  void Share(bool /*shared*/) override {}  // it holds back in any case
  absl::Status Submit(const SegmentRun& run) override;
  absl::StatusOr<bool> Advance() override;
  bool HoldsBack() const override { return !flights_.empty() && !flights_.back().all_queued(); }
  absl::StatusOr<SegmentResult> Wait() override;
  bool idle() const override { return flights_.empty(); }
  absl::Status CopyKv(const KvCopy& /*copy*/) override {
    return absl::UnimplementedError("Vision has no KV cache");
  }
  void QueueDue() override;

 private:
  // A step that was submitted.
  struct Flight {
    uint32_t lane = 0, num_pictures = 0;
    uint32_t next = 0, num_parts = 0;  // of all its pictures: the first part not queued
    uint64_t done = 0;                 // the timeline's value after those queued
    absl::Status failed;               // why nothing more can be queued
    bool all_queued() const { return next == num_parts || !failed.ok(); }
  };
  LoadedVision(const vulkan::Device& device, KernelSet& kernels, vulkan::Timeline& timeline,
               ModelLoad load)
      : device_(device), kernels_(kernels), timeline_(timeline), load_(std::move(load)) {}
  absl::Status Import(const LoadedModel::Progress& progress);
  absl::Status RecordPictures(const LoadedModel::Progress& progress);
  absl::StatusOr<VkCommandBuffer> RecordPart(const VisionContext& context, uint32_t lane,
                                             uint32_t picture, uint32_t part);
  // Runs a layer alone, for the number of parts of a submission.
  absl::Status MeasureLayer();
  const VisionConfig& config() const { return *load_.weights->config().vision; }
  uint32_t parts_of_picture() const { return config().num_layers + 2; }
  // Of a lane's picture.
  uint32_t FirstPart(uint32_t lane, uint32_t picture) const {
    return (lane * load_.limits.max_pictures + picture) * parts_of_picture();
  }
  absl::StatusOr<uint64_t> DeviceTime(uint32_t first_part, uint32_t num_parts);
  bool OldestHasRun() const {
    const Flight& oldest = flights_.front();
    return oldest.all_queued() && queued_.IsPast(oldest.done);
  }

  const vulkan::Device& device_;  // Borrowed.
  KernelSet& kernels_;            // Borrowed.
  vulkan::Timeline& timeline_;    // Borrowed.
  ModelLoad load_;
  ActivationFormat format_ = ActivationFormat::kF32;
  std::unique_ptr<WeightImport> weights_;
  std::unique_ptr<ExchangeAccess> exchange_;
  std::unique_ptr<VisionBuffers> buffers_;
  vulkan::TimestampPool timestamps_;  // begin and end of each part
  vulkan::CommandPool commands_;
  std::vector<VkCommandBuffer> parts_;  // [lane, picture, part]
  std::vector<uint64_t> ticks_;
  uint32_t parts_of_submission_ = 1;
  std::deque<Flight> flights_;  // oldest first
  SubmissionQueue queued_{timeline_};
};

}  // namespace tandem::gpu

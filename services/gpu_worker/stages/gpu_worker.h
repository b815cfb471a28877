// The Vulkan worker: runs every kind of stage on one device.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/plan/planner.h"
#include "services/common/worker/worker.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/stages/device_plan.h"
#include "services/gpu_worker/stages/model_tuning.h"
#include "services/gpu_worker/stages/self_test.h"
#include "services/gpu_worker/vulkan/device.h"
#include "services/gpu_worker/vulkan/instance.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

inline constexpr absl::Duration kLongestSubmission = absl::Milliseconds(100);

struct GpuWorkerOptions {
  std::string name = "gpu0";
  std::string device;  // see vulkan::ChooseDevice
  GpuPolicy gpu = GpuPolicy::kPrefer;
  uint32_t max_rows = 512;     // in one step
  bool import_memory = true;   // false: weights are uploaded, activations copied
  bool validation = false;     // Khronos' validation layer, where installed
  uint32_t subgroup_size = 0;  // for tests: see vulkan::Instance::Options
  std::string cache_folder;    // for compiled pipelines and tables of tuning; empty: none is kept
  TuneMode tune = TuneMode::kFirstStart;  // with a cache folder
  double tune_seconds = 30;               // of the device, for TuneMode::kNow
  // How long a wait polls the device before it sleeps (vulkan::Timeline::PollFor).
  absl::Duration poll;
  // A step that may take longer is cut into submissions of at most half of this, by stages that are
  // measured at load.  Zero: none is cut.  Null: kLongestSubmission, on software devices zero.
  std::optional<absl::Duration> longest_submission;
  // Changes the shapes of kernels chosen from the device's description.
  std::function<void(Tuning&)> adjust_tuning;
};

// Single-thread.  A step allocates nothing, records nothing and makes no pipeline.  It writes its
// rows to mapped memory, submits recordings once (more often if they are cut) and waits.  If the model is one segment, a step
// may be submitted while another runs, and begin from its speculative tokens.
class GpuWorker : public Worker {
 public:
  // NOT_FOUND: no Vulkan driver, or no device that matches; FAILED_PRECONDITION: the device lacks
  // what the kernels need.
  static absl::StatusOr<std::unique_ptr<GpuWorker>> Create(GpuWorkerOptions options);
  ~GpuWorker() override;

  const WorkerDescription& description() const override { return description_; }
  absl::StatusOr<LoadReport> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) override;
  void Unload(uint32_t plan) override;
  absl::Status Submit(const SegmentRun& run) override;
  void MasksReady(uint32_t plan) override;
  absl::StatusOr<bool> Advance(uint32_t plan) override;
  bool HoldsBack(uint32_t plan) const override;
  absl::StatusOr<SegmentResult> Wait(uint32_t plan) override;
  absl::Status CopyKv(uint32_t plan, const KvCopy& copy) override;
  // Runs a computation with a known result.  UNAVAILABLE: no result within seconds.  INTERNAL: a
  // wrong result.
  absl::Status CheckHealth() override;
  absl::StatusOr<DeviceCeilings> Ceilings() override;

  const vulkan::Device& device() const { return *device_; }
  // The tuning of the model loaded last.
  const Tuning& tuning() const { return kernels_->tuning(); }
  // Several lines for a person.
  std::string DescribeDevice() const;

 private:
  explicit GpuWorker(GpuWorkerOptions options) : options_(std::move(options)) {}
  // Makes the device and all objects of it; called again after the device was lost.  If one of them
  // fails, none is left.
  absl::Status OpenDevice();
  void CloseDevice();
  absl::Duration LongestSubmission() const;
  absl::StatusOr<std::unique_ptr<DevicePlan>> MakePlan(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress);
  // Tells the models whether they have the device for themselves.
  void ShareDevice();

  const GpuWorkerOptions options_;
  WorkerDescription description_;
  std::unique_ptr<vulkan::Instance> instance_;
  size_t device_index_ = 0;
  std::unique_ptr<vulkan::Device> device_;
  std::unique_ptr<vulkan::Timeline> timeline_;
  std::unique_ptr<KernelSet> kernels_;
  Tuning untuned_;  // the kernels', before any model's table
  std::unique_ptr<SelfTest> self_test_;
  DeviceCeilings ceilings_;                                    // the best seen since the last Load
  std::array<std::unique_ptr<DevicePlan>, kMaxPlans> models_;  // by plan; null: not loaded
  std::array<bool, kMaxPlans> lost_ = {};  // by plan: it was loaded on a device that is gone
};

}  // namespace tandem::gpu

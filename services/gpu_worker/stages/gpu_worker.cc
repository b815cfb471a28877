#include "services/gpu_worker/stages/gpu_worker.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/ceilings.h"
#include "services/gpu_worker/stages/loaded_model.h"
#include "services/gpu_worker/stages/loaded_vision.h"
#include "services/gpu_worker/vulkan/memory_choice.h"

namespace tandem::gpu {
namespace {
constexpr absl::Duration kHealthTimeout = absl::Seconds(5);
constexpr absl::Duration kHangGrace = absl::Seconds(5);

// About half of what prompts reach on lavapipe (docs/performance.md, 270M): some are slower.
constexpr double kOperationsOfProcessor = 10e9;  // a second

double SoftwareOperations() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  const bool known = ::sched_getaffinity(0, sizeof(usable), &usable) == 0;
  return kOperationsOfProcessor * std::max(1, known ? CPU_COUNT(&usable) : 1);
}

// Rows of a picture see later ones: only in tiles, or where attention.comp computes all rows.
bool CanTakePictures(const Tuning& tuning) {
  return tuning.tiled.enabled || !tuning.decode.enabled;
}

vulkan::SoftwareUse SoftwareUseOf(GpuPolicy policy) {
  if (policy == GpuPolicy::kRequire) return vulkan::SoftwareUse::kNever;
  return policy == GpuPolicy::kSoftware ? vulkan::SoftwareUse::kOnly : vulkan::SoftwareUse::kLast;
}
}  // namespace

absl::StatusOr<std::unique_ptr<GpuWorker>> GpuWorker::Create(GpuWorkerOptions options) {
  std::unique_ptr<GpuWorker> worker(new GpuWorker(std::move(options)));
  TANDEM_RETURN_IF_ERROR(worker->OpenDevice());
  const vulkan::DeviceInfo& info = worker->device_->info();
  WorkerDescription& description = worker->description_;
  description.name = worker->options_.name;
  description.device = info.name;
  description.driver = info.driver;
  description.kind = DeviceKind::kGpu;
  description.emulated = info.software();
  description.feeds_steps = true;
  description.kv_dtypes = {DType::kF16, DType::kQ8_0};
  description.matrix_port_dtypes = {DType::kF16, DType::kBf16};
  description.copies_kv = true;
  description.takes_pictures = CanTakePictures(worker->kernels_->tuning());
  for (int kind = 0; kind < kNumStageKinds; ++kind) {
    description.stages.push_back(static_cast<StageKind>(kind));
  }
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    description.weight_dtypes.push_back(static_cast<DType>(dtype));
  }
  description.max_rows = worker->options_.max_rows;
  if (info.software()) description.operations_per_second = SoftwareOperations();
  const vulkan::MemorySize memory = vulkan::UsableMemory(info);
  description.memory_bytes = memory.bytes;
  description.memory_available_bytes = memory.available_bytes;
  return worker;
}

GpuWorker::~GpuWorker() { CloseDevice(); }

absl::Status GpuWorker::OpenDevice() {
  // A driver may also throw.  A device without all of its objects must not stay.
  absl::Cleanup close = [this] { CloseDevice(); };
  if (instance_ == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(instance_,
                            vulkan::Instance::Create({.validation = options_.validation,
                                                      .subgroup_size = options_.subgroup_size}));
    TANDEM_ASSIGN_OR_RETURN(
        device_index_,
        vulkan::ChooseDevice(instance_->devices(), options_.device, SoftwareUseOf(options_.gpu)));
  }
  TANDEM_ASSIGN_OR_RETURN(
      device_, vulkan::Device::Create(*instance_, device_index_, options_.import_memory));
  TANDEM_ASSIGN_OR_RETURN(timeline_, vulkan::Timeline::Create(*device_));
  timeline_->PollFor(options_.poll);
  TANDEM_ASSIGN_OR_RETURN(kernels_, KernelSet::Create(*device_, options_.cache_folder));
  if (options_.adjust_tuning) options_.adjust_tuning(kernels_->tuning());
  untuned_ = kernels_->tuning();
  TANDEM_ASSIGN_OR_RETURN(self_test_, SelfTest::Create(*device_, *kernels_, *timeline_));
  std::move(close).Cancel();
  return absl::OkStatus();
}

void GpuWorker::CloseDevice() {
  for (uint32_t plan = 0; plan < kMaxPlans; ++plan) lost_[plan] |= models_[plan] != nullptr;
  // Without a timeline nothing was submitted.
  if (timeline_ != nullptr && device_->lost() && !timeline_->IsIdle(kHangGrace)) {
    // It may still be reading and writing what it was given: that must outlive it, so it is left
    // to the end of the process.
    LogError("device abandoned", {{"device", device_->info().name}});
    for (auto& model : models_) static_cast<void>(model.release());
    static_cast<void>(self_test_.release());
    static_cast<void>(kernels_.release());
    static_cast<void>(timeline_.release());
    static_cast<void>(device_.release());
    static_cast<void>(instance_.release());
    return;
  }
  for (auto& model : models_) model.reset();
  self_test_.reset();
  kernels_.reset();
  timeline_.reset();
  device_.reset();
}

absl::Duration GpuWorker::LongestSubmission() const {
  // A software device has no other use, and its driver no limit.
  const absl::Duration otherwise =
      device_->info().software() ? absl::ZeroDuration() : kLongestSubmission;
  const absl::Duration longest = options_.longest_submission.value_or(otherwise);
  return longest > absl::ZeroDuration() ? longest : absl::InfiniteDuration();
}

absl::StatusOr<LoadReport> GpuWorker::Load(
    ModelLoad load, const std::function<void(double, std::string_view)>& progress) {
  if (device_ != nullptr && !device_->lost()) {
    Unload(load.plan);
  } else {
    CloseDevice();
    TANDEM_RETURN_IF_ERROR(OpenDevice());
    LogWarning("device recreated", {{"device", device_->info().name}});
  }
  if (load.limits.max_rows > options_.max_rows) {
    return absl::FailedPreconditionError(absl::StrFormat("steps of %d rows, %s takes at most %d",
                                                         load.limits.max_rows, options_.name,
                                                         options_.max_rows));
  }
  kernels_->tuning() = untuned_;
  ceilings_ = {};
  lost_[load.plan] = false;
  std::unique_ptr<DevicePlan>& model = models_[load.plan];
  TANDEM_ASSIGN_OR_RETURN(model, MakePlan(std::move(load), progress));
  ShareDevice();
  if (const absl::Status saved = kernels_->SaveCache(); !saved.ok()) {
    LogWarning("pipeline cache not kept", {{"reason", std::string(saved.message())}});
  }
  return model->report();
}

absl::StatusOr<std::unique_ptr<DevicePlan>> GpuWorker::MakePlan(
    ModelLoad load, const std::function<void(double, std::string_view)>& progress) {
  if (load.limits.vision()) {
    return LoadedVision::Create(*device_, *kernels_, *timeline_, std::move(load), progress);
  }
  TuneOptions tune{.mode = options_.tune, .now = absl::Seconds(options_.tune_seconds)};
  if (!options_.cache_folder.empty()) tune.folder = options_.cache_folder + "/tuning";
  return LoadedModel::Create(*device_, *kernels_, *timeline_, std::move(load), tune,
                             LongestSubmission(), progress);
}

void GpuWorker::ShareDevice() {
  const auto is_loaded = [](const auto& model) { return model != nullptr; };
  const bool shared = std::ranges::count_if(models_, is_loaded) > 1;
  for (const auto& model : models_) {
    if (model != nullptr) model->Share(shared);
  }
}

void GpuWorker::Unload(uint32_t plan) {
  // A lost device may still use the models' memory: see CloseDevice.
  if (device_ != nullptr && device_->lost()) CloseDevice();
  lost_[plan] = false;
  models_[plan].reset();
  ShareDevice();
}

absl::Status GpuWorker::Submit(const SegmentRun& run) {
  if (device_ == nullptr || device_->lost()) {
    return absl::UnavailableError("the device is lost: load the model again");
  }
  if (lost_[run.plan]) {
    return absl::UnavailableError("the plan was lost with an earlier device: load it again");
  }
  if (models_[run.plan] == nullptr) return absl::FailedPreconditionError("no model is loaded");
  return models_[run.plan]->Submit(run);
}

void GpuWorker::MasksReady(uint32_t plan) {
  if (device_ == nullptr || device_->lost() || models_[plan] == nullptr) return;
  models_[plan]->MasksReady();
}

absl::StatusOr<bool> GpuWorker::Advance(uint32_t plan) {
  if (device_ == nullptr || device_->lost() || models_[plan] == nullptr || models_[plan]->idle()) {
    return true;
  }
  // The device goes on with them while this plan's submission is waited for.
  for (const auto& model : models_) {
    if (model != nullptr) model->QueueDue();
  }
  return models_[plan]->Advance();
}

bool GpuWorker::HoldsBack(uint32_t plan) const {
  return models_[plan] != nullptr && models_[plan]->HoldsBack();
}

absl::StatusOr<SegmentResult> GpuWorker::Wait(uint32_t plan) {
  if (device_ == nullptr || device_->lost() || models_[plan] == nullptr || models_[plan]->idle()) {
    return absl::UnavailableError("the device was lost with what was submitted");
  }
  return models_[plan]->Wait();
}

absl::Status GpuWorker::CopyKv(uint32_t plan, const KvCopy& copy) {
  if (device_ == nullptr || device_->lost() || models_[plan] == nullptr) {
    return absl::UnavailableError("the device was lost with its KV cache");
  }
  return models_[plan]->CopyKv(copy);
}

absl::Status GpuWorker::CheckHealth() {
  if (device_ == nullptr || device_->lost()) return absl::UnavailableError("the device is lost");
  return self_test_->Run(kHealthTimeout);
}

absl::StatusOr<DeviceCeilings> GpuWorker::Ceilings() {
  if (device_ == nullptr || device_->lost()) return absl::UnavailableError("the device is lost");
  const bool matrix_units = kernels_->tuning().matrix.fragments.path != MatrixPath::kNone;
  uint64_t read_bytes = 0;
  for (const auto& model : models_) {
    if (model != nullptr) read_bytes = std::max(read_bytes, model->report().weight_bytes);
  }
  TANDEM_ASSIGN_OR_RETURN(
      const DeviceCeilings now,
      MeasureCeilings(*device_, kernels_->layout(), *timeline_, matrix_units, read_bytes));
  ceilings_.read_bytes_per_second =
      std::max(ceilings_.read_bytes_per_second, now.read_bytes_per_second);
  ceilings_.fma_flops_per_second =
      std::max(ceilings_.fma_flops_per_second, now.fma_flops_per_second);
  ceilings_.matrix_flops_per_second =
      std::max(ceilings_.matrix_flops_per_second, now.matrix_flops_per_second);
  return ceilings_;
}

std::string GpuWorker::DescribeDevice() const { return vulkan::DescribeDevice(device_->info()); }

}  // namespace tandem::gpu

#include "services/worker_host/device_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/clock.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/worker_convert.h"

namespace tandem {
namespace {

// Far more than the plans that a worker sees, and far fewer than all epochs.
constexpr uint64_t kMaxEpochStep = uint64_t{1} << 32;

}  // namespace

DeviceHost::DeviceHost(std::unique_ptr<Worker> worker, WeightSource& source,
                       absl::Duration stuck_after, bool measure_ceilings, OnServing on_serving,
                       Power power)
    : stuck_after_(stuck_after),
      measure_ceilings_(measure_ceilings),
      on_serving_(std::move(on_serving)),
      power_(std::move(power)),
      worker_(std::move(worker)),
      plans_(*worker_, source),
      description_(ToProto(worker_->description())) {}

DeviceHost::~DeviceHost() = default;

void DeviceHost::SelfTest() {
  device_ = GuardDriver("self-test", [this] { return worker_->CheckHealth(); });
  self_tested_ = device_.ok();
  if (!device_.ok()) {
    LogError("self-test failed, not serving", {{"reason", std::string(device_.message())}});
  }
  {
    absl::MutexLock lock(&mutex_);
    self_test_has_run_ = true;
    self_test_ = device_;
  }
  SetServing(device_.ok());
}

absl::Status DeviceHost::CheckEpoch(uint64_t epoch) const {
  const uint64_t highest = highest_epoch_.load(std::memory_order_relaxed);
  if (epoch <= highest) {
    return absl::AbortedError(
        absl::StrFormat("plan of epoch %d, this worker is at epoch %d", epoch, highest));
  }
  if (epoch - highest <= kMaxEpochStep) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "plan of epoch %d is more than %d above this worker's epoch %d: ask the worker for its epoch",
      epoch, kMaxEpochStep, highest));
}

absl::StatusOr<worker::v1::LoadPlanReport> DeviceHost::Load(
    const worker::v1::LoadPlanRequest& request, const Progress& progress) {
  TANDEM_RETURN_IF_ERROR(CheckEpoch(request.epoch()));
  TANDEM_RETURN_IF_ERROR(plans_.CheckHolder(request.plan_token()));
  SettleAll();
  if (!self_tested_) {
    SelfTest();
    if (!self_tested_) {
      return absl::FailedPreconditionError(
          absl::StrFormat("self-test failed: %s", std::string(device_.message())));
    }
  }
  if (!device_.ok()) plans_.DropAll();  // the device has lost them
  const absl::StatusOr<const HostedPlan*> plan = plans_.Load(request, progress);
  if (!plan.ok()) {
    LogWarning("plan refused", {{"plan", request.plan_id()},
                                {"epoch", request.epoch()},
                                {"reason", std::string(plan.status().message())}});
    counters_.CountError(plan.status());
    CheckAfterFailedLoad();
    PublishPlans();
    return plan.status();
  }
  const worker::v1::LoadPlanReport& report = (*plan)->report;
  highest_epoch_.store(request.epoch(), std::memory_order_relaxed);
  LogInfo("plan loaded", {{"plan", request.plan_id()},
                          {"epoch", request.epoch()},
                          {"model", request.model_id()},
                          {"segments", request.segments_size()},
                          {"weight_import", report.weight_import()},
                          {"exchange_import", report.exchange_import()},
                          {"kv_bytes", report.kv_bytes()},
                          {"seconds", LogValue(report.load_seconds(), 2)},
                          {"note", report.note()}});
  PublishPlans();
  device_ = absl::OkStatus();
  SetServing(true);
  return report;
}

void DeviceHost::CheckAfterFailedLoad() {
  if (!device_.ok()) return;
  const absl::Status status =
      GuardDriver("health check", [this] { return worker_->CheckHealth(); });
  if (!status.ok()) DeviceLost(absl::UnavailableError(status.message()));
}

absl::Status DeviceHost::Unload(const worker::v1::UnloadPlanRequest& request) {
  SettleAll();
  const absl::Status status = plans_.Unload(request);
  PublishPlans();
  return status;
}

absl::Duration DeviceHost::RunningFor() const {
  const int64_t since_ns = run_since_ns_.load(std::memory_order_relaxed);
  return since_ns == 0 ? absl::ZeroDuration() : absl::Nanoseconds(NowNanos() - since_ns);
}

void DeviceHost::CheckIdle() {
  if (!self_tested_) return SelfTest();
  if (!device_.ok()) return;
  // A gateway that takes long to write masks must not lose its step by that.
  if (awaits_masks()) return;
  SettleAll();
  const absl::Status status =
      GuardDriver("health check", [this] { return worker_->CheckHealth(); });
  if (!status.ok()) return DeviceLost(absl::UnavailableError(status.message()));
  if (!measure_ceilings_ || plans_.size() == 0) return;
  measure_ceilings_ = false;
  const auto measured = MeasureCeilings();
  if (measured.ok()) {
    LogInfo("ceilings measured",
            {{"read_gbps", LogValue(1e-9 * measured->read_bytes_per_second(), 1)},
             {"fma_tflops", LogValue(1e-12 * measured->fma_flops_per_second(), 2)},
             {"matrix_tflops", LogValue(1e-12 * measured->matrix_flops_per_second(), 2)}});
  } else if (!absl::IsUnimplemented(measured.status())) {
    LogWarning("ceilings not measured", {{"reason", std::string(measured.status().message())}});
  }
}

absl::StatusOr<worker::v1::MeasureCeilingsResponse> DeviceHost::MeasureCeilings() {
  SettleAll();
  if (!device_.ok()) return device_;
  DeviceCeilings ceilings;
  const absl::Status measured = GuardDriver("measuring", [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(ceilings, worker_->Ceilings());
    return absl::OkStatus();
  });
  if (absl::IsUnavailable(measured)) DeviceLost(measured);
  TANDEM_RETURN_IF_ERROR(measured);
  worker::v1::MeasureCeilingsResponse response;
  response.set_read_bytes_per_second(ceilings.read_bytes_per_second);
  response.set_fma_flops_per_second(ceilings.fma_flops_per_second);
  response.set_matrix_flops_per_second(ceilings.matrix_flops_per_second);
  absl::MutexLock lock(&mutex_);
  ceilings_ = response;
  return response;
}

void DeviceHost::DeviceLost(const absl::Status& reason) {
  LogError("device lost, not serving until a plan is loaded",
           {{"reason", std::string(reason.message())}});
  device_ = reason;
  SetServing(false);
}

void DeviceHost::SetServing(bool serving) {
  if (serving == serving_) return;
  serving_ = serving;
  if (on_serving_) on_serving_(serving);
}

void DeviceHost::PublishPlans() {
  std::vector<worker::v1::PlanStatus> statuses;
  for (const HostedPlan* plan : plans_.loaded()) {
    worker::v1::PlanStatus& status = statuses.emplace_back();
    status.set_plan_id(plan->id);
    status.set_epoch(plan->epoch());
    status.set_model_id(plan->plan->model_id());
    *status.mutable_report() = plan->report;
    status.set_memory_bytes(plan->memory_bytes);
  }
  absl::MutexLock lock(&mutex_);
  description_ = ToProto(worker_->description());
  plan_statuses_ = std::move(statuses);
}

absl::StatusOr<worker::v1::DescribeResponse> DeviceHost::Describe() const {
  absl::MutexLock lock(&mutex_);
  if (!self_test_has_run_) return absl::UnavailableError("the self-test has not run yet");
  if (IsStuck()) {
    return absl::UnavailableError(
        absl::StrFormat("%s hangs: one segment has been running for %s", description_.name(),
                        absl::FormatDuration(absl::Floor(RunningFor(), absl::Milliseconds(1)))));
  }
  if (self_test_.ok()) {
    worker::v1::DescribeResponse description = description_;
    description.set_highest_epoch(highest_epoch_.load(std::memory_order_relaxed));
    for (const worker::v1::PlanStatus& plan : plan_statuses_) {
      worker::v1::PlanMemory* const memory = description.add_plans();
      memory->set_plan_id(plan.plan_id());
      memory->set_bytes(plan.memory_bytes());
    }
    return description;
  }
  return absl::FailedPreconditionError(absl::StrFormat("%s is not usable: %s", description_.name(),
                                                       std::string(self_test_.message())));
}

worker::v1::GetStatusResponse DeviceHost::GetStatus() const {
  worker::v1::GetStatusResponse status;
  counters_.Fill(status);
  absl::MutexLock lock(&mutex_);
  if (ceilings_.has_value()) *status.mutable_ceilings() = *ceilings_;
  for (const worker::v1::PlanStatus& plan : plan_statuses_) *status.add_plans() = plan;
  return status;
}

}  // namespace tandem

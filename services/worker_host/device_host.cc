#include "services/worker_host/device_host.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/clock.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/worker_convert.h"

namespace tandem {
namespace {

// An exception from a driver's library becomes UNAVAILABLE, as for a lost device: no exception may
// leave the device thread.
template <typename F>
auto Guarded(const char* what, F&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrFormat("%s threw: %s", what, e.what()));
  } catch (...) {
    return absl::UnavailableError(absl::StrFormat("%s threw", what));
  }
}

// Far more than the plans that a worker sees, and far fewer than all epochs.
constexpr uint64_t kMaxEpochStep = uint64_t{1} << 32;

absl::Status StaleEpoch(const char* what, uint64_t epoch, uint64_t current) {
  return absl::AbortedError(
      absl::StrFormat("%s of epoch %d, this worker is at epoch %d", what, epoch, current));
}

}  // namespace

DeviceHost::DeviceHost(std::unique_ptr<Worker> worker, WeightSource& source,
                       absl::Duration stuck_after, bool measure_ceilings, OnServing on_serving)
    : source_(source),
      stuck_after_(stuck_after),
      measure_ceilings_(measure_ceilings),
      on_serving_(std::move(on_serving)),
      worker_(std::move(worker)),
      holder_(absl::StrFormat("%s pid %d", worker_->description().name, ::getpid())),
      description_(ToProto(worker_->description())) {}

DeviceHost::~DeviceHost() = default;

void DeviceHost::SelfTest() {
  device_ = Guarded("self-test", [this] { return worker_->CheckHealth(); });
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
  if (epoch <= highest) return StaleEpoch("plan", epoch, highest);
  if (epoch - highest <= kMaxEpochStep) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "plan of epoch %d is more than %d above this worker's epoch %d: ask the worker for its epoch",
      epoch, kMaxEpochStep, highest));
}

absl::Status DeviceHost::CheckHolder(const std::string& plan_token) {
  if (plan_ == nullptr || plan_token == plan_holder_.token) return absl::OkStatus();
  if (plan_holder_.loader_target.empty()) return absl::OkStatus();
  const auto region = source_.FetchExchange(plan_holder_.loader_target, plan_holder_.lease_token,
                                            plan_holder_.region_id);
  if (!region.ok()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat(
      "%s runs a plan of another gateway (epoch %d), whose lease is alive: stop that "
      "gateway, or give this one a worker of its own",
      worker_->description().name, plan_->epoch()));
}

absl::StatusOr<worker::v1::LoadPlanReport> DeviceHost::Load(
    const worker::v1::LoadPlanRequest& request, const Progress& progress) {
  const absl::Time start = absl::Now();
  TANDEM_RETURN_IF_ERROR(CheckEpoch(request.epoch()));
  TANDEM_RETURN_IF_ERROR(CheckHolder(request.plan_token()));
  SettleAll();
  if (!self_tested_) {
    SelfTest();
    if (!self_tested_) {
      return absl::FailedPreconditionError(
          absl::StrFormat("self-test failed: %s", std::string(device_.message())));
    }
  }
  worker::v1::LoadPlanReport report;
  const absl::Status status =
      Guarded("loading", [&] { return LoadPlan(request, progress, report); });
  if (!status.ok()) {
    LogWarning("plan refused",
               {{"epoch", request.epoch()}, {"reason", std::string(status.message())}});
    counters_.CountError(status);
    DropPlan();
    return status;
  }
  highest_epoch_.store(request.epoch(), std::memory_order_relaxed);
  report.set_load_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  LogInfo("plan loaded", {{"epoch", request.epoch()},
                          {"model", request.model_id()},
                          {"segments", request.segments_size()},
                          {"weight_import", report.weight_import()},
                          {"exchange_import", report.exchange_import()},
                          {"kv_bytes", report.kv_bytes()},
                          {"seconds", LogValue(report.load_seconds(), 2)}});
  Publish(report);
  device_ = absl::OkStatus();
  SetServing(true);
  return report;
}

absl::Status DeviceHost::LoadPlan(const worker::v1::LoadPlanRequest& request,
                                  const Progress& progress, worker::v1::LoadPlanReport& report) {
  plan_.reset();
  TANDEM_RETURN_IF_ERROR(FetchWeights(request, progress));
  UniqueFd exchange_fd;
  if (!request.inline_activations()) {
    TANDEM_ASSIGN_OR_RETURN(
        exchange_fd, source_.FetchExchange(request.loader_target(), request.exchange_lease_token(),
                                           request.exchange_region_id()));
  }
  TANDEM_ASSIGN_OR_RETURN(auto plan, LoadedPlan::Create(request, worker_->description(),
                                                        leased_.weights, std::move(exchange_fd)));
  TANDEM_ASSIGN_OR_RETURN(
      const LoadReport loaded,
      worker_->Load(plan->MakeLoad(), [&progress](double fraction, std::string_view phase) {
        progress(fraction, phase);
      }));
  const ModelLoad load = plan->MakeLoad();
  costs_.assign(load.segments.back().index + 1, SegmentCosts());
  for (const Segment& segment : load.segments) {
    costs_[segment.index] = SegmentCosts(segment, *load.weights, load.kv.dtype);
  }
  plan_ = std::move(plan);
  plan_holder_ = {.token = request.plan_token()};
  if (!request.inline_activations()) {
    plan_holder_.loader_target = request.loader_target();
    plan_holder_.lease_token = request.exchange_lease_token();
    plan_holder_.region_id = request.exchange_region_id();
  }
  report = ToProto(loaded);
  return absl::OkStatus();
}

absl::Status DeviceHost::FetchWeights(const worker::v1::LoadPlanRequest& request,
                                      const Progress& progress) {
  const bool same_model =
      leased_.weights != nullptr && leased_.weights->model_id() == request.model_id();
  if (same_model && source_.IsAlive(leased_)) return absl::OkStatus();
  if (leased_.weights != nullptr && !same_model) {
    worker_->Unload();
    leased_ = {};
  }
  progress(0.0, "fetching weights");
  auto fetched =
      request.inline_activations()
          ? source_.FetchOwnWeights(request.model_id(), request.model_name(), holder_, progress)
          : source_.FetchWeights(request.loader_target(), request.model_id(), holder_);
  if (!fetched.ok()) {
    if (!same_model) return fetched.status();
    LogWarning("lease lost, going on with the weights as mapped",
               {{"reason", std::string(fetched.status().message())}});
    return absl::OkStatus();
  }
  leased_ = *std::move(fetched);
  return absl::OkStatus();
}

absl::Status DeviceHost::Unload(const worker::v1::UnloadPlanRequest& request) {
  if (plan_ == nullptr) {
    return absl::AbortedError(
        absl::StrFormat("unload of epoch %d, this worker has no plan loaded", request.epoch()));
  }
  if (request.epoch() != plan_->epoch()) {
    return StaleEpoch("unload", request.epoch(), plan_->epoch());
  }
  if (request.plan_token() != plan_holder_.token) {
    return absl::PermissionDeniedError(
        absl::StrFormat("the plan of epoch %d belongs to another gateway", request.epoch()));
  }
  DropPlan();
  leased_ = {};
  return absl::OkStatus();
}

void DeviceHost::DropPlan() {
  SettleAll();
  plan_.reset();
  (void)Guarded("unloading", [this] {
    worker_->Unload();
    return absl::OkStatus();
  });
  absl::MutexLock lock(&mutex_);
  plan_epoch_ = 0;
  model_id_.clear();
  report_.Clear();
}

uint64_t DeviceHost::Submit(const worker::v1::ExecuteRequest& request) {
  until_next_call_.WaitEnds(AdaptivePolling::Clock::now());
  Call& call = calls_.emplace_back(Call{.number = ++num_calls_,
                                        .step_id = request.step_id(),
                                        .segment_index = request.segment_index(),
                                        .lane = request.lane(),
                                        .epoch = request.epoch()});
  const absl::Status submitted = SubmitSegment(request, call);
  if (!submitted.ok()) call.result = submitted;
  until_next_call_.WaitBegins(AdaptivePolling::Clock::now());
  return call.number;
}

absl::Status DeviceHost::SubmitSegment(const worker::v1::ExecuteRequest& request, Call& call) {
  if (plan_ == nullptr) {
    return absl::AbortedError(
        absl::StrFormat("call of epoch %d, this worker has no plan loaded", request.epoch()));
  }
  if (request.epoch() != plan_->epoch()) {
    return StaleEpoch("call", request.epoch(), plan_->epoch());
  }
  // A lane holds one step at a time.
  for (const Call& earlier : calls_) {
    if (!earlier.result.has_value() && earlier.number != num_calls_ &&
        earlier.lane == request.lane()) {
      Settle(earlier.number);
    }
  }
  if (!device_.ok()) return device_;
  const absl::StatusOr<SegmentRun> run = plan_->Prepare(request);
  const absl::Status submitted =
      run.ok() ? Watched([&] { return worker_->Submit(*run); }) : run.status();
  if (submitted.ok()) {
    // While the device works.
    call.header = run->step->header;
    call.work = costs_[request.segment_index()].Of(*run->step);
    return absl::OkStatus();
  }
  if (run.ok() && absl::IsUnavailable(submitted)) DeviceLost(submitted);
  if (request.lane() < plan_->num_lanes()) plan_->ForgetStep(request.lane());
  return submitted;
}

void DeviceHost::Settle(uint64_t last) {
  for (Call& call : calls_) {
    if (call.number > last) return;
    if (call.result.has_value()) continue;
    call.result = Watched([this] { return worker_->Wait(); });
    if (call.result->ok()) {
      counters_.Count(**call.result, call.header.num_rows, call.work);
    } else {
      if (absl::IsUnavailable(call.result->status())) DeviceLost(call.result->status());
      plan_->ForgetStep(call.lane);
    }
  }
}

void DeviceHost::Wait(uint64_t number, worker::v1::ExecuteResponse& response) {
  Settle(number);
  until_next_call_.WaitBegins(AdaptivePolling::Clock::now());
  const auto call = std::find_if(calls_.begin(), calls_.end(),
                                 [number](const Call& c) { return c.number == number; });
  response.Clear();
  response.set_epoch(call->epoch);
  response.set_step_id(call->step_id);
  response.set_segment_index(call->segment_index);
  absl::StatusOr<SegmentResult> result = *std::move(call->result);
  if (result.ok() && (plan_ == nullptr || plan_->epoch() != call->epoch)) {
    result = absl::AbortedError("the plan has been replaced while the call was under way");
  }
  if (result.ok()) plan_->PutOutputs(call->segment_index, call->lane, call->header, response);
  calls_.erase(call);
  if (!result.ok()) {
    counters_.CountFailedSegment(result.status());
    response.set_code(static_cast<int32_t>(result.status().code()));
    response.set_message(std::string(result.status().message()));
    return;
  }
  response.set_device_ns(result->device_ns);
  for (const StageTime& time : result->stage_times) {
    worker::v1::StageTime* proto = response.add_stage_times();
    proto->set_kind(ToProto(time.kind));
    proto->set_device_ns(time.device_ns);
  }
}

template <typename F>
auto DeviceHost::Watched(F&& call) -> decltype(call()) {
  run_since_ns_.store(NowNanos(), std::memory_order_relaxed);
  auto result = Guarded("the worker", std::forward<F>(call));
  run_since_ns_.store(0, std::memory_order_relaxed);
  return result;
}

absl::Duration DeviceHost::RunningFor() const {
  const int64_t since_ns = run_since_ns_.load(std::memory_order_relaxed);
  return since_ns == 0 ? absl::ZeroDuration() : absl::Nanoseconds(NowNanos() - since_ns);
}

void DeviceHost::CheckIdle() {
  if (!self_tested_) return SelfTest();
  if (!device_.ok()) return;
  SettleAll();
  const absl::Status status = Guarded("health check", [this] { return worker_->CheckHealth(); });
  if (!status.ok()) return DeviceLost(absl::UnavailableError(status.message()));
  if (!measure_ceilings_ || plan_ == nullptr) return;
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
  TANDEM_RETURN_IF_ERROR(Guarded("measuring", [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(ceilings, worker_->Ceilings());
    return absl::OkStatus();
  }));
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

void DeviceHost::Publish(const worker::v1::LoadPlanReport& report) {
  absl::MutexLock lock(&mutex_);
  description_ = ToProto(worker_->description());
  plan_epoch_ = plan_->epoch();
  model_id_ = plan_->model_id();
  report_ = report;
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
  status.set_epoch(plan_epoch_);
  status.set_model_id(model_id_);
  *status.mutable_report() = report_;
  return status;
}

}  // namespace tandem

#include "services/gateway/executor/vision_executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/inline_exchange.h"
#include "services/common/rpc/worker_convert.h"
#include "services/gateway/executor/parallel_load.h"

namespace tandem::gateway {
namespace {

constexpr char kPlanId[] = "vision";
// After a plan that could not be loaded, which was waited for already.
constexpr absl::Duration kRetryAfter = absl::Seconds(2);

// An error that a new plan may fix: the worker is gone, or holds another plan or none.
bool IsLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<VisionExecutor>> VisionExecutor::Create(ExecutorOptions options,
                                                                       std::string model_id) {
  std::unique_ptr<VisionExecutor> executor(
      new VisionExecutor(std::move(options), std::move(model_id)));
  TANDEM_ASSIGN_OR_RETURN(executor->peers_, MakePeers(executor->options_));
  TANDEM_ASSIGN_OR_RETURN(executor->model_, LeasedModel::Create(executor->options_));
  return executor;
}

VisionExecutor::~VisionExecutor() = default;

absl::Status VisionExecutor::Build() {
  worker_ = nullptr;
  for (WorkerPeer& peer : peers_) peer.client->Close();
  const absl::Time deadline = absl::Now() + options_.worker_wait;
  while (true) {
    TANDEM_RETURN_IF_ERROR(model_->Acquire([](std::string_view, double) {}, deadline));
    if (!model_id_.empty() && model_->model().model_id() != model_id_) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "Vision: the files of %s have changed since the decoder was loaded: restart the gateway",
          options_.model_name));
    }
    TANDEM_ASSIGN_OR_RETURN(
        plan_, FindWorkers(peers_, options_.worker_grace, deadline - absl::Now(),
                           [this](const std::vector<WorkerDescription>& workers) {
                             return MakeVisionPlan(model_->config(), model_->vision_dtypes(),
                                                   workers, options_.policy);
                           }));
    worker_ = &*std::ranges::find_if(peers_, [this](const WorkerPeer& peer) {
      return peer.remote.ok() && peer.remote->description.name == plan_.workers[0].name;
    });
    limits_ = VisionLimits(kPicturesOfStep, model_->config().vision->tokens_per_image);
    absl::Status status = MakeExchange();
    if (status.ok()) status = LoadPlan();
    if (status.ok()) return status;
    worker_ = nullptr;
    // ABORTED: the decoder's plan has come between; the worker's epoch is asked for again.
    if (!IsLoss(status) || absl::Now() + kRetryPause >= deadline) return status;
    absl::SleepFor(kRetryPause);
    for (WorkerPeer& peer : peers_) AskPeer(peer, kRetryPause);
  }
}

absl::Status VisionExecutor::MakeExchange() {
  auto exchange = std::make_unique<Exchange>();
  exchange->layout = MakeExchangeLayout(model_->config(), limits_, 1);
  const uint64_t bytes = exchange->layout.total_bytes();
  TANDEM_ASSIGN_OR_RETURN(LeasedModel::NewRegion region,
                          model_->CreateRegion(bytes, "vision exchange"));
  exchange_region_id_ = region.id;
  exchange->fd = std::move(region.fd);
  TANDEM_ASSIGN_OR_RETURN(exchange->mapping,
                          Mapping::Map(exchange->fd.get(), bytes, Mapping::Access::kReadWrite));
  exchange_ = std::move(exchange);
  return absl::OkStatus();
}

absl::Status VisionExecutor::LoadPlan() {
  epoch_ = std::max(epoch_, worker().remote->highest_epoch) + 1;
  worker::v1::LoadPlanRequest request;
  request.set_epoch(epoch_);
  request.set_model_id(model_->model().model_id());
  *request.add_segments() = ToProto(plan_.segments[0]);
  *request.mutable_limits() = ToProto(limits_);
  request.set_num_lanes(1);
  request.set_plan_id(kPlanId);
  request.set_plan_token(options_.plan_token);
  if (worker().client->remote()) {
    request.set_inline_activations(true);
    request.set_model_name(options_.model_name);
  } else {
    request.set_loader_target(options_.loader_target);
    request.set_exchange_lease_token(model_->lease_token());
    request.set_exchange_region_id(exchange_region_id_);
  }
  std::vector<WorkerLoad> loads;
  loads.push_back({.name = plan_.workers[0].name,
                   .client = worker().client.get(),
                   .request = std::move(request)});
  TANDEM_RETURN_IF_ERROR(
      LoadInParallel(loads, options_.load_deadline, [](std::string_view, double) {}));
  worker().client->Open(worker().remote->execution_target);
  LogInfo("vision ready", {{"worker", plan_.workers[0].name}, {"epoch", epoch_}});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<float>>> VisionExecutor::Encode(
    std::span<const std::vector<float>> pixels) {
  if (pixels.empty()) return std::vector<std::vector<float>>();
  if (worker_ != nullptr) {
    auto encoded = EncodeAll(pixels);
    if (encoded.ok() || !IsLoss(encoded.status())) return encoded;
    LogWarning("vision is loaded again", {{"reason", std::string(encoded.status().message())}});
  }
  if (absl::Now() < retry_at_) return failure_;
  if (absl::Status built = Build(); !built.ok()) {
    // Those that have waited meanwhile need not wait for it once more each.
    retry_at_ = absl::Now() + kRetryAfter;
    failure_ = built;
    return built;
  }
  auto encoded = EncodeAll(pixels);
  if (!encoded.ok() && IsLoss(encoded.status())) worker_ = nullptr;
  return encoded;
}

absl::StatusOr<std::vector<std::vector<float>>> VisionExecutor::EncodeAll(
    std::span<const std::vector<float>> pixels) {
  const uint64_t due = exchange_->layout.pixels.row_bytes / sizeof(float);
  for (const std::vector<float>& picture : pixels) {
    if (picture.size() == due) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("a picture of %d pixel values, the encoder takes %d", picture.size(), due));
  }
  std::vector<std::vector<float>> encoded;
  for (size_t at = 0; at < pixels.size(); at += kPicturesOfStep) {
    TANDEM_RETURN_IF_ERROR(EncodeStep(
        pixels.subspan(at, std::min<size_t>(kPicturesOfStep, pixels.size() - at)), encoded));
  }
  return encoded;
}

absl::Status VisionExecutor::EncodeStep(std::span<const std::vector<float>> pixels,
                                        std::vector<std::vector<float>>& encoded) {
  const ExchangeLayout& layout = exchange_->layout;
  std::vector<PictureEntry> entries;
  StepBatch step;
  step.header.step_id = ++last_step_;
  step.header.num_pictures = static_cast<uint32_t>(pixels.size());
  for (uint32_t p = 0; p < pixels.size(); ++p) {
    entries.push_back({p * limits_.picture_rows, limits_.picture_rows});
    std::memcpy(exchange_->Area(0, layout.pixels).data() + p * layout.pixels.row_bytes,
                pixels[p].data(), layout.pixels.row_bytes);
  }
  step.pictures = entries;
  WriteStep(step, exchange_->Area(0, layout.step));
  worker::v1::ExecuteRequest request;
  request.set_epoch(epoch_);
  request.set_step_id(last_step_);
  const Segment& segment = plan_.segments[0];
  const bool remote = worker().client->remote();
  if (remote) {
    PutInputs(*exchange_, 0, segment, step.header, true, false, *request.mutable_inputs());
  }
  const absl::Duration deadline =
      static_cast<int64_t>(pixels.size()) * SegmentDeadline(options_, plan_.workers[0]);
  TANDEM_RETURN_IF_ERROR(worker().client->Submit(request, deadline));
  TANDEM_ASSIGN_OR_RETURN(const worker::v1::ExecuteResponse* const response,
                          worker().client->Wait(deadline));
  if (remote) {
    TANDEM_RETURN_IF_ERROR(
        TakeOutputs(response->outputs(), *exchange_, 0, segment, step.header, false));
  }
  const uint64_t picture_bytes = limits_.picture_rows * layout.soft_tokens.row_bytes;
  for (uint32_t p = 0; p < pixels.size(); ++p) {
    std::vector<float>& soft_tokens = encoded.emplace_back(picture_bytes / sizeof(float));
    std::memcpy(soft_tokens.data(),
                exchange_->Area(0, layout.soft_tokens).data() + p * picture_bytes, picture_bytes);
    if (std::ranges::all_of(soft_tokens, [](float x) { return std::isfinite(x); })) continue;
    return absl::DataLossError(absl::StrFormat(
        "%s encoded a picture to numbers that are not finite", plan_.workers[0].name));
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway

#include "services/worker_host/in_process_worker.h"

#include <fcntl.h>

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/rpc/worker_convert.h"

namespace tandem::testing {

absl::StatusOr<LeasedWeights> LocalWeightSource::FetchWeights(const std::string& /*loader_target*/,
                                                              const std::string& model_id,
                                                              const std::string& /*holder*/) {
  if (loader_gone) return absl::UnavailableError("the loader is gone");
  if (model_id != weights_->model_id()) {
    return absl::NotFoundError(absl::StrFormat("model %s is not resident", model_id));
  }
  ++num_fetches;
  return LeasedWeights{weights_, nullptr};
}

absl::StatusOr<LeasedWeights> LocalWeightSource::FetchOwnWeights(const std::string& model_id,
                                                                 const std::string& /*model_name*/,
                                                                 const std::string& holder,
                                                                 const Progress& /*progress*/) {
  return FetchWeights("", model_id, holder);
}

absl::StatusOr<UniqueFd> LocalWeightSource::FetchExchange(const std::string& /*loader_target*/,
                                                          const std::string& /*lease_token*/,
                                                          uint32_t region_id) {
  absl::MutexLock lock(&mutex_);
  const auto it = exchanges_.find(region_id);
  if (it == exchanges_.end()) return absl::NotFoundError("no such region");
  return UniqueFd(::fcntl(it->second.get(), F_DUPFD_CLOEXEC, 0));
}

void LocalWeightSource::EndExchange(uint32_t region_id) {
  absl::MutexLock lock(&mutex_);
  exchanges_.erase(region_id);
}

uint32_t LocalWeightSource::AddExchange(UniqueFd fd) {
  absl::MutexLock lock(&mutex_);
  const uint32_t id = ++last_exchange_;
  exchanges_.emplace(id, std::move(fd));
  return id;
}

absl::StatusOr<LoadReport> FakeWorker::Load(
    ModelLoad load, const std::function<void(double, std::string_view)>& progress) {
  progress(0.5, "faking");
  if (hooks_.load) {
    const absl::Status status = hooks_.load(load);
    if (!status.ok()) return status;
  }
  progress(1.0, "faked");
  return LoadReport{.weight_import = ImportPath::kHostPointer,
                    .exchange_import = ImportPath::kHostPointer,
                    .weight_bytes = load.weights->total_bytes()};
}

absl::StatusOr<SegmentResult> FakeWorker::Run(const SegmentRun& run) {
  return hooks_.run ? hooks_.run(run) : SegmentResult{};
}

WorkerDescription DescribeFakeWorker(const std::string& name, uint32_t max_rows) {
  WorkerDescription description;
  description.name = name;
  description.device = "none";
  description.stages = {StageKind::kEmbed, StageKind::kQkv, StageKind::kAttend,
                        StageKind::kOut,   StageKind::kFfn, StageKind::kHead};
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    description.weight_dtypes.push_back(static_cast<DType>(dtype));
  }
  description.max_rows = max_rows;
  description.feeds_steps = true;
  return description;
}

InProcessWorker::InProcessWorker(std::unique_ptr<Worker> worker, WeightSource& source,
                                 const std::string& socket_path, WorkerServiceOptions options)
    : target_("unix:" + socket_path) {
  auto service = WorkerService::Create(std::move(worker), source, {.listen = {target_}}, options);
  TANDEM_CHECK(service.ok());
  service_ = *std::move(service);
  auto server = Server::Start({.listen = {target_}},
                              {{worker::v1::Worker::service_full_name(), service_.get()}});
  TANDEM_CHECK(server.ok());
  server_ = *std::move(server);
  service_->Start([this](bool serving) {
    serving_ = serving;
    server_->SetServing(serving);
  });
}

void InProcessWorker::Stop() {
  if (server_ == nullptr) return;
  service_->Drain();
  server_->Shutdown(absl::Seconds(5));
  service_.reset();
  server_.reset();
}

std::shared_ptr<const Exchange> MakeLocalExchange(const ModelConfig& config,
                                                  const StepLimits& limits, uint32_t num_lanes) {
  auto exchange = std::make_shared<Exchange>();
  exchange->layout = MakeExchangeLayout(config, limits, num_lanes);
  const uint64_t bytes = exchange->layout.total_bytes();
  auto fd = CreateSharedMemory("exchange", bytes);
  TANDEM_CHECK(fd.ok());
  exchange->fd = *std::move(fd);
  auto mapping = Mapping::Map(exchange->fd.get(), bytes, Mapping::Access::kReadWrite);
  TANDEM_CHECK(mapping.ok());
  exchange->mapping = *std::move(mapping);
  return exchange;
}

worker::v1::LoadPlanRequest MakeLoadRequest(uint64_t epoch, const WeightSet& weights,
                                            const std::vector<Segment>& segments,
                                            const StepLimits& limits, const Exchange& exchange,
                                            LocalWeightSource& source) {
  worker::v1::LoadPlanRequest request;
  request.set_epoch(epoch);
  request.set_model_id(weights.model_id());
  for (const Segment& segment : segments) *request.add_segments() = ToProto(segment);
  *request.mutable_limits() = ToProto(limits);
  request.set_exchange_region_id(
      source.AddExchange(UniqueFd(::fcntl(exchange.fd.get(), F_DUPFD_CLOEXEC, 0))));
  request.set_num_lanes(exchange.layout.num_lanes);
  request.set_port_dtype(static_cast<uint32_t>(DType::kF16));
  return request;
}

}  // namespace tandem::testing

#include "services/gateway/executor/leased_model.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/cluster_network.h"
#include "services/common/rpc/convert.h"
#include "services/gateway/executor/model_changed.h"

namespace tandem::gateway {
namespace {

std::vector<DType> MatrixDTypes(const std::vector<PackedTensor>& tensors) {
  std::vector<DType> dtypes;
  for (const PackedTensor& tensor : tensors) {
    if (IsNorm(tensor.role)) continue;
    for (const Shard& shard : tensor.shards) {
      if (std::find(dtypes.begin(), dtypes.end(), shard.dtype) == dtypes.end()) {
        dtypes.push_back(shard.dtype);
      }
    }
  }
  return dtypes;
}

}  // namespace

bool WorthRetrying(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

absl::StatusOr<std::unique_ptr<LoaderClient>> ConnectLoader(const ExecutorOptions& options) {
  return options.network == nullptr ? LoaderClient::Create(options.loader_target)
                                    : options.network->ConnectLoader(options.loader_target);
}

absl::StatusOr<std::unique_ptr<LeasedModel>> LeasedModel::Create(const ExecutorOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<LoaderClient> loader, ConnectLoader(options));
  return std::unique_ptr<LeasedModel>(
      new LeasedModel(std::move(loader), options.loader_target, options.model_name));
}

LeasedModel::LeasedModel(std::unique_ptr<LoaderClient> loader, std::string loader_target,
                         std::string model_name)
    : loader_(std::move(loader)),
      loader_target_(std::move(loader_target)),
      model_name_(std::move(model_name)) {}

absl::Status LeasedModel::Acquire(const Executor::Progress& progress, absl::Time deadline) {
  while (true) {
    // The resident weights are served until a reload is asked for, even if the file has changed.
    absl::Status status = model_id_.empty() ? Load(progress) : Renew();
    if (absl::IsNotFound(status) && !model_id_.empty()) status = Load(progress);
    if (!WorthRetrying(status) || absl::Now() >= deadline) return status;
    absl::SleepFor(kRetryPause);
  }
}

absl::Status LeasedModel::Load(const Executor::Progress& progress) {
  const auto model = loader_->LoadModel(model_name_, [&](const loader::v1::LoadProgress& done) {
    const double total = static_cast<double>(std::max<uint64_t>(done.total_bytes(), 1));
    progress("loading model: " + done.phase(), static_cast<double>(done.done_bytes()) / total);
    return true;
  });
  if (!model.ok()) {
    return absl::Status(model.status().code(),
                        absl::StrFormat("loader at %s: model '%s': %s", loader_target_, model_name_,
                                        std::string(model.status().message())));
  }
  if (model_id_.empty()) {
    TANDEM_RETURN_IF_ERROR(Adopt(*model));
  } else if (model->model_id() != model_id_) {
    return ModelChangedError(model_name_);
  }
  return Renew();
}

// The new lease before the old one goes, so that the model stays resident.
absl::Status LeasedModel::Renew() {
  auto lease = loader_->AcquireLease(model_id_, absl::StrFormat("gateway pid %d", ::getpid()));
  if (!lease.ok()) {
    return absl::Status(lease.status().code(),
                        absl::StrFormat("loader at %s: model '%s': %s", loader_target_, model_name_,
                                        std::string(lease.status().message())));
  }
  lease_ = *std::move(lease);
  return absl::OkStatus();
}

absl::Status LeasedModel::Adopt(const loader::v1::Model& model) {
  TANDEM_ASSIGN_OR_RETURN(config_, ConfigFromProto(model.config()));
  TANDEM_ASSIGN_OR_RETURN(tensors_, TensorsFromProto(model, config_));
  const auto vision =
      std::stable_partition(tensors_.begin(), tensors_.end(),
                            [](const PackedTensor& tensor) { return !IsVision(tensor.role); });
  vision_dtypes_ = MatrixDTypes({vision, tensors_.end()});
  vision_bytes_ = 0;
  for (const PackedTensor& tensor : std::span(vision, tensors_.end())) {
    for (const Shard& shard : tensor.shards) vision_bytes_ += ShardBytes(tensor, shard);
  }
  tensors_.erase(vision, tensors_.end());
  weight_dtypes_ = MatrixDTypes(tensors_);
  TANDEM_ASSIGN_OR_RETURN(vocabulary_, loader_->ReadVocabulary(model));
  model_id_ = model.model_id();
  return absl::OkStatus();
}

absl::StatusOr<LeasedModel::NewRegion> LeasedModel::CreateRegion(uint64_t bytes,
                                                                 std::string_view purpose) {
  NewRegion created;
  TANDEM_ASSIGN_OR_RETURN(created.id, loader_->CreateRegion(*lease_, bytes, std::string(purpose)));
  TANDEM_ASSIGN_OR_RETURN(Region region, loader_->FetchRegion(lease_->token(), created.id));
  created.fd = std::move(region.fd);
  return created;
}

}  // namespace tandem::gateway

#include "services/loader/service/loader_service.h"

#include <utility>

#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/status.h"

namespace tandem::loader {
namespace {

// Ends a stream that never began.
template <typename Response>
class RefusedStream : public grpc::ServerWriteReactor<Response> {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

absl::Status ShuttingDown() { return absl::UnavailableError("the loader is shutting down"); }

void FillListing(const ModelStore& store, v1::ListModelsResponse* response) {
  for (const ModelFile& file : store.catalog().List()) {
    v1::ModelListing* listing = response->add_models();
    listing->set_name(file.name);
    listing->set_format(file.format);
    listing->set_file_bytes(file.file_bytes);
    listing->set_resident(store.IsResident(file.path));
  }
}

absl::Status FillModelFile(const ModelStore& store, const v1::GetModelFileRequest& request,
                           v1::GetModelFileResponse* response) {
  TANDEM_ASSIGN_OR_RETURN(const ModelFile file, store.catalog().Resolve(request.name()));
  TANDEM_ASSIGN_OR_RETURN(*response->mutable_file_stamp(), ModelCatalog::FileStamp(file));
  response->set_resident(store.Find(request.model_id()).ok());
  return absl::OkStatus();
}

grpc::Status TooManyLooks() {
  return ToGrpcStatus(absl::ResourceExhaustedError("too many looks at the model folders wait"));
}

void FillStatus(const StoreStatus& status, v1::GetStatusResponse* response) {
  for (const StoreStatus::Model& model : status.models) {
    v1::ResidentModel* out = response->add_models();
    out->set_model_id(model.model_id);
    out->set_name(model.name);
    out->set_weight_bytes(model.weight_bytes);
    out->set_num_leases(model.num_leases);
  }
  for (const LeaseStatus& lease : status.leases) {
    v1::LeaseStatus* out = response->add_leases();
    out->set_model_id(lease.model_id);
    out->set_holder(lease.holder);
    out->set_age_seconds(absl::ToDoubleSeconds(lease.age));
    out->set_exchange_bytes(lease.exchange_bytes);
  }
  response->set_weight_bytes(status.weight_bytes);
  response->set_exchange_bytes(status.exchange_bytes);
  response->set_num_regions(status.num_regions);
}

}  // namespace

LoaderService::LoaderService(ModelStore* store)
    : store_(store),
      jobs_([store](const std::string& name,
                    const std::function<bool(const PackProgress&)>& progress) {
        return store->Load(name, progress);
      }),
      files_(/*max_waiting=*/32) {}

LoaderService::~LoaderService() {
  absl::MutexLock lock(&mutex_);
  TANDEM_CHECK(leases_.empty());
}

void LoaderService::Drain() {
  // Under the lock all the way: a lease that ends meanwhile waits in Forget before it is deleted.
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  for (LeaseReactor* lease : leases_) lease->End(ToGrpcStatus(ShuttingDown()));
}

void LoaderService::Forget(LeaseReactor* lease) {
  {
    absl::MutexLock lock(&mutex_);
    leases_.erase(lease);
  }
  delete lease;
}

grpc::ServerWriteReactor<v1::LoadModelResponse>* LoaderService::LoadModel(
    grpc::CallbackServerContext*, const v1::LoadModelRequest* request) {
  const absl::Status named = ModelCatalog::CheckName(request->name());
  if (!named.ok()) return new RefusedStream<v1::LoadModelResponse>(named);
  return LoadReactor::Start(&jobs_, request->name());
}

grpc::ServerUnaryReactor* LoaderService::ListModels(grpc::CallbackServerContext* context,
                                                    const v1::ListModelsRequest*,
                                                    v1::ListModelsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool taken = files_.Post([this, reactor, response] {
    FillListing(*store_, response);
    reactor->Finish(grpc::Status::OK);
  });
  if (!taken) reactor->Finish(TooManyLooks());
  return reactor;
}

grpc::ServerUnaryReactor* LoaderService::GetModelFile(grpc::CallbackServerContext* context,
                                                      const v1::GetModelFileRequest* request,
                                                      v1::GetModelFileResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool taken = files_.Post([this, reactor, request, response] {
    reactor->Finish(ToGrpcStatus(FillModelFile(*store_, *request, response)));
  });
  if (!taken) reactor->Finish(TooManyLooks());
  return reactor;
}

grpc::ServerWriteReactor<v1::AcquireLeaseResponse>* LoaderService::AcquireLease(
    grpc::CallbackServerContext*, const v1::AcquireLeaseRequest* request) {
  absl::MutexLock lock(&mutex_);
  if (draining_) return new RefusedStream<v1::AcquireLeaseResponse>(ShuttingDown());
  auto grant = store_->Acquire(request->model_id(), request->holder());
  if (!grant.ok()) return new RefusedStream<v1::AcquireLeaseResponse>(grant.status());
  auto* lease =
      new LeaseReactor(store_, *std::move(grant), [this](LeaseReactor* ended) { Forget(ended); });
  leases_.insert(lease);
  return lease;
}

grpc::ServerUnaryReactor* LoaderService::CreateRegion(grpc::CallbackServerContext* context,
                                                      const v1::CreateRegionRequest* request,
                                                      v1::CreateRegionResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto region = store_->leases().CreateRegion(request->lease_token(), request->size_bytes(),
                                                    request->purpose());
  if (region.ok()) response->set_region_id(*region);
  reactor->Finish(ToGrpcStatus(region.status()));
  return reactor;
}

grpc::ServerWriteReactor<v1::ReadVocabularyResponse>* LoaderService::ReadVocabulary(
    grpc::CallbackServerContext*, const v1::ReadVocabularyRequest* request) {
  auto model = store_->Find(request->model_id());
  if (!model.ok()) return new RefusedStream<v1::ReadVocabularyResponse>(model.status());
  return new VocabularyReactor(*std::move(model));
}

grpc::ServerUnaryReactor* LoaderService::GetStatus(grpc::CallbackServerContext* context,
                                                   const v1::GetStatusRequest*,
                                                   v1::GetStatusResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  FillStatus(store_->GetStatus(), response);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tandem::loader

// The gRPC face of the loader (proto/tandem/loader/v1/loader.proto).
#pragma once

#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/loader/service/load_jobs.h"
#include "services/loader/service/reactors.h"
#include "services/loader/service/task_thread.h"
#include "services/loader/store/model_store.h"
#include "tandem/loader/v1/loader.grpc.pb.h"

namespace tandem::loader {

// Thread-safe.  The server it is registered with must be shut down before it is destroyed.
class LoaderService : public v1::Loader::CallbackService {
 public:
  // `store`: Borrowed; must outlive this.
  explicit LoaderService(ModelStore* store);
  ~LoaderService() override;

  // Ends every lease and refuses new ones, so that the server's shutdown need not wait.
  void Drain();

  grpc::ServerWriteReactor<v1::LoadModelResponse>* LoadModel(
      grpc::CallbackServerContext* context, const v1::LoadModelRequest* request) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerWriteReactor<v1::AcquireLeaseResponse>* AcquireLease(
      grpc::CallbackServerContext* context, const v1::AcquireLeaseRequest* request) override;
  grpc::ServerUnaryReactor* CreateRegion(grpc::CallbackServerContext* context,
                                         const v1::CreateRegionRequest* request,
                                         v1::CreateRegionResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadVocabularyResponse>* ReadVocabulary(
      grpc::CallbackServerContext* context, const v1::ReadVocabularyRequest* request) override;
  grpc::ServerUnaryReactor* GetModelFile(grpc::CallbackServerContext* context,
                                         const v1::GetModelFileRequest* request,
                                         v1::GetModelFileResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;

 private:
  void Forget(LeaseReactor* lease);

  ModelStore* const store_;
  LoadJobs jobs_;
  TaskThread files_;
  absl::Mutex mutex_;
  std::set<LeaseReactor*> leases_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem::loader

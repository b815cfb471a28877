// The loader's streaming calls, one object each, alive from the call's start to its end.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/loader/service/load_jobs.h"
#include "services/loader/store/model_store.h"
#include "tandem/loader/v1/loader.grpc.pb.h"

namespace tandem::loader {

v1::Model ToProto(const ResidentModel& model);

// LoadModel: streams the latest progress as fast as the client reads it (what it has no time for
// is skipped), then the model or the error.  Shared by gRPC (until OnDone) and the job watched.
class LoadReactor : public grpc::ServerWriteReactor<v1::LoadModelResponse>, public LoadWatcher {
 public:
  // `jobs`: Borrowed; must outlive every call.
  static LoadReactor* Start(LoadJobs* jobs, const std::string& name);

  void OnProgress(const PackProgress& progress) override;
  void OnLoaded(const absl::StatusOr<std::shared_ptr<const ResidentModel>>& model) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { self_.reset(); }

 private:
  LoadReactor(LoadJobs* jobs, std::string name) : jobs_(jobs), name_(std::move(name)) {}
  // Starts the next write, or the end, unless a write is under way.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  LoadJobs* const jobs_;
  const std::string name_;
  std::shared_ptr<LoadReactor> self_;
  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool have_progress_ ABSL_GUARDED_BY(mutex_) = false;
  v1::LoadModelResponse progress_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::LoadModelResponse> model_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
  v1::LoadModelResponse message_;  // the one being written
};

// AcquireLease: writes the grant and stays open until the client goes or End is called.
class LeaseReactor : public grpc::ServerWriteReactor<v1::AcquireLeaseResponse> {
 public:
  // `on_done` is called when gRPC has finished with the object, and deletes it.
  LeaseReactor(ModelStore* store, LeaseGrant grant, std::function<void(LeaseReactor*)> on_done);

  // Releases the lease and ends the stream with `status`; later calls do nothing.
  void End(const grpc::Status& status);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override;

 private:
  ModelStore* const store_;
  const std::string token_;
  const std::function<void(LeaseReactor*)> on_done_;
  v1::AcquireLeaseResponse message_;
  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
};

// ReadVocabulary: chunks of kPiecesPerChunk, one in flight.
class VocabularyReactor : public grpc::ServerWriteReactor<v1::ReadVocabularyResponse> {
 public:
  static constexpr size_t kPiecesPerChunk = 4096;
  explicit VocabularyReactor(std::shared_ptr<const ResidentModel> model);

  void OnWriteDone(bool ok) override;
  void OnDone() override { delete this; }

 private:
  void Next();

  const std::shared_ptr<const ResidentModel> model_;
  size_t next_piece_ = 0;
  v1::ReadVocabularyResponse message_;
};

}  // namespace tandem::loader

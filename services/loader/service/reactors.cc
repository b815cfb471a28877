#include "services/loader/service/reactors.h"

#include <algorithm>
#include <utility>

#include "services/common/rpc/convert.h"
#include "services/common/rpc/loader_protocol.h"
#include "services/common/rpc/status.h"

namespace tandem::loader {

v1::Model ToProto(const ResidentModel& model) {
  v1::Model proto;
  proto.set_model_id(model.model_id);
  proto.set_name(model.name);
  *proto.mutable_config() = tandem::ToProto(model.config);
  for (const PackedTensor& tensor : model.tensors) *proto.add_tensors() = tandem::ToProto(tensor);
  for (const SealedRegion& region : model.regions) proto.add_region_bytes(region.bytes);
  proto.set_chat_template(model.chat_template);
  proto.set_add_bos(model.vocabulary.add_bos);
  const SamplingDefaults& defaults = model.sampling_defaults;
  if (defaults.top_k) proto.set_default_top_k(*defaults.top_k);
  if (defaults.top_p) proto.set_default_top_p(*defaults.top_p);
  if (defaults.temperature) proto.set_default_temperature(*defaults.temperature);
  proto.set_source_bytes(model.source_bytes);
  proto.set_load_seconds(model.load_seconds);
  proto.set_quantization(model.quantization);
  proto.set_file_stamp(model.file_stamp);
  StampLoaderProtocol(proto);
  return proto;
}

LoadReactor* LoadReactor::Start(LoadJobs* jobs, const std::string& name) {
  std::shared_ptr<LoadReactor> reactor(new LoadReactor(jobs, name));
  reactor->self_ = reactor;
  const absl::Status watching = jobs->Watch(name, reactor);
  if (!watching.ok()) reactor->OnLoaded(watching);
  return reactor.get();
}

void LoadReactor::OnProgress(const PackProgress& progress) {
  absl::MutexLock lock(&mutex_);
  progress_.mutable_progress()->set_phase(progress.phase);
  progress_.mutable_progress()->set_done_bytes(progress.done_bytes);
  progress_.mutable_progress()->set_total_bytes(progress.total_bytes);
  have_progress_ = true;
  Advance();
}

void LoadReactor::OnLoaded(const absl::StatusOr<std::shared_ptr<const ResidentModel>>& model) {
  absl::MutexLock lock(&mutex_);
  if (end_.has_value()) return;
  end_ = ToGrpcStatus(model.status());
  if (model.ok()) *model_.emplace().mutable_model() = ToProto(**model);
  Advance();
}

void LoadReactor::Advance() {
  if (writing_ || finished_) return;
  if (end_.has_value() && end_->ok()) {
    finished_ = true;
    message_ = *std::move(model_);
    StartWriteAndFinish(&message_, grpc::WriteOptions(), *end_);
  } else if (end_.has_value()) {
    finished_ = true;
    Finish(*end_);
  } else if (have_progress_) {
    have_progress_ = false;
    writing_ = true;
    message_ = progress_;
    StartWrite(&message_);
  }
}

void LoadReactor::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok && !end_.has_value()) end_ = grpc::Status::CANCELLED;
  Advance();
}

void LoadReactor::OnCancel() {
  jobs_->Unwatch(name_, this);
  absl::MutexLock lock(&mutex_);
  if (!end_.has_value()) end_ = grpc::Status::CANCELLED;
  Advance();
}

LeaseReactor::LeaseReactor(ModelStore* store, LeaseGrant grant,
                           std::function<void(LeaseReactor*)> on_done)
    : store_(store), token_(std::move(grant.token)), on_done_(std::move(on_done)) {
  message_.set_lease_token(token_);
  *message_.mutable_model() = ToProto(*grant.model);
  StartWrite(&message_);
}

void LeaseReactor::End(const grpc::Status& status) {
  store_->leases().Release(token_);
  absl::MutexLock lock(&mutex_);
  if (end_.has_value()) return;
  end_ = status;
  if (!writing_) Finish(*end_);
}

void LeaseReactor::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (end_.has_value()) Finish(*end_);
  }
  if (!ok) End(grpc::Status::CANCELLED);
}

void LeaseReactor::OnDone() {
  store_->leases().Release(token_);
  on_done_(this);
}

VocabularyReactor::VocabularyReactor(std::shared_ptr<const ResidentModel> model)
    : model_(std::move(model)) {
  Next();
}

void VocabularyReactor::Next() {
  const Vocabulary& vocabulary = model_->vocabulary;
  if (next_piece_ == vocabulary.pieces.size()) {
    Finish(grpc::Status::OK);
    return;
  }
  message_.Clear();
  const size_t end = std::min(next_piece_ + kPiecesPerChunk, vocabulary.pieces.size());
  for (; next_piece_ < end; ++next_piece_) {
    message_.add_pieces(vocabulary.pieces[next_piece_]);
    message_.add_scores(vocabulary.scores[next_piece_]);
    message_.add_types(static_cast<uint32_t>(vocabulary.types[next_piece_]));
  }
  StartWrite(&message_);
}

void VocabularyReactor::OnWriteDone(bool ok) {
  if (ok) {
    Next();
  } else {
    Finish(grpc::Status::CANCELLED);
  }
}

}  // namespace tandem::loader

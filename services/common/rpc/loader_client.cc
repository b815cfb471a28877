#include "services/common/rpc/loader_client.h"

#include <fcntl.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/convert.h"
#include "services/common/rpc/loader_protocol.h"
#include "services/common/rpc/socket_trust.h"
#include "services/common/rpc/status.h"
#include "tandem/loader/v1/loader.grpc.pb.h"

namespace tandem {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(20);

void SetTimeout(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

// A mapping of an object that can shrink faults when it does.
absl::Status CheckSealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) return absl::OkStatus();
  return absl::InternalError("the loader passed a region that is not sealed against shrinking");
}

absl::StatusOr<TokenType> ToTokenType(uint32_t value) {
  if (value < static_cast<uint32_t>(TokenType::kNormal) ||
      value > static_cast<uint32_t>(TokenType::kByte)) {
    return absl::InternalError(absl::StrFormat("the loader sent token type %d", value));
  }
  return static_cast<TokenType>(value);
}

// The open stream of a lease.  Its reactions run on gRPC's threads.
class LeaseStream : public grpc::ClientReadReactor<loader::v1::AcquireLeaseResponse> {
 public:
  LeaseStream(loader::v1::Loader::Stub& stub, const std::string& model_id,
              const std::string& holder) {
    request_.set_model_id(model_id);
    request_.set_holder(holder);
    stub.async()->AcquireLease(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  ~LeaseStream() override {
    context_.TryCancel();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&done_));
  }

  // Waits for the first message.
  absl::StatusOr<loader::v1::AcquireLeaseResponse> First(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    const auto decided = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return have_ || done_; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&decided), timeout)) {
      return absl::DeadlineExceededError(
          absl::StrFormat("the loader gave no lease within %s", absl::FormatDuration(timeout)));
    }
    if (have_) return response_;
    return status_.ok() ? absl::InternalError("the loader ended a lease before it began")
                        : FromGrpcStatus(status_);
  }

  bool alive() {
    absl::MutexLock lock(&mutex_);
    return !ended_ && !done_;
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (!ok || have_) {
      ended_ = true;  // no second message is due: its end, or a loader that breaks the contract
      return;
    }
    have_ = true;
    StartRead(&ignored_);
  }

  void OnDone(const grpc::Status& status) override {
    absl::MutexLock lock(&mutex_);
    status_ = status;
    done_ = true;
  }

 private:
  grpc::ClientContext context_;  // no deadline: open for as long as the lease is held
  loader::v1::AcquireLeaseRequest request_;
  loader::v1::AcquireLeaseResponse response_;
  loader::v1::AcquireLeaseResponse ignored_;
  absl::Mutex mutex_;
  bool have_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

class GrpcLease final : public Lease {
 public:
  GrpcLease(std::string token, loader::v1::Model model, std::unique_ptr<LeaseStream> stream)
      : Lease(std::move(token), std::move(model)), stream_(std::move(stream)) {}

  bool alive() const override { return stream_->alive(); }

 private:
  const std::unique_ptr<LeaseStream> stream_;
};

class GrpcLoaderClient final : public LoaderClient {
 public:
  GrpcLoaderClient(std::string target, std::string region_socket)
      : target_(std::move(target)),
        region_socket_(std::move(region_socket)),
        stub_(loader::v1::Loader::NewStub(CreateChannel(target_))) {}

  absl::StatusOr<loader::v1::Model> LoadModel(const std::string& name, const Progress& progress,
                                              absl::Duration timeout) override;
  absl::StatusOr<std::unique_ptr<Lease>> AcquireLease(const std::string& model_id,
                                                      const std::string& holder) override;
  absl::StatusOr<std::unique_ptr<WeightSet>> FetchWeights(const Lease& lease) override;
  absl::StatusOr<uint32_t> CreateRegion(const Lease& lease, uint64_t bytes,
                                        const std::string& purpose) override;
  absl::StatusOr<Region> FetchRegion(const std::string& token, uint32_t id) override;
  absl::StatusOr<Vocabulary> ReadVocabulary(const loader::v1::Model& model) override;
  absl::StatusOr<loader::v1::GetModelFileResponse> GetModelFile(const std::string& name,
                                                                const std::string& model_id,
                                                                absl::Duration timeout) override;
  absl::StatusOr<loader::v1::ListModelsResponse> ListModels() override;
  absl::StatusOr<loader::v1::GetStatusResponse> GetStatus() override;

 private:
  const std::string target_;
  const std::string region_socket_;
  const std::unique_ptr<loader::v1::Loader::Stub> stub_;
};

absl::StatusOr<loader::v1::Model> GrpcLoaderClient::LoadModel(const std::string& name,
                                                              const Progress& progress,
                                                              absl::Duration timeout) {
  TANDEM_RETURN_IF_ERROR(CheckTargetPeer(target_));
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  loader::v1::LoadModelRequest request;
  request.set_name(name);
  const auto reader = stub_->LoadModel(&context, request);
  loader::v1::LoadModelResponse response;
  loader::v1::Model model;
  bool have_model = false;
  bool wanted = true;
  while (reader->Read(&response)) {
    if (response.has_model()) {
      model = std::move(*response.mutable_model());
      have_model = true;
    } else if (wanted && progress && !progress(response.progress())) {
      wanted = false;
      context.TryCancel();
    }
  }
  const grpc::Status status = reader->Finish();
  if (!wanted) return absl::CancelledError(absl::StrFormat("waiting for '%s' given up", name));
  if (!status.ok()) return FromGrpcStatus(status);
  if (!have_model) return absl::InternalError("the loader ended a load without a model");
  TANDEM_RETURN_IF_ERROR(CheckLoaderProtocol(model));
  return model;
}

absl::StatusOr<std::unique_ptr<Lease>> GrpcLoaderClient::AcquireLease(const std::string& model_id,
                                                                      const std::string& holder) {
  TANDEM_RETURN_IF_ERROR(CheckTargetPeer(target_));
  auto stream = std::make_unique<LeaseStream>(*stub_, model_id, holder);
  TANDEM_ASSIGN_OR_RETURN(loader::v1::AcquireLeaseResponse first, stream->First(kCallTimeout));
  if (first.lease_token().size() != kLeaseTokenBytes) {
    return absl::InternalError(
        absl::StrFormat("the loader sent a lease token of %d bytes", first.lease_token().size()));
  }
  TANDEM_RETURN_IF_ERROR(CheckLoaderProtocol(first.model()));
  return std::make_unique<GrpcLease>(std::move(*first.mutable_lease_token()),
                                     std::move(*first.mutable_model()), std::move(stream));
}

absl::StatusOr<std::unique_ptr<WeightSet>> GrpcLoaderClient::FetchWeights(const Lease& lease) {
  const loader::v1::Model& model = lease.model();
  TANDEM_ASSIGN_OR_RETURN(ModelConfig config, ConfigFromProto(model.config()));
  TANDEM_ASSIGN_OR_RETURN(std::vector<PackedTensor> tensors, TensorsFromProto(model, config));
  std::vector<WeightRegion> regions;
  bool dmabufs = true;
  for (uint32_t i = 0; i < static_cast<uint32_t>(model.region_bytes_size()); ++i) {
    TANDEM_ASSIGN_OR_RETURN(
        Region region,
        tandem::FetchRegion(region_socket_, {lease.token(), RegionKind::kWeights, i}));
    TANDEM_RETURN_IF_ERROR(CheckSealed(region.fd.get()));
    WeightRegion held;
    TANDEM_ASSIGN_OR_RETURN(held.mapping,
                            Mapping::Map(region.fd.get(), model.region_bytes(static_cast<int>(i)),
                                         Mapping::Access::kReadOnly));
    held.fd = std::move(region.fd);
    if (dmabufs) {
      auto dmabuf =
          tandem::FetchRegion(region_socket_, {lease.token(), RegionKind::kWeightsDmabuf, i});
      dmabufs = dmabuf.ok();
      if (dmabufs) held.dmabuf_fd = std::move(dmabuf->fd);
    }
    regions.push_back(std::move(held));
  }
  return WeightSet::Create(model.model_id(), std::move(config), std::move(tensors),
                           std::move(regions));
}

absl::StatusOr<uint32_t> GrpcLoaderClient::CreateRegion(const Lease& lease, uint64_t bytes,
                                                        const std::string& purpose) {
  grpc::ClientContext context;
  SetTimeout(context, kCallTimeout);
  loader::v1::CreateRegionRequest request;
  request.set_lease_token(lease.token());
  request.set_size_bytes(bytes);
  request.set_purpose(purpose);
  loader::v1::CreateRegionResponse response;
  TANDEM_RETURN_IF_ERROR(FromGrpcStatus(stub_->CreateRegion(&context, request, &response)));
  return response.region_id();
}

absl::StatusOr<Region> GrpcLoaderClient::FetchRegion(const std::string& token, uint32_t id) {
  TANDEM_ASSIGN_OR_RETURN(
      Region region, tandem::FetchRegion(region_socket_, {token, RegionKind::kLeaseRegion, id}));
  TANDEM_RETURN_IF_ERROR(CheckSealed(region.fd.get()));
  return region;
}

absl::StatusOr<Vocabulary> GrpcLoaderClient::ReadVocabulary(const loader::v1::Model& model) {
  grpc::ClientContext context;
  SetTimeout(context, kCallTimeout);
  loader::v1::ReadVocabularyRequest request;
  request.set_model_id(model.model_id());
  const auto reader = stub_->ReadVocabulary(&context, request);
  Vocabulary vocabulary;
  vocabulary.add_bos = model.add_bos();
  loader::v1::ReadVocabularyResponse chunk;
  absl::Status problem;
  while (reader->Read(&chunk)) {
    if (chunk.scores_size() != chunk.pieces_size() || chunk.types_size() != chunk.pieces_size()) {
      problem = absl::InternalError("the loader sent a vocabulary whose parts differ in length");
    }
    if (!problem.ok()) continue;
    for (int i = 0; i < chunk.pieces_size(); ++i) {
      const auto type = ToTokenType(chunk.types(i));
      if (!type.ok()) problem = type.status();
      vocabulary.pieces.push_back(std::move(*chunk.mutable_pieces(i)));
      vocabulary.scores.push_back(chunk.scores(i));
      vocabulary.types.push_back(type.value_or(TokenType::kUnknown));
    }
  }
  TANDEM_RETURN_IF_ERROR(FromGrpcStatus(reader->Finish()));
  TANDEM_RETURN_IF_ERROR(problem);
  if (vocabulary.pieces.size() != model.config().vocab_size()) {
    return absl::InternalError(absl::StrFormat("vocabulary of %d pieces for a model of %d",
                                               vocabulary.pieces.size(),
                                               model.config().vocab_size()));
  }
  return vocabulary;
}

absl::StatusOr<loader::v1::GetModelFileResponse> GrpcLoaderClient::GetModelFile(
    const std::string& name, const std::string& model_id, absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(context, timeout);
  loader::v1::GetModelFileRequest request;
  request.set_name(name);
  request.set_model_id(model_id);
  loader::v1::GetModelFileResponse response;
  TANDEM_RETURN_IF_ERROR(FromGrpcStatus(stub_->GetModelFile(&context, request, &response)));
  return response;
}

absl::StatusOr<loader::v1::ListModelsResponse> GrpcLoaderClient::ListModels() {
  grpc::ClientContext context;
  SetTimeout(context, kCallTimeout);
  loader::v1::ListModelsResponse response;
  TANDEM_RETURN_IF_ERROR(FromGrpcStatus(stub_->ListModels(&context, {}, &response)));
  return response;
}

absl::StatusOr<loader::v1::GetStatusResponse> GrpcLoaderClient::GetStatus() {
  grpc::ClientContext context;
  SetTimeout(context, kCallTimeout);
  loader::v1::GetStatusResponse response;
  TANDEM_RETURN_IF_ERROR(FromGrpcStatus(stub_->GetStatus(&context, {}, &response)));
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoaderClient>> LoaderClient::Create(const std::string& target) {
  TANDEM_ASSIGN_OR_RETURN(std::string region_socket, RegionSocketPath(target));
  return std::make_unique<GrpcLoaderClient>(target, std::move(region_socket));
}

}  // namespace tandem

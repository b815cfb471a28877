#include "tools/simulate/cluster/simulated_loader.h"

#include <fcntl.h>

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/convert.h"
#include "services/common/testing/random_weights.h"
#include "services/gateway/engine/testing/toy_model.h"

namespace tandem::simulate {
namespace {

constexpr uint32_t kContextLen = 256;
constexpr uint32_t kWindow = 24;

SimulatedModel MakeModel() {
  SimulatedModel model;
  const ModelConfig config = gateway::testing::ToyConfig(kContextLen, kWindow);
  model.weights = testing::RandomWeightSet(config);
  model.vocabulary = gateway::testing::ToyVocabulary();
  loader::v1::Model& description = model.description;
  description.set_model_id(model.weights->model_id());
  description.set_name("toy");
  *description.mutable_config() = ToProto(config);
  for (const PackedTensor& tensor : model.weights->tensors()) {
    *description.add_tensors() = ToProto(tensor);
  }
  for (const WeightRegion& region : model.weights->regions()) {
    description.add_region_bytes(region.mapping.size());
  }
  description.set_quantization("BF16");
  description.set_file_stamp("1");
  return model;
}

absl::Status Gone() { return absl::UnavailableError("the loader is gone"); }

}  // namespace

const SimulatedModel& TheModel() {
  static const auto* const model = new SimulatedModel(MakeModel());
  return *model;
}

class SimulatedLease final : public Lease {
 public:
  SimulatedLease(SimulatedLoader& loader, std::string token)
      : Lease(std::move(token), TheModel().description), loader_(loader) {}
  ~SimulatedLease() override { loader_.EndLease(token()); }
  bool alive() const override { return loader_.IsAlive(token()); }

 private:
  SimulatedLoader& loader_;
};

class SimulatedLoaderClient final : public LoaderClient {
 public:
  explicit SimulatedLoaderClient(SimulatedLoader& loader) : loader_(loader) {}

  absl::StatusOr<loader::v1::Model> LoadModel(const std::string& name, const Progress& progress,
                                              absl::Duration /*timeout*/) override {
    TANDEM_RETURN_IF_ERROR(loader_.Reach());
    if (name != TheModel().description.name()) return absl::NotFoundError("no such model");
    if (progress) progress({});
    absl::SleepFor(absl::Milliseconds(50));
    TANDEM_RETURN_IF_ERROR(loader_.Reach());
    MutexLock lock(loader_.mutex_);
    loader_.resident_ = true;
    return TheModel().description;
  }
  absl::StatusOr<std::unique_ptr<Lease>> AcquireLease(const std::string& model_id,
                                                      const std::string& /*holder*/) override {
    TANDEM_CHECK(model_id == TheModel().description.model_id());
    TANDEM_RETURN_IF_ERROR(loader_.Reach());
    TANDEM_ASSIGN_OR_RETURN(std::string token, loader_.AddLease());
    return std::make_unique<SimulatedLease>(loader_, std::move(token));
  }
  absl::StatusOr<std::unique_ptr<WeightSet>> FetchWeights(const Lease& /*lease*/) override {
    return absl::UnimplementedError("not simulated");
  }
  absl::StatusOr<uint32_t> CreateRegion(const Lease& lease, uint64_t bytes,
                                        const std::string& /*purpose*/) override {
    TANDEM_RETURN_IF_ERROR(loader_.Reach());
    return loader_.AddRegion(lease.token(), bytes);
  }
  absl::StatusOr<Region> FetchRegion(const std::string& token, uint32_t id) override {
    TANDEM_RETURN_IF_ERROR(loader_.Reach());
    return loader_.FindRegion(token, id);
  }
  absl::StatusOr<Vocabulary> ReadVocabulary(const loader::v1::Model& /*model*/) override {
    TANDEM_RETURN_IF_ERROR(loader_.Reach());
    return TheModel().vocabulary;
  }
  absl::StatusOr<loader::v1::GetModelFileResponse> GetModelFile(
      const std::string& /*name*/, const std::string& /*model_id*/,
      absl::Duration /*timeout*/) override {
    TANDEM_RETURN_IF_ERROR(loader_.Reach());
    loader::v1::GetModelFileResponse response;
    response.set_file_stamp(TheModel().description.file_stamp());
    MutexLock lock(loader_.mutex_);
    response.set_resident(loader_.resident_);
    return response;
  }
  absl::StatusOr<loader::v1::ListModelsResponse> ListModels() override {
    return absl::UnimplementedError("not simulated");
  }
  absl::StatusOr<loader::v1::GetStatusResponse> GetStatus() override {
    return absl::UnimplementedError("not simulated");
  }

 private:
  SimulatedLoader& loader_;
};

class SimulatedWeightSource final : public WeightSource {
 public:
  explicit SimulatedWeightSource(SimulatedLoader& loader) : loader_(loader) {}

  absl::StatusOr<LeasedWeights> FetchWeights(const std::string& /*loader_target*/,
                                             const std::string& model_id,
                                             const std::string& /*holder*/) override {
    TANDEM_CHECK(model_id == TheModel().description.model_id());
    TANDEM_RETURN_IF_ERROR(loader_.Reach());
    TANDEM_ASSIGN_OR_RETURN(std::string token, loader_.AddLease());
    return LeasedWeights{TheModel().weights,
                         std::make_shared<SimulatedLease>(loader_, std::move(token))};
  }
  absl::StatusOr<LeasedWeights> FetchOwnWeights(const std::string& model_id,
                                                const std::string& /*model_name*/,
                                                const std::string& holder,
                                                const Progress& /*progress*/) override {
    {
      MutexLock lock(loader_.mutex_);
      loader_.resident_ = loader_.alive_;
    }
    return FetchWeights("", model_id, holder);
  }
  bool IsAlive(const LeasedWeights& weights) const override {
    return std::static_pointer_cast<SimulatedLease>(weights.lease)->alive();
  }
  absl::StatusOr<UniqueFd> FetchExchange(const std::string& /*loader_target*/,
                                         const std::string& lease_token,
                                         uint32_t region_id) override {
    TANDEM_RETURN_IF_ERROR(loader_.Reach());
    TANDEM_ASSIGN_OR_RETURN(Region region, loader_.FindRegion(lease_token, region_id));
    return std::move(region.fd);
  }

 private:
  SimulatedLoader& loader_;
};

void SimulatedLoader::Kill() {
  MutexLock lock(mutex_);
  alive_ = resident_ = false;
  leases_.clear();
}

void SimulatedLoader::Restart() {
  MutexLock lock(mutex_);
  alive_ = true;
}

std::unique_ptr<LoaderClient> SimulatedLoader::Connect() {
  return std::make_unique<SimulatedLoaderClient>(*this);
}

std::unique_ptr<WeightSource> SimulatedLoader::MakeWeightSource() {
  return std::make_unique<SimulatedWeightSource>(*this);
}

size_t SimulatedLoader::num_leases() const {
  MutexLock lock(mutex_);
  return leases_.size();
}

size_t SimulatedLoader::num_regions() const {
  MutexLock lock(mutex_);
  size_t count = 0;
  for (const auto& [token, lease] : leases_) count += lease.regions.size();
  return count;
}

absl::Status SimulatedLoader::Reach() {
  absl::SleepFor(random_.Between(absl::Microseconds(50), absl::Microseconds(500)));
  MutexLock lock(mutex_);
  return alive_ ? absl::OkStatus() : Gone();
}

bool SimulatedLoader::IsAlive(const std::string& token) const {
  MutexLock lock(mutex_);
  return leases_.contains(token);
}

void SimulatedLoader::EndLease(const std::string& token) {
  MutexLock lock(mutex_);
  leases_.erase(token);
}

absl::StatusOr<std::string> SimulatedLoader::AddLease() {
  MutexLock lock(mutex_);
  if (!alive_) return Gone();
  if (!resident_) return absl::NotFoundError("the model is not resident");
  std::string token = absl::StrFormat("lease-%010d", ++num_given_);
  leases_.try_emplace(token);
  return token;
}

absl::StatusOr<uint32_t> SimulatedLoader::AddRegion(const std::string& token, uint64_t bytes) {
  TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, CreateSharedMemory("simulated", bytes));
  MutexLock lock(mutex_);
  const auto lease = leases_.find(token);
  if (lease == leases_.end()) return absl::NotFoundError("no such lease");
  lease->second.regions[++last_region_] = Region{.fd = std::move(fd), .bytes = bytes};
  return last_region_;
}

absl::StatusOr<Region> SimulatedLoader::FindRegion(const std::string& token, uint32_t id) {
  MutexLock lock(mutex_);
  const auto lease = leases_.find(token);
  if (lease == leases_.end()) return absl::NotFoundError("no such lease");
  const auto region = lease->second.regions.find(id);
  if (region == lease->second.regions.end()) return absl::NotFoundError("no such region");
  return Region{.fd = UniqueFd(::fcntl(region->second.fd.get(), F_DUPFD_CLOEXEC, 0)),
                .bytes = region->second.bytes};
}

}  // namespace tandem::simulate

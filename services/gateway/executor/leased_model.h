// The model that a gateway serves: its description, and a lease that keeps it resident.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/unique_fd.h"
#include "services/common/model/model_config.h"
#include "services/common/rpc/loader_client.h"
#include "services/gateway/executor/executor.h"

namespace tandem::gateway {

// Pause between two attempts of a call to a missing service.
inline constexpr absl::Duration kRetryPause = absl::Milliseconds(200);
bool WorthRetrying(const absl::Status& status);

// The loader of the options.  Errors as LoaderClient::Create.
absl::StatusOr<std::unique_ptr<LoaderClient>> ConnectLoader(const ExecutorOptions& options);

// Single-thread.
class LeasedModel {
 public:
  struct NewRegion {
    uint32_t id = 0;
    UniqueFd fd;
  };

  // Errors as ConnectLoader.
  static absl::StatusOr<std::unique_ptr<LeasedModel>> Create(const ExecutorOptions& options);

  // Takes a new lease on the model, and loads it the first time and if the loader no longer has it.
  // Waits for the loader until `deadline`.  A changed file does not matter while the loader has the
  // model.  ModelChangedError: the loader has lost it, and the file has changed.
  absl::Status Acquire(const Executor::Progress& progress, absl::Time deadline);
  // A region of shared memory that lives as long as the lease.
  absl::StatusOr<NewRegion> CreateRegion(uint64_t bytes, std::string_view purpose);

  // The following REQUIRE that Acquire has succeeded.
  const loader::v1::Model& model() const { return lease_->model(); }
  const std::string& lease_token() const { return lease_->token(); }
  const ModelConfig& config() const { return config_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Formats of the decoder's matrices and of the vision encoder's; norms are float32 always.
  const std::vector<DType>& weight_dtypes() const { return weight_dtypes_; }
  const std::vector<DType>& vision_dtypes() const { return vision_dtypes_; }
  // The decoder's.
  const std::vector<PackedTensor>& tensors() const { return tensors_; }
  // Of the vision encoder's tensors; 0 for a model without one.
  uint64_t vision_bytes() const { return vision_bytes_; }

 private:
  LeasedModel(std::unique_ptr<LoaderClient> loader, std::string loader_target,
              std::string model_name);
  absl::Status Load(const Executor::Progress& progress);
  // NOT_FOUND: the loader does not have the model.
  absl::Status Renew();
  absl::Status Adopt(const loader::v1::Model& model);

  const std::unique_ptr<LoaderClient> loader_;
  const std::string loader_target_;
  const std::string model_name_;
  std::unique_ptr<Lease> lease_;
  std::string model_id_;  // empty: none adopted
  ModelConfig config_;
  Vocabulary vocabulary_;
  std::vector<DType> weight_dtypes_, vision_dtypes_;
  std::vector<PackedTensor> tensors_;
  uint64_t vision_bytes_ = 0;
};

}  // namespace tandem::gateway

// The loader as its clients see it: workers, the gateway and the command line.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/shared_memory.h"
#include "services/common/model/vocabulary.h"
#include "services/common/rpc/region_channel.h"
#include "services/common/weights/weight_set.h"
#include "tandem/loader/v1/loader.pb.h"

namespace tandem {

// A hold on a model's weight regions; letting go of it frees the regions made under it.
// Mappings fetched before stay valid whatever becomes of the lease or of the loader.  Thread-safe.
class Lease {
 public:
  Lease(std::string token, loader::v1::Model model)
      : token_(std::move(token)), model_(std::move(model)) {}
  virtual ~Lease() = default;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const std::string& token() const { return token_; }
  const loader::v1::Model& model() const { return model_; }
  // False once the loader has ended the lease or has died.
  virtual bool alive() const = 0;

 private:
  const std::string token_;
  const loader::v1::Model model_;
};

// Every call blocks: use it from threads of your own, never from a gRPC reaction.  Thread-safe.
// All fail with UNAVAILABLE when the loader is gone and DEADLINE_EXCEEDED when it is too slow.
// LoadModel and AcquireLease fail with PERMISSION_DENIED when another user listens on its socket, and
// with FAILED_PRECONDITION when the loader is of another release (loader_protocol.h).
class LoaderClient {
 public:
  // Called now and then while a model loads; false gives up waiting (CANCELLED).  The load itself
  // goes on if others wait for it.
  using Progress = std::function<bool(const loader::v1::LoadProgress&)>;

  // Over gRPC.  `target`: "unix:/path".  Connects lazily.  FAILED_PRECONDITION for other kinds of
  // target.
  static absl::StatusOr<std::unique_ptr<LoaderClient>> Create(const std::string& target);
  virtual ~LoaderClient() = default;

  // Makes the model resident.  Errors as the loader's LoadModel.
  virtual absl::StatusOr<loader::v1::Model> LoadModel(const std::string& name,
                                                      const Progress& progress,
                                                      absl::Duration timeout) = 0;
  absl::StatusOr<loader::v1::Model> LoadModel(const std::string& name,
                                              const Progress& progress = nullptr) {
    return LoadModel(name, progress, absl::Minutes(30));
  }
  // NOT_FOUND: not resident.
  virtual absl::StatusOr<std::unique_ptr<Lease>> AcquireLease(const std::string& model_id,
                                                              const std::string& holder) = 0;
  // Fetches and maps every weight region of the lease's model, read-only, and checks the manifest
  // against them.  Dmabufs come along where the loader's kernel makes them.
  virtual absl::StatusOr<std::unique_ptr<WeightSet>> FetchWeights(const Lease& lease) = 0;
  // Makes a zeroed read-write region of at least `bytes`; returns its id.
  virtual absl::StatusOr<uint32_t> CreateRegion(const Lease& lease, uint64_t bytes,
                                                const std::string& purpose) = 0;
  // The region `id` made under the lease of `token`, this process's own or another's.  Sealed
  // against resizing, so that mapping Region::bytes of it is safe.
  virtual absl::StatusOr<Region> FetchRegion(const std::string& token, uint32_t id) = 0;
  virtual absl::StatusOr<Vocabulary> ReadVocabulary(const loader::v1::Model& model) = 0;
  // The files of a loaded model as they are now.  NOT_FOUND: they are gone.
  virtual absl::StatusOr<loader::v1::GetModelFileResponse> GetModelFile(const std::string& name,
                                                                        const std::string& model_id,
                                                                        absl::Duration timeout) = 0;
  virtual absl::StatusOr<loader::v1::ListModelsResponse> ListModels() = 0;
  virtual absl::StatusOr<loader::v1::GetStatusResponse> GetStatus() = 0;
};

}  // namespace tandem

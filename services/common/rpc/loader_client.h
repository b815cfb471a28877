// The loader as its clients see it: workers, the gateway and the command line.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/shared_memory.h"
#include "services/common/model/vocabulary.h"
#include "services/common/rpc/region_channel.h"
#include "services/common/weights/weight_set.h"
#include "tandem/loader/v1/loader.grpc.pb.h"

namespace tandem {

// A hold on a model's weight regions; letting go of it frees the regions made under it.
// Mappings fetched before stay valid whatever becomes of the lease or of the loader.  Thread-safe.
class Lease {
 public:
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const std::string& token() const { return token_; }
  const loader::v1::Model& model() const { return model_; }
  // False once the loader has ended the stream or has died.
  bool alive() const;

 private:
  friend class LoaderClient;
  class Stream;
  Lease() = default;

  std::string token_;
  loader::v1::Model model_;
  std::unique_ptr<Stream> stream_;
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

  // `target`: "unix:/path".  Connects lazily.  FAILED_PRECONDITION for other kinds of target.
  static absl::StatusOr<std::unique_ptr<LoaderClient>> Create(const std::string& target);

  // Makes the model resident.  Errors as the loader's LoadModel.
  absl::StatusOr<loader::v1::Model> LoadModel(const std::string& name,
                                              const Progress& progress = nullptr,
                                              absl::Duration timeout = absl::Minutes(30));
  // NOT_FOUND: not resident.
  absl::StatusOr<std::unique_ptr<Lease>> AcquireLease(const std::string& model_id,
                                                      const std::string& holder);
  // Fetches and maps every weight region of the lease's model, read-only, and checks the manifest
  // against them.  Dmabufs come along where the loader's kernel makes them.
  absl::StatusOr<std::unique_ptr<WeightSet>> FetchWeights(const Lease& lease);
  // Makes a zeroed read-write region of at least `bytes`; returns its id.
  absl::StatusOr<uint32_t> CreateRegion(const Lease& lease, uint64_t bytes,
                                        const std::string& purpose);
  // The region `id` made under the lease of `token`, this process's own or another's.  Sealed
  // against resizing, so that mapping Region::bytes of it is safe.
  absl::StatusOr<Region> FetchRegion(const std::string& token, uint32_t id);
  absl::StatusOr<Vocabulary> ReadVocabulary(const loader::v1::Model& model);
  // The files of a loaded model as they are now.  NOT_FOUND: they are gone.
  absl::StatusOr<loader::v1::GetModelFileResponse> GetModelFile(const std::string& name,
                                                                const std::string& model_id,
                                                                absl::Duration timeout);
  absl::StatusOr<loader::v1::ListModelsResponse> ListModels();
  absl::StatusOr<loader::v1::GetStatusResponse> GetStatus();

 private:
  LoaderClient() = default;
  std::string target_;
  std::string region_socket_;
  std::unique_ptr<loader::v1::Loader::Stub> stub_;
};

}  // namespace tandem

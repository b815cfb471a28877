// What the hub says of a file: where its bytes are, how many, and their checksum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/pull/http.h"
#include "services/common/pull/model_name.h"

namespace tandem::pull {

// Where a hub is, if not at https://huggingface.co: HF_ENDPOINT.
std::string EndpointFromEnvironment();

struct RemoteFile {
  std::string url;  // of the bytes; may be signed, and end to hold
  uint64_t size = 0;
  std::string sha256;  // 64 hexadecimal digits; empty: the host gives none
  std::string etag;    // of the hub
  std::string commit;  // 40 hexadecimal digits; empty: the host gives none
};

struct ListedFile {
  std::string path;
  uint64_t size = 0;
  std::string sha256;
};

struct HubOptions {
  std::string endpoint = "https://huggingface.co";
  HttpOptions http;  // token_origin is filled in
  int max_attempts = 4;
  absl::Duration first_backoff = absl::Milliseconds(500);
  absl::Duration longest_wait = absl::Minutes(5);  // that a host may ask for
};

// Thread-compatible.
class Hub {
 public:
  // INVALID_ARGUMENT: the endpoint; FAILED_PRECONDITION: a token for an endpoint that is neither
  // https nor this machine.
  static absl::StatusOr<Hub> Create(HubOptions options);

  // UNAUTHENTICATED or PERMISSION_DENIED: the text says what to do (licence, token); NOT_FOUND;
  // UNAVAILABLE after all attempts; DATA_LOSS: the answer contradicts itself.
  absl::StatusOr<RemoteFile> Resolve(const HubFile& file) const;
  // The GGUF files of a repository: models, and vision encoders (mmproj files).  Errors as for
  // Resolve.
  absl::StatusOr<std::vector<ListedFile>> List(const HubFile& repository) const;
  // `file` with its `file` chosen: as it is where it names a file; by its quantisation; or, where
  // it is empty, the only model file, or the first of: Q4_0 where a name says QAT, Q4_K_M, Q8_0, Q4_0.
  // NOT_FOUND and INVALID_ARGUMENT list what there is.
  absl::StatusOr<HubFile> Choose(const HubFile& file) const;

  const HttpOptions& http() const { return options_.http; }

 private:
  explicit Hub(HubOptions options) : options_(std::move(options)) {}
  absl::StatusOr<HttpReply> AskPatiently(const char* method, const std::string& url,
                                         size_t max_body_bytes) const;
  absl::Status Explain(const HttpReply& reply, const HubFile& file) const;

  HubOptions options_;
};

// The file of `files` that `wanted` stands for, as Hub::Choose says.
absl::StatusOr<std::string> ChooseFile(const std::vector<std::string>& files,
                                       const std::string& wanted, const std::string& repository);

}  // namespace tandem::pull

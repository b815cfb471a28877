#include "services/common/pull/pull.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/pull/part_file.h"
#include "services/common/pull/sha256.h"
#include "services/common/pull/token.h"
#include "services/common/version/version.h"

namespace tandem::pull {
namespace {

PartIdentity IdentityOf(const RemoteFile& remote) {
  return {.size = remote.size, .content = remote.sha256.empty() ? remote.etag : remote.sha256};
}

class Puller {
 public:
  Puller(const Hub& hub, HubFile file, std::string sha256, const PullOptions& options,
         const std::function<bool(const PullProgress&)>& tell)
      : hub_(hub),
        file_(std::move(file)),
        sha256_(std::move(sha256)),
        options_(options),
        tell_(tell) {
    state_.file = file_.repository() + "/" + file_.file;
  }

  absl::Status Resolve() {
    if (!tell_(state_)) return absl::CancelledError("stopped");
    TANDEM_ASSIGN_OR_RETURN(remote_, hub_.Resolve(file_));
    if (!sha256_.empty() && !remote_.sha256.empty() && sha256_ != remote_.sha256) {
      return absl::DataLossError(
          absl::StrFormat("%s: the table of names has the checksum %s, the host has %s",
                          state_.file, sha256_, remote_.sha256));
    }
    if (remote_.sha256.empty()) remote_.sha256 = sha256_;
    state_.sha256 = remote_.sha256;
    state_.total_bytes = remote_.size;
    return absl::OkStatus();
  }

  // Whether the store has just this file.  One that was put there by hand is read for its checksum.
  bool IsThere(const PulledModel& there) {
    if (there.bytes != remote_.size || remote_.sha256.empty()) return false;
    if (!there.sha256.empty()) return there.sha256 == remote_.sha256;
    const UniqueFd fd(::open(there.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return false;
    state_.phase = PullPhase::kVerifying;
    const auto sha256 = Sha256OfFile(fd.get(), there.bytes, [this](uint64_t done) {
      state_.done_bytes = done;
      return tell_(state_);
    });
    return sha256.ok() && *sha256 == remote_.sha256;
  }

  absl::Status Bring(const std::string& path) {
    TANDEM_ASSIGN_OR_RETURN(const auto part, PartFile::Open(path, IdentityOf(remote_)));
    state_.phase = PullPhase::kDownloading;
    state_.resumed_bytes = part->done_bytes();
    TANDEM_RETURN_IF_ERROR(Download(*part));
    TANDEM_RETURN_IF_ERROR(Verify(*part));
    return part->Finish();
  }

  const RemoteFile& remote() const { return remote_; }
  uint64_t received_bytes() const { return received_bytes_; }

 private:
  absl::Status Download(PartFile& part) {
    int changes = 0, refusals = 0;
    const auto on_progress = [this](uint64_t done) {
      state_.done_bytes = done;
      return tell_(state_);
    };
    for (;;) {
      Transfer transfer(remote_.url, hub_.http(), part, options_.transfer);
      const auto end = transfer.Run(on_progress);
      received_bytes_ += transfer.received_bytes();
      TANDEM_RETURN_IF_ERROR(end.status());
      if (*end == TransferEnd::kComplete) return absl::OkStatus();
      if (transfer.received_bytes() > 0) refusals = 0;
      if (*end == TransferEnd::kRefused && ++refusals > options_.max_refusals) {
        return absl::PermissionDeniedError(
            absl::StrFormat("%s: the hub names this address, and it refuses to send the file",
                            PrintableUrl(remote_.url)));
      }
      // An address may be signed for an hour; the hub has a new one.
      TANDEM_RETURN_IF_ERROR(Resolve());
      const bool changed = *end == TransferEnd::kChanged || IdentityOf(remote_) != part.identity();
      if (!changed) continue;
      if (++changes > options_.max_changes) {
        return absl::AbortedError(
            absl::StrFormat("%s keeps changing on the host while it is read", state_.file));
      }
      TANDEM_RETURN_IF_ERROR(part.Restart(IdentityOf(remote_)));
      state_.resumed_bytes = 0;
    }
  }

  absl::Status Verify(PartFile& part) {
    state_.phase = PullPhase::kVerifying;
    char magic[4] = {};
    if (file_.file.ends_with(".gguf") &&
        (::pread(part.fd(), magic, 4, 0) != 4 || std::memcmp(magic, "GGUF", 4) != 0)) {
      part.Discard();
      return absl::DataLossError(
          absl::StrFormat("%s: what the host sends is no GGUF file; it was removed", state_.file));
    }
    TANDEM_ASSIGN_OR_RETURN(const std::string sha256,
                            Sha256OfFile(part.fd(), remote_.size, [this](uint64_t done) {
                              state_.done_bytes = done;
                              return tell_(state_);
                            }));
    if (!remote_.sha256.empty() && sha256 != remote_.sha256) {
      part.Discard();
      return absl::DataLossError(absl::StrFormat(
          "%s: the checksum is %s and should be %s; what came was removed, so pull again",
          state_.file, sha256, remote_.sha256));
    }
    remote_.sha256 = sha256;
    state_.done_bytes = remote_.size;
    return absl::OkStatus();
  }

  const Hub& hub_;
  const HubFile file_;
  const std::string sha256_;  // of the table
  const PullOptions& options_;
  const std::function<bool(const PullProgress&)>& tell_;
  PullProgress state_;
  RemoteFile remote_;
  uint64_t received_bytes_ = 0;
};

}  // namespace

absl::StatusOr<PullOptions> PullOptionsFromEnvironment(const std::string& folder,
                                                       const std::string& token_file) {
  PullOptions options;
  options.folder = folder.empty() ? DefaultModelsFolder() : folder;
  options.hub.endpoint = EndpointFromEnvironment();
  options.hub.http.user_agent = "tandem/" + std::string(Version());
  TANDEM_ASSIGN_OR_RETURN(const Token token, FindToken(token_file));
  options.hub.http.token = token.value;
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE"}) {
    const char* file = std::getenv(name);
    if (file != nullptr && options.hub.http.ca_file.empty()) options.hub.http.ca_file = file;
  }
  return options;
}

absl::StatusOr<PullResult> Pull(const ModelName& name, const ModelTable& table,
                                const PullOptions& options,
                                const std::function<bool(const PullProgress&)>& progress) {
  HubFile file = name.hub;
  std::string sha256;
  std::string shown = name.text;
  if (!name.from_hub) {
    TANDEM_ASSIGN_OR_RETURN(const TableEntry entry, table.Find(name.text));
    file = entry.hub;
    sha256 = entry.sha256;
    shown = entry.names.front();
  }
  HubOptions hub_options = options.hub;
  hub_options.http.keep_going = [&progress] { return progress(PullProgress()); };
  TANDEM_ASSIGN_OR_RETURN(const Hub hub, Hub::Create(std::move(hub_options)));
  TANDEM_ASSIGN_OR_RETURN(file, hub.Choose(file));
  if (!IsModelFile(file.file)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is no whole model: pull a single GGUF file (split files and projectors "
                        "cannot be served)",
                        file.Name()));
  }
  if (name.from_hub) shown = file.Name();
  Puller puller(hub, file, sha256, options, progress);
  TANDEM_RETURN_IF_ERROR(puller.Resolve());
  PullResult result;
  const std::string path = PathInStore(options.folder, file);
  for (PulledModel& there : ListPulled({options.folder})) {
    if (there.path == path && puller.IsThere(there)) {
      const bool recorded = !there.sha256.empty();
      result.model = std::move(there);
      result.model.sha256 = puller.remote().sha256;
      result.was_there = true;
      if (!recorded) TANDEM_RETURN_IF_ERROR(RecordPulled(result.model));
      return result;
    }
  }
  TANDEM_RETURN_IF_ERROR(puller.Bring(path));
  result.received_bytes = puller.received_bytes();
  result.model = {.name = shown,
                  .path = path,
                  .folder = options.folder,
                  .hub = file,
                  .commit = puller.remote().commit,
                  .sha256 = puller.remote().sha256,
                  .bytes = puller.remote().size};
  TANDEM_RETURN_IF_ERROR(RecordPulled(result.model));
  return result;
}

}  // namespace tandem::pull

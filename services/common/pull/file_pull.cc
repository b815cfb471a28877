#include "services/common/pull/file_pull.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/unique_fd.h"
#include "services/common/pull/sha256.h"
#include "services/common/pull/transfer.h"

namespace tandem::pull {
namespace {

PartIdentity IdentityOf(const RemoteFile& remote) {
  return {.size = remote.size, .content = remote.sha256.empty() ? remote.etag : remote.sha256};
}

}  // namespace

FilePull::FilePull(const Hub& hub, HubFile file, std::string sha256, const PullOptions& options,
                   const Progress& tell)
    : hub_(hub),
      file_(std::move(file)),
      sha256_(std::move(sha256)),
      options_(options),
      tell_(tell) {
  state_.file = file_.repository() + "/" + file_.file;
}

absl::Status FilePull::Resolve() {
  if (!tell_(state_)) return absl::CancelledError("stopped");
  TANDEM_ASSIGN_OR_RETURN(remote_, hub_.Resolve(file_));
  if (!sha256_.empty() && !remote_.sha256.empty() && sha256_ != remote_.sha256) {
    return absl::DataLossError(
        absl::StrFormat("%s: the table of names has the checksum %s, the host has %s", state_.file,
                        sha256_, remote_.sha256));
  }
  if (remote_.sha256.empty()) remote_.sha256 = sha256_;
  state_.sha256 = remote_.sha256;
  state_.total_bytes = remote_.size;
  return absl::OkStatus();
}

bool FilePull::IsThere(const std::string& path, uint64_t bytes, const std::string& recorded) {
  if (bytes != remote_.size || remote_.sha256.empty()) return false;
  if (!recorded.empty()) return recorded == remote_.sha256;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return false;
  state_.phase = PullPhase::kVerifying;
  const auto sha256 = Sha256OfFile(fd.get(), bytes, [this](uint64_t done) {
    state_.done_bytes = done;
    return tell_(state_);
  });
  return sha256.ok() && *sha256 == remote_.sha256;
}

absl::Status FilePull::Bring(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const auto part, PartFile::Open(path, IdentityOf(remote_)));
  state_.phase = PullPhase::kDownloading;
  state_.resumed_bytes = part->done_bytes();
  TANDEM_RETURN_IF_ERROR(Download(*part));
  TANDEM_RETURN_IF_ERROR(Verify(*part));
  return part->Finish();
}

absl::Status FilePull::Download(PartFile& part) {
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

absl::Status FilePull::Verify(PartFile& part) {
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

}  // namespace tandem::pull

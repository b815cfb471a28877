#include "services/loader/store/leases.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/base/shared_memory.h"
#include "services/common/base/status_macros.h"

namespace tandem::loader {
namespace {

constexpr size_t kMaxHolderBytes = 128;

std::string RandomToken() {
  std::string token(kLeaseTokenBytes, '\0');
  TANDEM_CHECK(::getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size()));
  return token;
}

absl::Status NoLease() {
  return absl::NotFoundError("no such lease; it has ended or its token is wrong");
}

}  // namespace

absl::StatusOr<Region> Duplicate(const UniqueFd& fd, uint64_t bytes) {
  UniqueFd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("the loader has no descriptor left: %s", std::strerror(errno)));
  }
  return Region{std::move(copy), bytes};
}

absl::StatusOr<LeaseGrant> Leases::Grant(std::shared_ptr<const ResidentModel> model,
                                         const std::string& holder) {
  LeaseGrant grant{RandomToken(), std::move(model)};
  absl::MutexLock lock(&mutex_);
  if (leases_.size() >= limits_.max_leases) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d leases are out, no more are given", leases_.size()));
  }
  leases_[grant.token] = {grant.model, holder.substr(0, kMaxHolderBytes), absl::Now(), {}, 0};
  return grant;
}

void Leases::Release(const std::string& token) {
  // Destroyed after the lock: closing the last descriptor of a region frees its memory, which
  // takes the kernel a while.
  std::map<std::string, Lease>::node_type released;
  absl::MutexLock lock(&mutex_);
  released = leases_.extract(token);
}

absl::StatusOr<uint32_t> Leases::CreateRegion(const std::string& token, uint64_t bytes,
                                              const std::string& purpose) {
  if (bytes == 0 || bytes > limits_.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("region of %d bytes asked, must be in [1, %d]", bytes, limits_.max_bytes));
  }
  TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, CreateSharedMemory("tandem-exchange", bytes));
  TANDEM_RETURN_IF_ERROR(SealSize(fd.get()));
  TANDEM_ASSIGN_OR_RETURN(const uint64_t actual, FileSize(fd.get()));
  absl::MutexLock lock(&mutex_);
  const auto found = leases_.find(token);
  if (found == leases_.end()) return NoLease();
  Lease& lease = found->second;
  if (lease.regions.size() >= limits_.max_regions ||
      bytes > limits_.max_bytes - std::min(lease.bytes, limits_.max_bytes)) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "the lease holds %d regions of %d bytes together; at most %d of %d are allowed",
        lease.regions.size(), lease.bytes, limits_.max_regions, limits_.max_bytes));
  }
  LogInfo("region made", {{"holder", lease.holder},
                          {"purpose", purpose.substr(0, kMaxHolderBytes)},
                          {"bytes", actual}});
  lease.regions.push_back({std::move(fd), actual});
  lease.bytes += actual;
  return static_cast<uint32_t>(lease.regions.size() - 1);
}

absl::StatusOr<Region> Leases::GetRegion(const RegionRequest& request) const {
  absl::MutexLock lock(&mutex_);
  const auto found = leases_.find(request.lease_token);
  if (found == leases_.end()) return NoLease();
  const Lease& lease = found->second;
  const bool own = request.kind == RegionKind::kLeaseRegion;
  const size_t count = own ? lease.regions.size() : lease.model->regions.size();
  if (request.index >= count) {
    return absl::NotFoundError(absl::StrFormat("region %d of %d", request.index, count));
  }
  if (own) return Duplicate(lease.regions[request.index].fd, lease.regions[request.index].bytes);
  const SealedRegion& region = lease.model->regions[request.index];
  if (request.kind == RegionKind::kWeights) return Duplicate(region.fd, region.bytes);
  if (!region.dmabuf_fd.valid()) {
    return absl::NotFoundError("this kernel exports no dmabuf of the region");
  }
  return Duplicate(region.dmabuf_fd, region.bytes);
}

std::vector<LeaseStatus> Leases::GetStatus() const {
  std::vector<LeaseStatus> status;
  absl::MutexLock lock(&mutex_);
  const absl::Time now = absl::Now();
  for (const auto& [token, lease] : leases_) {
    status.push_back({lease.model->model_id, lease.holder, now - lease.since, lease.bytes,
                      static_cast<uint32_t>(lease.regions.size())});
  }
  return status;
}

}  // namespace tandem::loader

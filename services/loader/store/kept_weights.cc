#include "services/loader/store/kept_weights.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/common/base/shared_memory.h"
#include "services/common/base/status_macros.h"

namespace tandem::loader {
namespace {

constexpr std::string_view kWeightsPrefix = "weights.";
constexpr std::string_view kManifestPrefix = "manifest.";
constexpr std::string_view kFirstLine = "tandem weights 1";
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr size_t kMaxManifestBytes = 4 << 20;
constexpr size_t kMaxRegions = 1 << 16;

struct ManifestRegion {
  uint64_t bytes = 0;
  uint64_t inode = 0;
  int seals = 0;
  uint64_t dmabuf_inode = 0;
};

struct Manifest {
  std::string name;
  PackedKey key;
  std::vector<ManifestRegion> regions;
};

std::string WeightsName(const std::string& content_id) {
  return std::string(kWeightsPrefix) + content_id;
}
std::string ManifestName(const std::string& content_id) {
  return std::string(kManifestPrefix) + content_id;
}

uint64_t InodeOf(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? info.st_ino : 0;
}

std::string Write(const Manifest& manifest) {
  std::string text = absl::StrFormat("%s\nname %s\nkey %d %d\n", std::string(kFirstLine),
                                     manifest.name, manifest.key.high, manifest.key.low);
  for (const ManifestRegion& region : manifest.regions) {
    absl::StrAppendFormat(&text, "region %d %d %d %d\n", region.bytes, region.inode, region.seals,
                          region.dmabuf_inode);
  }
  return text;
}

absl::StatusOr<Manifest> Parse(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) {
    return absl::FailedPreconditionError(
        absl::StrFormat("manifest begins with '%s', this loader reads '%s'", line.substr(0, 64),
                        std::string(kFirstLine)));
  }
  Manifest manifest;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string kind;
    fields >> kind;
    if (kind == "name") {
      fields.get();
      std::getline(fields, manifest.name);
    } else if (kind == "key") {
      fields >> manifest.key.high >> manifest.key.low;
    } else if (kind == "region" && manifest.regions.size() < kMaxRegions) {
      ManifestRegion& region = manifest.regions.emplace_back();
      fields >> region.bytes >> region.inode >> region.seals >> region.dmabuf_inode;
    } else {
      fields.setstate(std::ios::failbit);
    }
    if (fields.fail()) {
      return absl::DataLossError(absl::StrFormat("manifest line '%s'", line.substr(0, 64)));
    }
  }
  if (manifest.name.empty() || manifest.regions.empty()) {
    return absl::DataLossError("manifest without a model or without regions");
  }
  return manifest;
}

// The memory behind `fd` cannot have changed since it was sealed, and nobody can change it now.
absl::Status CheckSealed(int fd, uint64_t bytes, int seals) {
  struct stat info {};
  const int actual = ::fcntl(fd, F_GET_SEALS);
  if (::fstat(fd, &info) != 0 || actual < 0) {
    return absl::DataLossError(absl::StrFormat("not a sealed memfd: %s", std::strerror(errno)));
  }
  if ((actual & kSizeSeals) != kSizeSeals || actual != seals) {
    return absl::DataLossError(absl::StrFormat("seals %#x, wanted %#x", actual, seals));
  }
  if (static_cast<uint64_t>(info.st_size) != bytes) {
    return absl::DataLossError(absl::StrFormat("%d bytes, wanted %d", info.st_size, bytes));
  }
  if ((::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY) {
    return absl::DataLossError("a descriptor that can write");
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> MakeManifest(const std::string& text) {
  TANDEM_ASSIGN_OR_RETURN(const UniqueFd fd, CreateSharedMemory("tandem-manifest", text.size()));
  if (::pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_WRITE) != 0) {
    return absl::InternalError(absl::StrFormat("writing a manifest: %s", std::strerror(errno)));
  }
  return ReopenReadOnly(fd.get());
}

absl::StatusOr<Manifest> ReadManifest(int fd) {
  TANDEM_ASSIGN_OR_RETURN(const uint64_t bytes, FileSize(fd));
  if (bytes == 0 || bytes > kMaxManifestBytes) {
    return absl::DataLossError(absl::StrFormat("a manifest of %d bytes", bytes));
  }
  TANDEM_RETURN_IF_ERROR(CheckSealed(fd, bytes, kSizeSeals | F_SEAL_WRITE));
  std::string text(bytes, '\0');
  if (::pread(fd, text.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return absl::DataLossError("a manifest that cannot be read");
  }
  return Parse(text.substr(0, text.find('\0')));  // the rest fills the page
}

// By inode; removes the descriptors that it returns.
using Descriptors = std::map<uint64_t, UniqueFd>;

absl::StatusOr<UniqueFd> Take(Descriptors& from, uint64_t inode, const char* what) {
  auto found = from.extract(inode);
  if (!found.empty()) return std::move(found.mapped());
  return absl::DataLossError(
      absl::StrFormat("the %s with inode %d did not come back", what, inode));
}

absl::StatusOr<KeptModel> Assemble(const std::string& content_id, int manifest_fd,
                                   Descriptors& weights) {
  TANDEM_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(manifest_fd));
  KeptModel model{std::move(manifest.name), {content_id, manifest.key}, {}};
  for (const ManifestRegion& wanted : manifest.regions) {
    SealedRegion region;
    region.bytes = wanted.bytes;
    TANDEM_ASSIGN_OR_RETURN(region.fd, Take(weights, wanted.inode, "region"));
    TANDEM_RETURN_IF_ERROR(CheckSealed(region.fd.get(), wanted.bytes, wanted.seals));
    if (wanted.dmabuf_inode != 0) {
      TANDEM_ASSIGN_OR_RETURN(region.dmabuf_fd, Take(weights, wanted.dmabuf_inode, "dmabuf"));
    }
    model.regions.push_back(std::move(region));
  }
  return model;
}

}  // namespace

std::vector<KeptModel> KeptWeights::TakeInherited() {
  std::map<std::string, UniqueFd> manifests;
  std::map<std::string, Descriptors> weights;
  std::set<std::string> stale;
  for (InheritedDescriptor& inherited : inherited_) {
    const std::string& name = inherited.name;
    stale.insert(name);
    if (name.starts_with(kManifestPrefix)) {
      const std::string content_id = name.substr(kManifestPrefix.size());
      stale.insert(WeightsName(content_id));
      manifests[content_id] = std::move(inherited.fd);
    } else if (name.starts_with(kWeightsPrefix)) {
      const std::string content_id = name.substr(kWeightsPrefix.size());
      stale.insert(ManifestName(content_id));
      const uint64_t inode = InodeOf(inherited.fd.get());
      weights[content_id][inode] = std::move(inherited.fd);
    }
  }
  inherited_.clear();
  std::vector<KeptModel> models;
  for (const auto& [content_id, manifest] : manifests) {
    absl::StatusOr<KeptModel> model = Assemble(content_id, manifest.get(), weights[content_id]);
    if (!model.ok()) {
      LogWarning("weights kept by the service manager cannot be used",
                 {{"model_id", content_id}, {"reason", std::string(model.status().message())}});
      continue;
    }
    stale.erase(WeightsName(content_id));
    stale.erase(ManifestName(content_id));
    models.push_back(*std::move(model));
  }
  for (const std::string& name : stale) {
    if (const absl::Status status = manager_.RemoveDescriptors(name); !status.ok()) {
      LogWarning("the service manager keeps what nobody needs",
                 {{"name", name}, {"reason", std::string(status.message())}});
    }
  }
  return models;
}

absl::Status KeptWeights::Keep(const std::string& model_name, const PackedName& packed,
                               const std::vector<SealedRegion>& regions) {
  if (model_name.find('\n') != std::string::npos) {
    return absl::InvalidArgumentError("the model's name has a line break");
  }
  Manifest manifest{model_name, packed.key, {}};
  std::vector<int> fds;
  for (const SealedRegion& region : regions) {
    fds.push_back(region.fd.get());
    ManifestRegion& entry = manifest.regions.emplace_back();
    entry = {region.bytes, InodeOf(region.fd.get()), ::fcntl(region.fd.get(), F_GET_SEALS), 0};
    if (!region.dmabuf_fd.valid()) continue;
    fds.push_back(region.dmabuf_fd.get());
    entry.dmabuf_inode = InodeOf(region.dmabuf_fd.get());
  }
  TANDEM_ASSIGN_OR_RETURN(const UniqueFd manifest_fd, MakeManifest(Write(manifest)));
  // The manifest last: without one the rest is not believed.
  TANDEM_RETURN_IF_ERROR(manager_.RemoveDescriptors(ManifestName(packed.content_id)));
  TANDEM_RETURN_IF_ERROR(manager_.RemoveDescriptors(WeightsName(packed.content_id)));
  TANDEM_RETURN_IF_ERROR(manager_.StoreDescriptors(WeightsName(packed.content_id), fds));
  return manager_.StoreDescriptors(ManifestName(packed.content_id), {{manifest_fd.get()}});
}

void KeptWeights::Drop(const std::string& content_id) {
  absl::MutexLock lock(&mutex_);
  if (let_go_) return;
  for (const std::string& name : {ManifestName(content_id), WeightsName(content_id)}) {
    if (const absl::Status status = manager_.RemoveDescriptors(name); !status.ok()) {
      LogWarning("the service manager keeps what nobody needs",
                 {{"name", name}, {"reason", std::string(status.message())}});
    }
  }
}

void KeptWeights::Settle() const {
  const absl::Status settled = manager_.Barrier(absl::Seconds(5));
  if (!settled.ok()) LogWarning("memory may not be free yet", {{"reason", settled.ToString()}});
}

void KeptWeights::LetGo() {
  absl::MutexLock lock(&mutex_);
  let_go_ = true;
}

}  // namespace tandem::loader

#include "services/gpu_worker/vulkan/pipeline_cache.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::vulkan {
namespace {

constexpr uint64_t kMagic = 0x31656863634E4454;  // "TDNcche1"

// What precedes the driver's bytes in a file.
struct FileHeader {
  uint64_t magic = kMagic;
  uint64_t bytes = 0;
  uint64_t hash = 0;
};

// FNV-1a (Fowler, Noll, Vo): enough to tell a damaged file.
uint64_t Hash(const std::vector<char>& data) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : data) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return hash;
}

std::string FileName(const DeviceInfo& info) {
  std::string name = "pipelines-";
  for (const uint8_t byte : info.uuid) absl::StrAppendFormat(&name, "%02x", byte);
  absl::StrAppendFormat(&name, "-%08x.bin", info.driver_version);
  return name;
}

std::vector<char> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> all((std::istreambuf_iterator<char>(file)), {});
  FileHeader header;
  if (all.size() < sizeof(header)) return {};
  std::memcpy(&header, all.data(), sizeof(header));
  std::vector<char> data(all.begin() + sizeof(header), all.end());
  if (header.magic != kMagic || header.bytes != data.size() || header.hash != Hash(data)) return {};
  return data;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineCache>> PipelineCache::Create(const Device& device,
                                                                     const std::string& folder) {
  std::unique_ptr<PipelineCache> cache(new PipelineCache(device));
  std::vector<char> data;
  if (!folder.empty()) {
    cache->path_ = folder + "/" + FileName(device.info());
    data = ReadFile(cache->path_);
  }
  VkPipelineCacheCreateInfo info = {VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  info.initialDataSize = data.size();
  info.pInitialData = data.data();
  VkResult result =
      device.vk().CreatePipelineCache(device.handle(), &info, nullptr, &cache->handle_);
  if (result != VK_SUCCESS && !data.empty()) {
    info.initialDataSize = 0;
    result = device.vk().CreatePipelineCache(device.handle(), &info, nullptr, &cache->handle_);
    data.clear();
  }
  TANDEM_RETURN_IF_ERROR(device.Check(result, "vkCreatePipelineCache"));
  cache->saved_hash_ = Hash(data);
  return cache;
}

PipelineCache::~PipelineCache() {
  if (handle_ != VK_NULL_HANDLE) {
    device_.vk().DestroyPipelineCache(device_.handle(), handle_, nullptr);
  }
}

absl::Status PipelineCache::Save() {
  if (path_.empty()) return absl::OkStatus();
  size_t bytes = 0;
  TANDEM_RETURN_IF_ERROR(
      device_.Check(device_.vk().GetPipelineCacheData(device_.handle(), handle_, &bytes, nullptr),
                    "vkGetPipelineCacheData"));
  std::vector<char> data(bytes);
  TANDEM_RETURN_IF_ERROR(device_.Check(
      device_.vk().GetPipelineCacheData(device_.handle(), handle_, &bytes, data.data()),
      "vkGetPipelineCacheData"));
  data.resize(bytes);
  const FileHeader header{.bytes = data.size(), .hash = Hash(data)};
  if (header.hash == saved_hash_) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  const std::string part = absl::StrFormat("%s.%d", path_, getpid());
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    file.write(data.data(), static_cast<std::streamsize>(data.size()));
    if (!file.flush()) {
      std::filesystem::remove(part, error);
      return absl::InternalError(absl::StrFormat("cannot write %s", part));
    }
  }
  std::filesystem::rename(part, path_, error);
  if (error) {
    return absl::InternalError(absl::StrFormat("cannot rename %s: %s", part, error.message()));
  }
  saved_hash_ = header.hash;
  return absl::OkStatus();
}

}  // namespace tandem::vulkan

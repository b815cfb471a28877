// The driver's compiled pipelines, kept on disk between runs.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/device.h"

namespace tandem::vulkan {

// Single-thread; the device is borrowed.
class PipelineCache {
 public:
  // Reads the file of this device and driver version in `folder`, if it exists.  A file that is
  // unreadable, damaged or another device's is ignored.  An empty `folder`: no file.
  static absl::StatusOr<std::unique_ptr<PipelineCache>> Create(const Device& device,
                                                               const std::string& folder);
  PipelineCache(const PipelineCache&) = delete;
  PipelineCache& operator=(const PipelineCache&) = delete;
  ~PipelineCache();

  VkPipelineCache handle() const { return handle_; }
  // The file; empty without a folder.
  const std::string& path() const { return path_; }

  // Writes the cache to its file if it has changed, through a rename, so that a reader sees the
  // whole new file or the old one.
  absl::Status Save();

 private:
  explicit PipelineCache(const Device& device) : device_(device) {}
  const Device& device_;  // Borrowed.
  std::string path_;
  VkPipelineCache handle_ = VK_NULL_HANDLE;
  uint64_t saved_hash_ = 0;
};

}  // namespace tandem::vulkan

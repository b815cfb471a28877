// What a process asks the driver about the device.
#include <drm/amdxdna_accel.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/npu_worker/emulator/driver/ioctls.h"

namespace tandem::npu::emulator {
namespace {

amdxdna_drm_query_aie_metadata Metadata(const DriverProfile& profile) {
  amdxdna_drm_query_aie_metadata metadata{};
  metadata.col_size = 0x2000000;
  metadata.cols = static_cast<uint16_t>(profile.num_columns);
  metadata.rows = 6;
  metadata.version.major = 2;
  metadata.core = {
      .row_count = kCoreRows, .row_start = 2, .dma_channel_count = 2, .lock_count = 16};
  metadata.mem = {.row_count = 1, .row_start = 1, .dma_channel_count = 6, .lock_count = 64};
  metadata.shim = {.row_count = 1, .row_start = 0, .dma_channel_count = 2, .lock_count = 16};
  return metadata;
}

amdxdna_drm_query_clock_metadata Clocks(const DriverProfile& profile) {
  amdxdna_drm_query_clock_metadata clocks{};
  std::strcpy(reinterpret_cast<char*>(clocks.mp_npu_clock.name), "MP-NPU Clock");
  std::strcpy(reinterpret_cast<char*>(clocks.h_clock.name), "H Clock");
  clocks.mp_npu_clock.freq_mhz = profile.name == "npu1" ? 847 : 1267;
  clocks.h_clock.freq_mhz = profile.name == "npu1" ? 1600 : 1800;
  return clocks;
}

amdxdna_drm_get_resource_info Resources(DriverClient& client) {
  const DriverProfile& profile = client.device().profile();
  return {.npu_clk_max = Clocks(profile).h_clock.freq_mhz,
          .npu_task_max = profile.max_contexts,
          .npu_task_curr = client.device().num_contexts()};
}

template <typename T>
Errno Answer(const T& value, amdxdna_drm_get_info* request) {
  std::memcpy(reinterpret_cast<void*>(request->buffer), &value,
              std::min<size_t>(sizeof(value), request->buffer_size));
  request->buffer_size = sizeof(value);
  return 0;
}

}  // namespace

Errno GetInfo(DriverClient& client, void* argument) {
  auto* request = static_cast<amdxdna_drm_get_info*>(argument);
  const DriverProfile& profile = client.device().profile();
  if (request->buffer == 0) return EFAULT;
  switch (request->param) {
    case DRM_AMDXDNA_QUERY_AIE_METADATA:
      return Answer(Metadata(profile), request);
    case DRM_AMDXDNA_QUERY_AIE_VERSION:
      return Answer(amdxdna_drm_query_aie_version{.major = 2, .minor = 0}, request);
    case DRM_AMDXDNA_QUERY_FIRMWARE_VERSION:
      return Answer(amdxdna_drm_query_firmware_version{.major = 1, .minor = 1, .patch = 2},
                    request);
    case DRM_AMDXDNA_QUERY_CLOCK_METADATA:
      return Answer(Clocks(profile), request);
    case DRM_AMDXDNA_GET_POWER_MODE:
      return Answer(amdxdna_drm_get_power_mode{.power_mode = POWER_MODE_DEFAULT}, request);
    case DRM_AMDXDNA_QUERY_RESOURCE_INFO:
      return Answer(Resources(client), request);
    default:
      return EOPNOTSUPP;
  }
}

Errno GetArray(DriverClient& client, void* argument) {
  auto* request = static_cast<amdxdna_drm_get_array*>(argument);
  if (request->param != DRM_AMDXDNA_HW_CONTEXT_ALL) return EOPNOTSUPP;
  if (request->buffer == 0 || request->element_size == 0) return EINVAL;
  const std::vector<DriverClient::ContextInfo> contexts = client.contexts();
  const size_t bytes = std::min<size_t>(sizeof(amdxdna_drm_hwctx_entry), request->element_size);
  const size_t count = std::min<size_t>(contexts.size(), request->num_element);
  for (size_t i = 0; i < count; ++i) {
    amdxdna_drm_hwctx_entry entry{};
    entry.context_id = contexts[i].handle;
    entry.start_col = contexts[i].first_column;
    entry.num_col = contexts[i].num_columns;
    entry.command_submissions = contexts[i].commands.submitted;
    entry.command_completions = contexts[i].commands.completed;
    entry.errors = contexts[i].commands.errors;
    std::memcpy(reinterpret_cast<std::byte*>(request->buffer) + i * request->element_size, &entry,
                bytes);
  }
  request->num_element = static_cast<uint32_t>(contexts.size());
  request->element_size = sizeof(amdxdna_drm_hwctx_entry);
  return 0;
}

}  // namespace tandem::npu::emulator

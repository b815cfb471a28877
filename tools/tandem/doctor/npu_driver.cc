#include "tools/tandem/doctor/npu_driver.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem {
namespace {

constexpr unsigned kDrmCommandBase = 0x40;
constexpr size_t kMaxContexts = 64;

// struct amdxdna_drm_get_info.
struct InfoRequest {
  uint32_t param = 0;
  uint32_t buffer_size = 0;
  uint64_t buffer = 0;
};
constexpr unsigned long kGetInfo = _IOWR('d', kDrmCommandBase + 7, InfoRequest);
constexpr uint32_t kQueryContexts = 5, kQueryFirmware = 8, kGetPowerMode = 9;

// struct amdxdna_drm_get_array.
struct ArrayRequest {
  uint32_t param = 0;
  uint32_t element_size = 0;
  uint32_t num_element = 0;
  uint32_t pad = 0;
  uint64_t buffer = 0;
};
constexpr unsigned long kGetArray = _IOWR('d', kDrmCommandBase + 10, ArrayRequest);
constexpr uint32_t kAllContexts = 0;

// The beginning of struct amdxdna_drm_hwctx_entry, and struct amdxdna_drm_query_hwctx whole.
struct ContextRecord {
  uint32_t context_id, start_col, num_col, hwctx_id;
  int64_t pid;
  uint64_t command_submissions, command_completions, migrations, preemptions, errors;
};
static_assert(sizeof(ContextRecord) == 64);

}  // namespace

std::unique_ptr<NpuDriver> NpuDriver::Open(const std::string& node, DriverIoctl ioctl) {
  UniqueFd fd(::open(node.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return nullptr;
  if (!ioctl) {
    ioctl = [](int file, unsigned long request, void* argument) {
      return ::ioctl(file, request, argument);
    };
  }
  return std::unique_ptr<NpuDriver>(new NpuDriver(std::move(fd), std::move(ioctl)));
}

bool NpuDriver::Call(unsigned long request, void* argument) const {
  int code = 0;
  do {
    code = ioctl_(node_.get(), request, argument);
  } while (code < 0 && errno == EINTR);
  return code >= 0;
}

bool NpuDriver::GetInfo(uint32_t what, void* answer, uint32_t bytes) const {
  InfoRequest request{
      .param = what, .buffer_size = bytes, .buffer = reinterpret_cast<uintptr_t>(answer)};
  return Call(kGetInfo, &request);
}

std::optional<std::string> NpuDriver::FirmwareVersion() const {
  std::array<uint32_t, 4> version{};  // major, minor, patch, build
  if (!GetInfo(kQueryFirmware, version.data(), sizeof(version))) return std::nullopt;
  return absl::StrFormat("%d.%d.%d.%d", version[0], version[1], version[2], version[3]);
}

std::optional<uint32_t> NpuDriver::PowerMode() const {
  std::array<uint8_t, 8> mode{};
  if (!GetInfo(kGetPowerMode, mode.data(), sizeof(mode))) return std::nullopt;
  return mode[0];
}

std::optional<std::vector<NpuContext>> NpuDriver::Contexts() const {
  std::array<ContextRecord, kMaxContexts> records{};
  ArrayRequest request{.param = kAllContexts,
                       .element_size = sizeof(ContextRecord),
                       .num_element = kMaxContexts,
                       .buffer = reinterpret_cast<uintptr_t>(records.data())};
  // Drivers before GET_ARRAY have the query.
  if (!Call(kGetArray, &request) && !GetInfo(kQueryContexts, records.data(), sizeof(records))) {
    return std::nullopt;
  }
  std::vector<NpuContext> contexts;
  for (const ContextRecord& record : records) {
    if (record.num_col == 0) break;  // not filled
    contexts.push_back({.num_columns = record.num_col, .pid = record.pid});
  }
  return contexts;
}

}  // namespace tandem

#include "services/npu_worker/driver/amdxdna_sensors.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace tandem::npu {
namespace {

namespace fs = std::filesystem;

// struct amdxdna_drm_get_info.
struct GetInfo {
  uint32_t param = 0;
  uint32_t buffer_size = 0;  // bytes; the driver puts in what it has written
  uint64_t buffer = 0;
};
constexpr uint32_t kQuerySensors = 4;
constexpr unsigned kDrmCommandBase = 0x40;
constexpr unsigned long kGetInfo = _IOWR('d', kDrmCommandBase + 7, GetInfo);

// More than any NPU has: power, temperature and eight columns.  Never too little for one record,
// which early drivers write unasked.
constexpr size_t kMaxRecords = 32;
// Of drivers from before there was anything to report.
constexpr uint32_t kUnknown = std::numeric_limits<uint32_t>::max();

}  // namespace

NpuReading ReadingOf(std::span<const SensorRecord> records) {
  NpuReading reading;
  for (const SensorRecord& record : records) {
    if (record.label[0] == '\0' || record.input == kUnknown) continue;
    const double value = record.input * std::pow(10.0, record.exponent);
    switch (record.type) {
      case SensorRecord::kPower:
        reading.watts = value;
        break;
      case SensorRecord::kTemperature:
        reading.celsius = value;
        break;
      case SensorRecord::kColumnUtilization:
        reading.column_busy.push_back(value / 100);
        break;
      default:  // of a later driver
        break;
    }
  }
  return reading;
}

absl::StatusOr<std::unique_ptr<AmdxdnaSensors>> AmdxdnaSensors::Open(const std::string& root,
                                                                     std::string_view pci_address,
                                                                     Ioctl ioctl) {
  const bool has_domain = pci_address.find(':') != pci_address.rfind(':');
  const fs::path device = fs::path(root) / "sys/bus/pci/devices" /
                          absl::StrFormat("%s%s", has_domain ? "" : "0000:", pci_address);
  std::string node;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(device / "accel", error)) {
    if (entry.path().filename().string().starts_with("accel")) node = entry.path().filename();
  }
  if (node.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("%s has no accelerator; is the amdxdna driver loaded?", device.string()));
  }
  const std::string path = fs::path(root) / "dev/accel" / node;
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, path);
  return std::unique_ptr<AmdxdnaSensors>(
      new AmdxdnaSensors(std::move(fd), device / "power/runtime_status", std::move(ioctl)));
}

AmdxdnaSensors::AmdxdnaSensors(UniqueFd node, std::string runtime_status_path, Ioctl ioctl)
    : node_(std::move(node)),
      runtime_status_path_(std::move(runtime_status_path)),
      ioctl_(std::move(ioctl)) {}

int AmdxdnaSensors::SystemIoctl(int fd, unsigned long request, void* argument) {
  return ::ioctl(fd, request, argument);
}

absl::StatusOr<NpuReading> AmdxdnaSensors::Read(absl::Duration ask_every) const {
  MutexLock lock(mutex_);
  std::string power_state;
  std::ifstream(runtime_status_path_) >> power_state;
  if (power_state == "suspended" || power_state == "suspending") {
    return NpuReading{.watts = 0.0, .celsius = {}, .column_busy = std::vector(num_columns_, 0.0)};
  }
  if (const absl::Time now = absl::Now(); now - asked_ >= ask_every) {
    asked_ = now;
    last_ = Ask();
    if (last_.ok()) num_columns_ = last_->column_busy.size();
  }
  return last_;
}

absl::StatusOr<NpuReading> AmdxdnaSensors::Ask() const {
  std::array<SensorRecord, kMaxRecords> records = {};
  GetInfo info{.param = kQuerySensors,
               .buffer_size = sizeof(records),
               .buffer = reinterpret_cast<uintptr_t>(records.data())};
  int code = 0;
  do {
    code = ioctl_(node_.get(), kGetInfo, &info);
  } while (code < 0 && errno == EINTR);
  if (code < 0) {
    if (errno == EOPNOTSUPP || errno == EINVAL || errno == ENOTTY) {
      return absl::UnimplementedError("this amdxdna driver has no sensors");
    }
    return absl::ErrnoToStatus(errno, "amdxdna's sensors");
  }
  const size_t num_records = std::min<size_t>(info.buffer_size / sizeof(SensorRecord), kMaxRecords);
  return ReadingOf(std::span(records).first(num_records));
}

}  // namespace tandem::npu

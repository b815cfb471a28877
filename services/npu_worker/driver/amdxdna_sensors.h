// What the kernel's amdxdna driver reports of an NPU: power, temperature, load of its columns.
//
// Source: include/uapi/drm/amdxdna_accel.h, DRM_IOCTL_AMDXDNA_GET_INFO with
// DRM_AMDXDNA_QUERY_SENSORS.  A query wakes the NPU and counts as use (aie2_get_info resumes the
// device), so an NPU that is queried every few seconds would never sleep.  Drivers before 2026
// refuse, or report values of sensors that do not exist.  Not verified on hardware.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/common/base/unique_fd.h"

namespace tandem::npu {

// struct amdxdna_drm_query_sensor.
struct SensorRecord {
  enum Type : uint8_t { kPower = 0, kColumnUtilization = 1, kTemperature = 2 };
  char label[64];
  uint32_t input;
  uint32_t max;
  uint32_t average;
  uint32_t highest;
  char status[64];
  char units[16];
  int8_t exponent;  // the value is input * 10^exponent, in `units`: mW is W with -3
  uint8_t type;
  uint8_t pad[6];
};
static_assert(sizeof(SensorRecord) == 168);

struct NpuReading {
  std::optional<double> watts;
  std::optional<double> celsius;
  std::vector<double> column_busy;  // by column, 0 to 1
};

// Records without a label were not filled.
NpuReading ReadingOf(std::span<const SensorRecord> records);

// Thread-safe.
class AmdxdnaSensors {
 public:
  using Ioctl = std::function<int(int fd, unsigned long request, void* argument)>;

  // The NPU at `pci_address` ("0000:c5:00.1"; without a domain, 0000 is meant).  `root` is "/", and
  // `ioctl` the system's, but in tests.  NOT_FOUND: no driver has it; otherwise what the system
  // says of its device node.
  static absl::StatusOr<std::unique_ptr<AmdxdnaSensors>> Open(const std::string& root,
                                                              std::string_view pci_address,
                                                              Ioctl ioctl = SystemIoctl);

  // The driver is asked once in `ask_every` at most; between, the last reading is given again.  An
  // NPU that is suspended is not woken: no power, and no load of the columns seen before.
  // UNIMPLEMENTED: the driver has no sensors; otherwise what the system says.
  static constexpr absl::Duration kAskEvery = absl::Seconds(15);
  absl::StatusOr<NpuReading> Read(absl::Duration ask_every = kAskEvery) const;

 private:
  AmdxdnaSensors(UniqueFd node, std::string runtime_status_path, Ioctl ioctl);
  absl::StatusOr<NpuReading> Ask() const;
  static int SystemIoctl(int fd, unsigned long request, void* argument);

  const UniqueFd node_;
  const std::string runtime_status_path_;
  const Ioctl ioctl_;
  mutable Mutex mutex_;
  mutable absl::StatusOr<NpuReading> last_ ABSL_GUARDED_BY(mutex_);
  mutable absl::Time asked_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  mutable size_t num_columns_ ABSL_GUARDED_BY(mutex_) = 0;  // that have reported
};

}  // namespace tandem::npu

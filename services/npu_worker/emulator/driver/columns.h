// Which columns of the array a hardware context gets: as the driver's solver places it.
#pragma once

#include <cstdint>
#include <vector>

#include "services/npu_worker/emulator/driver/profile.h"
#include "services/npu_worker/emulator/driver/refusal.h"

namespace tandem::npu::emulator {

// Thread-compatible.
class Columns {
 public:
  explicit Columns(const DriverProfile& profile) : profile_(profile) {}

  // The first free place, or else a share of the partition of this width that the fewest contexts use.
  // EINVAL: no such width, or too many contexts; ENODEV: neither a place nor such a partition.
  Errno Acquire(uint32_t width, uint32_t* first);
  void Release(uint32_t first, uint32_t width);

  uint32_t num_contexts() const;

 private:
  struct Partition {
    uint32_t first;
    uint32_t width;
    uint32_t num_contexts;
  };
  bool IsFree(uint32_t first, uint32_t width) const;

  const DriverProfile profile_;
  std::vector<Partition> partitions_;
};

}  // namespace tandem::npu::emulator

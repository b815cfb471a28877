// A sensor whose reading wakes its device: it is read only while the device is in use.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "services/common/energy/energy.h"

namespace tandem {

// Single-thread, except for Use.
class SensorInUse final : public EnergySensor {
 public:
  using ReadWatts = std::function<absl::StatusOr<double>()>;
  // So many readings after the last use are taken; two seconds of an EnergyMeter.
  static constexpr uint32_t kReadingsAfterUse = 20;

  SensorInUse(std::string name, ReadWatts read)
      : name_(std::move(name)), read_(std::move(read)), last_(read_()) {}

  // The device is in use.  Thread-safe.
  void Use() { used_.store(true, std::memory_order_relaxed); }

  const std::string& name() const override { return name_; }
  // Of a device that is not in use: the last reading again.
  absl::StatusOr<double> Read() override {
    num_idle_ = used_.exchange(false, std::memory_order_relaxed) ? 0 : num_idle_ + 1;
    if (num_idle_ <= kReadingsAfterUse) last_ = read_();
    return last_;
  }
  bool counts_joules() const override { return false; }
  bool of_gpu() const override { return false; }

 private:
  const std::string name_;
  const ReadWatts read_;
  absl::StatusOr<double> last_;
  uint32_t num_idle_ = 0;
  std::atomic<bool> used_{false};
};

}  // namespace tandem

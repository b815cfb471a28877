// Energy that this machine's sensors report: GPUs and processors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/mutex.h"

namespace tandem {

// One sensor.  Single-thread.
class EnergySensor {
 public:
  virtual ~EnergySensor() = default;
  // "amdgpu card0", "package-0 (RAPL)", "NVIDIA H200 (NVML)".
  virtual const std::string& name() const = 0;
  // Joules since some time in the past, for a sensor that counts them; watts for one that does not.
  virtual absl::StatusOr<double> Read() = 0;
  virtual bool counts_joules() const = 0;
  // Of a graphics processor alone; otherwise of a whole processor package.
  virtual bool of_gpu() const = 0;
  // What the counter holds at most, joules; 0: it does not run over.
  virtual double range() const { return 0; }
};

// What a sensor has reported within a span of time.
struct EnergyReading {
  std::string sensor;
  double joules = 0;
};

struct EnergySensors {
  std::vector<std::unique_ptr<EnergySensor>> found;
  std::vector<std::string> refused;  // "package-0 (RAPL): Permission denied"
};

// `root` is "/" but in tests.  Looks for
//   root/sys/class/hwmon/*/name "amdgpu": energy1_input (uJ),
//                                         else power1_average or power1_input (uW)
//   root/sys/class/powercap/intel-rapl:N: energy_uj, max_energy_range_uj
EnergySensors FindSysfsSensors(const std::string& root);
// The GPUs of NVIDIA's management library, where it is installed.
EnergySensors FindNvmlSensors();

// Sums what the sensors report between Begin and End.  Those that report watts are read ten times
// a second by a thread of this object's.
class EnergyMeter {
 public:
  // What Joules gives, after a reading of the sensors.  Must not call the meter.
  using OnSample = std::function<void(const std::vector<EnergyReading>&)>;

  // `on_sample`: called from the thread that reads, one call at a time; may be empty.
  explicit EnergyMeter(std::vector<std::unique_ptr<EnergySensor>> sensors, OnSample on_sample = {});
  ~EnergyMeter();

  void Reset();
  void Begin();
  void End();
  // Since Reset.  A sensor that failed meanwhile is left out.
  std::vector<EnergyReading> Joules() const;

 private:
  struct Counter {
    std::unique_ptr<EnergySensor> sensor;
    double joules = 0;
    double last = 0;  // joules or watts
    bool failed = false;
  };
  // Adds what has come since the reading before; `first`: there was none.
  void Sample(bool first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Seconds since that reading, by the clock that never jumps.
  double SinceSample() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<EnergyReading> Readings() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Watch();

  const OnSample on_sample_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Counter> counters_ ABSL_GUARDED_BY(mutex_);
  int64_t sampled_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem

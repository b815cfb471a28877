#include "services/common/energy/energy.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/clock.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kSampleInterval = absl::Milliseconds(100);
constexpr double kMicro = 1e-6;

absl::StatusOr<double> ReadNumber(const fs::path& path) {
  errno = 0;
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;
  return absl::UnavailableError(
      absl::StrFormat("%s: %s", path.string(), errno != 0 ? std::strerror(errno) : "no number"));
}

std::string ReadWord(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// A file that holds millionths of joules or watts.
class FileSensor final : public EnergySensor {
 public:
  FileSensor(std::string name, fs::path path, bool of_gpu, bool counts_joules, double range)
      : name_(std::move(name)),
        path_(std::move(path)),
        of_gpu_(of_gpu),
        counts_joules_(counts_joules),
        range_(range) {}
  const std::string& name() const override { return name_; }
  absl::StatusOr<double> Read() override {
    auto value = ReadNumber(path_);
    if (value.ok()) *value *= kMicro;
    return value;
  }
  bool counts_joules() const override { return counts_joules_; }
  bool of_gpu() const override { return of_gpu_; }
  double range() const override { return range_; }

 private:
  const std::string name_;
  const fs::path path_;
  const bool of_gpu_;
  const bool counts_joules_;
  const double range_;
};

std::vector<fs::path> FoldersIn(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

void Keep(std::unique_ptr<EnergySensor> sensor, EnergySensors& sensors) {
  const auto value = sensor->Read();
  if (value.ok()) {
    sensors.found.push_back(std::move(sensor));
  } else {
    sensors.refused.push_back(
        absl::StrFormat("%s: %s", sensor->name(), std::string(value.status().message())));
  }
}

}  // namespace

EnergySensors FindSysfsSensors(const std::string& root) {
  EnergySensors sensors;
  for (const fs::path& folder : FoldersIn(fs::path(root) / "sys/class/hwmon")) {
    if (ReadWord(folder / "name") != "amdgpu") continue;
    const std::string name = "amdgpu " + folder.filename().string();
    struct File {
      const char* name;
      bool counts_joules;
    };
    for (const File file :
         {File{"energy1_input", true}, {"power1_average", false}, {"power1_input", false}}) {
      if (!fs::exists(folder / file.name)) continue;
      Keep(std::make_unique<FileSensor>(name, folder / file.name, /*of_gpu=*/true,
                                        file.counts_joules, 0),
           sensors);
      break;
    }
  }
  for (const fs::path& folder : FoldersIn(fs::path(root) / "sys/class/powercap")) {
    // Packages alone: "intel-rapl:0:0" is a part of "intel-rapl:0".
    const std::string file = folder.filename().string();
    if (!file.starts_with("intel-rapl:") || file.find(':', 11) != std::string::npos) continue;
    const auto range = ReadNumber(folder / "max_energy_range_uj");
    Keep(std::make_unique<FileSensor>(ReadWord(folder / "name") + " (RAPL)", folder / "energy_uj",
                                      /*of_gpu=*/false, /*counts_joules=*/true,
                                      range.ok() ? *range * kMicro : 0),
         sensors);
  }
  return sensors;
}

EnergyMeter::EnergyMeter(std::vector<std::unique_ptr<EnergySensor>> sensors, OnSample on_sample)
    : on_sample_(std::move(on_sample)) {
  for (auto& sensor : sensors) counters_.push_back({.sensor = std::move(sensor)});
  thread_ = std::thread([this] { Watch(); });
}

EnergyMeter::~EnergyMeter() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void EnergyMeter::Reset() {
  MutexLock lock(mutex_);
  for (Counter& counter : counters_) {
    counter.joules = 0;
    counter.failed = false;
  }
}

void EnergyMeter::Begin() {
  MutexLock lock(mutex_);
  Sample(/*first=*/true);
  running_ = true;
  changed_.SignalAll();
}

void EnergyMeter::End() {
  MutexLock lock(mutex_);
  Sample(/*first=*/false);
  running_ = false;
}

void EnergyMeter::Sample(bool first) {
  const double seconds = SinceSample();
  sampled_ns_ = NowNanos();
  for (Counter& counter : counters_) {
    const auto value = counter.sensor->Read();
    if (!value.ok()) counter.failed = true;
    if (counter.failed) continue;
    if (!first) {
      double joules = 0.5 * (counter.last + *value) * seconds;
      if (counter.sensor->counts_joules()) {
        joules = *value - counter.last;
        if (joules < 0) joules += counter.sensor->range();
        if (joules < 0) counter.failed = true;
      }
      counter.joules += joules;
    }
    counter.last = *value;
  }
  if (on_sample_) on_sample_(Readings());
}

double EnergyMeter::SinceSample() const {
  return 1e-9 * static_cast<double>(NowNanos() - sampled_ns_);
}

void EnergyMeter::Watch() {
  MutexLock lock(mutex_);
  while (!ending_) {
    if (!running_) {
      changed_.Wait(mutex_);
      continue;
    }
    changed_.WaitUntil(mutex_, absl::Now() + kSampleInterval);
    // A signal may have ended the wait.
    const bool due = SinceSample() >= 0.5 * absl::ToDoubleSeconds(kSampleInterval);
    if (running_ && due) Sample(/*first=*/false);
  }
}

std::vector<EnergyReading> EnergyMeter::Joules() const {
  MutexLock lock(mutex_);
  return Readings();
}

std::vector<EnergyReading> EnergyMeter::Readings() const {
  std::vector<EnergyReading> energy;
  for (const Counter& counter : counters_) {
    if (!counter.failed) energy.push_back({counter.sensor->name(), counter.joules});
  }
  return energy;
}

}  // namespace tandem

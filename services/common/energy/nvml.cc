// NVIDIA's management library, opened at run time: NVML API reference,
// nvmlDeviceGetTotalEnergyConsumption.
#include <dlfcn.h>

#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/energy/energy.h"

namespace tandem {
namespace {

using Device = void*;
constexpr int kSuccess = 0;

// The library's functions, by the ABI that its version 2 entry points keep.  Never closed: the
// driver's threads may outlive any use.
struct Library {
  int (*init)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*energy)(Device, unsigned long long*) = nullptr;  // millijoules since the driver was loaded

  bool Open() {
    void* handle = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return false;
    const auto find = [handle](auto& function, const char* symbol) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, symbol));
      return function != nullptr;
    };
    return find(init, "nvmlInit_v2") && find(count, "nvmlDeviceGetCount_v2") &&
           find(device, "nvmlDeviceGetHandleByIndex_v2") && find(name, "nvmlDeviceGetName") &&
           find(energy, "nvmlDeviceGetTotalEnergyConsumption");
  }
};

class NvmlSensor final : public EnergySensor {
 public:
  NvmlSensor(const Library& library, Device device, std::string name)
      : library_(library), device_(device), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  absl::StatusOr<double> Read() override {
    unsigned long long millijoules = 0;
    const int code = library_.energy(device_, &millijoules);
    if (code == kSuccess) return 1e-3 * static_cast<double>(millijoules);
    return absl::UnavailableError(absl::StrFormat("NVML error %d", code));
  }
  bool counts_joules() const override { return true; }
  bool of_gpu() const override { return true; }

 private:
  const Library library_;
  const Device device_;
  const std::string name_;
};

}  // namespace

EnergySensors FindNvmlSensors() {
  EnergySensors sensors;
  Library library;
  unsigned count = 0;
  if (!library.Open() || library.init() != kSuccess || library.count(&count) != kSuccess) {
    return sensors;
  }
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    char name[96] = "GPU";
    if (library.device(i, &device) != kSuccess) continue;
    library.name(device, name, sizeof(name));
    auto sensor = std::make_unique<NvmlSensor>(
        library, device,
        count > 1 ? absl::StrFormat("%s %d (NVML)", name, i) : absl::StrFormat("%s (NVML)", name));
    if (const auto value = sensor->Read(); value.ok()) {
      sensors.found.push_back(std::move(sensor));
    } else {
      sensors.refused.push_back(
          absl::StrFormat("%s: %s", sensor->name(), std::string(value.status().message())));
    }
  }
  return sensors;
}

}  // namespace tandem

// Checks whether this machine can serve.  One finding for each common problem, with its fix.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/tandem/doctor/npu_driver.h"

namespace tandem {

enum class Verdict { kGood, kNote, kBad };

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string subject;  // "vulkan driver"
  std::string detail;   // what was found
  std::string remedy;   // a command or a change; empty when good
};

// Input of the checks; tests use a fake one.
struct SystemView {
  std::string root;            // prefix of /dev, /sys and /proc; empty on a real machine
  std::string bin_dir;         // where the workers' executables are
  uint64_t memlock_bytes = 0;  // soft limit; UINT64_MAX: unlimited
  bool is_root = false;
  std::vector<std::string> groups;  // of this process, by name
  DriverIoctl ioctl;                // to the NPU's driver; empty: the system's
};
SystemView ThisSystem(const std::string& bin_dir);

Finding CheckRenderNode(const SystemView& system);
Finding CheckNpuNode(const SystemView& system);
Finding CheckMemlock(const SystemView& system);
Finding CheckHugepages(const SystemView& system);
// Whether the loader can export its regions as dmabufs, and this user may.
Finding CheckUdmabuf(const SystemView& system);
Finding CheckMemory(const SystemView& system);
// Runs a worker's `--probe`, which opens its device.  Its last line of output describes the device;
// its last line of errors says why that failed.  Log lines of libraries do not count.  `if_wrong`: the
// remedy where the device gives wrong answers, which is bad whatever `if_not`; empty: as any failure.
Finding CheckWorker(const SystemView& system, const std::string& subject,
                    const std::vector<std::string>& arguments, Verdict if_not,
                    const std::string& remedy, const std::string& if_wrong = "");

// gpu_checks.cc: what makes AMD's GPUs slow or keeps them from being used.

// The driver that the GPU worker's `--probe` opened: AMDVLK, a Mesa without cooperative matrices,
// or software.
Finding CheckGpuDriver(const SystemView& system);
// The same of a probe's output; a note where it names no driver.
Finding JudgeGpuDriver(const std::string& probe);
// Whether this user is in the groups of the GPU's nodes, where amdgpu is loaded.
Finding CheckGpuGroups(const SystemView& system);
// The firmware's power profile, and amdgpu's own limit on its clocks.
Finding CheckPowerProfile(const SystemView& system);

// npu_checks.cc: kernel, driver, firmware and its protocol, XRT and its plugin, kernel package, contexts in
// use and power mode of an AMD NPU.  Nothing where PCI has none; no contexts and no mode where this user may
// not open it.
std::vector<Finding> CheckNpu(const SystemView& system);

// Runs a program of ours and returns what it prints; empty: it failed.
std::string OutputOf(const std::vector<std::string>& arguments);

std::vector<Finding> Examine(const SystemView& system);

}  // namespace tandem

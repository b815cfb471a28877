// Findings about AMD's NPUs: what must be there before XRT can open one.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/common/base/client_text.h"
#include "services/common/json/guarded_json.h"
#include "tools/tandem/doctor/doctor.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Of the first kernel with the amdxdna driver.
constexpr int kKernelMajor = 6, kKernelMinor = 14;

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

struct Npu {
  fs::path folder;  // in sysfs
  std::string chip;
  std::string kind;      // as packages name it
  std::string firmware;  // folder of its firmware: device_revision
  std::string driver;    // empty: none
  std::string node;      // below /dev/accel: "accel0"; empty: the driver has made none
  size_t max_contexts = 0;
};

std::optional<Npu> FindNpu(const SystemView& system) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(system.root + "/sys/bus/pci/devices", error)) {
    if (FirstLine(entry.path() / "vendor") != "0x1022") continue;
    const std::string device = FirstLine(entry.path() / "device");
    Npu npu{.folder = entry.path()};
    if (device == "0x1502") npu.chip = "Ryzen AI 7040 or 8040 (npu1)";
    if (device == "0x17f0") npu.chip = "Ryzen AI 300 or Max (npu4's kind)";
    if (npu.chip.empty()) continue;
    npu.kind = device == "0x1502" ? "npu1" : "npu4";
    npu.max_contexts = device == "0x1502" ? 6 : 16;
    const std::string revision = FirstLine(entry.path() / "revision");
    npu.firmware = device.substr(2) + "_" + (revision.size() == 4 ? revision.substr(2) : "00");
    npu.driver = fs::read_symlink(entry.path() / "driver", error).filename().string();
    for (const auto& node : fs::directory_iterator(entry.path() / "accel", error)) {
      npu.node = node.path().filename().string();
    }
    return npu;
  }
  return std::nullopt;
}

// Commands that install something on the distribution of this machine.
struct Installer {
  std::string kernel, firmware, xrt;
};

// What apt's sources say, in either of their two forms.
struct AptSources {
  bool has_backports = false;
  std::string mirror;  // the first of Debian's own, or empty
};

AptSources ReadAptSources(const SystemView& system) {
  std::vector<fs::path> files = {system.root + "/etc/apt/sources.list"};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(system.root + "/etc/apt/sources.list.d", error)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".list" || ending == ".sources") files.push_back(entry.path());
  }
  AptSources sources;
  for (const fs::path& path : files) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const std::vector<std::string> words =
          absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
      if (words.empty() || words[0][0] == '#') continue;
      for (const std::string& word : words) {
        sources.has_backports |= word == "trixie-backports";
        const std::string uri(absl::StripSuffix(word, "/"));
        if (sources.mirror.empty() && absl::StrContains(uri, "://") &&
            absl::EndsWith(uri, "/debian")) {
          sources.mirror = uri;
        }
      }
    }
  }
  return sources;
}

// What comes before a command that installs from Debian 13's backports where apt does not know them.
std::string AddBackports(const SystemView& system) {
  const AptSources sources = ReadAptSources(system);
  if (sources.has_backports) return "";
  return absl::StrFormat(
      "echo 'deb %s trixie-backports main non-free-firmware' | "
      "sudo tee /etc/apt/sources.list.d/trixie-backports.list && sudo apt-get update && ",
      sources.mirror.empty() ? "MIRROR/debian" : sources.mirror);
}

Installer InstallerOf(const SystemView& system) {
  std::ifstream file(system.root + "/etc/os-release");
  std::string line, id, version;
  while (std::getline(file, line)) {
    const std::string value(
        absl::StripSuffix(absl::StripPrefix(line.substr(line.find('=') + 1), "\""), "\""));
    if (absl::StartsWith(line, "ID=")) id = value;
    if (absl::StartsWith(line, "VERSION_ID=")) version = value;
  }
  if (id == "debian" && version == "13") {
    const std::string install = AddBackports(system) + "sudo apt-get install -t trixie-backports ";
    return {install + "linux-image-amd64", install + "firmware-amd-graphics",
            install + "libxrt2 libxrt-npu2 libxrt-dev"};
  }
  if (id == "ubuntu") {
    return {version == "24.04" ? "sudo apt-get install linux-generic-hwe-24.04"
                               : "sudo apt-get install linux-generic",
            "sudo apt-get install linux-firmware",
            "sudo add-apt-repository ppa:amd-team/xrt && "
            "sudo apt-get install libxrt2 libxrt-npu2 libxrt-dev"};
  }
  return {
      absl::StrFormat("install Linux %d.%d or newer", kKernelMajor, kKernelMinor),
      "install linux-firmware with its folder amdnpu",
      "install XRT 2.21 or newer with its NPU plugin, and its headers to build Tandem (libxrt2, "
      "libxrt-npu2 and libxrt-dev on Debian)"};
}

// The version in the name of a library, such as "2.25" of libxrt_coreutil.so.2.25.00; empty: it is
// not installed.
std::string LibraryVersion(const SystemView& system, const std::string& name) {
  for (const char* folder :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/opt/xilinx/xrt/lib"}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(system.root + folder, error)) {
      const std::string file = entry.path().filename().string();
      int major = 0, minor = 0;
      if (absl::StartsWith(file, name + ".so.") &&
          std::sscanf(file.c_str() + name.size(), ".so.%d.%d", &major, &minor) == 2) {
        return absl::StrFormat("%d.%d", major, minor);
      }
    }
  }
  return "";
}

Finding CheckNpuKernel(const SystemView& system, const Installer& installer) {
  const std::string release = FirstLine(system.root + "/proc/sys/kernel/osrelease");
  int major = 0, minor = 0;
  const bool known = std::sscanf(release.c_str(), "%d.%d", &major, &minor) == 2;
  if (known && (major < kKernelMajor || (major == kKernelMajor && minor < kKernelMinor))) {
    return {Verdict::kNote, "NPU kernel",
            absl::StrFormat("Linux %s: the amdxdna driver came with %d.%d", release, kKernelMajor,
                            kKernelMinor),
            installer.kernel + ", then restart"};
  }
  return {Verdict::kGood, "NPU kernel", "Linux " + release, ""};
}

Finding CheckNpuFirmware(const SystemView& system, const Npu& npu, const Installer& installer) {
  const std::string subject = "NPU firmware";
  const std::string loaded = FirstLine(npu.folder / "fw_version");
  if (!loaded.empty()) return {Verdict::kGood, subject, loaded + ", loaded", ""};
  for (const char* root : {"/lib/firmware/", "/usr/lib/firmware/", "/lib/firmware/updates/"}) {
    const fs::path folder = system.root + root + "amdnpu/" + npu.firmware;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (absl::StrContains(entry.path().filename().string(), ".sbin")) {
        return {Verdict::kGood, subject, entry.path().string(), ""};
      }
    }
  }
  return {Verdict::kNote, subject,
          absl::StrFormat("no file in /lib/firmware/amdnpu/%s: the driver cannot start the NPU",
                          npu.firmware),
          installer.firmware + ", then sudo modprobe -r amdxdna && sudo modprobe amdxdna"};
}

// The driver compares its protocol with the firmware's before it makes a node, and says the numbers in the
// kernel's log alone.
Finding CheckNpuProtocol(const SystemView& system, const Npu& npu, const NpuDriver* driver,
                         const Installer& installer) {
  const std::string subject = "NPU firmware protocol";
  if (!npu.node.empty()) {
    const auto version = driver == nullptr ? std::nullopt : driver->FirmwareVersion();
    return {Verdict::kGood, subject,
            version.has_value() ? "the driver takes that of firmware " + *version
                                : "the driver takes the firmware's",
            ""};
  }
  if (npu.driver == "amdxdna" || fs::exists(system.root + "/sys/module/amdxdna")) {
    return {
        Verdict::kNote, subject,
        "amdxdna is loaded and has not started the NPU: its protocol and the firmware's may differ",
        absl::StrFormat("journalctl -k -g 'firmware protocol' has both; %s and %s, then restart",
                        installer.kernel, installer.firmware)};
  }
  return {Verdict::kNote, subject, "not known before amdxdna is loaded", "sudo modprobe amdxdna"};
}

// What a package says of its operators.
struct PackageView {
  // With columns, "npu4, 8 columns", each once; empty: it is no package of version 3.
  std::vector<std::string> devices;
  std::set<std::string> xclbins;  // a hardware context each
};

fs::path PackageFolder(const SystemView& system) {
  return (fs::path(system.bin_dir) / "../lib/tandem/npu/hardware").lexically_normal();
}

PackageView ReadPackageView(const fs::path& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto package = ParseGuardedJson(text);
  if (!package.ok() || !package->is_object()) return {};
  const auto version = package->find("version");
  if (version == package->end() || *version != 3) return {};
  PackageView view;
  const auto operators = package->find("operators");
  if (operators == package->end() || !operators->is_array()) return {};
  for (const auto& op : *operators) {
    if (!op.is_object() || !op.contains("device") || !op["device"].is_string() ||
        !op.contains("columns") || !op["columns"].is_number_unsigned()) {
      return {};
    }
    std::string device =
        absl::StrFormat("%s, %d columns", ClientText(op["device"].get<std::string>()),
                        op["columns"].get<uint64_t>());
    if (std::ranges::find(view.devices, device) == view.devices.end()) {
      view.devices.push_back(std::move(device));
    }
    if (op.contains("xclbin") && op["xclbin"].is_string()) {
      view.xclbins.insert(op["xclbin"].get<std::string>());
    }
  }
  return view;
}

// Operators of one xclbin share a context.
Finding CheckNpuContexts(const SystemView& system, const Npu& npu, const NpuDriver& driver) {
  const std::string subject = "NPU contexts";
  const auto contexts = driver.Contexts();
  if (!contexts.has_value()) return {Verdict::kGood, subject, "this driver does not tell", ""};
  std::set<int64_t> pids;
  for (const NpuContext& context : *contexts) {
    if (context.pid != 0) pids.insert(context.pid);
  }
  std::string detail = absl::StrFormat("%d of %d in use", contexts->size(), npu.max_contexts);
  if (!pids.empty()) detail += ", by processes " + absl::StrJoin(pids, ", ");
  if (contexts->size() >= npu.max_contexts) {
    return {Verdict::kNote, subject, detail + ": no program gets another one",
            "end programs that use the NPU and are not needed"};
  }
  const size_t num_xclbins = ReadPackageView(PackageFolder(system) / "package.json").xclbins.size();
  if (num_xclbins < 2) return {Verdict::kGood, subject, detail, ""};
  detail += absl::StrFormat(", and the package's operators take up to %d", num_xclbins);
  if (num_xclbins <= npu.max_contexts) return {Verdict::kGood, subject, detail, ""};
  return {Verdict::kNote, subject, detail + ", one for each xclbin",
          "use a package whose operators share an xclbin (docs/npu.md)"};
}

Finding CheckNpuPowerMode(const NpuDriver& driver) {
  const std::string subject = "NPU power mode";
  constexpr const char* kModes[] = {"default", "low", "medium", "high", "turbo"};
  const auto mode = driver.PowerMode();
  if (!mode.has_value()) return {Verdict::kGood, subject, "this driver does not tell", ""};
  if (*mode >= std::size(kModes)) {
    return {Verdict::kGood, subject, absl::StrFormat("mode %d of a later driver", *mode), ""};
  }
  if (*mode != 1 && *mode != 2) return {Verdict::kGood, subject, kModes[*mode], ""};
  return {Verdict::kNote, subject,
          absl::StrFormat("%s: the NPU's clocks stay below their highest", kModes[*mode]),
          "sudo xrt-smi configure --pmode default"};
}

Finding CheckNpuDriver(const SystemView& system, const Npu& npu) {
  const std::string subject = "NPU driver";
  const std::string place = absl::StrFormat("%s at %s", npu.chip, npu.folder.filename().string());
  if (npu.driver == "amdxdna") return {Verdict::kGood, subject, place + ", amdxdna", ""};
  if (!npu.driver.empty()) {
    return {Verdict::kNote, subject, place + " is held by the driver " + npu.driver,
            absl::StrFormat("unbind it from %s, then sudo modprobe amdxdna", npu.driver)};
  }
  return {Verdict::kNote, subject, place + " has no driver",
          fs::exists(system.root + "/sys/module/amdxdna")
              ? "journalctl -k -g amdxdna says why: most often its firmware is missing or too old"
              : "sudo modprobe amdxdna"};
}

Finding CheckNpuLibraries(const SystemView& system, const Installer& installer) {
  const std::string subject = "NPU libraries";
  const std::string xrt = LibraryVersion(system, "libxrt_coreutil");
  const std::string plugin = LibraryVersion(system, "libxrt_driver_xdna");
  if (xrt.empty()) return {Verdict::kNote, subject, "XRT is not installed", installer.xrt};
  if (plugin.empty()) {
    return {Verdict::kNote, subject, "XRT " + xrt + " without the NPU's plugin", installer.xrt};
  }
  if (xrt != plugin) {
    return {Verdict::kNote, subject,
            absl::StrFormat("XRT %s and the NPU's plugin %s do not go together", xrt, plugin),
            installer.xrt};
  }
  return {Verdict::kGood, subject, "XRT " + xrt + " and the NPU's plugin", ""};
}

Finding CheckNpuKernels(const SystemView& system, const Npu& npu) {
  const std::string subject = "NPU kernels";
  const std::string remedy = "Tandem has none to give; docs/npu.md says what a package must hold";
  const fs::path folder = PackageFolder(system);
  const auto note = [&](const std::string& what) {
    return Finding{Verdict::kNote, subject, what + ": attention runs on the GPU", remedy};
  };
  if (!fs::exists(folder / "package.json")) {
    if (fs::exists(folder / "manifest.json")) {
      return note(
          absl::StrFormat("%s has a package of the interface before version 3", folder.string()));
    }
    return note(absl::StrFormat("no package of kernels in %s", folder.string()));
  }
  const std::vector<std::string> devices = ReadPackageView(folder / "package.json").devices;
  if (devices.empty()) {
    return note(
        absl::StrFormat("%s is no package of version 3", (folder / "package.json").string()));
  }
  for (const std::string& device : devices) {
    if (absl::StartsWith(device, npu.kind)) continue;
    return note(absl::StrFormat("the package in %s is for %s, this NPU is of %s's kind",
                                folder.string(), device, npu.kind));
  }
  return {Verdict::kGood, subject,
          absl::StrFormat("%s, for %s", folder.string(), absl::StrJoin(devices, "; ")), ""};
}

}  // namespace

std::vector<Finding> CheckNpu(const SystemView& system) {
  const std::optional<Npu> npu = FindNpu(system);
  if (!npu.has_value()) return {};
  const Installer installer = InstallerOf(system);
  const auto driver = npu->node.empty()
                          ? nullptr
                          : NpuDriver::Open(system.root + "/dev/accel/" + npu->node, system.ioctl);
  std::vector<Finding> findings = {
      CheckNpuKernel(system, installer),
      CheckNpuDriver(system, *npu),
      CheckNpuFirmware(system, *npu, installer),
      CheckNpuProtocol(system, *npu, driver.get(), installer),
      CheckNpuLibraries(system, installer),
      CheckNpuKernels(system, *npu),
  };
  if (driver != nullptr) {
    findings.push_back(CheckNpuContexts(system, *npu, *driver));
    findings.push_back(CheckNpuPowerMode(*driver));
  }
  return findings;
}

}  // namespace tandem

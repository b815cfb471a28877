// Findings about AMD's GPUs.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/tandem/doctor/doctor.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Of the first Mesa whose RADV has the cooperative matrices that the kernels use (docs/radeon.md).
constexpr int kMesaMajor = 25;

std::string FirstWord(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

bool IsGroup(const SystemView& system, const std::string& name) {
  std::ifstream file(system.root + "/etc/group");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(name + ":")) return true;
  }
  return false;
}

}  // namespace

Finding JudgeGpuDriver(const std::string& probe) {
  const std::string subject = "GPU driver";
  // "NAME (integrated), radv Mesa 25.0.7-2, Vulkan 1.4.305": services/gpu_worker/vulkan/device_info.
  std::istringstream lines(probe);
  std::string line;
  while (std::getline(lines, line) && line.find(", Vulkan 1.") == std::string::npos) continue;
  const size_t vulkan = line.find(", Vulkan 1.");
  if (vulkan == std::string::npos) {
    return {Verdict::kNote, subject, "not known: the GPU worker's probe names none", ""};
  }
  const std::string device = line.substr(0, vulkan);
  if (device.find("(cpu)") != std::string::npos) {
    return {Verdict::kNote, subject, device + ": software, many times slower than a GPU",
            "load the GPU's kernel driver (amdgpu) and install mesa-vulkan-drivers; --gpu=require "
            "refuses software"};
  }
  if (device.find("AMD open-source driver") != std::string::npos) {
    return {Verdict::kNote, subject, device + ": AMDVLK, which is slower than Mesa's RADV",
            "sudo apt-get install mesa-vulkan-drivers, then remove amdvlk or set "
            "AMD_VULKAN_ICD=RADV"};
  }
  const size_t mesa = device.find("Mesa ");
  int major = 0, minor = 0;
  const bool is_radv = device.find("radv") != std::string::npos && mesa != std::string::npos;
  if (is_radv && std::sscanf(device.c_str() + mesa, "Mesa %d.%d", &major, &minor) == 2 &&
      major < kMesaMajor) {
    return {Verdict::kNote, subject,
            absl::StrFormat("%s: Mesa before %d.0 has no cooperative matrices, so prompts are slow",
                            device, kMesaMajor),
            absl::StrFormat("install Mesa %d.0 or newer: Debian 13 has 25.0", kMesaMajor)};
  }
  return {Verdict::kGood, subject, device, ""};
}

Finding CheckGpuDriver(const SystemView& system) {
  const std::string worker = system.bin_dir + "/tandem-gpu-worker";
  if (::access(worker.c_str(), X_OK) != 0) return JudgeGpuDriver("");
  return JudgeGpuDriver(OutputOf({worker, "--probe"}));
}

Finding CheckGpuGroups(const SystemView& system) {
  const std::string subject = "GPU groups";
  std::error_code error;
  if (!fs::exists(system.root + "/sys/module/amdgpu", error)) {
    return {Verdict::kGood, subject, "no AMD GPU asks for any", ""};
  }
  if (system.is_root) return {Verdict::kGood, subject, "root needs none", ""};
  std::vector<std::string> missing;
  for (const char* name : {"render", "video"}) {
    if (IsGroup(system, name) && std::ranges::count(system.groups, name) == 0) {
      missing.emplace_back(name);
    }
  }
  if (missing.empty()) return {Verdict::kGood, subject, "render and video", ""};
  return {
      Verdict::kNote, subject,
      absl::StrFormat("this user is not in %s: a session without a screen, or a service, may not "
                      "open the GPU",
                      absl::StrJoin(missing, " and ")),
      absl::StrFormat("sudo usermod -aG %s $USER, then log in again", absl::StrJoin(missing, ","))};
}

Finding CheckPowerProfile(const SystemView& system) {
  const std::string subject = "power profile";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(system.root + "/sys/class/drm", error)) {
    const fs::path path = entry.path() / "device/power_dpm_force_performance_level";
    const std::string level = FirstWord(path);
    if (level != "low" && !level.starts_with("profile_min_")) continue;
    return {Verdict::kNote, subject,
            absl::StrFormat("%s holds the GPU at its lowest clocks: %s",
                            entry.path().filename().string(), level),
            absl::StrFormat("echo auto | sudo tee %s", path.string())};
  }
  const std::string profile = FirstWord(system.root + "/sys/firmware/acpi/platform_profile");
  if (profile.empty()) return {Verdict::kGood, subject, "the firmware has none", ""};
  if (profile == "low-power" || profile == "quiet" || profile == "cool") {
    return {Verdict::kNote, subject, profile + ": the firmware holds power and clocks down",
            "powerprofilesctl set performance, or echo performance | sudo tee "
            "/sys/firmware/acpi/platform_profile"};
  }
  return {Verdict::kGood, subject, profile, ""};
}

}  // namespace tandem

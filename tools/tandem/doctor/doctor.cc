#include "tools/tandem/doctor/doctor.h"

#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "services/common/base/exit_codes.h"
#include "services/common/weights/packed_tensor.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::string ReadText(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::string result = text.str();
  while (!result.empty() && std::isspace(static_cast<unsigned char>(result.back()))) {
    result.pop_back();
  }
  return result;
}

std::vector<fs::path> NodesStartingWith(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with(prefix)) nodes.push_back(entry.path());
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

std::string GroupOf(const fs::path& node) {
  struct stat info {};
  if (::stat(node.c_str(), &info) != 0) return "render";
  const group* entry = ::getgrgid(info.st_gid);
  return entry != nullptr ? entry->gr_name : absl::StrFormat("%d", info.st_gid);
}

Finding CheckNode(const std::string& subject, const std::vector<fs::path>& nodes,
                  const std::string& absent_detail, const std::string& absent_remedy) {
  if (nodes.empty()) return {Verdict::kNote, subject, absent_detail, absent_remedy};
  for (const fs::path& node : nodes) {
    if (::access(node.c_str(), R_OK | W_OK) == 0) return {Verdict::kGood, subject, node, ""};
  }
  const fs::path& node = nodes.front();
  return {Verdict::kBad, subject, absl::StrFormat("%s: %s", node.string(), std::strerror(errno)),
          absl::StrFormat("sudo usermod -aG %s $USER, then log in again", GroupOf(node))};
}

std::string Readable(uint64_t bytes) {
  if (bytes < (1ull << 30)) return absl::StrFormat("%d MiB", bytes >> 20);
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (1ull << 30));
}

struct ProcessOutput {
  int exit_code = -1;
  std::string output, errors;
};

std::string Quoted(const std::string& word) {
  return "'" + absl::StrReplaceAll(word, {{"'", "'\\''"}}) + "'";
}

ProcessOutput RunForText(const std::vector<std::string>& arguments) {
  ProcessOutput output;
  std::string errors = (fs::temp_directory_path() / "tandem-doctor.XXXXXX").string();
  const int fd = ::mkstemp(errors.data());
  if (fd < 0) return output;
  ::close(fd);
  std::string command;
  for (const std::string& argument : arguments) command += Quoted(argument) + " ";
  command += "2>" + Quoted(errors);
  if (FILE* pipe = ::popen(command.c_str(), "re"); pipe != nullptr) {
    char buffer[512];
    while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) output.output += buffer;
    const int status = ::pclose(pipe);
    output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  output.errors = ReadText(errors);
  fs::remove(errors);
  return output;
}

// The last line that is no line of a log, which libraries write about themselves: the first word of
// such a line is a time in brackets or not, or it has key=value pairs behind a level.
std::string LastPlainLine(const std::string& text) {
  std::istringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line)) {
    const bool log = line.starts_with('[') || line.find("level=") != std::string::npos;
    if (!line.empty() && !log) last = line;
  }
  return last;
}

}  // namespace

SystemView ThisSystem(const std::string& bin_dir) {
  SystemView system;
  system.bin_dir = bin_dir;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  system.memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<uint64_t>::max()
                                                         : static_cast<uint64_t>(limit.rlim_cur);
  system.is_root = ::geteuid() == 0;
  std::vector<gid_t> ids(static_cast<size_t>(std::max(0, ::getgroups(0, nullptr))));
  ids.resize(
      static_cast<size_t>(std::max(0, ::getgroups(static_cast<int>(ids.size()), ids.data()))));
  ids.push_back(::getegid());
  for (const gid_t id : ids) {
    if (const group* entry = ::getgrgid(id); entry != nullptr) {
      system.groups.emplace_back(entry->gr_name);
    }
  }
  return system;
}

Finding CheckRenderNode(const SystemView& system) {
  return CheckNode("GPU device node", NodesStartingWith(system.root + "/dev/dri", "renderD"),
                   "no /dev/dri/renderD*: Vulkan will run on the CPU, if at all",
                   "load the GPU's kernel driver (amdgpu); in a container pass /dev/dri");
}

Finding CheckNpuNode(const SystemView& system) {
  Finding finding =
      CheckNode("NPU device node", NodesStartingWith(system.root + "/dev/accel", "accel"),
                "no /dev/accel/accel*: Attend will run on the GPU (--npu=auto)", "");
  if (finding.verdict == Verdict::kNote) {
    finding.remedy =
        fs::exists(system.root + "/sys/module/amdxdna")
            ? "amdxdna is loaded but found no NPU: enable it (IPU) in the firmware set-up"
            : "Linux 6.14 or newer with the amdxdna driver; in a container pass /dev/accel";
  }
  return finding;
}

Finding CheckMemlock(const SystemView& system) {
  const std::string subject = "locked memory";
  if (system.memlock_bytes == std::numeric_limits<uint64_t>::max()) {
    return {Verdict::kGood, subject, "unlimited", ""};
  }
  return {Verdict::kNote, subject,
          absl::StrFormat("limit of %s: an NPU locks its buffers in memory",
                          Readable(system.memlock_bytes)),
          "ulimit -l unlimited, or '* - memlock unlimited' in /etc/security/limits.conf; systemd: "
          "LimitMEMLOCK=infinity"};
}

Finding CheckHugepages(const SystemView& system) {
  const std::string subject = "huge pages";
  const std::string text =
      ReadText(system.root + "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  if (text.empty()) return {Verdict::kNote, subject, "the kernel has no huge pages for shmem", ""};
  const size_t open = text.find('[');
  const size_t close = text.find(']');
  const std::string mode = open != std::string::npos && close != std::string::npos && close > open
                               ? text.substr(open + 1, close - open - 1)
                               : text;
  if (mode == "always" || mode == "within_size" || mode == "advise" || mode == "force") {
    return {Verdict::kGood, subject, "shared memory: " + mode, ""};
  }
  return {Verdict::kNote, subject, "shared memory: " + mode + "; weights are mapped in 4 KiB pages",
          "echo within_size | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled"};
}

// amdgpu takes no other memory of the loader than dmabufs.
Finding CheckUdmabuf(const SystemView& system) {
  const std::string subject = "dmabuf export";
  const std::string node = system.root + "/dev/udmabuf";
  const std::string cost =
      "an AMD GPU that shares the host's memory copies the weights, which takes twice the memory";
  if (!fs::exists(node)) {
    return {Verdict::kNote, subject, "no /dev/udmabuf: " + cost,
            "a kernel with CONFIG_UDMABUF=y; in a container pass /dev/udmabuf"};
  }
  if (::access(node.c_str(), R_OK | W_OK) != 0) {
    return {Verdict::kNote, subject,
            absl::StrFormat("%s: %s: %s", node, std::strerror(errno), cost),
            absl::StrFormat("sudo usermod -aG %s $USER, then log in again", GroupOf(node))};
  }
  const std::string text = ReadText(system.root + "/sys/module/udmabuf/parameters/size_limit_mb");
  uint64_t limit_mib = 0;
  if (!absl::SimpleAtoi(text, &limit_mib)) return {Verdict::kGood, subject, node, ""};
  constexpr uint64_t kRegionMib = kDefaultRegionBytes >> 20;
  // Kernels without the fix of CVE-2025-37803 (April 2025) count the bytes in an int; where that is
  // negative, there is no limit.
  const auto as_int = static_cast<int32_t>(static_cast<uint32_t>(limit_mib << 20));
  std::string too_low;
  if (limit_mib < kRegionMib) {
    too_low = absl::StrFormat("the kernel's limit is %d MiB, the loader's regions have up to %d",
                              limit_mib, kRegionMib);
  } else if (as_int >= 0 && static_cast<uint64_t>(as_int) < kDefaultRegionBytes) {
    too_low = absl::StrFormat(
        "the kernel's limit of %d MiB overflows in kernels from before April 2025", limit_mib);
  } else {
    return {Verdict::kGood, subject, absl::StrFormat("%s, objects to %d MiB", node, limit_mib), ""};
  }
  return {Verdict::kNote, subject, too_low + ": " + cost,
          "echo 'w /sys/module/udmabuf/parameters/size_limit_mb - - - - 2047' | sudo tee "
          "/etc/tmpfiles.d/udmabuf.conf && sudo systemd-tmpfiles --create udmabuf.conf, then stop "
          "and start the loader"};
}

Finding CheckMemory(const SystemView& system) {
  std::ifstream file(system.root + "/proc/meminfo");
  std::string key;
  uint64_t kibibytes = 0;
  std::string unit;
  uint64_t available = 0;
  uint64_t total = 0;
  while (file >> key >> kibibytes && std::getline(file, unit)) {
    if (key == "MemAvailable:") available = kibibytes * 1024;
    if (key == "MemTotal:") total = kibibytes * 1024;
  }
  if (total == 0) return {Verdict::kBad, "memory", "/proc/meminfo cannot be read", "mount /proc"};
  return {Verdict::kGood, "memory",
          absl::StrFormat("%s free of %s", Readable(available), Readable(total)), ""};
}

Finding CheckWorker(const SystemView& system, const std::string& subject,
                    const std::vector<std::string>& arguments, Verdict if_not,
                    const std::string& remedy, const std::string& if_wrong) {
  std::vector<std::string> command = arguments;
  command[0] = system.bin_dir + "/" + command[0];
  if (::access(command[0].c_str(), X_OK) != 0) {
    return {if_not, subject, command[0] + " is not installed", "build or install it"};
  }
  const ProcessOutput output = RunForText(command);
  if (output.exit_code == 0) {
    return {Verdict::kGood, subject, LastPlainLine(output.output), ""};
  }
  const std::string line = LastPlainLine(output.errors);
  if (output.exit_code == kExitWrongAnswers && !if_wrong.empty()) {
    return {Verdict::kBad, subject, line, if_wrong};
  }
  return {if_not, subject,
          line.empty() ? absl::StrFormat("probe ended with exit code %d", output.exit_code) : line,
          remedy};
}

std::string OutputOf(const std::vector<std::string>& arguments) {
  const ProcessOutput output = RunForText(arguments);
  return output.exit_code == 0 ? output.output : "";
}

std::vector<Finding> Examine(const SystemView& system) {
  std::vector<Finding> findings = {
      CheckMemory(system),
      CheckRenderNode(system),
      CheckWorker(system, "vulkan", {"tandem-gpu-worker", "--probe"}, Verdict::kBad,
                  "install a Vulkan 1.3 driver: sudo apt-get install mesa-vulkan-drivers"),
      CheckGpuDriver(system),
      CheckGpuGroups(system),
      CheckPowerProfile(system),
      CheckNpuNode(system),
      CheckWorker(system, "XRT", {"tandem-npu-worker", "--probe", "--npu=require"}, Verdict::kNote,
                  "install XRT with the NPU's plugin (libxrt2, libxrt-npu2 or AMD's packages), and "
                  "build Tandem against it (libxrt-dev)",
                  "the driver, its firmware or the package of kernels is wrong for this device: "
                  "install those that go together"),
      CheckWorker(system, "NPU emulation", {"tandem-npu-worker", "--probe", "--npu=emulate"},
                  Verdict::kNote, "install libxrt-dev and build again"),
      CheckMemlock(system),
      CheckHugepages(system),
      CheckUdmabuf(system),
  };
  for (Finding& finding : CheckNpu(system)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace tandem

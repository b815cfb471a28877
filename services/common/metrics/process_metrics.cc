#include "services/common/metrics/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>

#include "services/common/version/version.h"

namespace tandem {
namespace {

// Fields of /proc/self/stat after the command's name, which may hold anything; [0] is the state.
std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(text.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), std::istream_iterator<std::string>()};
}

double BootTime() {
  std::ifstream file("/proc/stat");
  std::string key;
  double value = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream(line) >> key >> value;
    if (key == "btime") return value;
  }
  return 0;
}

double CountOpenFds() {
  DIR* directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  double count = -1;  // the one that reads
  while (const dirent* entry = ::readdir(directory)) count += entry->d_name[0] == '.' ? 0 : 1;
  ::closedir(directory);
  return count;
}

}  // namespace

std::vector<MetricSpec> ProcessMetrics::All() {
  return {kBuild,     kCpuSeconds, kResidentBytes, kVirtualBytes,
          kStartTime, kOpenFds,    kMaxFds,        kThreads};
}

void AddProcessMetrics(MetricSamples& samples) {
  using M = ProcessMetrics;
  const BuildInfo& build = GetBuildInfo();
  samples.Add(M::kBuild, 1, {build.version, build.commit, build.build_type, build.compiler});
  const std::vector<std::string> fields = StatFields();
  // man proc_pid_stat: utime 14, stime 15, num_threads 20, starttime 22, vsize 23, rss 24.
  // The first of `fields` is number 3, the state.
  if (fields.size() > 21) {
    const auto field = [&fields](int number) {
      return std::stod(fields[static_cast<size_t>(number - 3)]);
    };
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    samples.Add(M::kCpuSeconds, (field(14) + field(15)) / ticks);
    samples.Add(M::kResidentBytes, field(24) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
    samples.Add(M::kVirtualBytes, field(23));
    samples.Add(M::kStartTime, BootTime() + field(22) / ticks);
    samples.Add(M::kThreads, field(20));
  }
  samples.Add(M::kOpenFds, CountOpenFds());
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    samples.Add(M::kMaxFds, static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace tandem

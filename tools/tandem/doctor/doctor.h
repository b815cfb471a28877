// Is this machine fit to serve?  One finding per thing that commonly is not right, each with the
// way to fix it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

enum class Verdict { kGood, kNote, kBad };

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string subject;  // "vulkan driver"
  std::string detail;   // what was found
  std::string remedy;   // a command or a change; empty when good
};

// What the checks look at; a test gives a made-up one.
struct SystemView {
  std::string root;            // prefix of /dev, /sys and /proc; empty on a real machine
  std::string bin_dir;         // where the workers' executables are
  uint64_t memlock_bytes = 0;  // soft limit; UINT64_MAX: unlimited
};
SystemView ThisSystem(const std::string& bin_dir);

Finding CheckRenderNode(const SystemView& system);
Finding CheckNpuNode(const SystemView& system);
Finding CheckMemlock(const SystemView& system);
Finding CheckHugepages(const SystemView& system);
Finding CheckUdmabuf(const SystemView& system);
Finding CheckMemory(const SystemView& system);
// Runs a worker's `--probe`, which opens its device and says what it found in its last line of
// output, or why it cannot in its last line of errors.  Lines of libraries' logs do not count.
Finding CheckWorker(const SystemView& system, const std::string& subject,
                    const std::vector<std::string>& arguments, Verdict if_not,
                    const std::string& remedy);

std::vector<Finding> Examine(const SystemView& system);

}  // namespace tandem

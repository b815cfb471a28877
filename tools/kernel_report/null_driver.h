// A Vulkan driver below the unchanged worker.  It compiles pipelines with RADV's null device for a
// named chip, and keeps the compiler's figures and all submissions.  It runs nothing.  Memory,
// command buffers, semaphores and queries are its own, since the null device has no memory budget,
// no timeline semaphores, and crashes when it is destroyed.
//
// With a clock (SetClock) it says how long its dispatches take: timestamps follow them.
//
// The program that links it gets Vulkan's three exported entry points from it, not from the
// Vulkan loader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "services/gpu_worker/kernels/launch.h"
#include "tools/kernel_report/chip.h"

namespace tandem::report {

struct CompiledPipeline {
  gpu::KernelId kernel = gpu::KernelId::kEmbed;
  vulkan::Specialization constants;
  bool compiled = false;                       // false: the compiler has no code for it
  std::map<std::string, uint64_t> statistics;  // by the driver's names
  std::string assembly;
  uint32_t dispatches = 0;  // recorded
};

struct Dispatch {
  size_t pipeline = 0;  // index into pipelines()
  std::array<std::byte, vulkan::kPushConstantBytes> push = {};
  uint32_t groups_x = 1, groups_y = 1;
  bool after_barrier = false;
};

// Seconds of a dispatch, with what lies between it and the one before.
using DispatchClock = std::function<double(const Dispatch&)>;

// The process's one driver.  Single-thread, as the worker is.
class NullDriver {
 public:
  static NullDriver& Get();

  // Loads RADV from `library` and makes it the chip's compiler; forgets all pipelines and
  // submissions.  Call it before each instance.  FAILED_PRECONDITION: the library cannot be
  // loaded, or is another driver's.
  absl::Status Open(const Chip& chip, const std::string& library);

  // Every pipeline made since Open, each once.
  const std::vector<CompiledPipeline>& pipelines() const { return pipelines_; }
  // The dispatches of the last submission that had any, in order.
  const std::vector<Dispatch>& submitted() const { return submitted_; }
  // Null: no dispatch takes any time.  Open removes it.
  void SetClock(DispatchClock clock) { clock_ = std::move(clock); }
  // Seconds of every vkQueueSubmit2 with dispatches since the last TakeSubmissions, by the clock.
  std::vector<double> TakeSubmissions() { return std::exchange(submission_seconds_, {}); }
  // `bytes` of mapped memory at a device address; empty where that is not mapped.
  static std::span<const std::byte> Mapped(uint64_t address, uint64_t bytes);
  // The driver's version, "Mesa 25.0.7-2+deb13u1"; empty before an instance was made.
  const std::string& version() const { return version_; }

 private:
  friend struct DriverEntries;
  friend struct QueueEntries;
  NullDriver() = default;
  Chip chip_;
  std::vector<CompiledPipeline> pipelines_;
  std::map<std::pair<gpu::KernelId, vulkan::Specialization>, size_t> index_;
  std::vector<Dispatch> submitted_;
  std::string version_;
  DispatchClock clock_;
  double now_ = 0;  // seconds of all dispatches
  std::vector<double> submission_seconds_;
};

}  // namespace tandem::report

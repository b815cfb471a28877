#include "services/gpu_worker/kernels/ceilings.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string_view>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/launch.h"
#include "services/gpu_worker/kernels/push_constants.h"
#include "services/gpu_worker/vulkan/buffer.h"
#include "services/gpu_worker/vulkan/command_buffer.h"
#include "services/gpu_worker/vulkan/query_pool.h"
#include "shaders/tandem_gpu_shaders.h"

namespace tandem::gpu {
namespace {

constexpr uint64_t kLeastBytes = 128ull << 20;  // more than any cache
constexpr uint64_t kFewestBytes = 1ull << 20;   // less is read in no measurable time
constexpr uint64_t kMostBytes = 1ull << 30;
constexpr uint64_t kMostBytesOnCpu = 256ull << 20;
constexpr uint32_t kReadGroups = 4096;
constexpr uint32_t kReadGroupsOnCpu = 256;  // where each costs as much as reading kilobytes
// Variants of a shader that differ in what a thread has under way, which LOADS or CHAINS says: one
// with much is the fastest where there are many registers, one with little on a processor.
struct RateKernel {
  std::string_view name;
  std::span<const uint32_t> spirv;
  uint32_t of_round;  // a thread's: bytes, or multiply-adds
};
const RateKernel kReadKernels[] = {{"read_rate", shaders::kReadRate, 8 * 16},
                                   {"read_rate_few", shaders::kReadRateFew, 2 * 16}};
const RateKernel kFmaKernels[] = {{"fma_rate", shaders::kFmaRate, 8 * 16},
                                  {"fma_rate_few", shaders::kFmaRateFew, 2 * 16}};
// matrix_rate.comp, a subgroup: sixteen multiplications of 16 x 16 x 16.
constexpr uint32_t kMatrixFmasOfRound = 16 * 16 * 16 * 16;
constexpr uint32_t kMatrixLanes = 32;
constexpr auto kMeasureFor = std::chrono::milliseconds(80);
constexpr int kLeastRuns = 3;
constexpr absl::Duration kRunTimeout = absl::Seconds(20);

class CeilingMeasurement {
 public:
  CeilingMeasurement(const vulkan::Device& device, const vulkan::PipelineLayout& layout,
                     vulkan::Timeline& timeline)
      : device_(device),
        layout_(layout),
        timeline_(timeline),
        is_cpu_(device.info().type == VK_PHYSICAL_DEVICE_TYPE_CPU),
        // One subgroup a workgroup on a software device: see TuningFor.
        threads_(is_cpu_ ? device.info().subgroup_size
                         : std::min(256u, device.info().max_workgroup_invocations)) {}

  absl::Status Prepare() {
    TANDEM_ASSIGN_OR_RETURN(pool_, vulkan::CommandPool::Create(device_));
    TANDEM_ASSIGN_OR_RETURN(timestamps_, vulkan::TimestampPool::Create(device_, 2));
    TANDEM_ASSIGN_OR_RETURN(
        sink_, vulkan::Buffer::Allocate(device_, 256, vulkan::MemoryKind::kDevice, "ceilings"));
    return absl::OkStatus();
  }

  // Bytes a second.
  absl::StatusOr<double> Read(uint64_t read_bytes) {
    TANDEM_ASSIGN_OR_RETURN(const vulkan::Buffer buffer, AllocateToRead(read_bytes));
    // Written first: pages that never were may all be one.
    constexpr uint32_t kWord = 0x5A5A5A5A;
    TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder, vulkan::Recorder::Begin(pool_, layout_));
    recorder.Fill(buffer, kWord);
    TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer fill, recorder.End());
    TANDEM_RETURN_IF_ERROR(timeline_.SubmitAndWait({&fill, 1}, kRunTimeout));
    double best = 0;
    for (const RateKernel& kernel : kReadKernels) {
      // As many workgroups as there are pieces, and pieces as long as that leaves.
      const uint64_t group_bytes = uint64_t{threads_} * kernel.of_round;
      const auto groups = static_cast<uint32_t>(std::clamp<uint64_t>(
          buffer.bytes() / group_bytes, 1, is_cpu_ ? kReadGroupsOnCpu : kReadGroups));
      const auto rounds = static_cast<uint32_t>(buffer.bytes() / (groups * group_bytes));
      TANDEM_ASSIGN_OR_RETURN(
          const double seconds,
          BestTime(kernel.name, kernel.spirv, threads_,
                   ReadRatePush{buffer.address(), sink_.address(), rounds, 1}, groups));
      best = std::max(best, static_cast<double>(groups * group_bytes) * rounds / seconds);
    }
    return best;
  }

  // Operations a second, a multiply-add being two.
  absl::StatusOr<double> Fma() {
    // On a processor short enough that other work on it spares some of the runs.
    const uint32_t groups = is_cpu_ ? 128 : 8192;
    double best = 0;
    for (const RateKernel& kernel : kFmaKernels) {
      const uint32_t rounds = 32768 / kernel.of_round;
      TANDEM_ASSIGN_OR_RETURN(const double seconds,
                              BestTime(kernel.name, kernel.spirv, threads_,
                                       ComputeRatePush{sink_.address(), rounds, 0.5f}, groups));
      best = std::max(best, 2.0 * kernel.of_round * rounds * groups * threads_ / seconds);
    }
    return best;
  }

  absl::StatusOr<double> Matrix() {
    const uint32_t groups = 4096, rounds = 256, subgroups = 4;
    TANDEM_ASSIGN_OR_RETURN(const double seconds,
                            BestTime("matrix_rate", shaders::kMatrixRate, subgroups * kMatrixLanes,
                                     ComputeRatePush{sink_.address(), rounds, 0.001f}, groups));
    return 2.0 * kMatrixFmasOfRound * rounds * groups * subgroups / seconds;
  }

 private:
  absl::StatusOr<vulkan::Buffer> AllocateToRead(uint64_t read_bytes) {
    const uint64_t most = is_cpu_ ? kMostBytesOnCpu : kMostBytes;
    const uint64_t wanted = read_bytes == 0 ? most : std::clamp(read_bytes, kFewestBytes, most);
    absl::StatusOr<vulkan::Buffer> buffer;
    for (uint64_t bytes = wanted; bytes >= std::min(wanted, kLeastBytes); bytes /= 2) {
      buffer = vulkan::Buffer::Allocate(device_, bytes, vulkan::MemoryKind::kDevice, "ceilings");
      if (buffer.ok()) break;
    }
    return buffer;
  }

  // Seconds of the fastest dispatch of `groups` workgroups.
  template <typename Push>
  absl::StatusOr<double> BestTime(std::string_view name, std::span<const uint32_t> spirv,
                                  uint32_t threads, const Push& push, uint32_t groups) {
    TANDEM_ASSIGN_OR_RETURN(const vulkan::Pipeline pipeline,
                            vulkan::Pipeline::Create(device_, layout_, VK_NULL_HANDLE, name, spirv,
                                                     {{kLocalSize, threads}}));
    TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder, vulkan::Recorder::Begin(pool_, layout_));
    recorder.ResetTimestamps(timestamps_.handle(), 0, 2);
    recorder.WriteTimestamp(timestamps_.handle(), 0);
    recorder.Dispatch(pipeline, std::as_bytes(std::span(&push, 1)), groups);
    recorder.WriteTimestamp(timestamps_.handle(), 1);
    TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    double best = 0;
    for (int run = 0; run < kLeastRuns || Clock::now() - begin < kMeasureFor; ++run) {
      const Clock::time_point start = Clock::now();
      TANDEM_RETURN_IF_ERROR(timeline_.SubmitAndWait({&commands, 1}, kRunTimeout));
      double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      uint64_t ticks[2];
      TANDEM_RETURN_IF_ERROR(timestamps_.Read(0, ticks));
      if (const uint64_t ns = timestamps_.Nanoseconds(ticks[0], ticks[1]); ns > 0) {
        seconds = 1e-9 * static_cast<double>(ns);
      }
      best = run == 0 ? seconds : std::min(best, seconds);
    }
    return best;
  }

  const vulkan::Device& device_;          // Borrowed.
  const vulkan::PipelineLayout& layout_;  // Borrowed.
  vulkan::Timeline& timeline_;            // Borrowed.
  const bool is_cpu_;
  const uint32_t threads_;
  vulkan::CommandPool pool_;
  vulkan::TimestampPool timestamps_;
  vulkan::Buffer sink_;
};

}  // namespace

absl::StatusOr<DeviceCeilings> MeasureCeilings(const vulkan::Device& device,
                                               const vulkan::PipelineLayout& layout,
                                               vulkan::Timeline& timeline, bool matrix_units,
                                               uint64_t read_bytes) {
  CeilingMeasurement measurement(device, layout, timeline);
  TANDEM_RETURN_IF_ERROR(measurement.Prepare());
  DeviceCeilings ceilings;
  TANDEM_ASSIGN_OR_RETURN(ceilings.read_bytes_per_second, measurement.Read(read_bytes));
  TANDEM_ASSIGN_OR_RETURN(ceilings.fma_flops_per_second, measurement.Fma());
  if (matrix_units) {
    TANDEM_ASSIGN_OR_RETURN(ceilings.matrix_flops_per_second, measurement.Matrix());
  }
  return ceilings;
}

}  // namespace tandem::gpu

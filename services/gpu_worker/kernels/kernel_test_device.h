// For the kernels' tests: a device, buffers with guard values round what a kernel writes, a step.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "services/common/step/step_batch.h"
#include "services/common/testing/guarded_buffer.h"
#include "services/common/testing/status_matchers.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

// Mapped memory of `n` elements between two guards; everything starts as guard values.
class DeviceArray {
 public:
  static constexpr uint64_t kGuardBytes = 4096;
  DeviceArray(const vulkan::Device& device, uint64_t bytes) : bytes_(bytes) {
    auto buffer = vulkan::Buffer::Allocate(device, bytes + 2 * kGuardBytes,
                                           vulkan::MemoryKind::kExchange, "test");
    EXPECT_OK(buffer.status());
    if (!buffer.ok()) return;
    buffer_ = *std::move(buffer);
    std::ranges::fill(buffer_.mapped(), testing::kGuardByte);
  }
  template <typename T>
  DeviceArray(const vulkan::Device& device, const std::vector<T>& values)
      : DeviceArray(device, values.size() * sizeof(T)) {
    std::memcpy(data().data(), values.data(), values.size() * sizeof(T));
  }

  uint64_t address() const { return buffer_.address() + kGuardBytes; }
  std::span<std::byte> data() const { return buffer_.mapped().subspan(kGuardBytes, bytes_); }
  template <typename T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data().data()), bytes_ / sizeof(T)};
  }
  std::vector<float> floats() const { return {as<float>().begin(), as<float>().end()}; }
  ::testing::AssertionResult Intact() const {
    auto before = testing::IsGuard(buffer_.mapped().first(kGuardBytes));
    if (!before) return before << " before the output";
    auto after = testing::IsGuard(buffer_.mapped().last(kGuardBytes));
    if (!after) return after << " after the output";
    return ::testing::AssertionSuccess();
  }

 private:
  uint64_t bytes_;
  vulkan::Buffer buffer_;
};

// One device for all tests of the executable.
class KernelTest : public ::testing::Test {
 protected:
  void SetUp() override;

  const vulkan::Device& device() const;
  KernelSet& kernels() const;
  const Tuning& tuning() const { return kernels().tuning(); }
  // The same without texel buffers: kernels read by address.
  Tuning ByAddress() const {
    Tuning by_address = tuning();
    by_address.max_texels = 0;
    return by_address;
  }
  // Runs the launches one after another, a barrier after each.
  void Run(const std::vector<Launch>& launches);

  // A step of `num_rows` rows of one sequence from `position` on, blocks in order; token of row i
  // is i; outputs and draws are as given.
  DeviceArray MakeStep(uint32_t num_rows, const std::vector<OutputEntry>& outputs = {},
                       uint32_t num_candidates = 1, uint32_t position = 0,
                       const std::vector<DrawEntry>& draws = {}) const;
  // Address of the row count in a step.
  static uint64_t RowCount(const DeviceArray& step) {
    return step.address() + offsetof(StepHeader, num_rows);
  }
};

std::vector<float> RandomFloats(size_t n, uint32_t seed, float scale = 1.0f);

}  // namespace tandem::gpu

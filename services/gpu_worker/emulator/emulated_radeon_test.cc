// RADV of Mesa, unmodified, on the emulated Radeon: run it by run.sh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "services/gpu_worker/emulator/driver/chip.h"
#include "services/gpu_worker/emulator/vulkan_for_test.h"
#include "shaders/tandem_radeon_test_shaders.h"

namespace tandem::rdna {
namespace {

using ::testing::HasSubstr;

const Chip& ExpectedChip() {
  const char* name = std::getenv("GPU_EMU_CHIP");
  return name == nullptr ? DefaultChip() : *FindChip(name);
}

// On compute rings, and on the ring for graphics.
class EmulatedRadeonTest : public ::testing::TestWithParam<bool> {
 protected:
  TestInstance instance_;
  TestDevice device_{instance_, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Rings, EmulatedRadeonTest, ::testing::Bool(),
                         [](const auto& ring) { return ring.param ? "Graphics" : "Compute"; });

TEST(EmulatedRadeonOpenTest, IsTheChipThatWasAskedFor) {
  const Chip& chip = ExpectedChip();
  const TestInstance instance;
  EXPECT_EQ(instance.num_devices(), 1u);
  VkPhysicalDeviceVulkan13Properties v13 = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
  VkPhysicalDeviceVulkan12Properties v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES,
                                            &v13};
  VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &v12};
  vkGetPhysicalDeviceProperties2(instance.device(), &properties);
  const VkPhysicalDeviceProperties& p = properties.properties;
  EXPECT_THAT(std::string(p.deviceName), HasSubstr(chip.marketing_name));
  EXPECT_THAT(std::string(p.deviceName), HasSubstr("(emulated)"));
  EXPECT_EQ(v12.driverID, VK_DRIVER_ID_MESA_RADV);
  EXPECT_EQ(p.deviceType, VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU);
  EXPECT_EQ(p.vendorID, 0x1002u);
  EXPECT_EQ(p.deviceID, chip.pci_device);
  EXPECT_FLOAT_EQ(p.limits.timestampPeriod, 10);
  EXPECT_EQ(p.limits.maxComputeSharedMemorySize, 64u << 10);
  EXPECT_EQ(v13.minSubgroupSize, 32u);
  EXPECT_EQ(v13.maxSubgroupSize, 64u);
}

TEST(EmulatedRadeonOpenTest, HasUnifiedMemory) {
  const TestInstance instance;
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(instance.device(), &memory);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) bytes += memory.memoryHeaps[i].size;
  const uint64_t all = ExpectedChip().vram_bytes + ExpectedChip().gtt_bytes;
  EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(all), 1 << 20);
  bool local_and_mapped = false;
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
    constexpr VkMemoryPropertyFlags kBoth =
        VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    local_and_mapped |= (memory.memoryTypes[i].propertyFlags & kBoth) == kBoth;
  }
  EXPECT_TRUE(local_and_mapped);
}

TEST_P(EmulatedRadeonTest, FillsUpdatesAndCopies) {
  TestBuffer from = device_.Allocate(4096), to = device_.Allocate(4096);
  std::iota(from.mapped, from.mapped + from.bytes, uint8_t{0});
  const uint32_t words[] = {11, 22, 33};
  ASSERT_VK(device_.Run([&](VkCommandBuffer commands) {
    const VkBufferCopy odd = {5, 101, 1023};
    vkCmdCopyBuffer(commands, from.buffer, to.buffer, 1, &odd);
    vkCmdFillBuffer(commands, to.buffer, 2048, 12, 0xa1b2c3d4);
    vkCmdUpdateBuffer(commands, to.buffer, 3072, sizeof words, words);
  }));
  EXPECT_EQ(to.mapped[100], 0xee);
  for (uint64_t i = 0; i < 1023; ++i) ASSERT_EQ(to.mapped[101 + i], from.mapped[5 + i]) << i;
  EXPECT_EQ(to.mapped[1124], 0xee);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(to.word(512 + i), 0xa1b2c3d4);
    EXPECT_EQ(to.word(768 + i), words[i]);
  }
  EXPECT_EQ(to.word(511), 0xeeeeeeee);
  EXPECT_EQ(to.word(515), 0xeeeeeeee);
  device_.Free(from);
  device_.Free(to);
}

TEST_P(EmulatedRadeonTest, RunsCommandBuffersThatGrow) {
  TestBuffer buffer = device_.Allocate(4096);
  ASSERT_VK(device_.Run([&](VkCommandBuffer commands) {
    // More than one indirect buffer: they are chained.
    for (uint32_t i = 0; i < 20'000; ++i) {
      vkCmdFillBuffer(commands, buffer.buffer, i % 1024 * 4, 4, i);
    }
  }));
  for (uint32_t i = 0; i < 1024; ++i) {
    ASSERT_EQ(buffer.word(i), (i <= 19'999 % 1024 ? 19'456u : 18'432u) + i);
  }
  device_.Free(buffer);
}

TEST_P(EmulatedRadeonTest, TimestampsFollowTheWork) {
  TestBuffer buffer = device_.Allocate(4096);
  VkQueryPoolCreateInfo info = {VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = 3;
  VkQueryPool pool = VK_NULL_HANDLE;
  ASSERT_VK(vkCreateQueryPool(device_.handle(), &info, nullptr, &pool));
  ASSERT_VK(device_.Run([&](VkCommandBuffer commands) {
    vkCmdResetQueryPool(commands, pool, 0, 3);
    vkCmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_TOP_OF_PIPE_BIT, pool, 0);
    vkCmdFillBuffer(commands, buffer.buffer, 0, 4092, 1);
    vkCmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, pool, 1);
    vkCmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, pool, 2);
  }));
  uint64_t ticks[3] = {};
  ASSERT_VK(vkGetQueryPoolResults(device_.handle(), pool, 0, 3, sizeof ticks, ticks, 8,
                                  VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
  EXPECT_GE(ticks[1] - ticks[0], 100u);  // a microsecond for a fill
  EXPECT_LT(ticks[1] - ticks[0], 10'000u);
  EXPECT_GT(ticks[2], ticks[1]);
  EXPECT_LT(ticks[2] - ticks[1], 10u);
  vkDestroyQueryPool(device_.handle(), pool, nullptr);
  device_.Free(buffer);
}

TEST_P(EmulatedRadeonTest, TimelinesOrderTheHostAndTheDevice) {
  TestBuffer buffer = device_.Allocate(64);
  const VkSemaphore timeline = device_.Timeline(1);
  const VkCommandBuffer first = device_.Record(
      [&](VkCommandBuffer commands) { vkCmdFillBuffer(commands, buffer.buffer, 0, 4, 1); });
  const VkCommandBuffer second = device_.Record([&](VkCommandBuffer commands) {
    const VkBufferCopy copy = {0, 4, 4};
    vkCmdCopyBuffer(commands, buffer.buffer, buffer.buffer, 1, &copy);
  });
  // Both wait: the first for the host.
  ASSERT_VK(device_.Submit(first, timeline, 5, 6));
  ASSERT_VK(device_.Submit(second, timeline, 6, 7));
  EXPECT_EQ(device_.Wait(timeline, 6, 0), VK_TIMEOUT);
  uint64_t value = 0;
  ASSERT_VK(vkGetSemaphoreCounterValue(device_.handle(), timeline, &value));
  EXPECT_EQ(value, 1u);
  EXPECT_EQ(buffer.word(0), 0xeeeeeeee);
  VkSemaphoreSignalInfo signal = {VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO};
  signal.semaphore = timeline;
  signal.value = 5;
  ASSERT_VK(vkSignalSemaphore(device_.handle(), &signal));
  ASSERT_VK(device_.Wait(timeline, 7, kTenSeconds));
  ASSERT_VK(vkGetSemaphoreCounterValue(device_.handle(), timeline, &value));
  EXPECT_EQ(value, 7u);
  EXPECT_EQ(buffer.word(1), 1u);
  device_.Free(buffer);
}

TEST_P(EmulatedRadeonTest, EventsAreSetAndWaitedFor) {
  TestBuffer buffer = device_.Allocate(64);
  VkEventCreateInfo info = {VK_STRUCTURE_TYPE_EVENT_CREATE_INFO};
  VkEvent from_host = VK_NULL_HANDLE, from_device = VK_NULL_HANDLE;
  ASSERT_VK(vkCreateEvent(device_.handle(), &info, nullptr, &from_host));
  ASSERT_VK(vkCreateEvent(device_.handle(), &info, nullptr, &from_device));
  const VkSemaphore done = device_.Timeline(0);
  const VkCommandBuffer commands = device_.Record([&](VkCommandBuffer buffer_commands) {
    vkCmdWaitEvents(buffer_commands, 1, &from_host, VK_PIPELINE_STAGE_HOST_BIT,
                    VK_PIPELINE_STAGE_TRANSFER_BIT, 0, nullptr, 0, nullptr, 0, nullptr);
    vkCmdFillBuffer(buffer_commands, buffer.buffer, 0, 4, 3);
    vkCmdSetEvent(buffer_commands, from_device, VK_PIPELINE_STAGE_TRANSFER_BIT);
  });
  ASSERT_VK(device_.Submit(commands, done, 0, 1));
  EXPECT_EQ(device_.Wait(done, 1, 0), VK_TIMEOUT);
  EXPECT_EQ(vkGetEventStatus(device_.handle(), from_device), VK_EVENT_RESET);
  ASSERT_VK(vkSetEvent(device_.handle(), from_host));
  ASSERT_VK(device_.Wait(done, 1, kTenSeconds));
  EXPECT_EQ(vkGetEventStatus(device_.handle(), from_device), VK_EVENT_SET);
  EXPECT_EQ(buffer.word(0), 3u);
  vkDestroyEvent(device_.handle(), from_host, nullptr);
  vkDestroyEvent(device_.handle(), from_device, nullptr);
  device_.Free(buffer);
}

// From 4 KiB on the driver copies and fills with shaders of its own.  Their last group is smaller.
TEST_P(EmulatedRadeonTest, FillsAndCopiesWithTheDriversShaders) {
  constexpr uint64_t kWords = 4096 + 37;
  TestBuffer from = device_.Allocate(kWords * 4 + 64), to = device_.Allocate(kWords * 4 + 64);
  for (uint64_t i = 0; i < kWords; ++i) {
    const auto word = static_cast<uint32_t>(i * 2654435761u);
    std::memcpy(from.mapped + 4 * i, &word, 4);
  }
  ASSERT_VK(device_.Run([&](VkCommandBuffer commands) {
    const VkBufferCopy copy = {0, 0, kWords * 4};
    vkCmdCopyBuffer(commands, from.buffer, to.buffer, 1, &copy);
  }));
  for (uint64_t i = 0; i < kWords; ++i) ASSERT_EQ(to.word(i), from.word(i)) << i;
  EXPECT_EQ(to.word(kWords), 0xeeeeeeee);
  ASSERT_VK(device_.Run([&](VkCommandBuffer commands) {
    vkCmdFillBuffer(commands, to.buffer, 0, kWords * 4, 0x12345678);
  }));
  for (uint64_t i = 0; i < kWords; ++i) ASSERT_EQ(to.word(i), 0x12345678u) << i;
  EXPECT_EQ(to.word(kWords), 0xeeeeeeee);
  device_.Free(from);
  device_.Free(to);
}

using Groups = std::array<uint32_t, 3>;
constexpr Groups kIdsGroupSize = {9, 5, 2};

uint64_t IdsBytes(const Groups& groups) {
  uint64_t bytes = 36;
  for (int i = 0; i < 3; ++i) bytes *= uint64_t{groups[i]} * kIdsGroupSize[i];
  return bytes;
}

void ExpectIds(const TestBuffer& buffer, const Groups& groups, const Groups& first) {
  uint64_t row = 0;
  Groups size;
  for (int i = 0; i < 3; ++i) size[i] = groups[i] * kIdsGroupSize[i];
  for (uint32_t z = 0; z < size[2]; ++z) {
    for (uint32_t y = 0; y < size[1]; ++y) {
      for (uint32_t x = 0; x < size[0]; ++x, row += 9) {
        const Groups at = {x, y, z};
        for (uint32_t i = 0; i < 3; ++i) {
          ASSERT_EQ(buffer.word(row + i), first[i] + at[i] / kIdsGroupSize[i]) << x << y << z << i;
          ASSERT_EQ(buffer.word(row + 3 + i), groups[i]) << x << y << z << i;
          ASSERT_EQ(buffer.word(row + 6 + i), at[i] % kIdsGroupSize[i]) << x << y << z << i;
        }
      }
    }
  }
}

TEST_P(EmulatedRadeonTest, InvocationsKnowWhoTheyAre) {
  const TestKernel kernel = device_.Kernel(shaders::kRadeonTestIds);
  const Groups groups = {3, 2, 4}, first = {7, 0, 65'000};
  TestBuffer direct = device_.Allocate(IdsBytes(groups)), based = device_.Allocate(direct.bytes),
             indirect = device_.Allocate(direct.bytes), arguments = device_.Allocate(64);
  std::memcpy(arguments.mapped + 16, groups.data(), sizeof groups);
  ASSERT_VK(device_.Run([&](VkCommandBuffer commands) {
    kernel.Bind(commands, based.address, first);
    vkCmdDispatchBase(commands, first[0], first[1], first[2], groups[0], groups[1], groups[2]);
    kernel.Bind(commands, direct.address, {});
    vkCmdDispatch(commands, groups[0], groups[1], groups[2]);
    kernel.Bind(commands, indirect.address, {});
    vkCmdDispatchIndirect(commands, arguments.buffer, 16);
  }));
  ExpectIds(direct, groups, {});
  ExpectIds(based, groups, first);
  ExpectIds(indirect, groups, {});
  for (TestBuffer* buffer : {&direct, &based, &indirect, &arguments}) device_.Free(*buffer);
}

TEST_P(EmulatedRadeonTest, InvocationsHaveScratchMemory) {
  constexpr uint32_t kMultiplier = 5, kGroups = 3, kInvocations = kGroups * 96;
  const TestKernel kernel = device_.Kernel(shaders::kRadeonTestScratch);
  TestBuffer buffer = device_.Allocate(kInvocations * 4);
  ASSERT_VK(device_.Run([&](VkCommandBuffer commands) {
    kernel.Bind(commands, buffer.address, {kMultiplier, 0, 0});
    vkCmdDispatch(commands, kGroups, 1, 1);
  }));
  for (uint32_t own = 0; own < kInvocations; ++own) {
    uint32_t values[256], sum = 0;
    for (uint32_t i = 0; i < 256; ++i) values[(i * kMultiplier + own) & 255] = own * 1000 + i;
    for (uint32_t i = 0; i < 256; ++i) sum = sum * 31 + values[(i * kMultiplier * 3 + 7) & 255];
    ASSERT_EQ(buffer.word(own), sum) << own;
  }
  device_.Free(buffer);
}

TEST(EmulatedRadeonMemoryTest, RefusesMoreMemoryThanThereIs) {
  const TestInstance instance;
  const TestDevice device(instance);
  VkMemoryAllocateInfo info = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
  info.allocationSize = uint64_t{3} << 30;
  std::vector<VkDeviceMemory> all;
  VkResult result = VK_SUCCESS;
  while (result == VK_SUCCESS && all.size() < 100) {
    VkDeviceMemory memory = VK_NULL_HANDLE;
    result = vkAllocateMemory(device.handle(), &info, nullptr, &memory);
    if (result == VK_SUCCESS) all.push_back(memory);
  }
  EXPECT_EQ(result, VK_ERROR_OUT_OF_DEVICE_MEMORY);
  EXPECT_GE(all.size() * info.allocationSize, ExpectedChip().gtt_bytes / 2);
  for (const VkDeviceMemory memory : all) vkFreeMemory(device.handle(), memory, nullptr);
}

// A buffer whose memory is gone: on hardware a page fault, and the kernel resets the device.
TEST(EmulatedRadeonLossTest, AStrayAddressLosesTheDeviceAndANewOneWorks) {
  const TestInstance instance;
  {
    TestDevice device(instance);
    TestBuffer buffer = device.Allocate(64);
    const VkCommandBuffer commands =
        device.Record([&](VkCommandBuffer b) { vkCmdFillBuffer(b, buffer.buffer, 0, 64, 1); });
    device.Free(buffer);
    const VkSemaphore done = device.Timeline(0);
    ASSERT_VK(device.Submit(commands, done, 0, 1));
    ASSERT_VK(device.Wait(done, 1, kTenSeconds));  // this driver asks at the next submission
    EXPECT_EQ(device.Run([](VkCommandBuffer) {}), VK_ERROR_DEVICE_LOST);
  }
  TestDevice device(instance);
  TestBuffer buffer = device.Allocate(64);
  ASSERT_VK(device.Run([&](VkCommandBuffer b) { vkCmdFillBuffer(b, buffer.buffer, 0, 64, 1); }));
  EXPECT_EQ(buffer.word(0), 1u);
  device.Free(buffer);
}

// With GPU_EMU_LOSE_AT=2 in the environment.
TEST(EmulatedRadeonPlannedLossTest, ComesWithItsSubmission) {
  if (std::getenv("GPU_EMU_LOSE_AT") == nullptr) GTEST_SKIP() << "GPU_EMU_LOSE_AT is not set";
  const TestInstance instance;
  TestDevice device(instance);
  TestBuffer buffer = device.Allocate(64);
  const auto fill = [&](uint32_t value) {
    return device.Run(
        [&, value](VkCommandBuffer b) { vkCmdFillBuffer(b, buffer.buffer, 0, 64, value); });
  };
  EXPECT_VK(fill(1));
  EXPECT_VK(fill(2));
  EXPECT_EQ(buffer.word(0), 1u);  // it did not run
  EXPECT_EQ(fill(3), VK_ERROR_DEVICE_LOST);
  device.Free(buffer);
}

}  // namespace
}  // namespace tandem::rdna

// The Vulkan layer on whatever device this machine has.  No driver: skipped.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "services/common/base/shared_memory.h"
#include "services/common/testing/status_matchers.h"
#include "services/gpu_worker/vulkan/buffer.h"
#include "services/gpu_worker/vulkan/command_buffer.h"
#include "services/gpu_worker/vulkan/device.h"
#include "services/gpu_worker/vulkan/instance.h"
#include "services/gpu_worker/vulkan/pipeline_cache.h"
#include "services/gpu_worker/vulkan/query_pool.h"
#include "services/gpu_worker/vulkan/timeline.h"
#include "services/gpu_worker/vulkan/upload.h"

namespace tandem::vulkan {
namespace {

class VulkanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto instance = Instance::Create({.validation = true});
    if (instance.status().code() == absl::StatusCode::kNotFound) {
      GTEST_SKIP() << instance.status();
    }
    ASSERT_OK(instance.status());
    instance_ = *std::move(instance);
    const auto index = ChooseDevice(instance_->devices(), "");
    if (index.status().code() == absl::StatusCode::kNotFound) GTEST_SKIP() << index.status();
    ASSERT_OK(index.status());
    index_ = *index;
    ASSERT_OK_AND_ASSIGN(device_, Device::Create(*instance_, index_));
    ASSERT_OK_AND_ASSIGN(timeline_, Timeline::Create(*device_));
  }

  std::unique_ptr<Instance> instance_;
  size_t index_ = 0;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Timeline> timeline_;
};

TEST_F(VulkanTest, DescribesTheDevice) {
  const std::string text = DescribeDevice(device_->info());
  EXPECT_NE(text.find(device_->info().name), std::string::npos);
  EXPECT_NE(text.find("heap 0"), std::string::npos);
  EXPECT_NE(text.find("imports: host pointer"), std::string::npos);
}

TEST_F(VulkanTest, UploadsMoreThanItsStagingBuffer) {
  ASSERT_OK_AND_ASSIGN(const auto uploader, Uploader::Create(*device_, *timeline_, 4096));
  std::vector<std::byte> data(3 * 4096 + 136);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 % 251);
  ASSERT_OK_AND_ASSIGN(const Buffer buffer,
                       Buffer::Allocate(*device_, data.size() + 64, MemoryKind::kExchange, "test"));
  ASSERT_OK(uploader->Clear(buffer));
  ASSERT_OK(uploader->Finish());
  ASSERT_OK(uploader->Upload(data, buffer, 32));
  ASSERT_OK(uploader->Finish());
  EXPECT_EQ(std::memcmp(buffer.mapped().data() + 32, data.data(), data.size()), 0);
  EXPECT_EQ(buffer.mapped()[31], std::byte{0});
  EXPECT_EQ(buffer.mapped()[32 + data.size()], std::byte{0});
}

TEST_F(VulkanTest, UploadsByManyThreadsWhatIsNoMultipleOfAnything) {
  ASSERT_OK_AND_ASSIGN(const auto uploader,
                       Uploader::Create(*device_, *timeline_, uint64_t{5} << 20));
  std::vector<std::byte> data((12 << 20) + 4 * 1021);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * i >> 7);
  ASSERT_OK_AND_ASSIGN(const Buffer buffer,
                       Buffer::Allocate(*device_, data.size(), MemoryKind::kExchange, "test"));
  ASSERT_OK(uploader->Upload(data, buffer, 0));
  ASSERT_OK(uploader->Finish());
  EXPECT_EQ(std::memcmp(buffer.mapped().data(), data.data(), data.size()), 0);
}

TEST_F(VulkanTest, SharesMemoryByHostPointer) {
  if (!device_->info().external_memory_host) GTEST_SKIP() << "no VK_EXT_external_memory_host";
  ASSERT_OK_AND_ASSIGN(const UniqueFd fd, CreateSharedMemory("test", 8192));
  ASSERT_OK_AND_ASSIGN(const Mapping mapping,
                       Mapping::Map(fd.get(), 8192, Mapping::Access::kReadWrite));
  EXPECT_EQ(Buffer::ImportHostPointer(*device_, mapping.data() + 16, 4096).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto expect_shared = [this](std::byte* data) {
    ASSERT_OK_AND_ASSIGN(const Buffer imported, Buffer::ImportHostPointer(*device_, data, 8192));
    ASSERT_OK_AND_ASSIGN(const auto uploader, Uploader::Create(*device_, *timeline_, 4096));
    const std::byte word[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
    ASSERT_OK(uploader->Upload(word, imported, 4096));
    ASSERT_OK(uploader->Finish());
    EXPECT_EQ(std::memcmp(data + 4096, word, sizeof(word)), 0);
  };
  if (device_->info().waits_hide_loss) {  // RADV: amdgpu takes anonymous memory alone
    EXPECT_FALSE(Buffer::ImportHostPointer(*device_, mapping.data(), mapping.size()).ok());
  } else {
    expect_shared(mapping.data());
  }
  void* const anonymous =
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(anonymous, MAP_FAILED);
  expect_shared(static_cast<std::byte*>(anonymous));
  ::munmap(anonymous, 8192);
}

TEST_F(VulkanTest, SharesMemoryByDmabuf) {
  if (!device_->info().external_memory_dmabuf) GTEST_SKIP() << "no VK_EXT_external_memory_dma_buf";
  // The emulated Radeon then takes memory files.
  const bool takes_memory_files = std::getenv("GPU_EMU_ALLOW_MEMFD") != nullptr;
  const UniqueFd udmabuf(open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
  if (!udmabuf.valid() && !takes_memory_files) GTEST_SKIP() << "no /dev/udmabuf";
  constexpr uint64_t kBytes = 65536;
  ASSERT_OK_AND_ASSIGN(const UniqueFd fd, CreateSharedMemory("test", kBytes));
  ASSERT_OK(SealSize(fd.get()));
  ASSERT_OK_AND_ASSIGN(const Mapping mapping,
                       Mapping::Map(fd.get(), kBytes, Mapping::Access::kReadWrite));
  std::memset(mapping.data(), 7, kBytes);
  udmabuf_create create = {};
  create.memfd = static_cast<uint32_t>(fd.get());
  create.flags = UDMABUF_FLAGS_CLOEXEC;
  create.size = kBytes;
  const UniqueFd dmabuf(takes_memory_files ? dup(fd.get())
                                           : ioctl(udmabuf.get(), UDMABUF_CREATE, &create));
  ASSERT_TRUE(dmabuf.valid());
  ASSERT_OK_AND_ASSIGN(const Buffer imported, Buffer::ImportDmabuf(*device_, dmabuf.get(), kBytes));
  ASSERT_OK_AND_ASSIGN(const Buffer copy,
                       Buffer::Allocate(*device_, 4096, MemoryKind::kExchange, "test"));
  ASSERT_OK_AND_ASSIGN(const auto commands, CommandPool::Create(*device_));
  ASSERT_OK_AND_ASSIGN(const auto layout, PipelineLayout::Create(*device_));
  ASSERT_OK_AND_ASSIGN(Recorder recorder, Recorder::Begin(commands, layout));
  recorder.Copy(imported, 8192, copy, 0, 4096);
  recorder.HostBarrier();
  ASSERT_OK_AND_ASSIGN(const VkCommandBuffer recorded, recorder.End());
  ASSERT_OK(timeline_->SubmitAndWait({&recorded, 1}, absl::Seconds(10)));
  EXPECT_EQ(std::memcmp(copy.mapped().data(), mapping.data(), 4096), 0);
}

TEST_F(VulkanTest, RefusesImportsThatItWasToldNotToMake) {
  ASSERT_OK_AND_ASSIGN(const auto device, Device::Create(*instance_, index_, false));
  alignas(4096) static std::byte memory[4096];
  EXPECT_EQ(Buffer::ImportHostPointer(*device, memory, sizeof(memory)).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Buffer::ImportDmabuf(*device, 0, 4096).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(VulkanTest, FindsTheBufferOfAnAddress) {
  ASSERT_OK_AND_ASSIGN(const Buffer first,
                       Buffer::Allocate(*device_, 4096, MemoryKind::kDevice, "test"));
  ASSERT_OK_AND_ASSIGN(Buffer second,
                       Buffer::Allocate(*device_, 8192, MemoryKind::kDevice, "test"));
  const Device::BufferRange found = device_->FindBuffer(second.address() + 4096);
  EXPECT_EQ(found.buffer, second.handle());
  EXPECT_EQ(found.offset, 4096u);
  EXPECT_EQ(found.bytes, 4096u);
  const VkDeviceAddress gone = second.address();
  second = Buffer();
  EXPECT_EQ(device_->FindBuffer(gone).buffer, VkBuffer{VK_NULL_HANDLE});
  EXPECT_EQ(device_->FindBuffer(first.address()).buffer, first.handle());
}

TEST_F(VulkanTest, MakesASetOfTexelsOnceAndRefusesWhatIsNone) {
  if (!device_->info().reads_texels) GTEST_SKIP() << "the device is not for texels";
  ASSERT_OK_AND_ASSIGN(const Buffer buffer,
                       Buffer::Allocate(*device_, 4096, MemoryKind::kDevice, "test"));
  ASSERT_OK_AND_ASSIGN(const auto layout, PipelineLayout::Create(*device_));
  TexelSets sets(*device_);
  TexelViews views;
  views.fill({buffer.address() + 16, 8192, VK_FORMAT_R32G32B32A32_UINT});  // to the buffer's end
  ASSERT_OK_AND_ASSIGN(const VkDescriptorSet set, sets.Find(layout.texels(), views));
  views[2].bytes = 16;
  ASSERT_OK_AND_ASSIGN(const VkDescriptorSet other, sets.Find(layout.texels(), views));
  EXPECT_NE(set, other);
  views[2].bytes = 8192;
  const uint64_t views_made = device_->vk().CallCounts().at("vkCreateBufferView");
  ASSERT_OK_AND_ASSIGN(const VkDescriptorSet again, sets.Find(layout.texels(), views));
  EXPECT_EQ(again, set);
  EXPECT_EQ(device_->vk().CallCounts().at("vkCreateBufferView"), views_made);
  for (const TexelView& wrong :
       {TexelView{buffer.address() + 8, 16, VK_FORMAT_R32G32B32A32_UINT},
        TexelView{buffer.address(), 0, VK_FORMAT_R32G32B32A32_UINT},
        TexelView{buffer.address() + 4096, 16, VK_FORMAT_R32G32B32A32_UINT}}) {
    views[0] = wrong;
    EXPECT_EQ(sets.Find(layout.texels(), views).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(VulkanTest, NamesWhatDoesNotFit) {
  const auto buffer =
      Buffer::Allocate(*device_, uint64_t{1} << 50, MemoryKind::kDevice, "KV cache of layer 7");
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(buffer.status().message().find("KV cache of layer 7"), std::string::npos);
}

TEST_F(VulkanTest, CountsCallsByName) {
  ASSERT_OK_AND_ASSIGN(const auto buffer,
                       Buffer::Allocate(*device_, 4096, MemoryKind::kDevice, "test"));
  const auto before = device_->vk().CallCounts();
  EXPECT_EQ(before.at("vkAllocateMemory"), 1u);
  EXPECT_FALSE(before.contains("vkQueueSubmit2"));
  ASSERT_OK(timeline_->SubmitAndWait({}, absl::Seconds(10)));
  // One more where a wait asks for a loss.
  EXPECT_EQ(device_->vk().CallCounts().at("vkQueueSubmit2"),
            device_->info().waits_hide_loss ? 2u : 1u);
  EXPECT_EQ(device_->vk().CallCounts().at("vkAllocateMemory"), 1u);
}

TEST_F(VulkanTest, TimestampsAscend) {
  if (device_->info().timestamp_valid_bits == 0) GTEST_SKIP() << "the queue has no timestamps";
  ASSERT_OK_AND_ASSIGN(const auto pool, TimestampPool::Create(*device_, 2));
  ASSERT_OK_AND_ASSIGN(const auto commands, CommandPool::Create(*device_));
  ASSERT_OK_AND_ASSIGN(const auto layout, PipelineLayout::Create(*device_));
  ASSERT_OK_AND_ASSIGN(Recorder recorder, Recorder::Begin(commands, layout));
  recorder.ResetTimestamps(pool.handle(), 0, 2);
  recorder.WriteTimestamp(pool.handle(), 0);
  recorder.WriteTimestamp(pool.handle(), 1);
  ASSERT_OK_AND_ASSIGN(const VkCommandBuffer recorded, recorder.End());
  ASSERT_OK(timeline_->SubmitAndWait({&recorded, 1}, absl::Seconds(10)));
  uint64_t ticks[2];
  ASSERT_OK(pool.Read(0, ticks));
  EXPECT_LT(pool.Nanoseconds(ticks[0], ticks[1]), 1'000'000'000u);
}

TEST_F(VulkanTest, CopiedTimestampsAreThoseOfTheQueries) {
  if (device_->info().timestamp_valid_bits == 0) GTEST_SKIP() << "the queue has no timestamps";
  constexpr uint32_t kCount = 5;
  ASSERT_OK_AND_ASSIGN(const auto pool, TimestampPool::Create(*device_, kCount, true));
  std::ranges::fill(pool.copies()->mapped(), std::byte{0xA5});
  ASSERT_OK_AND_ASSIGN(const auto commands, CommandPool::Create(*device_));
  ASSERT_OK_AND_ASSIGN(const auto layout, PipelineLayout::Create(*device_));
  ASSERT_OK_AND_ASSIGN(Recorder recorder, Recorder::Begin(commands, layout));
  recorder.ResetTimestamps(pool.handle(), 0, kCount);
  for (uint32_t i = 0; i < kCount; ++i) recorder.WriteTimestamp(pool.handle(), i);
  recorder.CopyTimestamps(pool, 1, 3);
  recorder.HostBarrier();
  ASSERT_OK_AND_ASSIGN(const VkCommandBuffer recorded, recorder.End());
  ASSERT_OK(timeline_->SubmitAndWait({&recorded, 1}, absl::Seconds(10)));
  uint64_t asked[kCount], read[kCount];
  ASSERT_EQ(
      device_->vk().GetQueryPoolResults(device_->handle(), pool.handle(), 0, kCount, sizeof(asked),
                                        asked, sizeof(uint64_t), VK_QUERY_RESULT_64_BIT),
      VK_SUCCESS);
  ASSERT_OK(pool.Read(0, read));
  const uint64_t guard = 0xA5A5A5A5A5A5A5A5u;
  EXPECT_THAT(read, ::testing::ElementsAre(guard, asked[1], asked[2], asked[3], guard));
}

// A step that was lost must not pass for one that ran.  On a device that is lost when a file is there
// (services/gpu_worker/emulator/driver/settings.h).
TEST_F(VulkanTest, WaitsTellOfALostDevice) {
  const char* lose_on = std::getenv("GPU_EMU_LOSE_ON");
  if (lose_on == nullptr) GTEST_SKIP() << "GPU_EMU_LOSE_ON is not set";
  for (const absl::Duration poll : {absl::ZeroDuration(), absl::Seconds(1)}) {
    ASSERT_OK_AND_ASSIGN(const auto device, Device::Create(*instance_, index_));
    ASSERT_OK_AND_ASSIGN(const auto timeline, Timeline::Create(*device));
    timeline->PollFor(poll);
    ASSERT_OK_AND_ASSIGN(const auto pool, CommandPool::Create(*device));
    ASSERT_OK_AND_ASSIGN(const auto own_layout, PipelineLayout::Create(*device));
    ASSERT_OK_AND_ASSIGN(Recorder nothing, Recorder::Begin(pool, own_layout));
    ASSERT_OK_AND_ASSIGN(const VkCommandBuffer empty, nothing.End());
    ASSERT_OK(timeline->SubmitAndWait({&empty, 1}, absl::Seconds(10)));
    EXPECT_FALSE(device->lost());
    std::ofstream(lose_on).close();
    EXPECT_EQ(timeline->SubmitAndWait({&empty, 1}, absl::Seconds(10)).code(),
              absl::StatusCode::kUnavailable);
    EXPECT_TRUE(device->lost());
    EXPECT_TRUE(timeline->IsIdle(absl::Seconds(10))) << "lost, it runs nothing";
  }
  EXPECT_FALSE(std::filesystem::exists(lose_on));
}

class PipelineCacheTest : public VulkanTest {
 protected:
  void SetUp() override {
    VulkanTest::SetUp();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("pipeline-cache-" + std::to_string(getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(PipelineCacheTest, WritesOneFileAndReadsItBack) {
  ASSERT_OK_AND_ASSIGN(const auto cache, PipelineCache::Create(*device_, folder_));
  ASSERT_OK(cache->Save());
  ASSERT_TRUE(std::filesystem::exists(cache->path()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1)
      << "no part file is left";
  EXPECT_OK(PipelineCache::Create(*device_, folder_));
}

TEST_F(PipelineCacheTest, IgnoresADamagedFile) {
  ASSERT_OK_AND_ASSIGN(const auto cache, PipelineCache::Create(*device_, folder_));
  ASSERT_OK(cache->Save());
  for (const char* content : {"", "short", "no header but long enough to hold one of them"}) {
    std::ofstream(cache->path(), std::ios::trunc) << content;
    EXPECT_OK(PipelineCache::Create(*device_, folder_)) << content;
  }
}

TEST_F(PipelineCacheTest, KeepsNothingWithoutAFolder) {
  ASSERT_OK_AND_ASSIGN(const auto cache, PipelineCache::Create(*device_, ""));
  EXPECT_OK(cache->Save());
  EXPECT_EQ(cache->path(), "");
}

}  // namespace
}  // namespace tandem::vulkan

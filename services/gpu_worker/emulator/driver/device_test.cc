#include "services/gpu_worker/emulator/driver/device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "services/gpu_worker/emulator/driver/packet_stream_for_test.h"

namespace tandem::rdna {
namespace {

constexpr uint64_t kCode = 0x800000100000;

Settings SmallSettings() {
  Settings settings;
  settings.chip.vram_bytes = settings.chip.gtt_bytes = 1 << 20;
  settings.hang_ms = 1;
  return settings;
}

// A device with one buffer of packets: a dispatch of `groups` groups, then a fence value.
class DeviceTest : public ::testing::Test {
 protected:
  void Start(Settings settings = SmallSettings()) {
    device_ = std::make_unique<Device>(
        settings, [this](const Dispatch& dispatch, Memory&, Counters& counters) {
          counters.waves += 1;
          counters.instructions += 10;
          counters.vector += 10;
          ++executed_;
          return execute_(dispatch);
        });
    context_ = device_->CreateContext();
    buffer_ = device_->buffers().Create(64 << 10, 0, true, true, 6, 0);
    address_ = *device_->AllocateAddresses(64 << 10, 4096, false, true);
    ASSERT_TRUE(device_->space().Map(address_, 64 << 10, host()));
  }
  std::byte* host() { return device_->buffers().Find(buffer_)->host; }

  IndirectBuffer Packets(std::initializer_list<uint32_t> words) {
    const uint64_t address = address_ + used_ * 4;
    for (const uint32_t word : words) {
      std::memcpy(host() + 4 * used_++, &word, 4);
    }
    return {address, static_cast<uint32_t>(words.size())};
  }
  IndirectBuffer DispatchOf(uint32_t groups) {
    return Packets({pm4::Header(pm4::kSetShReg, 3), pm4::kPgmLo, 0x1000, 0x80,
                    pm4::Header(pm4::kDispatchDirect, 4), groups, 1, 1, 0x8005});
  }
  Submission Of(IndirectBuffer buffer) {
    Submission submission;
    submission.context = context_;
    submission.buffers = {buffer};
    return submission;
  }
  int Submit(Submission submission) { return device_->Submit(std::move(submission), &sequence_); }
  bool Done(int64_t milliseconds = 10'000) {
    bool busy = true;
    EXPECT_EQ(device_->WaitFor(context_, RingKind::kCompute, 0, sequence_, DeadlineIn(milliseconds),
                               &busy),
              0);
    return !busy;
  }

  std::function<std::optional<Fault>(const Dispatch&)> execute_ =
      [](const Dispatch&) -> std::optional<Fault> { return std::nullopt; };
  std::atomic<int> executed_ = 0;
  std::unique_ptr<Device> device_;
  uint32_t context_ = 0, buffer_ = 0;
  uint64_t address_ = 0, sequence_ = 0;
  size_t used_ = 0;
};

TEST_F(DeviceTest, SubmissionsReturnBeforeTheyRunAndKeepTheirOrder) {
  Start();
  std::promise<void> go;
  std::vector<uint32_t> order;
  execute_ = [&order,
              started = go.get_future().share()](const Dispatch& dispatch) -> std::optional<Fault> {
    started.wait();
    order.push_back(dispatch.groups[0]);
    return std::nullopt;
  };
  const uint32_t object = device_->sync().Create(false);
  for (uint32_t i = 1; i <= 3; ++i) {
    Submission submission = Of(DispatchOf(i));
    submission.signals = {{object, i}};
    ASSERT_EQ(Submit(std::move(submission)), 0);
    EXPECT_EQ(sequence_, i);
  }
  EXPECT_FALSE(Done(0));
  uint64_t point = 99;
  EXPECT_EQ(device_->sync().Query(object, false, &point), 0);
  EXPECT_EQ(point, 0u);
  go.set_value();
  EXPECT_TRUE(Done());
  EXPECT_EQ(order, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(device_->sync().Query(object, false, &point), 0);
  EXPECT_EQ(point, 3u);
}

TEST_F(DeviceTest, ASubmissionWaitsForFencesOfTheHostAndOfOtherRings) {
  Start();
  const uint32_t from_host = device_->sync().Create(false),
                 from_ring = device_->sync().Create(false);
  const auto fence = std::make_shared<Fence>();
  device_->sync().Attach(from_host, 1, fence);
  Submission first = Of(DispatchOf(1));
  first.ring = 1;
  first.waits = {fence};
  first.signals = {{from_ring, 0}};
  ASSERT_EQ(Submit(std::move(first)), 0);
  Submission second = Of(DispatchOf(2));
  FencePtr ring_fence;
  ASSERT_EQ(device_->sync().Find(from_ring, 0, false, 0, &ring_fence), 0);
  second.waits = {ring_fence};
  ASSERT_EQ(Submit(std::move(second)), 0);
  EXPECT_FALSE(Done(0));
  EXPECT_EQ(executed_, 0);
  device_->sync().Signal(fence);
  EXPECT_TRUE(Done());
  EXPECT_EQ(executed_, 2);
}

TEST_F(DeviceTest, WritesTheUserFence) {
  Start();
  Submission submission = Of(DispatchOf(1));
  submission.user_fence = reinterpret_cast<uint64_t*>(host() + 4096);
  ASSERT_EQ(Submit(std::move(submission)), 0);
  ASSERT_TRUE(Done());
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(host() + 4096), sequence_);
}

TEST_F(DeviceTest, AStrayAddressLosesTheDevice) {
  Start();
  execute_ = [](const Dispatch& dispatch) -> std::optional<Fault> {
    EXPECT_EQ(dispatch.code, kCode);
    return Fault{.what = "global_load_b32", .pc = dispatch.code, .address = 0xdead000};
  };
  const uint32_t innocent = device_->CreateContext();
  ASSERT_EQ(Submit(Of(DispatchOf(1))), 0);
  EXPECT_TRUE(Done());  // fences are signalled, as after the kernel's reset
  EXPECT_EQ(device_->fault_address(), 0xdead000u);
  EXPECT_TRUE(device_->context_state(context_)->guilty);
  EXPECT_EQ(Submit(Of(DispatchOf(1))), ETIME);
  EXPECT_TRUE(device_->context_state(innocent)->reset);
  EXPECT_FALSE(device_->context_state(innocent)->guilty);
  context_ = innocent;
  EXPECT_EQ(Submit(Of(DispatchOf(1))), ECANCELED);
  context_ = device_->CreateContext();
  execute_ = [](const Dispatch&) -> std::optional<Fault> { return std::nullopt; };
  EXPECT_EQ(Submit(Of(DispatchOf(1))), 0);
  EXPECT_TRUE(Done());
  EXPECT_FALSE(device_->context_state(context_)->reset);
}

TEST_F(DeviceTest, AHangLosesTheDevice) {
  Start();
  ASSERT_EQ(Submit(Of(Packets({pm4::Header(pm4::kWaitRegMem, 6), 3 | 1 << 4, Low(address_),
                               High(address_), 5, 0xff, 4}))),
            0);
  EXPECT_TRUE(Done());
  EXPECT_TRUE(device_->context_state(context_)->guilty);
  EXPECT_EQ(device_->fault_address(), 0u);  // not a page fault
}

// A driver may free what a submission uses: the kernel keeps it until the submission has ended.
TEST_F(DeviceTest, UnmapsAfterWhatWasSubmitted) {
  Start();
  std::promise<void> begun, go_on;
  execute_ = [&](const Dispatch&) -> std::optional<Fault> {
    begun.set_value();
    go_on.get_future().wait();
    return std::nullopt;
  };
  ASSERT_EQ(Submit(Of(DispatchOf(1))), 0);
  begun.get_future().wait();
  auto unmapped = std::async(std::launch::async, [&] { device_->Unmap(address_, 64 << 10); });
  EXPECT_NE(device_->space().Find(address_, 4), nullptr);
  go_on.set_value();
  unmapped.wait();
  EXPECT_EQ(device_->space().Find(address_, 4), nullptr);
  EXPECT_FALSE(device_->context_state(context_)->guilty);
}

TEST_F(DeviceTest, IsLostAtTheSubmissionThatATestNames) {
  Settings settings = SmallSettings();
  settings.lose_at = 2;
  Start(settings);
  ASSERT_EQ(Submit(Of(DispatchOf(1))), 0);
  ASSERT_TRUE(Done());
  ASSERT_EQ(Submit(Of(DispatchOf(1))), 0);
  ASSERT_TRUE(Done());
  EXPECT_EQ(executed_, 1);
  EXPECT_EQ(Submit(Of(DispatchOf(1))), ETIME);
}

TEST_F(DeviceTest, IsLostOnceWhenTheFileOfATestIsThere) {
  Settings settings = SmallSettings();
  settings.lose_on = ::testing::TempDir() + "lose_on_" + std::to_string(::getpid());
  Start(settings);
  ASSERT_EQ(Submit(Of(DispatchOf(1))), 0);
  ASSERT_TRUE(Done());
  std::ofstream(settings.lose_on).close();
  ASSERT_EQ(Submit(Of(DispatchOf(1))), 0);
  ASSERT_TRUE(Done());
  EXPECT_EQ(executed_, 1);
  EXPECT_EQ(Submit(Of(DispatchOf(1))), ETIME);
  context_ = device_->CreateContext();
  ASSERT_EQ(Submit(Of(DispatchOf(1))), 0);
  ASSERT_TRUE(Done());
  EXPECT_EQ(executed_, 2);
}

TEST_F(DeviceTest, JobsBehindALostOneDoNotRun) {
  Settings settings = SmallSettings();
  settings.lose_at = 1;
  Start(settings);
  const auto fence = std::make_shared<Fence>();
  Submission first = Of(DispatchOf(1));
  first.waits = {fence};
  ASSERT_EQ(Submit(std::move(first)), 0);
  ASSERT_EQ(Submit(Of(DispatchOf(1))), 0);
  device_->sync().Signal(fence);
  EXPECT_TRUE(Done());
  EXPECT_EQ(executed_, 0);
}

TEST_F(DeviceTest, FreeingAContextWaitsForItsJobs) {
  Start();
  ASSERT_EQ(Submit(Of(DispatchOf(1))), 0);
  EXPECT_EQ(device_->FreeContext(context_), 0);
  EXPECT_EQ(executed_, 1);
  EXPECT_EQ(device_->FreeContext(context_), ENOENT);
  EXPECT_EQ(Submit(Of(DispatchOf(1))), EINVAL);
}

TEST_F(DeviceTest, LeavesGapsBetweenBuffers) {
  Start();
  const uint64_t a = *device_->AllocateAddresses(5000, 0, false, true);
  const uint64_t b = *device_->AllocateAddresses(5000, 0, false, true);
  EXPECT_GE(b - a, 8192u + (64 << 10));
  const uint64_t low = *device_->AllocateAddresses(5000, 0, true, true);
  EXPECT_EQ(low >> 32, 0xffff8000u);
  device_->FreeAddresses(a, 5000);
  EXPECT_TRUE(device_->AllocateAddressesAt(a, 5000));
  EXPECT_FALSE(device_->AllocateAddressesAt(b, 5000));
  EXPECT_FALSE(device_->AllocateAddresses(0, 0, false, true).has_value());
}

TEST_F(DeviceTest, TheClockAdvancesByTheWork) {
  Start();
  const uint64_t before = device_->clock().nanoseconds();
  ASSERT_EQ(Submit(Of(DispatchOf(1))), 0);
  ASSERT_TRUE(Done());
  const uint64_t launch = device_->clock().nanoseconds() - before;
  EXPECT_GE(launch, 4000u);
  Counters work;
  work.matrices = 1'000'000;
  // 32 clocks each, on 24 SIMDs of 2.7 GHz.
  EXPECT_NEAR(static_cast<double>(DispatchNanoseconds(device_->chip(), true, work)),
              4000 + 32e6 / 24 / 2.7, 10);
  EXPECT_EQ(device_->totals().dispatches, 1u);
  EXPECT_EQ(device_->totals().counters.instructions, 10u);
}

TEST(ChipTest, IsFoundByEitherName) {
  EXPECT_EQ(FindChip("780m"), FindChip("phoenix"));
  EXPECT_EQ(FindChip("8060S")->cus(), 40u);
  EXPECT_EQ(FindChip("gfx1150")->cus(), 16u);
  EXPECT_EQ(DefaultChip().cus(), 12u);
  EXPECT_EQ(FindChip("H200"), nullptr);
  EXPECT_EQ(ChipNames(), "780M, 890M, 8060S");
}

}  // namespace
}  // namespace tandem::rdna

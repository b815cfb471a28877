#include "services/npu_worker/emulator/driver/command_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <thread>

namespace tandem::npu::emulator {
namespace {

// Start packets whose one argument is a number that the handler adds up.
class CommandQueueTest : public ::testing::Test {
 protected:
  Submission Packet(uint64_t value) {
    uint32_t handle = 0;
    EXPECT_EQ(buffers_.Create(BufferKind::kCommand, 4096, &handle), 0);
    Submission submission{.packet = buffers_.Find(handle)};
    auto* words = reinterpret_cast<uint32_t*>(submission.packet->host);
    words[0] = 16u << 12 | static_cast<uint32_t>(CommandState::kNew);
    words[1] = 1;
    words[7] = static_cast<uint32_t>(value);
    return submission;
  }
  std::unique_ptr<CommandQueue> MakeQueue(Faults faults,
                                          absl::Duration recovery = absl::Seconds(2)) {
    plan_ = std::make_unique<FaultPlan>(faults);
    return std::make_unique<CommandQueue>(
        space_,
        [this](const Invocation& invocation, const AddressSpace::View&) {
          if (invocation.buffers[0] == 13) return absl::InternalError("thirteen");
          if (invocation.buffers[0] == 14) return absl::DeadlineExceededError("waits for ever");
          sum_ += invocation.buffers[0];
          return absl::OkStatus();
        },
        *plan_, recovery);
  }
  static CommandState StateOf(const Submission& submission) {
    const auto* header = reinterpret_cast<const uint32_t*>(submission.packet->host);
    return static_cast<CommandState>(__atomic_load_n(header, __ATOMIC_ACQUIRE) & 0xF);
  }

  AddressSpace space_;
  ClientBuffers buffers_{*FindProfile("npu4"), space_};
  std::unique_ptr<FaultPlan> plan_;
  std::atomic<uint64_t> sum_ = 0;
};

absl::Time In(absl::Duration duration) { return absl::Now() + duration; }

TEST_F(CommandQueueTest, CommandsRunInOrderAndReportTheirStates) {
  const auto queue = MakeQueue({});
  const Submission first = Packet(2);
  const Submission refused = Packet(13);
  const Submission last = Packet(3);
  uint64_t sequence = 0;
  for (const Submission& submission : {first, refused, last}) queue->Submit(submission, &sequence);
  EXPECT_EQ(sequence, 2u);
  ASSERT_EQ(queue->Wait(sequence, In(absl::Seconds(30))), 0);
  EXPECT_EQ(StateOf(first), CommandState::kCompleted);
  EXPECT_EQ(StateOf(refused), CommandState::kError);
  EXPECT_EQ(StateOf(last), CommandState::kCompleted) << "a refused command does not stop the next";
  EXPECT_EQ(sum_, 5u);
  EXPECT_EQ(queue->counts().errors, 1u);
}

TEST_F(CommandQueueTest, AFifthCommandInFlightWaits) {
  const auto queue = MakeQueue({.hang_ms = 1500, .hang_count = 1});
  uint64_t sequence = 0;
  const absl::Time start = absl::Now();
  for (uint64_t i = 0; i < kCommandsInFlight; ++i) queue->Submit(Packet(1), &sequence);
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(1400)) << "four are taken at once";
  queue->Submit(Packet(1), &sequence);
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(1500)) << "the fifth waits for the first";
  ASSERT_EQ(queue->Wait(sequence, In(absl::Seconds(30))), 0);
  EXPECT_EQ(sum_, 5u);
}

TEST_F(CommandQueueTest, ACommandThatDoesNotEndIsGivenUpAndThoseBehindItAreAborted) {
  const auto queue = MakeQueue({.hang_ms = 3000, .hang_count = 1}, absl::Milliseconds(200));
  const Submission hanging = Packet(1);
  const Submission behind = Packet(2);
  uint64_t sequence = 0;
  queue->Submit(hanging, &sequence);
  queue->Submit(behind, &sequence);
  EXPECT_EQ(queue->Wait(sequence, In(absl::Milliseconds(20))), ETIME);
  ASSERT_EQ(queue->Wait(sequence, In(absl::Seconds(2))), 0) << "recovery does not take the 3 s";
  EXPECT_EQ(StateOf(hanging), CommandState::kTimeout);
  EXPECT_EQ(StateOf(behind), CommandState::kAbort);
  EXPECT_EQ(sum_, 0u) << "neither has run";
  const Submission next = Packet(4);
  queue->Submit(next, &sequence);
  ASSERT_EQ(queue->Wait(sequence, In(absl::Seconds(30))), 0);
  EXPECT_EQ(StateOf(next), CommandState::kCompleted);
  EXPECT_EQ(sum_, 4u);
}

TEST_F(CommandQueueTest, ALostInterruptIsATimeoutAlthoughTheCommandRan) {
  const auto queue = MakeQueue({.lost_interrupt = 2}, absl::Milliseconds(200));
  const Submission first = Packet(1);
  const Submission second = Packet(2);
  uint64_t sequence = 0;
  queue->Submit(first, &sequence);
  queue->Submit(second, &sequence);
  ASSERT_EQ(queue->Wait(sequence, In(absl::Seconds(30))), 0);
  EXPECT_EQ(StateOf(first), CommandState::kCompleted);
  EXPECT_EQ(StateOf(second), CommandState::kTimeout);
  EXPECT_EQ(sum_, 3u);
}

TEST_F(CommandQueueTest, ACommandThatNeverEndsIsGivenUpAfterTheRecoveryTime) {
  const auto queue = MakeQueue({}, absl::Milliseconds(200));
  const Submission waiting = Packet(14);
  uint64_t sequence = 0;
  queue->Submit(waiting, &sequence);
  EXPECT_EQ(queue->Wait(sequence, In(absl::Milliseconds(20))), ETIME);
  ASSERT_EQ(queue->Wait(sequence, In(absl::Seconds(30))), 0);
  EXPECT_EQ(StateOf(waiting), CommandState::kTimeout);
}

TEST_F(CommandQueueTest, AChainStopsAtTheFirstCommandThatFails) {
  const auto queue = MakeQueue({});
  Submission chain = Packet(0);
  for (const uint64_t value : {1, 13, 5}) chain.commands.push_back(Packet(value).packet);
  uint64_t sequence = 0;
  queue->Submit(chain, &sequence);
  ASSERT_EQ(queue->Wait(sequence, In(absl::Seconds(30))), 0);
  EXPECT_EQ(StateOf(chain), CommandState::kError);
  EXPECT_EQ(reinterpret_cast<const uint32_t*>(chain.packet->host)[3], 1u) << "which one failed";
  EXPECT_EQ(sum_, 1u);
}

TEST_F(CommandQueueTest, AQueueThatEndsDoesNotWaitForAHangingCommand) {
  auto queue = MakeQueue({.hang_ms = 60000}, absl::Seconds(60));
  const Submission hanging = Packet(1);
  uint64_t sequence = 0;
  queue->Submit(hanging, &sequence);
  const absl::Time start = absl::Now();
  queue.reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_EQ(StateOf(hanging), CommandState::kAbort);
}

}  // namespace
}  // namespace tandem::npu::emulator

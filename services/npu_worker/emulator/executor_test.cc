#include "services/npu_worker/emulator/executor.h"

#include <gtest/gtest.h>

#include <atomic>

#include "services/common/testing/status_matchers.h"

namespace tandem::npu::emulator {
namespace {

class ExecutorTest : public ::testing::Test {
 protected:
  // A command buffer with a start packet whose instruction count is `tag`.
  Handle Command(uint32_t tag) {
    const Handle handle = *buffers_.Allocate(4096, 0, /*exportable=*/false);
    auto* words = reinterpret_cast<uint32_t*>(buffers_.Find(handle)->host);
    words[0] = 1 | 6u << 12;
    words[1] = 1;  // CU 0
    words[6] = tag;
    return handle;
  }
  uint32_t State(Handle handle) {
    auto* words = reinterpret_cast<uint32_t*>(buffers_.Find(handle)->host);
    return std::atomic_ref<uint32_t>(words[0]).load() & 0xF;
  }

  AddressSpace space_;
  BufferTable buffers_{space_};
  std::vector<uint32_t> seen_;
  CommandHandler record_ = [this](const Invocation& run, const AddressSpace::View&) {
    seen_.push_back(run.num_instruction_words);
    return run.num_instruction_words == 13 ? absl::InternalError("unlucky") : absl::OkStatus();
  };
};

TEST_F(ExecutorTest, RunsCommandsInOrderAndReportsEachOnce) {
  Executor executor(space_, buffers_, record_, {});
  const Handle commands[] = {Command(1), Command(13), Command(3)};
  for (const Handle command : commands) ASSERT_TRUE(executor.Submit(command));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(executor.WaitForCompletion(absl::Seconds(60)));
  EXPECT_FALSE(executor.WaitForCompletion(absl::Milliseconds(1)));
  EXPECT_EQ(seen_, (std::vector<uint32_t>{1, 13, 3}));
  EXPECT_EQ(State(commands[0]), 4u);
  EXPECT_EQ(State(commands[1]), 5u);
  EXPECT_EQ(State(commands[2]), 4u);
}

TEST_F(ExecutorTest, RefusesHandlesThatAreNoBuffers) {
  Executor executor(space_, buffers_, record_, {});
  EXPECT_FALSE(executor.Submit(99));
}

TEST_F(ExecutorTest, ASilentDeviceReportsSuccessWithoutRunning) {
  Executor executor(space_, buffers_, record_, {.silent = true});
  const Handle command = Command(1);
  ASSERT_TRUE(executor.Submit(command));
  ASSERT_TRUE(executor.WaitForCompletion(absl::Seconds(60)));
  EXPECT_TRUE(seen_.empty());
  EXPECT_EQ(State(command), 4u);
}

TEST_F(ExecutorTest, AHangingCommandDoesNotKeepItFromEnding) {
  const Handle command = Command(1);
  {
    Executor executor(space_, buffers_, record_, {.hang_ms = 3600 * 1000});
    ASSERT_TRUE(executor.Submit(command));
    EXPECT_FALSE(executor.WaitForCompletion(absl::Milliseconds(1)));
  }
  buffers_.Free(command);
}

}  // namespace
}  // namespace tandem::npu::emulator

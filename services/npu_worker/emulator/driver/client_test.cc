#include "services/npu_worker/emulator/driver/client.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace tandem::npu::emulator {
namespace {

constexpr uint32_t kWholeArray = 8 * kCoreRows;

// A process on a device whose commands copy a byte from the first buffer to the second.
class DriverClientTest : public ::testing::Test {
 protected:
  explicit DriverClientTest(Faults faults = {}, const char* profile = "npu4")
      : device_(*FindProfile(profile), faults,
                [](auto, auto, auto) { return CommandHandler(&Copy); }),
        client_(device_) {}

  static absl::Status Copy(const Invocation& invocation, const AddressSpace::View& view) {
    const auto from = view.Buffer(invocation.buffers[0]);
    if (!from.ok()) return from.status();
    const auto to = view.Buffer(invocation.buffers[1]);
    if (!to.ok()) return to.status();
    (*to)[0] = (*from)[0];
    return absl::OkStatus();
  }
  uint32_t Make(BufferKind kind, uint64_t bytes) {
    uint32_t handle = 0;
    EXPECT_EQ(client_.buffers().Create(kind, bytes, &handle), 0);
    return handle;
  }
  uint64_t AddressOf(uint32_t handle) { return client_.buffers().Find(handle)->address; }
  std::byte* HostOf(uint32_t handle) { return client_.buffers().Find(handle)->host; }
  uint32_t* WordsOf(uint32_t handle) { return reinterpret_cast<uint32_t*>(HostOf(handle)); }
  // A command that copies the byte at `from` to `to`, device addresses.
  uint32_t MakeCommand(uint64_t from, uint64_t to) {
    const uint32_t handle = Make(BufferKind::kCommand, 4096);
    uint32_t* words = WordsOf(handle);
    words[0] = 16u << 12;
    words[1] = 1;
    std::memcpy(words + 7, &from, sizeof(from));
    std::memcpy(words + 9, &to, sizeof(to));
    return handle;
  }
  uint32_t MakeContext() {
    Make(BufferKind::kHeap, kHeapChunkBytes);
    uint32_t context = 0;
    EXPECT_EQ(client_.CreateContext(kWholeArray, &context), 0);
    return context;
  }
  // Submits and waits; the command's state.
  CommandState Run(uint32_t context, uint32_t command) {
    uint64_t sequence = 0;
    EXPECT_EQ(client_.Submit(context, command, {}, &sequence), 0);
    EXPECT_EQ(client_.Wait(context, sequence, absl::Now() + absl::Seconds(30)), 0);
    return static_cast<CommandState>(WordsOf(command)[0] & 0xF);
  }

  DriverDevice device_;
  DriverClient client_;
};

TEST_F(DriverClientTest, AContextNeedsAHeapAndTakesRoomInIt) {
  uint32_t context = 0;
  EXPECT_EQ(client_.CreateContext(kWholeArray, &context), ENOENT);
  context = MakeContext();
  ASSERT_EQ(client_.contexts().size(), 1u);
  EXPECT_EQ(client_.contexts()[0].num_columns, 8u);
  uint32_t handle = 0;
  EXPECT_EQ(client_.buffers().Create(BufferKind::kDevice, kHeapChunkBytes, &handle), EAGAIN)
      << "the context's four command buffers lie in it";
  EXPECT_EQ(client_.DestroyContext(context), 0);
  EXPECT_EQ(client_.buffers().Create(BufferKind::kDevice, kHeapChunkBytes, &handle), 0);
  EXPECT_EQ(client_.DestroyContext(context), EINVAL);
}

TEST_F(DriverClientTest, AnAccessPastABufferIsAnErrorAndTheNeighbourIsUntouched) {
  const uint32_t context = MakeContext();
  const uint32_t from = Make(BufferKind::kShared, 4096);
  const uint32_t to = Make(BufferKind::kShared, 4096);
  HostOf(from)[0] = std::byte{42};
  EXPECT_EQ(Run(context, MakeCommand(AddressOf(from), AddressOf(to) + 4095)),
            CommandState::kCompleted);
  EXPECT_EQ(HostOf(to)[4095], std::byte{42});
  const uint32_t neighbour = Make(BufferKind::kShared, 4096);
  EXPECT_EQ(Run(context, MakeCommand(AddressOf(from), AddressOf(to) + 4096)), CommandState::kError);
  EXPECT_EQ(Run(context, MakeCommand(AddressOf(to) - 1, AddressOf(to))), CommandState::kError);
  for (int i = 0; i < 4096; ++i) ASSERT_EQ(HostOf(neighbour)[i], std::byte{0});
}

TEST_F(DriverClientTest, BuffersOfTheHeapHaveNoRoomBetweenThemAndStillBounds) {
  const uint32_t context = MakeContext();
  const uint32_t from = Make(BufferKind::kDevice, 100);
  const uint32_t next = Make(BufferKind::kDevice, 100);
  EXPECT_EQ(AddressOf(next), AddressOf(from) + kHeapAlignment);
  const uint32_t to = Make(BufferKind::kShared, 4096);
  HostOf(from)[0] = std::byte{9};
  EXPECT_EQ(Run(context, MakeCommand(AddressOf(from), AddressOf(to))), CommandState::kCompleted);
  EXPECT_EQ(HostOf(to)[0], std::byte{9});
  EXPECT_EQ(Run(context, MakeCommand(AddressOf(from) + 4096, AddressOf(to))), CommandState::kError);
}

TEST_F(DriverClientTest, ASubmittedCommandKeepsItsArguments) {
  const uint32_t context = MakeContext();
  const uint32_t from = Make(BufferKind::kShared, 4096);
  const uint32_t to = Make(BufferKind::kShared, 4096);
  const uint64_t address = AddressOf(from);
  uint64_t sequence = 0;
  const uint32_t arguments[] = {from, to};
  const uint32_t command = MakeCommand(address, AddressOf(to));
  ASSERT_EQ(client_.Submit(context, command, arguments, &sequence), 0);
  EXPECT_EQ(client_.buffers().Close(from), 0);
  ASSERT_EQ(client_.Wait(context, sequence, absl::Now() + absl::Seconds(30)), 0);
  EXPECT_EQ(static_cast<CommandState>(WordsOf(command)[0] & 0xF), CommandState::kCompleted);
  EXPECT_EQ(client_.Submit(context, command, arguments, &sequence), ENOENT) << "closed by now";
  EXPECT_EQ(Run(context, command), CommandState::kError) << "and no longer mapped";
}

TEST_F(DriverClientTest, AChainThatDoesNotFitItsPageIsRefused) {
  const uint32_t context = MakeContext();
  const uint32_t from = Make(BufferKind::kShared, 4096);
  const uint32_t command = MakeCommand(AddressOf(from), AddressOf(from));
  const uint64_t slot = ChainSlotBytes({WordsOf(command), 1024});
  EXPECT_EQ(slot, 52u + 4 * 15);
  const auto submit = [&](uint64_t count) {
    const uint32_t chain = Make(BufferKind::kCommand, 4096);
    uint32_t* words = WordsOf(chain);
    words[0] = 19u << 23 | static_cast<uint32_t>(6 + 2 * count) << 12;
    words[1] = static_cast<uint32_t>(count);
    for (uint64_t i = 0; i < count; ++i) words[7 + 2 * i] = command;
    uint64_t sequence = 0;
    return client_.Submit(context, chain, {}, &sequence);
  };
  EXPECT_EQ(submit(kChainBytes / slot), 0);
  EXPECT_EQ(submit(kChainBytes / slot + 1), EINVAL);
  EXPECT_EQ(submit(0), EINVAL);
}

TEST_F(DriverClientTest, UserMemoryIsWholePagesAndGoneOnceItIsClosed) {
  const uint32_t context = MakeContext();
  void* memory = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint32_t handle = 0;
  EXPECT_EQ(client_.buffers().Wrap(static_cast<std::byte*>(memory) + 8, 4096, &handle), EINVAL);
  EXPECT_EQ(client_.buffers().Wrap(memory, 100, &handle), EINVAL);
  ASSERT_EQ(client_.buffers().Wrap(memory, 8192, &handle), 0);
  const uint32_t command = MakeCommand(AddressOf(handle), AddressOf(handle) + 8191);
  static_cast<std::byte*>(memory)[0] = std::byte{5};
  EXPECT_EQ(Run(context, command), CommandState::kCompleted);
  EXPECT_EQ(static_cast<std::byte*>(memory)[8191], std::byte{5});
  EXPECT_EQ(client_.buffers().Close(handle), 0);
  ::munmap(memory, 8192);
  EXPECT_EQ(Run(context, command), CommandState::kError);
}

TEST_F(DriverClientTest, BuffersAreSharedByDescriptorAndOtherFilesAreNot) {
  const uint32_t handle = Make(BufferKind::kShared, 4096);
  int fd = -1;
  ASSERT_EQ(client_.buffers().Export(handle, &fd), 0);
  const UniqueFd exported(fd);
  uint32_t imported = 0;
  ASSERT_EQ(client_.buffers().Import(fd, &imported), 0);
  EXPECT_EQ(imported, handle) << "as DRM has it";
  DriverClient other(device_);
  ASSERT_EQ(other.buffers().Import(fd, &imported), 0);
  HostOf(handle)[17] = std::byte{3};
  EXPECT_EQ(other.buffers().Find(imported)->host[17], std::byte{3});
  const UniqueFd file(::memfd_create("weights", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  EXPECT_EQ(client_.buffers().Import(file.get(), &imported), EINVAL);
}

TEST_F(DriverClientTest, ConfigurationsAreDeviceBuffersAndGivenOnce) {
  const uint32_t context = MakeContext();
  const uint32_t shared[] = {Make(BufferKind::kShared, 4096)};
  const uint32_t configuration[] = {Make(BufferKind::kDevice, 4096)};
  EXPECT_EQ(client_.ConfigureContext(context, shared), EINVAL);
  EXPECT_EQ(client_.ConfigureContext(context, {}), EINVAL);
  const std::vector<uint32_t> too_many(kMaxConfigurations + 1, configuration[0]);
  EXPECT_EQ(client_.ConfigureContext(context, too_many), EINVAL);
  EXPECT_EQ(client_.ConfigureContext(context, configuration), 0);
  EXPECT_EQ(client_.ConfigureContext(context, configuration), EINVAL);
}

TEST_F(DriverClientTest, SubmissionsAndChangesOfContextsAreCounted) {
  const uint32_t first = MakeContext();
  uint32_t second = 0;
  EXPECT_EQ(client_.CreateContext(kWholeArray, &second), 0);
  const uint32_t from = Make(BufferKind::kShared, 4096);
  for (const uint32_t context : {first, first, second, first}) {
    Run(context, MakeCommand(AddressOf(from), AddressOf(from)));
  }
  EXPECT_EQ(client_.DestroyContext(second), 0);
  const DriverCounts counts = device_.counts();
  EXPECT_EQ(counts.submissions, 4u);
  EXPECT_EQ(counts.commands, 4u);
  EXPECT_EQ(counts.context_changes, 2u);
  EXPECT_EQ(counts.open_contexts, 1u);
  EXPECT_EQ(counts.most_contexts, 2u);
}

class OtherProcessTest : public DriverClientTest {
 protected:
  OtherProcessTest() : DriverClientTest({.other_contexts = 5}, "npu1") {}
};

TEST_F(OtherProcessTest, ItsContextsCount) {
  Make(BufferKind::kHeap, kHeapChunkBytes);
  uint32_t context = 0;
  EXPECT_EQ(client_.CreateContext(4 * kCoreRows, &context), 0) << "the sixth";
  EXPECT_EQ(client_.CreateContext(4 * kCoreRows, &context), EINVAL) << "the seventh";
}

class SilentFirmwareTest : public DriverClientTest {
 protected:
  SilentFirmwareTest() : DriverClientTest({.firmware_timeout = 2}) {}
};

TEST_F(SilentFirmwareTest, ATimeOutOfTheFirmwareEndsItsChannel) {
  const uint32_t context = MakeContext();
  uint32_t other = 0;
  EXPECT_EQ(client_.CreateContext(kWholeArray, &other), ETIME);
  EXPECT_EQ(client_.CreateContext(kWholeArray, &other), ENODEV);
  EXPECT_EQ(device_.num_contexts(), 1u);
  EXPECT_EQ(client_.DestroyContext(context), 0);
}

}  // namespace
}  // namespace tandem::npu::emulator

#include "services/gpu_worker/emulator/driver/command_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/gpu_worker/emulator/driver/packet_stream_for_test.h"

namespace tandem::rdna {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBase = PacketBench::kBase;
constexpr uint32_t kChained = 1 << 20, kValid = 1 << 23;

void ExpectFailure(const std::optional<Failure>& failure, Failure::Kind kind, const char* what) {
  ASSERT_TRUE(failure.has_value()) << "expected: " << what;
  EXPECT_EQ(failure->kind, kind);
  EXPECT_THAT(failure->what, HasSubstr(what));
}

TEST(CommandProcessorTest, DispatchesWithTheRegistersThatWereSet) {
  PacketBench bench;
  bench.Packet(pm4::kSetShReg, {pm4::kPgmLo, 0x00100007, 0x80});
  bench.Packet(pm4::kSetShReg, {pm4::kPgmRsrc1, 0x602c0007, 0x00000596});
  bench.Packet(pm4::kSetShReg, {pm4::kPgmRsrc3, 0x00400000});
  bench.Packet(pm4::kSetShReg, {pm4::kNumThreadX, 128, 2, 1});
  bench.Packet(pm4::kSetShReg, {pm4::kUserData0 + 2, 0x11, 0x22});
  bench.Packet(pm4::kDispatchDirect, {3, 4, 5, 0x8045});
  ASSERT_FALSE(bench.Run().has_value());
  ASSERT_EQ(bench.dispatches.size(), 1u);
  const Dispatch& dispatch = bench.dispatches[0];
  EXPECT_EQ(dispatch.code, 0x800010000700u);
  EXPECT_EQ(dispatch.rsrc1, 0x602c0007u);
  EXPECT_EQ(dispatch.rsrc2, 0x596u);
  EXPECT_EQ(dispatch.rsrc3, 0x400000u);
  EXPECT_EQ(dispatch.groups, (Size3{3, 4, 5}));
  EXPECT_EQ(dispatch.group_size, (Size3{128, 2, 1}));
  EXPECT_EQ(dispatch.first_group, (Size3{0, 0, 0}));
  EXPECT_TRUE(dispatch.wave32);
  EXPECT_EQ(dispatch.user_sgprs[2], 0x11u);
  EXPECT_EQ(dispatch.user_sgprs[3], 0x22u);
  EXPECT_EQ(dispatch.scratch, 0u);  // not enabled in RSRC2
}

TEST(CommandProcessorTest, KeepsRegistersBetweenSubmissions) {
  PacketBench bench;
  bench.Packet(pm4::kSetShReg, {pm4::kUserData0, 7});
  ASSERT_FALSE(bench.Run().has_value());
  bench.Seek(kBase);
  bench.Packet(pm4::kDispatchDirect, {1, 1, 1, 5});
  ASSERT_FALSE(bench.Run().has_value());
  ASSERT_EQ(bench.dispatches.size(), 1u);
  EXPECT_EQ(bench.dispatches[0].user_sgprs[0], 7u);
  EXPECT_FALSE(bench.dispatches[0].wave32);
}

TEST(CommandProcessorTest, SetsRegistersInPairs) {
  PacketBench bench;
  bench.Packet(pm4::kSetShRegPairs, {pm4::kUserData0, 1, pm4::kUserData0 + 1, 2});
  bench.Packet(pm4::kSetShRegPairsPacked,
               {2, (pm4::kUserData0 + 3) << 16 | (pm4::kUserData0 + 2), 3, 4});
  bench.Packet(pm4::kDispatchDirect, {1, 1, 1, 5});
  ASSERT_FALSE(bench.Run().has_value());
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(bench.dispatches.at(0).user_sgprs[i], i + 1);
}

TEST(CommandProcessorTest, LoadsRegistersFromMemory) {
  PacketBench bench;
  bench.Write<uint32_t>(kBenchData, 5);
  bench.Write<uint32_t>(kBenchData + 4, 6);
  bench.Packet(pm4::kLoadShRegIndex, {Low(kBenchData), High(kBenchData), pm4::kUserData0 + 4, 2});
  bench.Packet(pm4::kDispatchDirect, {1, 1, 1, 5});
  ASSERT_FALSE(bench.Run().has_value());
  EXPECT_EQ(bench.dispatches.at(0).user_sgprs[4], 5u);
  EXPECT_EQ(bench.dispatches.at(0).user_sgprs[5], 6u);
}

TEST(CommandProcessorTest, ReadsTheGroupsOfIndirectDispatches) {
  PacketBench bench;
  for (uint32_t i = 0; i < 3; ++i) bench.Write<uint32_t>(kBenchData + 16 + i * 4, 10 + i);
  // As compute rings have it, and as the graphics ring has it.
  bench.Packet(pm4::kDispatchIndirect, {Low(kBenchData + 16), High(kBenchData + 16), 5});
  bench.Packet(pm4::kSetBase, {1, Low(kBenchData), High(kBenchData)});
  bench.Packet(pm4::kDispatchIndirect, {16, 5});
  ASSERT_FALSE(bench.Run().has_value());
  ASSERT_EQ(bench.dispatches.size(), 2u);
  for (const Dispatch& dispatch : bench.dispatches) {
    EXPECT_EQ(dispatch.groups, (Size3{10, 11, 12}));
  }
}

TEST(CommandProcessorTest, SkipsPaddingOfEveryKind) {
  PacketBench bench;
  bench.Word(pm4::kType2Nop);
  bench.Word(uint32_t{3} << 30 | pm4::kHeaderOnlyCount << 16 | pm4::kNop << 8);
  bench.Packet(pm4::kNop, {0xffffffff, 0xffffffff});
  bench.Packet(pm4::kAcquireMem, {0, 0, 0, 0, 0, 0, 0});
  bench.Packet(pm4::kEventWrite, {pm4::kCsPartialFlush | 4 << 8});
  bench.Packet(pm4::kDispatchDirect, {1, 1, 1, 5});
  ASSERT_FALSE(bench.Run().has_value());
  EXPECT_EQ(bench.dispatches.size(), 1u);
}

TEST(CommandProcessorTest, ChainsToOtherBuffersAndReturnsFromCalledOnes) {
  PacketBench bench;
  constexpr uint64_t kCalled = kBase + 0x1000, kNext = kBase + 0x2000;
  bench.Packet(pm4::kIndirectBuffer, {Low(kCalled), High(kCalled), 5});
  bench.Packet(pm4::kDispatchDirect, {2, 1, 1, 5});
  bench.Packet(pm4::kIndirectBuffer, {Low(kNext), High(kNext), 5 | kChained | kValid});
  bench.Packet(pm4::kDispatchDirect, {99, 1, 1, 5});  // behind a chain: not reached
  const uint32_t words = 4 + 5 + 4 + 5;
  bench.Seek(kCalled);
  bench.Packet(pm4::kDispatchDirect, {1, 1, 1, 5});
  bench.Seek(kNext);
  bench.Packet(pm4::kDispatchDirect, {3, 1, 1, 5});
  ASSERT_FALSE(bench.Run(kBase, words).has_value());
  ASSERT_EQ(bench.dispatches.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(bench.dispatches[i].groups[0], i + 1);
}

TEST(CommandProcessorTest, EndsALoopOfBuffersAsAHang) {
  PacketBench bench;
  bench.Packet(pm4::kIndirectBuffer, {Low(kBase), High(kBase), 4 | kChained | kValid});
  ExpectFailure(bench.Run(), Failure::Kind::kHang, "without an end");
}

TEST(CommandProcessorTest, EndsCallsThatCallThemselves) {
  PacketBench bench;
  bench.Packet(pm4::kIndirectBuffer, {Low(kBase), High(kBase), 4});
  ExpectFailure(bench.Run(), Failure::Kind::kUnknown, "three deep");
}

TEST(CommandProcessorTest, SkipsWordsIfAConditionIsZero) {
  PacketBench bench;
  for (const uint32_t condition : {0u, 1u}) {
    bench.Seek(kBase);
    bench.Write<uint32_t>(kBenchData, condition);
    bench.Packet(pm4::kCondExec, {Low(kBenchData), High(kBenchData), 0, 5});
    bench.Packet(pm4::kDispatchDirect, {condition + 1, 1, 1, 5});
    bench.Packet(pm4::kDispatchDirect, {10, 1, 1, 5});
    ASSERT_FALSE(bench.Run().has_value());
  }
  ASSERT_EQ(bench.dispatches.size(), 3u);  // one of the first run, two of the second
  EXPECT_EQ(bench.dispatches[0].groups[0], 10u);
  EXPECT_EQ(bench.dispatches[1].groups[0], 2u);
}

TEST(CommandProcessorTest, PredicationSkipsMarkedPackets) {
  PacketBench bench;
  const auto dispatch = [&bench](uint32_t groups) {
    bench.Word(pm4::Header(pm4::kDispatchDirect, 4) | 1);
    for (const uint32_t word : {groups, 1u, 1u, 5u}) bench.Word(word);
  };
  bench.Write<uint64_t>(kBenchData, 0);
  bench.Packet(pm4::kSetPredication, {3 << 16 | 1 << 8, Low(kBenchData), High(kBenchData)});
  dispatch(1);  // needs a value that is not set
  bench.Packet(pm4::kSetPredication, {3 << 16, Low(kBenchData), High(kBenchData)});
  dispatch(2);  // inverted
  bench.Packet(pm4::kSetPredication, {0, 0, 0});
  dispatch(3);
  ASSERT_FALSE(bench.Run().has_value());
  ASSERT_EQ(bench.dispatches.size(), 2u);
  EXPECT_EQ(bench.dispatches[0].groups[0], 2u);
  EXPECT_EQ(bench.dispatches[1].groups[0], 3u);
}

TEST(CommandProcessorTest, NamesPacketsThatAreNotEmulated) {
  for (const auto& [opcode, name] : {std::pair<int, const char*>{0x2d, "DRAW_INDEX_AUTO"},
                                     {0x1e, "ATOMIC_MEM"},
                                     {0x01, "0x1"}}) {
    PacketBench bench;
    bench.Packet(static_cast<pm4::Opcode>(opcode), {0, 0, 0});
    ExpectFailure(bench.Run(), Failure::Kind::kUnknown, name);
  }
  PacketBench bench;
  bench.Word(0x00001234);  // type 0
  ExpectFailure(bench.Run(), Failure::Kind::kUnknown, "type 0");
}

TEST(CommandProcessorTest, NamesFormsOfPacketsThatAreNotEmulated) {
  const auto expect = [](pm4::Opcode opcode, std::initializer_list<uint32_t> body,
                         const char* what) {
    PacketBench bench;
    bench.Packet(opcode, body);
    ExpectFailure(bench.Run(), Failure::Kind::kUnknown, what);
  };
  expect(pm4::kEventWrite, {0x15}, "event 21");
  expect(pm4::kCopyData, {0 | 5 << 8, 0, 0, Low(kBenchData), High(kBenchData)},
         "COPY_DATA from source 0");
  expect(pm4::kCopyData, {5, 0, 0, 0, 0}, "COPY_DATA to destination 0");
  expect(pm4::kWriteData, {0, 0, 0, 1}, "WRITE_DATA to destination 0");
  expect(pm4::kDmaData, {1 << 29, 0, 0, Low(kBenchData), High(kBenchData), 4},
         "DMA_DATA from source 1");
  expect(pm4::kDmaData, {0, 0, 0, Low(kBenchData), High(kBenchData), 4 | 1 << 26},
         "DMA_DATA with command");
  expect(pm4::kReleaseMem, {40, 5u << 29, 0, 0, 0, 0, 0}, "RELEASE_MEM of data 5");
  expect(pm4::kWaitRegMem, {3, 0, 0, 0, 0, 0}, "WAIT_REG_MEM with control");
  expect(pm4::kSetPredication, {1 << 16, 0, 0}, "SET_PREDICATION of operation 1");
  expect(pm4::kSetShReg, {pm4::kShRegisters, 1}, "beyond the last");
}

TEST(CommandProcessorTest, FaultsAtTruncatedPackets) {
  PacketBench bench;
  bench.Packet(pm4::kDispatchDirect, {1, 1, 1, 5});
  ExpectFailure(bench.Run(kBase, 4), Failure::Kind::kFault, "a truncated DISPATCH_DIRECT");
  // Complete by its header, but too short for what it is.
  bench.Seek(kBase);
  bench.Packet(pm4::kDispatchDirect, {1, 1});
  ExpectFailure(bench.Run(), Failure::Kind::kFault, "a truncated DISPATCH_DIRECT");
  EXPECT_TRUE(bench.dispatches.empty());
  bench.Seek(kBase);
  bench.Packet(pm4::kCondExec, {Low(kBenchData), High(kBenchData), 0, 100});
  ExpectFailure(bench.Run(), Failure::Kind::kFault, "beyond its buffer");
}

TEST(CommandProcessorTest, FaultsAtBuffersThatAreNotMapped) {
  PacketBench bench;
  ExpectFailure(bench.Run(0x1000, 8), Failure::Kind::kFault, "an indirect buffer");
  // The last word is outside.
  ExpectFailure(bench.Run(kBase + PacketBench::kBytes - 4, 2), Failure::Kind::kFault,
                "an indirect buffer");
  ExpectFailure(bench.Run(kBase + 2, 2), Failure::Kind::kFault, "an odd address");
  bench.Packet(pm4::kIndirectBuffer, {0x1000, 0, 4 | kChained});
  const std::optional<Failure> failure = bench.Run();
  ExpectFailure(failure, Failure::Kind::kFault, "an indirect buffer");
  EXPECT_EQ(failure->address, 0x1000u);
}

TEST(CommandProcessorTest, StopsAtTheFirstFailedDispatch) {
  PacketBench bench;
  bench.dispatch_result = Failure{.what = "stray", .address = 0x42};
  bench.Packet(pm4::kDispatchDirect, {1, 1, 1, 5});
  bench.Packet(pm4::kDispatchDirect, {1, 1, 1, 5});
  ExpectFailure(bench.Run(), Failure::Kind::kFault, "stray");
  EXPECT_EQ(bench.dispatches.size(), 1u);
}

TEST(CommandProcessorTest, RunsAnEmptyBuffer) {
  PacketBench bench;
  EXPECT_FALSE(bench.Run(kBase, 0).has_value());
}

}  // namespace
}  // namespace tandem::rdna

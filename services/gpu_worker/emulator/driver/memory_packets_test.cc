#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "services/gpu_worker/emulator/driver/packet_stream_for_test.h"

namespace tandem::rdna {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kEnd = PacketBench::kBase + PacketBench::kBytes;
constexpr uint32_t kValue32 = 1u << 29, kValue64 = 2u << 29, kTimestamp = 3u << 29;
constexpr uint32_t kFromData = 2u << 29, kToL2 = 3u << 20, kFromL2 = 3u << 29;

void ExpectFault(const std::optional<Failure>& failure, uint64_t address) {
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->kind, Failure::Kind::kFault);
  EXPECT_EQ(failure->address, address);
}

TEST(MemoryPacketsTest, WriteDataWritesItsWords) {
  PacketBench bench;
  bench.Packet(pm4::kWriteData, {5 << 8 | 1 << 20, Low(kBenchData), High(kBenchData), 1, 2, 3});
  bench.Packet(pm4::kWriteData, {5 << 8 | 1 << 16, Low(kBenchData + 64), High(kBenchData), 8, 9});
  ASSERT_FALSE(bench.Run().has_value());
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(bench.Read<uint32_t>(kBenchData + 4 * i), i + 1);
  EXPECT_EQ(bench.Read<uint32_t>(kBenchData + 64), 9u);  // both to one address
  EXPECT_EQ(bench.Read<uint32_t>(kBenchData + 68), 0u);
}

TEST(MemoryPacketsTest, CopyDataCopiesOneWordOrTwo) {
  PacketBench bench;
  bench.Write<uint64_t>(kBenchData, 0x1122334455667788);
  bench.Packet(pm4::kCopyData, {1 | 5 << 8, Low(kBenchData), High(kBenchData), Low(kBenchData + 16),
                                High(kBenchData)});
  bench.Packet(pm4::kCopyData, {1 | 5 << 8 | 1 << 16, Low(kBenchData), High(kBenchData),
                                Low(kBenchData + 32), High(kBenchData)});
  bench.Packet(pm4::kCopyData, {5 | 5 << 8, 77, 1, Low(kBenchData + 48), High(kBenchData)});
  ASSERT_FALSE(bench.Run().has_value());
  EXPECT_EQ(bench.Read<uint64_t>(kBenchData + 16), 0x55667788u);
  EXPECT_EQ(bench.Read<uint64_t>(kBenchData + 32), 0x1122334455667788u);
  EXPECT_EQ(bench.Read<uint64_t>(kBenchData + 48), 77u);
}

TEST(MemoryPacketsTest, TimestampsOnlyGrow) {
  PacketBench bench;
  const uint32_t copy = 9 | 5 << 8 | 1 << 16;
  bench.Packet(pm4::kCopyData, {copy, 0, 0, Low(kBenchData), High(kBenchData)});
  bench.Packet(pm4::kReleaseMem,
               {40 | 5 << 8, kTimestamp, Low(kBenchData + 8), High(kBenchData), 0, 0, 0});
  // A copy takes time: at 89.6 GB/s 16 KiB there and back are 366 ns.
  bench.Packet(pm4::kDmaData, {kFromL2 | kToL2, Low(kBenchData), High(kBenchData), Low(kBenchData),
                               High(kBenchData), 16 << 10});
  bench.Packet(pm4::kCopyData, {copy, 0, 0, Low(kBenchData + 16), High(kBenchData)});
  ASSERT_FALSE(bench.Run().has_value());
  const uint64_t first = bench.Read<uint64_t>(kBenchData),
                 second = bench.Read<uint64_t>(kBenchData + 8);
  EXPECT_LT(first, second);
  EXPECT_GT(bench.Read<uint64_t>(kBenchData + 16), second + 30);
}

TEST(MemoryPacketsTest, DmaFillsAndCopies) {
  PacketBench bench;
  bench.Packet(pm4::kDmaData,
               {kFromData | kToL2, 0xa1b2c3d4, 0, Low(kBenchData), High(kBenchData), 8});
  // Odd sizes at odd addresses.
  bench.Packet(pm4::kDmaData, {kFromL2 | kToL2, Low(kBenchData + 1), High(kBenchData),
                               Low(kBenchData + 101), High(kBenchData), 5});
  ASSERT_FALSE(bench.Run().has_value());
  EXPECT_EQ(bench.Read<uint64_t>(kBenchData), 0xa1b2c3d4a1b2c3d4u);
  EXPECT_EQ(bench.Read<uint64_t>(kBenchData + 8), 0u);
  EXPECT_EQ(bench.Read<uint8_t>(kBenchData + 100), 0u);
  EXPECT_EQ(bench.Read<uint32_t>(kBenchData + 101), 0xd4a1b2c3u);
  EXPECT_EQ(bench.Read<uint8_t>(kBenchData + 105), 0xc3u);
  EXPECT_EQ(bench.Read<uint8_t>(kBenchData + 106), 0u);
}

TEST(MemoryPacketsTest, DmaToNowhereIsAPrefetchAndOfNothingAWait) {
  PacketBench bench;
  bench.Packet(pm4::kDmaData, {kFromL2 | 2u << 20, 0x1000, 0, 0x1000, 0, 64});
  bench.Packet(pm4::kDmaData, {1u << 31, 0, 0, 0, 0, 0});
  EXPECT_FALSE(bench.Run().has_value());
}

TEST(MemoryPacketsTest, ReleaseMemWritesFences) {
  PacketBench bench;
  bench.Write<uint64_t>(kBenchData, ~uint64_t{0});
  bench.Packet(pm4::kReleaseMem,
               {40 | 5 << 8, kValue32, Low(kBenchData), High(kBenchData), 3, 4, 0});
  bench.Packet(pm4::kReleaseMem,
               {47 | 6 << 8, kValue64, Low(kBenchData + 8), High(kBenchData), 3, 4, 0});
  bench.Packet(pm4::kReleaseMem, {40 | 5 << 8, 0, 0, 0, 0, 0, 0});  // writes nothing
  ASSERT_FALSE(bench.Run().has_value());
  EXPECT_EQ(bench.Read<uint64_t>(kBenchData), 0xffffffff00000003u);
  EXPECT_EQ(bench.Read<uint64_t>(kBenchData + 8), 0x400000003u);
}

TEST(MemoryPacketsTest, WaitRegMemWaitsForTheHost) {
  PacketBench bench;
  bench.Packet(pm4::kWaitRegMem, {3 | 1 << 4, Low(kBenchData), High(kBenchData), 5, 0xff, 4});
  bench.Packet(pm4::kWriteData, {5 << 8, Low(kBenchData + 8), High(kBenchData), 1});
  std::thread host([&bench] {
    bench.WriteAtomic(kBenchData, 0x105);  // equal under the mask
  });
  EXPECT_FALSE(bench.Run().has_value());
  host.join();
  EXPECT_EQ(bench.Read<uint32_t>(kBenchData + 8), 1u);
}

TEST(MemoryPacketsTest, WaitRegMemKnowsItsComparisons) {
  struct Case {
    uint32_t function, value;
    bool over;
  };
  for (const Case& c : {Case{0, 0, true},
                        {1, 4, true},
                        {1, 5, false},
                        {2, 5, true},
                        {2, 6, false},
                        {3, 5, true},
                        {3, 4, false},
                        {4, 4, true},
                        {4, 5, false},
                        {5, 5, true},
                        {5, 4, false},
                        {6, 6, true},
                        {6, 5, false}}) {
    PacketBench bench(/*hang_ms=*/0);
    bench.Write<uint32_t>(kBenchData, c.value);
    bench.Packet(pm4::kWaitRegMem,
                 {c.function | 1 << 4, Low(kBenchData), High(kBenchData), 5, 0xffffffff, 4});
    EXPECT_EQ(!bench.Run().has_value(), c.over) << c.function << " of " << c.value;
  }
}

TEST(MemoryPacketsTest, AWaitForWhatDoesNotComeIsAHang) {
  PacketBench bench(/*hang_ms=*/1);
  bench.Packet(pm4::kWaitRegMem, {3 | 1 << 4, Low(kBenchData), High(kBenchData), 5, 0xff, 4});
  const std::optional<Failure> failure = bench.Run();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->kind, Failure::Kind::kHang);
  EXPECT_THAT(failure->what, HasSubstr("WAIT_REG_MEM"));
}

TEST(MemoryPacketsTest, FaultsAtAddressesOutOfBounds) {
  const auto expect = [](pm4::Opcode opcode, std::initializer_list<uint32_t> body,
                         uint64_t address) {
    PacketBench bench;
    bench.Packet(opcode, body);
    ExpectFault(bench.Run(), address);
  };
  const uint32_t high = High(kEnd);
  expect(pm4::kWriteData, {5 << 8, Low(kEnd - 4), high, 1, 2}, kEnd);
  expect(pm4::kCopyData, {5 | 5 << 8 | 1 << 16, 0, 0, Low(kEnd - 4), high}, kEnd - 4);
  expect(pm4::kCopyData, {1 | 5 << 8, 0, 0, Low(kBenchData), high}, 0);
  expect(pm4::kDmaData, {kFromData | kToL2, 0, 0, Low(kEnd - 4), high, 8}, kEnd - 4);
  expect(pm4::kDmaData, {kFromL2 | kToL2, Low(kEnd), high, Low(kBenchData), high, 4}, kEnd);
  expect(pm4::kReleaseMem, {40, kValue32, Low(kEnd), high, 0, 0, 0}, kEnd);
  expect(pm4::kWaitRegMem, {3 | 1 << 4, Low(kEnd), high, 0, 0, 0}, kEnd);
  expect(pm4::kDispatchIndirect, {Low(kEnd - 8), high, 5}, kEnd - 8);
  expect(pm4::kCondExec, {Low(kEnd), high, 0, 0}, kEnd);
  expect(pm4::kLoadShRegIndex, {Low(kEnd - 4), high, pm4::kUserData0, 2}, kEnd - 4);
}

}  // namespace
}  // namespace tandem::rdna

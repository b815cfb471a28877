#include "services/npu_worker/emulator/array/emulated_array.h"

#include <gtest/gtest.h>

#include <numeric>

#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/control/shim_descriptor.h"
#include "services/npu_worker/emulator/array/array_test_support.h"
#include "services/npu_worker/emulator/array/configuration.h"
#include "services/npu_worker/emulator/array/streams.h"

namespace tandem::npu::emulator {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

constexpr uint32_t kObject = 16;  // words

// A core in column 0: adds its parameter to as many objects of 16 words as it is asked for.
class AddingDesign : public Design {
 public:
  explicit AddingDesign(Fabric& fabric)
      : box_(fabric.parameters[0][0]),
        input_(fabric.shims[0], 0, 1, kObject),
        output_(fabric.shims[0], 0, 1) {}

  bool Advance() override {
    if (num_objects_ == 0 && box_.is_full) {
      box_.is_full = false;
      added_ = box_.words[0];
      num_objects_ = box_.words[1];
      return true;
    }
    bool moved = output_.Flush();
    std::vector<uint32_t> words(kObject);
    if (num_objects_ > 0 && !has_object_ && input_.Take(0, words)) {
      for (uint32_t& word : words) word += added_;
      object_ = words;
      has_object_ = moved = true;
    }
    if (has_object_ && output_.Put(0, object_)) {
      has_object_ = false;
      --num_objects_;
      moved = true;
    }
    return moved;
  }
  std::string Waiting() const override { return num_objects_ == 0 ? "" : "the core waits"; }

 private:
  ParameterBox& box_;
  Broadcast input_;
  Join output_;
  uint32_t added_ = 0;
  uint32_t num_objects_ = 0;
  bool has_object_ = false;
  std::vector<uint32_t> object_;
};

constexpr ShimChannel kInput = {.direction = DmaDirection::kToTile};
constexpr ShimChannel kOutput = {.direction = DmaDirection::kFromTile};

class EmulatedArrayTest : public ::testing::Test {
 protected:
  EmulatedArrayTest() {
    std::iota(from_.begin(), from_.end(), 0);
    buffers_ = {memory_.Add(from_), memory_.Add(to_)};
  }
  void SetCore(uint32_t added, uint32_t num_objects) {
    const uint32_t parameters[] = {added, num_objects};
    SetParameters({0, kFirstCoreRow}, parameters, code_);
  }
  void Start(const ShimChannel& channel, uint32_t descriptor, uint32_t offset,
             const ShimTransfer& transfer, bool with_token = false) {
    const ShimPart part = {.descriptor = descriptor,
                           .argument = channel.direction == DmaDirection::kToTile ? 0u : 1u,
                           .offset = offset,
                           .transfer = transfer};
    if (with_token) RouteTokens(channel, code_);
    ASSERT_OK(StartShimTask(channel, {&part, 1}, with_token, code_));
  }
  absl::Status Run() {
    const AddressSpace::View view(memory_.space());
    const absl::Status status = array_.Run(code_.words(), buffers_, view);
    code_ = Transaction({});
    return status;
  }
  // A correct command: two objects from word `first` on.
  void AddTwoObjects(uint32_t added, uint32_t first) {
    SetCore(added, 2);
    Start(kInput, 0, first * 4, {.length = 2 * kObject});
    Start(kOutput, 1, 0, {.length = 2 * kObject}, /*with_token=*/true);
    code_.Sync(TokenOf(kOutput));
  }
  void ExpectTwoObjects(uint32_t added, uint32_t first) {
    for (uint32_t i = 0; i < 2 * kObject; ++i) ASSERT_EQ(to_[i], first + i + added) << i;
  }
  void ExpectRefused(absl::StatusCode code, const char* text) {
    EXPECT_THAT(Run(), StatusIs(code, HasSubstr(text)));
    // The array is usable again.
    AddTwoObjects(7, 5);
    ASSERT_OK(Run());
    ExpectTwoObjects(7, 5);
  }

  Transaction code_{ArrayShape{}};
  DeviceMemory memory_;
  std::vector<uint32_t> from_ = std::vector<uint32_t>(256);
  std::vector<uint32_t> to_ = std::vector<uint32_t>(256, ~0u);
  std::vector<uint64_t> buffers_;
  EmulatedArray array_{{}, [](Fabric& fabric) { return std::make_unique<AddingDesign>(fabric); }};
};

TEST_F(EmulatedArrayTest, CommandsGiveParametersAndMoveData) {
  for (uint32_t i = 0; i < 3; ++i) {
    AddTwoObjects(100 * i, 9 * i);
    ASSERT_OK(Run());
    ExpectTwoObjects(100 * i, 9 * i);
  }
  EXPECT_EQ(to_[2 * kObject], ~0u);
}

// Cores that count, from one configuration to the next, how many commands they have had.
class CountingDesign : public Design {
 public:
  explicit CountingDesign(Fabric& fabric)
      : box_(fabric.parameters[0][0]), output_(fabric.shims[0], 0, 1) {}
  bool Advance() override {
    if (box_.is_full && output_.Put(0, std::vector<uint32_t>(kObject, num_commands_ + 1))) {
      box_.is_full = false;
      ++num_commands_;
    }
    return output_.Flush();
  }
  std::string Waiting() const override { return ""; }

 private:
  ParameterBox& box_;
  Join output_;
  uint32_t num_commands_ = 0;
};

TEST_F(EmulatedArrayTest, AnotherConfigurationHasOtherCoresThatStartAnew) {
  const auto counting = [](Fabric& fabric) { return std::make_unique<CountingDesign>(fabric); };
  const auto adding = [](Fabric& fabric) { return std::make_unique<AddingDesign>(fabric); };
  const auto count = [this] {
    SetCore(0, 1);
    Start(kOutput, 1, 0, {.length = kObject}, /*with_token=*/true);
    code_.Sync(TokenOf(kOutput));
    EXPECT_OK(Run());
    return to_[0];
  };
  for (int i = 0; i < 2; ++i) {
    array_.Configure(counting);
    EXPECT_EQ(count(), 1u) << "the number is in no core's memory any more";
    EXPECT_EQ(count(), 2u);
    array_.Configure(adding);
    AddTwoObjects(7, 5);
    ASSERT_OK(Run());
    ExpectTwoObjects(7, 5);
  }
}

TEST_F(EmulatedArrayTest, ATaskRunsItsChainOfDescriptorsAgainAndEachTakesItsNextStep) {
  // Twice: 4 words from 0 (then 32) on, 12 words from 100 (then 150) on.
  const ShimPart parts[] = {
      {.descriptor = 3, .transfer = {.length = 4, .repeat_step = 32, .num_repeats = 2}},
      {.descriptor = 4,
       .offset = 400,
       .transfer = {.length = 12, .repeat_step = 50, .num_repeats = 2}}};
  SetCore(0, 2);
  ASSERT_OK(StartShimTask(kInput, parts, false, code_));
  Start(kOutput, 1, 0, {.length = 2 * kObject}, true);
  code_.Sync(TokenOf(kOutput));
  ASSERT_OK(Run());
  std::vector<uint32_t> expected;
  for (const auto& [start, count] : {std::pair{0u, 4u}, {100u, 12u}, {32u, 4u}, {150u, 12u}}) {
    for (uint32_t i = 0; i < count; ++i) expected.push_back(start + i);
  }
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), to_.begin()));
}

TEST_F(EmulatedArrayTest, MaskedWritesChangeTheirBitsAlone) {
  AddTwoObjects(1, 0);
  const std::vector<uint32_t> words = code_.words();
  code_ = Transaction({});
  SetCore(1, 2);
  const ShimPart part = {.transfer = {.length = 2 * kObject + 5}};
  const auto descriptor = EncodeShimTransfer(part.transfer);
  code_.BlockWrite(ShimDescriptorAddress(0, 0), *descriptor);
  code_.MaskedWrite(ShimDescriptorAddress(0, 0), 2 * kObject, 0xFFF);  // its length
  code_.MaskedWrite(TileAddress({}, 0x1D200), 0xF00, 0x1F00);          // where tokens go
  code_.PatchAddress(ShimDescriptorAddress(0, 0) + 4, 0, 12);
  code_.Write(ShimQueueAddress(0, DmaDirection::kToTile, 0), ShimTask(0, 1, false));
  Start(kOutput, 1, 0, {.length = 2 * kObject}, true);
  code_.Sync(TokenOf(kOutput));
  ASSERT_OK(Run());
  ExpectTwoObjects(1, 3);
}

TEST_F(EmulatedArrayTest, ADescriptorPastItsBufferFaultsAndTouchesNothing) {
  const std::vector<uint32_t> before = to_;
  for (const uint32_t offset : {225u * 4, 256u * 4, 1u}) {
    SetCore(0, 2);
    Start(kInput, 0, 0, {.length = 2 * kObject});
    Start(kOutput, 1, offset, {.length = 2 * kObject}, true);
    code_.Sync(TokenOf(kOutput));
    EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("")));
    EXPECT_EQ(to_, before) << offset;
  }
  // The last word of the buffer is still in it.
  SetCore(0, 2);
  Start(kInput, 0, 224 * 4, {.length = 2 * kObject});
  Start(kOutput, 1, 224 * 4, {.length = 2 * kObject}, true);
  code_.Sync(TokenOf(kOutput));
  ASSERT_OK(Run());
  EXPECT_EQ(to_[255], 255u);
  SetCore(0, 2);
  Start(kInput, 0, 225 * 4, {.length = 2 * kObject});
  ExpectRefused(absl::StatusCode::kOutOfRange, "the buffer 124");
}

TEST_F(EmulatedArrayTest, WaitingForDataThatIsNeverSentIsAHang) {
  SetCore(0, 2);
  Start(kInput, 0, 0, {.length = kObject});
  Start(kOutput, 1, 0, {.length = 2 * kObject}, true);
  code_.Sync(TokenOf(kOutput));
  ExpectRefused(absl::StatusCode::kDeadlineExceeded, "the core waits");
}

TEST_F(EmulatedArrayTest, WhatDependsOnTimingIsRefused) {
  // A descriptor is written while its task may run.
  SetCore(0, 2);
  Start(kInput, 0, 0, {.length = kObject});
  Start(kInput, 0, 0, {.length = kObject});
  ExpectRefused(absl::StatusCode::kInvalidArgument, "descriptor 0 is written");
  // Five tasks in a queue of four.
  SetCore(0, 5);
  for (uint32_t i = 0; i < 5; ++i) Start(kInput, i, 0, {.length = kObject});
  ExpectRefused(absl::StatusCode::kResourceExhausted, "beyond the 4");
  // The output is not waited for.
  SetCore(0, 2);
  Start(kInput, 0, 0, {.length = 2 * kObject});
  Start(kOutput, 1, 0, {.length = 2 * kObject});
  ExpectRefused(absl::StatusCode::kInvalidArgument, "may not have ended");
  // More is sent than the core takes.
  AddTwoObjects(0, 0);
  Start(kInput, 2, 0, {.length = 1});
  ExpectRefused(absl::StatusCode::kInvalidArgument, "may not have ended");
  // Parameters are written over others.
  SetCore(0, 2);
  SetCore(0, 2);
  ExpectRefused(absl::StatusCode::kInvalidArgument, "has not taken its last parameters");
  // A token goes to no controller that waits for it.
  SetCore(0, 2);
  Start(kInput, 0, 0, {.length = 2 * kObject});
  const ShimPart output = {.descriptor = 1, .argument = 1, .transfer = {.length = 2 * kObject}};
  ASSERT_OK(StartShimTask(kOutput, {&output, 1}, /*with_token=*/true, code_));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "controller 0");
  // A core waits for more than it is sent, behind a token that came.
  AddTwoObjects(0, 0);
  SetCore(0, 3);
  ExpectRefused(absl::StatusCode::kInvalidArgument, "has not taken its parameters");
}

TEST_F(EmulatedArrayTest, OtherRegistersArraysAndBuffersAreRefused) {
  const auto refuses = [this](const char* text) {
    EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  code_.Write(TileAddress({}, 0x14000), 1);
  refuses("register 0x14000 of the shim tile");
  code_.Write(TileAddress({0, 1}, 0xA0000), 1);
  refuses("memory tile");
  code_.Write(TileAddress({0, 2}, 0x32000), 1);
  refuses("address 0x32000 of core (0, 2)");
  code_.Write(TileAddress({}, 0x1D200), 1);
  refuses("0x1 in register 0x1d200");
  code_.PatchAddress(ShimDescriptorAddress(0, 0), 0, 0);
  refuses("no descriptor's address");
  code_.PatchAddress(ShimDescriptorAddress(0, 0) + 4, 2, 0);
  refuses("data buffer 2 of 2");
  code_ = Transaction({.generation = 3, .num_columns = 5});
  refuses("5 columns of generation 3");
  code_.Write(ShimQueueAddress(0, DmaDirection::kToTile, 0), ShimTask(0, 1, false));
  refuses("0 words");
}

TEST(ConfigurationTest, NamesADesignOrNone) {
  const std::vector<uint8_t> bytes = MakeConfiguration("gemm_q8_0");
  EXPECT_EQ(DesignOf(std::as_bytes(std::span(bytes))), "gemm_q8_0");
  EXPECT_EQ(DesignOf(std::vector<std::byte>(4096)), std::nullopt);
  EXPECT_EQ(DesignOf({}), std::nullopt);
  EXPECT_OK(FindDesign("gemm_q8_0", {}).status());
  EXPECT_THAT(FindDesign("conv", {}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'conv'")));
  EXPECT_FALSE(FindDesign("gemm_q8_0", {.num_columns = 3}).ok());
}

}  // namespace
}  // namespace tandem::npu::emulator

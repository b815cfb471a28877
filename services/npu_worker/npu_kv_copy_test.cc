// KV copied between an NPU's plans, and between an NPU and the reference worker.  Of both backends: built
// over the emulated NPU, and over a current XRT on the emulated driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "services/common/reference/reference_worker.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/kv_copy_case.h"
#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/operators/number_formats.h"
#include "services/npu_worker/worker_test_support.h"

namespace tandem::npu {
namespace {

using testing::HasCode;
using testing::KvCopyResult;
using testing::PlanRunner;

// Whether the worker's cache has bfloat16, as an array's has.
bool OnArray() { return std::getenv("NPU_DRIVER") != nullptr; }

// Of one rounding of attention's numbers: float16; bfloat16 (npu1); blocks of numbers that share an
// exponent, with seven bits below it (npu4).
double Epsilon() {
  if (!OnArray()) return testing::kEpsilonF16;
  const char* const profile = std::getenv("NPU_EMU_PROFILE");
  return profile != nullptr && std::string_view(profile) == "npu1" ? testing::kEpsilonBf16 : 0x1p-7;
}

std::vector<uint32_t> Tokens(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) token = 6 + random() % 150;
  return tokens;
}

// Head sizes, block lengths (odd ones too), and prompts that end at or beside a block's end, or go far
// past the window.
struct Shape {
  uint32_t head_dim = 64, num_heads = 4, num_kv_heads = 2, block_tokens = 16;
  std::vector<uint32_t> prompts;
};
const Shape kShapes[] = {
    {.block_tokens = 7, .prompts = {1, 6, 7, 8, 45}},
    {.num_heads = 3, .num_kv_heads = 3, .block_tokens = 1, .prompts = {2, 31}},
    {.head_dim = 128, .num_kv_heads = 1, .block_tokens = 13, .prompts = {26, 60}},
    {.head_dim = 256, .num_heads = 2, .num_kv_heads = 1, .block_tokens = 16, .prompts = {17, 64}},
};

class NpuKvCopyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static absl::StatusOr<std::unique_ptr<NpuWorker>> worker = MakeEmulatedWorker();
    ASSERT_OK(worker);
    npu_ = worker->get();
  }
  void SetShape(const Shape& shape) {
    block_tokens_ = shape.block_tokens;
    weights_ = testing::RandomWeightSet(testing::MakeConfig({.num_heads = shape.num_heads,
                                                             .num_kv_heads = shape.num_kv_heads,
                                                             .head_dim = shape.head_dim}));
  }
  const ModelConfig& config() const { return weights_->config(); }
  // Every stage a segment: Attend on `attends`, the others on a reference worker.
  std::unique_ptr<PlanRunner> Load(Worker& attends, uint32_t plan = 0,
                                   uint64_t kv_area_bytes = 1 << 20) {
    std::vector<Segment> segments;
    for (uint32_t ordinal = 0; ordinal < NumStages(config().num_layers); ++ordinal) {
      const Stage stage = StageAt(ordinal, config().num_layers);
      segments.push_back(testing::SingleStage(stage, config()));
      segments.back().worker = stage.kind == StageKind::kAttend ? 1 : 0;
    }
    auto runner = PlanRunner::Create(
        weights_, {&reference_, &attends}, segments,
        {.block_tokens = block_tokens_, .plan = plan, .kv_area_bytes = kv_area_bytes});
    EXPECT_OK(runner.status());
    return runner.ok() ? *std::move(runner) : nullptr;
  }

  NpuWorker* npu_ = nullptr;
  uint32_t block_tokens_ = 7;
  std::shared_ptr<const WeightSet> weights_ = testing::RandomWeightSet(testing::MakeConfig({}));
  reference::ReferenceWorker reference_, host_;
};

TEST_F(NpuKvCopyTest, APlanGoesOnWithAnothersKvBitForBit) {
  EXPECT_TRUE(npu_->description().copies_kv);
  for (const Shape& shape : kShapes) {
    SetShape(shape);
    for (const uint32_t length : shape.prompts) {
      SCOPED_TRACE(::testing::Message() << "heads of " << shape.head_dim << ", blocks of "
                                        << shape.block_tokens << ", prompt of " << length);
      const auto from = Load(*npu_, 0), to = Load(*npu_, 1);
      ASSERT_TRUE(from != nullptr && to != nullptr);
      ASSERT_OK_AND_ASSIGN(
          const KvCopyResult result,
          RunKvCopyCase(*from, *to, {.prompt = Tokens(length, length), .next = Tokens(4, 9)}));
      EXPECT_EQ(result.copied, result.computed);
    }
  }
}

TEST_F(NpuKvCopyTest, GoesOnWithTheKvOfTheReferenceAndTheReverse) {
  for (const Shape& shape : kShapes) {
    SetShape(shape);
    for (const uint32_t length : shape.prompts) {
      for (const bool from_npu : {true, false}) {
        SCOPED_TRACE(::testing::Message()
                     << "heads of " << shape.head_dim << ", blocks of " << shape.block_tokens
                     << ", prompt of " << length << (from_npu ? " of the NPU" : ""));
        const auto npu = Load(*npu_), host = Load(host_, 1);
        ASSERT_TRUE(npu != nullptr && host != nullptr);
        const testing::KvCopyCase test_case{.prompt = Tokens(length, length), .next = Tokens(4, 9)};
        ASSERT_OK_AND_ASSIGN(const KvCopyResult result,
                             from_npu ? RunKvCopyCase(*npu, *host, test_case)
                                      : RunKvCopyCase(*host, *npu, test_case));
        // Each layer of the NPU rounds queries, keys, values, weights and the output.
        EXPECT_TRUE(testing::IsNearInNorm(result.copied, result.computed,
                                          2 * Epsilon() * std::sqrt(5.0 * config().num_layers)));
      }
    }
  }
}

// A prompt whose layers the array computes, and a sequence that goes on with its KV where no NPU is.
TEST_F(NpuKvCopyTest, APromptOfWholeLayersGoesOnElsewhere) {
  if (!OnArray()) GTEST_SKIP() << "the emulated NPU runs Attend and Out alone";
  const PortMask residual = static_cast<PortMask>(Port::kResidual);
  const std::vector<Segment> segments = {testing::SingleStage({StageKind::kEmbed}, config()),
                                         {.worker = 1,
                                          .first_ordinal = 1,
                                          .last_ordinal = NumStages(config().num_layers) - 2,
                                          .inputs = residual,
                                          .outputs = residual},
                                         testing::SingleStage({StageKind::kHead}, config())};
  ASSERT_OK_AND_ASSIGN(const auto npu,
                       PlanRunner::Create(weights_, {&reference_, npu_}, segments,
                                          {.block_tokens = 7, .kv_area_bytes = 1 << 20}));
  ASSERT_OK_AND_ASSIGN(
      const auto host,
      PlanRunner::Create(weights_, {&host_}, testing::WholeModel(config()),
                         {.block_tokens = 7, .plan = 1, .kv_area_bytes = 1 << 20}));
  ASSERT_OK_AND_ASSIGN(const KvCopyResult result,
                       RunKvCopyCase(*npu, *host, {.prompt = Tokens(61, 5), .next = Tokens(4, 9)}));
  // Each layer rounds the inputs and outputs of four GEMMs, and attention's five.
  EXPECT_TRUE(testing::IsNearInNorm(result.copied, result.computed,
                                    2 * Epsilon() * std::sqrt(13.0 * config().num_layers)));
}

// The area's numbers after they were in the cache of layers 0 and 2; layer 1 is another worker's.
TEST_F(NpuKvCopyTest, EveryNumberOfABlockComesBackRoundedToTheCachesFormat) {
  for (const uint32_t block_tokens : {1u, 5u, 16u, 33u}) {
    SCOPED_TRACE(block_tokens);
    std::vector<Segment> segments = AttendSegments(config());
    segments.erase(segments.begin() + 1);
    ASSERT_OK_AND_ASSIGN(const auto runner, PlanRunner::Create(weights_, {npu_}, segments,
                                                               {.block_tokens = block_tokens,
                                                                .num_blocks = {6, 7},
                                                                .kv_area_bytes = 1 << 20}));
    const uint32_t global[] = {5, 0, 3}, window[] = {1, 6, 2, 0};
    const KvCopyLayout layout(config(), runner->limits());
    const KvCopy read{.blocks = {global, window}}, write{.write = true, .blocks = {global, window}};
    std::mt19937 random(block_tokens);
    std::vector<uint16_t> halves(layout.Bytes(read) / sizeof(uint16_t));
    for (uint16_t& half : halves) {
      // No NaNs: their bits are free.
      do {
        half = static_cast<uint16_t>(random());
      } while ((half & 0x7FFF) > 0x7C00);
    }
    halves[0] = 0x7BFF;  // 65504, which bfloat16 does not have
    std::vector<uint16_t> expected = halves;
    if (OnArray()) {
      std::vector<uint16_t> cached(halves.size());
      HalvesToBf16(halves, cached);
      Bf16ToFiniteHalves(cached, expected);
    }
    layout.ForEachPart(read, [&](uint32_t layer_idx, uint32_t, uint64_t offset) {
      if (layer_idx != 1) return;
      std::fill_n(expected.begin() + static_cast<ptrdiff_t>(offset / 2), layout.part_bytes() / 2,
                  uint16_t{0xA5A5});
    });
    std::memcpy(runner->KvArea().data(), halves.data(), layout.Bytes(read));
    ASSERT_OK(runner->CopyKv(write));
    std::ranges::fill(runner->KvArea(), std::byte{0xA5});
    ASSERT_OK(runner->CopyKv(read));
    std::vector<uint16_t> copied(halves.size());
    std::memcpy(copied.data(), runner->KvArea().data(), layout.Bytes(read));
    EXPECT_EQ(copied, expected);
    EXPECT_EQ(std::ranges::count(runner->KvArea().subspan(layout.Bytes(read)), std::byte{0xA5}),
              static_cast<ptrdiff_t>(runner->KvArea().size() - layout.Bytes(read)));
    // Once more: nothing is lost by the second copy.
    ASSERT_OK(runner->CopyKv(write));
    std::ranges::fill(runner->KvArea(), std::byte{0xA5});
    ASSERT_OK(runner->CopyKv(read));
    std::memcpy(copied.data(), runner->KvArea().data(), layout.Bytes(read));
    EXPECT_EQ(copied, expected);
  }
}

TEST_F(NpuKvCopyTest, APlanWithoutAnAreaCopiesNothingAndAPlanThatIsNotLoadedIsAnError) {
  const auto runner = Load(*npu_, 0, /*kv_area_bytes=*/0);
  ASSERT_TRUE(runner != nullptr);
  EXPECT_OK(runner->CopyKv({}));
  const uint32_t block[] = {0};
  EXPECT_THAT(runner->CopyKv({.blocks = {block, {}}}), HasCode(absl::StatusCode::kInvalidArgument));
  npu_->Unload(0);
  EXPECT_THAT(npu_->CopyKv(0, {}), HasCode(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace tandem::npu

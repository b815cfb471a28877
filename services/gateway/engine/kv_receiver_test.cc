#include "services/gateway/engine/kv_receiver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "services/common/tensor/kv_format.h"
#include "services/gateway/engine/testing/fake_executor.h"

namespace tandem::gateway {
namespace {

using testing::FakeExecutor;
using testing::FakeExecutorOptions;
using testing::ToyLimits;

constexpr uint32_t kNumBlocks = 9, kFirstWindow = 6;

// K, or V, of a layer in a block of the prefix: [block_tokens, head_dim], the only KV head's.
std::vector<float> Page(uint32_t block, uint32_t layer_idx, bool is_v) {
  const float base = static_cast<float>(1 + block * 16 + layer_idx * 2 + (is_v ? 1 : 0));
  std::vector<float> page(size_t{ToyLimits().block_tokens} * 64);
  for (size_t i = 0; i < page.size(); ++i) page[i] = base * (i % 2 == 0 ? 1.0f : -1.0f);
  return page;
}

// What reaches an executor whose KV cache is float16 of a piece in `from`.  The area takes few blocks,
// so a piece is several copies, which begin on both sides of the window.
class KvReceiverTest : public ::testing::TestWithParam<DType> {};

TEST_P(KvReceiverTest, EveryBlockArrivesInItsPlaceAndFormat) {
  const DType from = GetParam();
  FakeExecutorOptions options;
  options.head_dim = 64;
  options.limits.kv_area_bytes = 14000;
  std::span<std::byte> area;
  ModelConfig config;
  // By layer and block id: K and V.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<float>> written;
  int num_copies = 0;
  options.on_copy = [&](const KvCopy& copy) {
    ++num_copies;
    const KvCopyLayout layout(config, options.limits);
    layout.ForEachPart(copy, [&](uint32_t layer_idx, uint32_t block, uint64_t offset) {
      std::vector<float>& values = written[{layer_idx, block}];
      for (const uint64_t half : {uint64_t{0}, layout.half_bytes()}) {
        std::vector<float> page(Page(0, 0, false).size());
        DecodeKvPage(DType::kF16, area.subspan(offset + half, layout.half_bytes()), page);
        values.insert(values.end(), page.begin(), page.end());
      }
    });
    return absl::OkStatus();
  };
  FakeExecutor executor(options);
  area = executor.KvArea();
  config = executor.config();
  auto scheduler = Scheduler::Create({.limits = options.limits}).value();
  KvReceiver receiver(executor, *scheduler, 4, [] {});

  StepLimits sent = options.limits;
  sent.kv_dtype = from;
  const KvCopyLayout layout(config, sent);
  KvPrefix prefix{.request = 5,
                  .block_tokens = sent.block_tokens,
                  .first_window = kFirstWindow,
                  .kv_dtype = from};
  for (uint32_t i = 0; i < kNumBlocks * sent.block_tokens; ++i) prefix.tokens.push_back(300 + i);
  auto hand_over = std::make_shared<KvHandOver>(prefix);
  ASSERT_TRUE(receiver.Expect(hand_over));
  receiver.Update(4, absl::Now());
  ASSERT_EQ(hand_over->accepted(), 0u);
  KvPiece piece{.first_block = 0, .end_block = kNumBlocks};
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    for (uint32_t block = group == kWindowGroup ? kFirstWindow : 0; block < kNumBlocks; ++block) {
      for (uint32_t layer_idx = 0; layer_idx < config.num_layers; ++layer_idx) {
        if (config.is_global(layer_idx) != (group == kGlobalGroup)) continue;
        for (const bool is_v : {false, true}) {
          std::vector<std::byte> page(layout.half_bytes());
          EncodeKvPage(from, Page(block, layer_idx, is_v), page);
          piece.bytes.insert(piece.bytes.end(), page.begin(), page.end());
        }
      }
    }
  }
  hand_over->Put(std::move(piece));
  hand_over->Finish();
  for (receiver.Update(4, absl::Now()); receiver.copy_due(); receiver.Update(4, absl::Now())) {
    ASSERT_TRUE(receiver.CopyOnce().ok());
  }
  EXPECT_TRUE(hand_over->arrived());
  EXPECT_GT(num_copies, 2);

  CachedPrefix found;
  scheduler->pools().Find(0, prefix.tokens, prefix.tokens.size(), found);
  ASSERT_EQ(found.nodes.size(), kNumBlocks);
  for (uint32_t block = 0; block < kNumBlocks; ++block) {
    for (uint32_t layer_idx = 0; layer_idx < config.num_layers; ++layer_idx) {
      const bool global = config.is_global(layer_idx);
      if (!global && block < kFirstWindow) continue;
      const uint32_t node = found.nodes[block];
      const uint32_t id = global ? node : scheduler->pools().tree->window_block(node);
      std::vector<float> expected = Page(block, layer_idx, false);
      const std::vector<float> v = Page(block, layer_idx, true);
      expected.insert(expected.end(), v.begin(), v.end());
      const std::vector<float>& got = written[{layer_idx, id}];
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        // A page's values have one magnitude: q8_0 rounds its scale to float16, and so does the cache.
        ASSERT_NEAR(got[i], expected[i], std::abs(expected[i]) * 0x1p-10f)
            << block << " " << layer_idx;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, KvReceiverTest, ::testing::Values(DType::kF16, DType::kQ8_0));

TEST(KvReceiverPlacesTest, NoMoreAreExpectedThanThereArePlaces) {
  FakeExecutorOptions options;
  options.limits.kv_area_bytes = 30000;
  FakeExecutor executor(options);
  auto scheduler = Scheduler::Create({.limits = options.limits}).value();
  KvReceiver receiver(executor, *scheduler, 2, [] {});
  const auto offer = [&](uint64_t request) {
    auto hand_over = std::make_shared<KvHandOver>(
        KvPrefix{.request = request, .block_tokens = options.limits.block_tokens});
    return receiver.Expect(hand_over) ? hand_over : nullptr;
  };
  const auto first = offer(1), second = offer(2);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(offer(3), nullptr);
  EXPECT_EQ(receiver.num_pending(), 2u);
  receiver.Update(2, absl::Now());
  EXPECT_EQ(offer(3), nullptr);
  first->Abandon();
  receiver.Update(2, absl::Now());
  EXPECT_NE(offer(3), nullptr);
  receiver.Stop();
  EXPECT_EQ(offer(4), nullptr);
  EXPECT_EQ(second->end(), KvHandOver::End::kGivenUp);
}

}  // namespace
}  // namespace tandem::gateway

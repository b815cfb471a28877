// The head's reduction against plain selection, on logits made to be awkward.
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <utility>

#include "services/common/reference/ops.h"
#include "services/common/testing/compare.h"
#include "services/gpu_worker/kernels/kernel_test_device.h"
#include "services/gpu_worker/kernels/launches.h"

namespace tandem::gpu {
namespace {

class HeadReduceTest : public KernelTest {
 protected:
  DrawEntry RandomDraw() {
    const auto uniform = [this] { return static_cast<float>(random_() % 1000) / 1000; };
    return {.temperature = 0.05f + 2 * uniform(),
            .top_k = 1 + static_cast<uint32_t>(random_() % kMaxCandidates),
            .top_p = random_() % 3 == 0 ? 1.0f : 0.001f + 0.998f * uniform(),
            .min_p = random_() % 2 == 0 ? uniform() : 0.0f,
            .uniform = random_() % 8 == 0 ? 1.0f : uniform()};
  }

  // Float32 sums of at most 128 weights: the guess is that of some draw whose limits are nearer
  // than their error, 128 epsilon and those of a weight's exponential.
  static void CheckGuess(uint32_t guess, const OutputResult& result, const DrawEntry* draw) {
    if (draw == nullptr || result.num_candidates == 0) {
      EXPECT_EQ(guess, reference::GuessToken(result, draw));
      return;
    }
    std::set<uint32_t> fair;
    const float error = 200 * testing::kEpsilonF32;
    for (const float top_p : {-error, 0.0f, error}) {
      for (const float min_p : {-error, 0.0f, error}) {
        for (const float uniform : {-error, 0.0f, error}) {
          DrawEntry near = *draw;
          if (near.top_p < 1.0f) near.top_p += top_p;
          near.min_p *= 1.0f + min_p;
          near.uniform += uniform;
          fair.insert(reference::GuessToken(result, &near));
        }
      }
    }
    EXPECT_TRUE(fair.contains(guess))
        << "guess " << guess << ", expected " << reference::GuessToken(result, draw);
  }

  std::mt19937 random_{7};

  // `masks`: none, or one for each row, empty where a row has none.
  void Check(const std::vector<std::vector<float>>& rows, uint32_t num_candidates,
             const std::vector<std::vector<uint32_t>>& masks = {}) {
    const auto vocab = static_cast<uint32_t>(rows[0].size());
    const uint32_t stride = LogitStride(vocab), count = static_cast<uint32_t>(rows.size());
    std::vector<float> logits(size_t{count} * stride, std::nanf(""));
    std::vector<OutputEntry> outputs;
    std::vector<DrawEntry> draws;
    std::vector<uint32_t> words;
    uint32_t num_masks = 0;
    for (uint32_t o = 0; o < count; ++o) {
      std::ranges::copy(rows[o], logits.begin() + size_t{o} * stride);
      const bool masked = !masks.empty() && !masks[o].empty();
      outputs.push_back({0, o % 2 == 0 || masked ? kNoToken : vocab - 1});
      if (masked) {
        outputs.back().mask = num_masks++;
        words.insert(words.end(), masks[o].begin(), masks[o].end());
      }
      if (o % 3 == 0) continue;  // the best candidate
      outputs.back().draw = static_cast<uint32_t>(draws.size());
      draws.push_back(RandomDraw());
    }
    const DeviceArray step = MakeStep(1, outputs, num_candidates, 0, draws), in(device(), logits),
                      slices(device(), count * SlicesOf(vocab).count * sizeof(OutputResult)),
                      results(device(), count * sizeof(OutputResult)), sums(device(), count * 8),
                      guesses(device(), count * 4), guessed(device(), count * 4),
                      mask_words(device(), words.empty() ? std::vector<uint32_t>{0} : words);
    const HeadReduceArgs args = {.step = step.address(),
                                 .logits = in.address(),
                                 .slices = slices.address(),
                                 .results = results.address(),
                                 .sums = sums.address(),
                                 .guesses = guesses.address(),
                                 .guessed = guessed.address(),
                                 .masks = words.empty() ? 0 : mask_words.address(),
                                 .vocab_size = vocab};
    auto launches = HeadReduceLaunches(ByAddress(), args, std::bit_ceil(count));
    Run({launches.begin(), launches.end()});
    const std::vector<std::byte> by_address(results.data().begin(), results.data().end());
    std::ranges::fill(results.data(), testing::kGuardByte);
    launches = HeadReduceLaunches(tuning(), args, std::bit_ceil(count));
    Run({launches.begin(), launches.end()});
    EXPECT_TRUE(results.Intact() && sums.Intact() && slices.Intact());
    EXPECT_TRUE(guesses.Intact() && guessed.Intact());
    EXPECT_TRUE(std::ranges::equal(results.data(), by_address));
    for (uint32_t o = 0; o < count; ++o) {
      SCOPED_TRACE(::testing::Message()
                   << "row " << o << " of " << vocab << ", " << num_candidates << " candidates");
      const OutputResult& actual = results.as<OutputResult>()[o];
      const OutputResult expected = reference::SummariseLogits(
          rows[o], num_candidates, outputs[o].target,
          masks.empty() ? std::span<const uint32_t>() : std::span<const uint32_t>(masks[o]));
      ASSERT_EQ(actual.num_candidates, expected.num_candidates);
      EXPECT_EQ(actual.num_nonfinite, expected.num_nonfinite);
      for (uint32_t i = 0; i < expected.num_candidates; ++i) {
        ASSERT_EQ(actual.candidates[i].token, expected.candidates[i].token) << "candidate " << i;
        ASSERT_EQ(actual.candidates[i].logit, expected.candidates[i].logit) << "candidate " << i;
      }
      if (outputs[o].target != kNoToken && std::isfinite(rows[o].back())) {
        EXPECT_EQ(actual.target_logit, rows[o].back());
      }
      EXPECT_EQ(guesses.as<uint32_t>()[o], guessed.as<uint32_t>()[o]);
      CheckGuess(guesses.as<uint32_t>()[o], expected,
                 outputs[o].draw == kNoDraw ? nullptr : &draws[outputs[o].draw]);
      if (expected.num_nonfinite != 0) continue;
      if (expected.num_candidates == 0) {  // nothing is allowed
        EXPECT_EQ(sums.as<float>()[size_t{o} * 2 + 1], 0.0f);
        continue;
      }
      const auto parts = sums.as<float>().subspan(size_t{o} * 2, 2);
      EXPECT_NEAR(parts[0] + std::log(parts[1]), expected.log_sum_exp,
                  (16 * std::sqrt(vocab) + std::abs(expected.log_sum_exp)) * testing::kEpsilonF32);
    }
  }
};

TEST_F(HeadReduceTest, SelectsExactlyWhateverTheValues) {
  std::mt19937 random(1);
  for (const uint32_t vocab : {1u, 2u, 127u, 128u, 129u, 1023u, 4096u, 5001u, 12289u}) {
    std::vector<std::vector<float>> rows;
    rows.push_back(RandomFloats(vocab, 2));
    rows.push_back(RandomFloats(vocab, 3, 1e-30f));
    rows.push_back(RandomFloats(vocab, 4, 1e30f));
    rows.emplace_back(vocab, -3.0f);       // all alike
    auto& few = rows.emplace_back(vocab);  // three values only
    for (float& value : few) value = static_cast<float>(random() % 3);
    auto& zeros = rows.emplace_back(vocab);  // both zeros, which are equal
    for (float& value : zeros) value = random() % 2 == 0 ? 0.0f : -0.0f;
    auto& near = rows.emplace_back(vocab);  // neighbours in float32
    for (uint32_t i = 0; i < vocab; ++i) {
      near[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(7.0f) +
                                     static_cast<uint32_t>(random() % 500));
    }
    auto& rising = rows.emplace_back(vocab);
    for (uint32_t i = 0; i < vocab; ++i) rising[i] = static_cast<float>(i);
    for (const uint32_t num_candidates : {1u, 2u, 40u, 128u}) Check(rows, num_candidates);
  }
}

// Software devices end a loop silently that takes too long.
TEST_F(HeadReduceTest, SelectsFromTheLargestVocabularies) {
  for (const uint32_t vocab : {262208u, 1'000'003u}) {
    std::vector<std::vector<float>> rows = {RandomFloats(vocab, 5), RandomFloats(vocab, 6, 1e-3f)};
    std::ranges::sort(rows[1]);  // the best come last
    rows.emplace_back(vocab, 1.0f);
    Check(rows, 128);
  }
}

TEST_F(HeadReduceTest, LeavesOutWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> rows;
  for (const uint32_t num_bad : {1u, 100u, 299u, 300u}) {
    auto& row = rows.emplace_back(RandomFloats(300, num_bad));
    for (uint32_t i = 0; i < num_bad; ++i) {
      row[i * 7 % 300] = i % 3 == 0 ? kInfinity : i % 3 == 1 ? -kInfinity : std::nanf("");
    }
  }
  Check(rows, 128);
  Check(rows, 1);
}

// A random mask in which about one token in `in` is allowed; bits beyond the vocabulary are set too.
std::vector<uint32_t> RandomMask(uint32_t vocab, uint32_t in, std::mt19937& random) {
  std::vector<uint32_t> mask(MaskWords(vocab));
  for (uint32_t bit = 0; bit < 32 * mask.size(); ++bit) {
    if (bit >= vocab || random() % in == 0) mask[bit / 32] |= 1u << (bit % 32);
  }
  return mask;
}
std::vector<uint32_t> MaskOf(uint32_t vocab, const std::vector<uint32_t>& tokens) {
  std::vector<uint32_t> mask(MaskWords(vocab));
  for (const uint32_t token : tokens) mask[token / 32] |= 1u << (token % 32);
  return mask;
}

TEST_F(HeadReduceTest, SelectsAmongAllowedTokensAlone) {
  std::mt19937 random(3);
  for (const uint32_t vocab : {1u, 31u, 32u, 33u, 127u, 1023u, 4096u, 4099u, 12289u, 262'145u}) {
    std::vector<std::vector<float>> rows;
    std::vector<std::vector<uint32_t>> masks;
    const auto add = [&](std::vector<uint32_t> mask) {
      rows.push_back(RandomFloats(vocab, static_cast<uint32_t>(rows.size()) + 5));
      masks.push_back(std::move(mask));
    };
    add(RandomMask(vocab, 2, random));
    add({});                          // a row without a mask between two that have one
    add(MaskOf(vocab, {vocab - 1}));  // all but one are forbidden
    add(MaskOf(vocab, {0}));
    add(MaskOf(vocab, {vocab / 2, vocab / 3}));
    add(RandomMask(vocab, 100, random));
    add(MaskOf(vocab, {}));  // no gateway sends it
    add(std::vector<uint32_t>(MaskWords(vocab), ~0u));
    add(RandomMask(vocab, 3, random));
    rows.back().assign(vocab, 1.0f);  // equal logits: the lowest allowed tokens
    // The best tokens of all are forbidden.
    add(RandomMask(vocab, 1, random));
    for (uint32_t t = 0; t < vocab; t += 7) {
      rows.back()[t] += 100.0f;
      masks.back()[t / 32] &= ~(1u << (t % 32));
    }
    for (const uint32_t num_candidates : {1u, 2u, 40u, 128u}) Check(rows, num_candidates, masks);
  }
}

TEST_F(HeadReduceTest, CountsLogitsThatAreNotFiniteWhetherAllowedOrNot) {
  std::vector<std::vector<float>> rows = {RandomFloats(300, 1), RandomFloats(300, 2)};
  rows[0][7] = rows[1][9] = std::nanf("");
  const std::vector<std::vector<uint32_t>> masks = {MaskOf(300, {7, 8}), MaskOf(300, {7, 8})};
  Check(rows, 40, masks);
}

// A mask that allows everything changes no bit.
TEST_F(HeadReduceTest, AMaskThatAllowsEverythingChangesNothing) {
  for (const uint32_t vocab : {33u, 4099u, 262'145u}) {
    const std::vector<float> logits = RandomFloats(LogitStride(vocab), 11);
    const DeviceArray in(device(), logits),
        words(device(), std::vector<uint32_t>(MaskWords(vocab), ~0u));
    std::vector<std::vector<std::byte>> kept;
    const std::pair<uint32_t, uint64_t> forms[] = {
        {kNoMask, 0}, {kNoMask, words.address()}, {0u, words.address()}};
    for (const auto& [mask, masks] : forms) {
      const DeviceArray step = MakeStep(1, {{.row = 0, .mask = mask}}, 64),
                        slices(device(), SlicesOf(vocab).count * sizeof(OutputResult)),
                        results(device(), sizeof(OutputResult)), sums(device(), 8),
                        guesses(device(), 4), guessed(device(), 4);
      std::ranges::fill(slices.data(), std::byte{0});
      const auto launches = HeadReduceLaunches(tuning(),
                                               {.step = step.address(),
                                                .logits = in.address(),
                                                .slices = slices.address(),
                                                .results = results.address(),
                                                .sums = sums.address(),
                                                .guesses = guesses.address(),
                                                .guessed = guessed.address(),
                                                .masks = masks,
                                                .vocab_size = vocab},
                                               1);
      Run({launches.begin(), launches.end()});
      auto& bytes = kept.emplace_back();
      for (const DeviceArray* array : {&results, &sums, &guesses}) {
        bytes.insert(bytes.end(), array->data().begin(), array->data().end());
      }
    }
    EXPECT_TRUE(std::ranges::equal(kept[0], kept[1])) << vocab;
    EXPECT_TRUE(std::ranges::equal(kept[0], kept[2])) << vocab;
  }
}

TEST_F(HeadReduceTest, LeavesOutputsBeyondTheStepAlone) {
  const DeviceArray step = MakeStep(1, {{0}}), logits(device(), RandomFloats(64, 9)),
                    slices(device(), 2 * sizeof(OutputResult)),
                    results(device(), 2 * sizeof(OutputResult)), sums(device(), 16),
                    guesses(device(), 8), guessed(device(), 8);
  const auto launches = HeadReduceLaunches(tuning(),
                                           {.step = step.address(),
                                            .logits = logits.address(),
                                            .slices = slices.address(),
                                            .results = results.address(),
                                            .sums = sums.address(),
                                            .guesses = guesses.address(),
                                            .guessed = guessed.address(),
                                            .vocab_size = 32},
                                           2);
  Run({launches.begin(), launches.end()});
  EXPECT_TRUE(testing::IsGuard(results.data().last(sizeof(OutputResult))));
  EXPECT_TRUE(testing::IsGuard(guesses.data().last(4)));
  EXPECT_TRUE(testing::IsGuard(guessed.data().last(4)));
}

}  // namespace
}  // namespace tandem::gpu

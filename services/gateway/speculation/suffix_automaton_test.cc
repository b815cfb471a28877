#include "services/gateway/speculation/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tandem::gateway {
namespace {

// Length of the longest suffix of `text` that also ends before its end.
uint32_t LongestEarlier(const std::vector<uint32_t>& text) {
  uint32_t longest = 0;
  for (size_t end = 1; end < text.size(); ++end) {
    uint32_t length = 0;
    while (length < end && text[end - 1 - length] == text[text.size() - 1 - length]) ++length;
    longest = std::max(longest, length);
  }
  return longest;
}

TEST(SuffixAutomatonTest, FindsTheLongestSuffixThatABruteForceSearchFinds) {
  for (uint32_t seed = 1; seed <= 120; ++seed) {
    std::mt19937 random(seed);
    const uint32_t alphabet = 1 + seed % 7;
    SuffixAutomaton automaton;
    std::vector<uint32_t> text;
    for (int i = 0; i < 150; ++i) {
      // Copies of earlier parts, so that long matches and long mismatches occur.
      const size_t copy = text.size() > 20 && random() % 20 == 0 ? 3 + random() % 15 : 1;
      const size_t from = text.empty() ? 0 : random() % text.size();
      for (size_t n = 0; n < copy; ++n) {
        const uint32_t token =
            copy > 1 ? text[from + n % (text.size() - from)] : random() % alphabet * 1000003;
        text.push_back(token);
        automaton.Append(token);
        ASSERT_EQ(automaton.match_len(), LongestEarlier(text))
            << "seed " << seed << " after " << text.size();
        const uint32_t length = automaton.match_len();
        if (length == 0) continue;
        const uint32_t end = automaton.match_end();
        ASSERT_LT(end, text.size());
        ASSERT_GE(end, length);
        ASSERT_TRUE(std::equal(text.end() - length, text.end(), text.begin() + (end - length)))
            << "seed " << seed << " after " << text.size();
      }
    }
    ASSERT_TRUE(std::ranges::equal(automaton.text(), text));
  }
}

TEST(SuffixAutomatonTest, PrefersThePlaceWhereTheMatchEndedLast) {
  SuffixAutomaton automaton;
  for (const uint32_t token : {1, 2, 7, 1, 2, 8, 1, 2}) automaton.Append(token);
  EXPECT_EQ(automaton.match_len(), 2u);
  EXPECT_EQ(automaton.match_end(), 5u) << "8 followed last";
}

TEST(SuffixAutomatonTest, IsEmptyAgainAfterClear) {
  SuffixAutomaton automaton;
  for (int i = 0; i < 1000; ++i) automaton.Append(i % 3);
  automaton.Clear();
  EXPECT_TRUE(automaton.text().empty());
  automaton.Append(1);
  EXPECT_EQ(automaton.match_len(), 0u);
  automaton.Append(1);
  EXPECT_EQ(automaton.match_len(), 1u);
}

TEST(SuffixAutomatonTest, TakesFewBytesAToken) {
  std::mt19937 random(5);
  for (const uint32_t alphabet : {2u, 50u, 262144u}) {
    SuffixAutomaton automaton;
    constexpr size_t kTokens = 30000;
    for (size_t i = 0; i < kTokens; ++i) automaton.Append(random() % alphabet);
    EXPECT_LT(automaton.bytes(), 200 * kTokens) << "alphabet " << alphabet;
  }
}

}  // namespace
}  // namespace tandem::gateway

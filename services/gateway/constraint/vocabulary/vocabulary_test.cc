#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "services/gateway/constraint/testing/vocabularies.h"
#include "services/gateway/constraint/vocabulary/class_tokens.h"
#include "services/gateway/constraint/vocabulary/token_trie.h"

namespace tandem::gateway::constraint {
namespace {

TEST(TokenTrieTest, FindsEveryTokenByItsBytes) {
  // Tokens with the same bytes, with none, and an end token with bytes of its own.
  const auto trie = TokenTrie::Create({"", "a", "ab", "a", "日", "\xE6", "end", "abc"}, {6});
  ASSERT_TRUE(trie.ok());
  std::set<uint32_t> found;
  std::vector<std::pair<uint32_t, std::string>> left = {{0, ""}};
  while (!left.empty()) {
    const uint32_t id = left.back().first;
    const std::string bytes = left.back().second;
    left.pop_back();
    const TrieNode& node = (*trie)->node(id);
    (*trie)->ForEachToken(node, [&](uint32_t token) {
      EXPECT_EQ((*trie)->bytes(token), bytes);
      EXPECT_TRUE(found.insert(token).second) << token;
    });
    for (uint32_t i = 0; i < node.num_children; ++i) {
      const uint32_t child = node.first_child + i;
      left.push_back({child, bytes + static_cast<char>((*trie)->node(child).byte)});
    }
  }
  EXPECT_EQ(found, (std::set<uint32_t>{1, 2, 3, 4, 5, 7}));
  EXPECT_TRUE((*trie)->IsEndToken(6));
  EXPECT_EQ((*trie)->max_token_bytes(), 3u);
  EXPECT_EQ((*trie)->mask_words(), 1u);
}

// Against a look at every token below.
TEST(TokenTrieTest, DescribesWhatIsBelowANode) {
  const auto trie = SmallVocabulary();
  const ClassTokens letters(CodePointSet{{'a', 'z'}, {0x80, 0x10FFFF}});
  size_t described = 0;
  std::vector<std::pair<uint32_t, std::string>> left = {{0, ""}};
  while (!left.empty()) {
    const auto [id, prefix] = left.back();
    left.pop_back();
    const TrieNode& node = trie->node(id);
    for (uint32_t i = 0; i < node.num_children; ++i) {
      const uint32_t child = node.first_child + i;
      left.push_back({child, prefix + static_cast<char>(trie->node(child).byte)});
    }
    const Subtree* const subtree = trie->subtree(node);
    if (subtree == nullptr) continue;
    ++described;
    std::set<uint32_t> expected;
    ByteSet bytes;
    uint32_t most = 0;
    for (uint32_t token = 0; token < trie->vocab_size(); ++token) {
      const std::string_view all = trie->bytes(token);
      if (trie->IsEndToken(token) || all.size() <= prefix.size()) continue;
      if (all.substr(0, prefix.size()) != prefix) continue;
      expected.insert(token);
      uint32_t begun = 0;
      uint16_t row = 0;
      bool of_letters = true;
      for (const char c : all.substr(prefix.size())) {
        bytes.Add(static_cast<uint8_t>(c));
        begun += (c & 0xC0) != 0x80 ? 1 : 0;
        row = row == ClassTokens::kDead ? row : letters.Next(row, static_cast<uint8_t>(c));
        of_letters = of_letters && row != ClassTokens::kDead;
      }
      most = std::max(most, begun);
      if (letters.Takes(*subtree)) {
        EXPECT_TRUE(of_letters) << all;
      }
    }
    const auto tokens = trie->Tokens(*subtree);
    EXPECT_EQ(std::set<uint32_t>(tokens.begin(), tokens.end()), expected) << prefix;
    EXPECT_EQ(subtree->bytes, bytes) << prefix;
    EXPECT_EQ(subtree->height, most) << prefix;
    EXPECT_EQ(node.height, std::min<uint32_t>(most, TrieNode::kHighest)) << prefix;
  }
  EXPECT_GT(described, 5u);
}

TEST(TokenTrieTest, RefusesWhatIsNoVocabulary) {
  EXPECT_EQ(TokenTrie::Create({"a"}, {1}).status().message(),
            "end token 1: the vocabulary has 1 tokens");
  EXPECT_FALSE(TokenTrie::Create({std::string(2000, 'a')}, {}).ok());
}

// Against a look at every token: whole code points of the class, the last one perhaps broken off.
TEST(ClassTokensTest, CountsTheCodePointsOfTokens) {
  const auto trie = SmallVocabulary();
  for (const CodePointSet& set :
       {CodePointSet{{'a', 'z'}}, CodePointSet::All(), CodePointSet{{'a', 'z'}, {0x80, 0x10FFFF}},
        CodePointSet{{0x65E5, 0x65E5}, {'0', '9'}}}) {
    const ClassTokens tokens(set);
    const TokensBelow& below = tokens.Below(*trie, 0, 0);
    for (uint32_t count = 0; count <= below.max_count() + 1; ++count) {
      const auto listed = below.Tokens(count);
      const std::set<uint32_t> got(listed.begin(), listed.end());
      std::set<uint32_t> expected;
      for (uint32_t token = 0; token < trie->vocab_size(); ++token) {
        const std::string_view bytes = trie->bytes(token);
        if (bytes.empty()) continue;
        uint16_t row = 0;
        uint32_t begun = 0;
        for (const char c : bytes) {
          begun += row == 0 ? 1 : 0;
          row = tokens.Next(row, static_cast<uint8_t>(c));
          if (row == ClassTokens::kDead) break;
        }
        if (row != ClassTokens::kDead && begun <= count) expected.insert(token);
      }
      EXPECT_EQ(got, expected) << "up to " << count;
      const auto mask = below.Mask(count);
      size_t bits = 0;
      for (const uint32_t token : expected) bits += (*mask)[token / 32] >> (token % 32) & 1;
      EXPECT_EQ(bits, expected.size());
    }
  }
}

// However many grammars have classes of their own.
TEST(ClassTokensTest, TablesInUseAreBounded) {
  constexpr size_t kMost = size_t{64} << 10;
  const auto trie = TokenTrie::Create({"a", "b"}, {}, kMost).value();
  std::vector<std::shared_ptr<const ClassTokens>> used;
  const auto tokens_of = [&](uint32_t i) {
    return trie->TokensOfClass(CodePointSet{{'a', 0x1000 + i}});
  };
  size_t bytes = 0;
  while (auto tokens = tokens_of(static_cast<uint32_t>(used.size()))) {
    ASSERT_LE(bytes, kMost);
    bytes += tokens->memory_bytes();
    used.push_back(std::move(tokens));
  }
  EXPECT_GT(used.size(), 3u);
  EXPECT_EQ(tokens_of(0), used[0]) << "one that is there costs nothing more";
  used.resize(1);
  EXPECT_NE(tokens_of(1000), nullptr);
}

}  // namespace
}  // namespace tandem::gateway::constraint

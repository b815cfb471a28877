#include "services/gateway/replicas/prefix_directory.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tandem::gateway {
namespace {

std::vector<uint32_t> Tokens(uint32_t first, uint32_t count) {
  std::vector<uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(PrefixDirectoryTest, KeysAreThoseOfWholeBlocksWithAllBeforeThem) {
  const PrefixKeys keys = PrefixKeysOf("a", Tokens(0, 11), 4);
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys, PrefixKeysOf("a", Tokens(0, 8), 4));
  EXPECT_NE(keys, PrefixKeysOf("b", Tokens(0, 8), 4));
  std::vector<uint32_t> other = Tokens(0, 8);
  other[0] = 99;
  EXPECT_NE(keys[1], PrefixKeysOf("a", other, 4)[1]);
  EXPECT_TRUE(PrefixKeysOf("a", Tokens(0, 3), 4).empty());
}

TEST(PrefixDirectoryTest, FindsTheLeadingBlocksThatWereSentThere) {
  PrefixDirectory directory;
  directory.SetCapacity(0, 100);
  directory.SetCapacity(1, 100);
  directory.Add(0, PrefixKeysOf("", Tokens(0, 12), 4));
  EXPECT_EQ(directory.Find(0, PrefixKeysOf("", Tokens(0, 40), 4)), 3u);
  EXPECT_EQ(directory.Find(1, PrefixKeysOf("", Tokens(0, 40), 4)), 0u);
  std::vector<uint32_t> other = Tokens(0, 12);
  other[5] = 99;
  EXPECT_EQ(directory.Find(0, PrefixKeysOf("", other, 4)), 1u);
  directory.Forget(0);
  EXPECT_EQ(directory.Find(0, PrefixKeysOf("", Tokens(0, 12), 4)), 0u);
}

TEST(PrefixDirectoryTest, KeepsAsManyBlocksAsTheReplicaHasTheBeginningsLongest) {
  PrefixDirectory directory;
  directory.SetCapacity(0, 4);
  const PrefixKeys first = PrefixKeysOf("", Tokens(0, 12), 4);
  const PrefixKeys second = PrefixKeysOf("", Tokens(100, 8), 4);
  directory.Add(0, first);
  directory.Add(0, second);
  EXPECT_EQ(directory.Find(0, second), 2u);
  EXPECT_EQ(directory.Find(0, first), 2u);  // its last block has left
  directory.Add(0, first);
  EXPECT_EQ(directory.Find(0, first), 3u);
  EXPECT_EQ(directory.Find(0, second), 1u);
  directory.SetCapacity(0, 1);
  EXPECT_EQ(directory.Find(0, first), 1u);
}

}  // namespace
}  // namespace tandem::gateway

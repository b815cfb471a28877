#include "services/common/kv/prefix_scopes.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(PrefixScopesTest, ANameKeepsItsNumberAndSharesItWithNoOther) {
  PrefixScopes scopes(10);
  const uint64_t a = scopes.Of("a");
  const uint64_t b = scopes.Of("b");
  EXPECT_NE(a, b);
  EXPECT_EQ(scopes.Of("a"), a);
  EXPECT_EQ(scopes.Of("b"), b);
  EXPECT_EQ(scopes.Of(""), 0u);
  EXPECT_NE(a, 0u);
  EXPECT_NE(scopes.Of(std::string("a\0", 2)), a);
}

TEST(PrefixScopesTest, ForgetsTheNameUsedLongestAgoAndNeverReusesItsNumber) {
  PrefixScopes scopes(2);
  const uint64_t a = scopes.Of("a");
  const uint64_t b = scopes.Of("b");
  EXPECT_EQ(scopes.Of("a"), a);
  const uint64_t c = scopes.Of("c");  // in b's place
  EXPECT_EQ(scopes.Of("a"), a);
  EXPECT_EQ(scopes.size(), 2u);
  const uint64_t again = scopes.Of("b");
  EXPECT_NE(again, b);
  EXPECT_NE(again, c);
  EXPECT_EQ(scopes.size(), 2u);
}

}  // namespace
}  // namespace tandem

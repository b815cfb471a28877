#include "services/common/plan/drafters.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(DraftersTest, ParsesListsAndOff) {
  const auto off = ParseDrafters("off");
  ASSERT_TRUE(off.ok()) << off.status();
  EXPECT_TRUE(off->empty());
  const auto lookup = ParseDrafters("lookup");
  ASSERT_TRUE(lookup.ok()) << lookup.status();
  EXPECT_TRUE(lookup->lookup);
  EXPECT_FALSE(lookup->draft);
  const auto both = ParseDrafters("draft,lookup");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_TRUE(both->lookup);
  EXPECT_TRUE(both->draft);
}

TEST(DraftersTest, RefusesOtherWords) {
  for (const char* text : {"", "on", "lookup,", "lookup,lookup", "off,draft", "Lookup", "model"}) {
    const auto drafters = ParseDrafters(text);
    EXPECT_EQ(drafters.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(drafters.status().message().find(text), std::string_view::npos);
  }
}

TEST(DraftersTest, ADraftModelIsUsedIfNothingElseIsAsked) {
  const auto none = ChooseDrafters("", "");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
  const auto draft = ChooseDrafters("", "small.gguf");
  ASSERT_TRUE(draft.ok());
  EXPECT_TRUE(draft->draft);
  EXPECT_FALSE(draft->lookup);
}

TEST(DraftersTest, RefusesWhatHasNoEffect) {
  EXPECT_EQ(ChooseDrafters("lookup,draft", "").status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* text : {"off", "lookup"}) {
    const auto drafters = ChooseDrafters(text, "small.gguf");
    EXPECT_EQ(drafters.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(drafters.status().message().find("small.gguf"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace tandem

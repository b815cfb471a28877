#include "services/common/json/guarded_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/cancellation.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// Objects of `num_members` members each, side by side, with names of their own.
std::string Objects(size_t num_objects, size_t num_members) {
  std::string text = "[";
  for (size_t i = 0; i < num_objects; ++i) {
    text += i == 0 ? "{" : ",{";
    for (size_t k = 0; k < num_members; ++k) {
      text += absl::StrFormat("%s\"k%d\":0", k == 0 ? "" : ",", k);
    }
    text += "}";
  }
  return text + "]";
}

std::string Repeat(const std::string& unit, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += unit;
  return text;
}

std::string MessageOf(const std::string& text) {
  return std::string(ParseGuardedJson(text).status().message());
}

TEST(GuardedJsonTest, BuildsTheSameDocumentAsTheLibrary) {
  for (const char* text :
       {"null", "true", "-1.5e3", "18446744073709551615", "\"\\u00e9\\ud83d\\ude00\"", "[]", "{}",
        R"({"z": [1, [2, {"b": []}], {}], "c": {"d": null, "e": [[], [[]]]}, "a": "g"})"}) {
    const auto document = ParseGuardedJson(text);
    ASSERT_TRUE(document.ok()) << document.status();
    EXPECT_EQ(document->dump(), Json::parse(text).dump());
  }
}

TEST(GuardedJsonTest, OfMembersWithOneNameTheLastOneCounts) {
  for (const char* text : {R"({"a": 1, "b": {"a": 4}, "a": [3]})", R"({"a": 1, "a": 2, "a": 3})"}) {
    EXPECT_EQ(ParseGuardedJson(text)->dump(), Json::parse(text).dump()) << text;
  }
}

TEST(GuardedJsonTest, NamesMayComeTwiceInSmallObjectsAndInLargeOnes) {
  for (size_t num_members = 1; num_members < 20; ++num_members) {
    std::string text = "{";
    for (size_t i = 0; i < num_members; ++i) {
      text += absl::StrFormat("%s\"k%d\":%d", i == 0 ? "" : ",", i % 5, i);
    }
    text += "}";
    EXPECT_EQ(ParseGuardedJson(text)->dump(), Json::parse(text).dump()) << text;
  }
}

TEST(GuardedJsonTest, ObjectsAreBoundedBeforeTheyAreBuilt) {
  EXPECT_TRUE(ParseGuardedJson(Objects(1, 4096)).ok());
  EXPECT_THAT(MessageOf(Objects(1, 4097)), HasSubstr("an object has more than 4096 members"));
  EXPECT_THAT(MessageOf(Objects(1, 1000000)), HasSubstr("an object has more than 4096 members"));
  EXPECT_THAT(MessageOf("[" + Repeat("[],", 17000) + "0]"),
              HasSubstr("more than 16384 objects and arrays"));
  EXPECT_TRUE(ParseGuardedJson("[" + Repeat("\"a\",", 65535) + "\"\"]").ok());
  EXPECT_THAT(MessageOf("[" + Repeat("\"a\",", 65536) + "\"\"]"),
              HasSubstr("more than 65536 texts and names"));
  EXPECT_THAT(MessageOf("[" + Repeat("0,", 300000) + "0]"), HasSubstr("more than 262144 values"));
  EXPECT_THAT(MessageOf(Repeat("[", 100000)), HasSubstr("at byte 64, it is nested deeper"));
  EXPECT_TRUE(ParseGuardedJson(Repeat("[", 64) + Repeat("]", 64)).ok());
}

// With a look through the members for each one, full objects take 60 times as long as small ones
// with as many members together.
TEST(GuardedJsonTest, TimeIsLinearInTheMembers) {
  const auto processor_time = [](const std::string& text) {
    const std::clock_t begin = std::clock();
    EXPECT_TRUE(ParseGuardedJson(text).ok());
    return std::clock() - begin;
  };
  const std::clock_t of_small = processor_time(Objects(16 * 64, 64));
  EXPECT_LT(processor_time(Objects(16, 4096)), 8 * of_small);
}

TEST(GuardedJsonTest, SaysWhereTheTextIsWrongInBoundedAscii) {
  for (const std::string& text :
       {std::string("{"), std::string("{\"a\": tru}"), std::string("{'a':1}"), std::string("1e400"),
        std::string("\"\xFF\""), std::string("\"\\ud800\""), std::string("\"a\x1b\""),
        "\"\xC3\xA9\" " + std::string(100000, 'x'), std::string("")}) {
    const std::string message = MessageOf(text);
    EXPECT_THAT(message, ::testing::StartsWith("at byte ")) << text.substr(0, 20);
    EXPECT_LT(message.size(), 300u);
    for (const char c : message) EXPECT_TRUE(c >= ' ' && c <= '~') << message;
  }
}

TEST(GuardedJsonTest, StopsWhenNobodyWaits) {
  const std::string text = "[" + Repeat("0,", 100000) + "0]";
  bool gone = false;
  CancellationScope scope([&] { return gone; });
  EXPECT_TRUE(ParseGuardedJson(text).ok());
  gone = true;
  EXPECT_TRUE(absl::IsCancelled(ParseGuardedJson(text).status()));
  EXPECT_TRUE(absl::IsCancelled(CheckJson(text)));
}

TEST(GuardedJsonTest, BracketsWithinStringsDoNotCount) {
  EXPECT_TRUE(CheckJson(R"({"a": ["[[[[,", "\"[[[", {"b": {}}]})", {.max_depth = 4}).ok());
  EXPECT_EQ(CheckJson("[[[[]]]]", {.max_depth = 3}).message(),
            "at byte 3, it is nested deeper than 3 levels");
  EXPECT_TRUE(CheckJson(R"("\ud83d\ude00 \\ud83d \u0041")").ok());
  for (const char* half : {R"("\ud83d")", R"("\ude00")", R"("\ud83d\ud83d")", R"("\ud83dx")"}) {
    EXPECT_FALSE(CheckJson(half).ok()) << half;
  }
}

}  // namespace
}  // namespace tandem

#include "services/loader/formats/json.h"

#include <gtest/gtest.h>

#include "services/common/testing/status_matchers.h"
#include "services/loader/formats/printable.h"

namespace tandem::loader {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void ExpectTextRefused(const std::string& text, uint64_t offset, const std::string& reason) {
  EXPECT_THAT(
      ParseJson(text),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(StartsWith("at byte " + std::to_string(offset) + ": "), HasSubstr(reason))));
}

TEST(JsonTest, BuildsTheSameDocumentAsTheLibrary) {
  for (const char* text :
       {"null", "true", "-1.5e3", "18446744073709551615", "\"\\u00e9\\ud83d\\ude00\"", "[]", "{}",
        R"({"a": [1, [2, {"b": []}], {}], "c": {"d": null, "e": [[], [[]]]}, "f": "g"})"}) {
    ASSERT_OK_AND_ASSIGN(const nlohmann::json document, ParseJson(text));
    EXPECT_EQ(document, nlohmann::json::parse(text)) << text;
  }
}

TEST(JsonTest, RefusesAHundredThousandLevels) {
  const int levels = 100000;
  ExpectTextRefused(std::string(levels, '['), 64, "nested deeper than 64 levels");
  ExpectTextRefused(std::string(levels, '[') + std::string(levels, ']'), 64, "nested deeper");
  std::string objects;
  for (int i = 0; i < levels; ++i) objects += "{\"a\":";
  ExpectTextRefused(objects, 64 * 5, "nested deeper than 64 levels");
  EXPECT_OK(ParseJson(std::string(64, '[') + std::string(64, ']')));
}

TEST(JsonTest, RefusesMillionsOfValues) {
  std::string text = "[0";
  for (uint64_t i = 2; i < kMaxJsonValues; ++i) text += ",0";
  EXPECT_OK(ParseJson(text + "]"));
  // A number ends with the character after it.
  ExpectTextRefused(text + ",0]", text.size() + 2, "more than 2097152 values");
}

TEST(JsonTest, RefusesNamesThatAppearTwice) {
  ExpectTextRefused(R"({"a": 1, "b": 2, "a": 3})", 19, "the name \"a\" appears twice");
  EXPECT_OK(ParseJson(R"({"a": {"a": 1}, "b": {"a": 1}})"));
}

TEST(JsonTest, RefusesBadSyntaxWithItsOffset) {
  ExpectTextRefused("", 0, "unexpected end of input");
  ExpectTextRefused("{\"a\" 1}", 5, "expected ':'");
  ExpectTextRefused("[1, 2] x", 7, "expected end of input");
  ExpectTextRefused("[1e999]", 5, "number overflow");
  ExpectTextRefused("\"\xff\"", 1, "ill-formed UTF-8");
  ExpectTextRefused("\"\\ud800\"", 7, "surrogate");
}

TEST(JsonTest, LookUpsCheckTypesAndRanges) {
  ASSERT_OK_AND_ASSIGN(const nlohmann::json object,
                       ParseJson(R"({"n": 5, "f": 2.0, "s": "x", "b": true, "z": null})"));
  EXPECT_EQ(*JsonInteger(object, "n", 0, 5), 5);
  EXPECT_EQ(*JsonInteger(object, "f", 0, 5), 2);  // whole numbers may be written as floats
  EXPECT_EQ(*JsonInteger(object, "z", 0, 5), std::nullopt);
  EXPECT_EQ(*JsonInteger(object, "absent", 0, 5), std::nullopt);
  EXPECT_FALSE(JsonInteger(object, "n", 0, 4).ok());
  EXPECT_FALSE(JsonInteger(object, "s", 0, 5).ok());
  EXPECT_FALSE(JsonFloat(object, "s").ok());
  EXPECT_FALSE(JsonBool(object, "n").ok());
  EXPECT_FALSE(JsonString(object, "b").ok());
  EXPECT_FALSE(JsonObject(object, "s").ok());
}

TEST(PrintableTest, EscapesControlCharactersAndBytesThatAreNoUtf8) {
  EXPECT_EQ(Printable("a\nb\x01\x7f", 100), "a\\nb\\x01\\x7f");
  EXPECT_EQ(Printable("caf\xc3\xa9 \xff\xc3", 100), "caf\xc3\xa9 \\xff\\xc3");
  EXPECT_EQ(Printable("", 0), "");
}

TEST(PrintableTest, CutsAtAWholeCharacterAndIsStable) {
  const std::string text = "\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81tail";
  EXPECT_EQ(Printable(text, 4), "\xe2\x96\x81\xe2\x96\x81...");
  for (size_t length = 0; length < 20; ++length) {
    const std::string once = Printable(text, length);
    EXPECT_EQ(Printable(once, length), once) << length;
  }
}

}  // namespace
}  // namespace tandem::loader

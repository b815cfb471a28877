#include "services/gateway/api/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/common/json/guarded_json.h"
#include "services/gateway/api/api_error.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;

std::string Nested(size_t depth) {
  return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
}

TEST(JsonTest, TakesAnObjectAndKeepsItsOrder) {
  const auto json = ParseJsonObject(R"({"z": 1, "a": [true, null, "\u00e9"]})");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(DumpJson(*json), "{\"z\":1,\"a\":[true,null,\"\u00e9\"]}");
}

TEST(JsonTest, RefusesWhatIsNoObject) {
  for (const char* text : {"", "[]", "1", "null", "\"{}\"", "{", "{}{}", "{\"a\":}", "{'a':1}"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJsonObject(text).status())) << text;
  }
}

TEST(JsonTest, SaysWhereTheTextIsWrong) {
  const absl::Status status = ParseJsonObject("{\"a\": tru}").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("at byte 10"));
  EXPECT_EQ(ErrorCode(status), "invalid_json");
}

TEST(JsonTest, SaysWhatIsWrongWithoutTheParsersOwnWords) {
  for (const char* text : {"{", "{\"a\": tru}", "{'a':1}", "{\"a\":1e400}", "{\"a\":\"\xFF\"}"}) {
    const std::string message(ParseJsonObject(text).status().message());
    EXPECT_THAT(message, HasSubstr("the body is not valid JSON: at byte")) << text;
    for (const char* word : {"json.exception", "parse error", "while parsing", "line 1"}) {
      EXPECT_THAT(message, ::testing::Not(HasSubstr(word))) << text;
    }
  }
}

TEST(JsonTest, RefusesLoneSurrogatesInvalidUtf8AndNumbersBeyondADouble) {
  for (const char* text :
       {"{\"a\":\"\\ud800\"}", "{\"a\":\"\xFF\"}", "{\"a\":\"\xC0\x80\"}", "{\"a\":1e400}"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseJsonObject(text).status())) << text;
  }
}

TEST(JsonTest, ADepthOfAHundredThousandIsRefusedAtTheLimit) {
  EXPECT_TRUE(ParseJsonObject(Nested(kMaxJsonDepth)).ok());
  for (const size_t depth : {kMaxJsonDepth + 1, size_t{100000}}) {
    EXPECT_THAT(std::string(ParseJsonObject(Nested(depth)).status().message()),
                HasSubstr("deeper than 64 levels"));
  }
  EXPECT_FALSE(ParseJsonObject("{\"a\":" + std::string(100000, '[')).ok());
}

TEST(JsonTest, MoreValuesThanTheLimitAreRefused) {
  std::string text = "{\"a\":[0";
  for (size_t i = 0; i < JsonLimits().max_values; ++i) text += ",0";
  EXPECT_THAT(std::string(ParseJsonObject(text + "]}").status().message()),
              HasSubstr("more than 262144 values"));
}

TEST(JsonTest, TextThatIsNotUtf8IsWrittenAsReplacementCharacters) {
  EXPECT_EQ(DumpJson({{"a", "x\xFFy"}}), "{\"a\":\"x\uFFFDy\"}");
}

TEST(ApiErrorTest, NamesTheParameterOfItsOwnErrorsAndOfMessagesThatBeginWithOne) {
  EXPECT_EQ(ErrorParam(ParamError("n", "invalid_value", "no")), "n");
  EXPECT_EQ(ErrorParam(absl::InvalidArgumentError("messages[1].role: \"x\" is unknown")),
            "messages[1].role");
  EXPECT_EQ(ErrorParam(absl::InvalidArgumentError("sampling.top_p: 3, must be in (0, 1]")),
            "top_p");
  EXPECT_EQ(ErrorParam(absl::NotFoundError("model: there is no \"x\"")), "model");
  EXPECT_EQ(ErrorParam(absl::InvalidArgumentError("The body: none")), "");
  EXPECT_EQ(ErrorParam(absl::InternalError("segment: lost")), "");
  EXPECT_EQ(ErrorMessage(absl::InvalidArgumentError("sampling.top_p: 3")), "top_p: 3");
}

TEST(ApiErrorTest, AWordOfProseIsNoParameter) {
  for (const char* message : {"the body is not valid JSON: at byte 1", "text of 9 bytes: the limit",
                              "body of 5: too long", "no tokens: none", ": x", "a b"}) {
    EXPECT_EQ(ErrorParam(absl::InvalidArgumentError(message)), "") << message;
  }
  for (const char* text :
       {"", "{", "[]", "{\"a\": tru}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\xFF\"}"}) {
    EXPECT_EQ(ErrorParam(ParseJsonObject(text).status()), "") << text;
  }
  const absl::Status too_long = absl::InvalidArgumentError("context_length_exceeded: 9 tokens");
  EXPECT_EQ(ErrorParam(too_long), "");
  EXPECT_EQ(ErrorCode(too_long), "context_length_exceeded");
}

}  // namespace
}  // namespace tandem::gateway

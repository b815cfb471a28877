#include "services/gateway/api/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/gateway/api/api_error.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JsonFieldsTest : public ::testing::Test {
 protected:
  const Json object_ = Json::parse(R"({
    "yes": true, "one": 1, "half": 0.5, "big": 18446744073709551615, "minus": -7, "text": "abc",
    "texts": ["a", "b"], "mixed": ["a", 1], "nothing": null, "list": [], "object": {}})");
  absl::Status error_;
  JsonFields fields_{object_, error_, "outer."};
};

TEST_F(JsonFieldsTest, ReadsEachType) {
  EXPECT_EQ(fields_.Bool("yes"), true);
  EXPECT_EQ(fields_.Integer("one", 0, 1), 1);
  EXPECT_EQ(fields_.Number("half", 0.0, 1.0), 0.5);
  EXPECT_EQ(fields_.Number("one", 0.0, 1.0), 1.0);
  EXPECT_EQ(fields_.Seed("big"), UINT64_MAX);
  EXPECT_EQ(fields_.Seed("minus"), static_cast<uint64_t>(-7));
  EXPECT_EQ(fields_.String("text"), "abc");
  EXPECT_THAT(fields_.Strings("text", 1), ElementsAre("abc"));
  EXPECT_THAT(fields_.Strings("texts", 2), ElementsAre("a", "b"));
  EXPECT_NE(fields_.Object("object"), nullptr);
  EXPECT_TRUE(error_.ok()) << error_;
}

TEST_F(JsonFieldsTest, WholeNumbersMayBeWrittenAsFloats) {
  const Json object = Json::parse(
      R"({"forty": 40.0, "hundred": 1e2, "minus": -1.0, "half": 40.5, "exact": 9007199254740991.0,
          "inexact": 9007199254740992.0, "vast": 1e300})");
  const auto fields = [&object, this] {
    error_ = absl::OkStatus();
    return JsonFields(object, error_);
  };
  EXPECT_EQ(fields().Integer("forty", 0, 100), 40);
  EXPECT_EQ(fields().Integer("hundred", 0, 100), 100);
  EXPECT_EQ(fields().Integer("minus", -1, 100), -1);
  EXPECT_EQ(fields().Seed("forty"), 40u);
  EXPECT_EQ(fields().Seed("minus"), UINT64_MAX);
  EXPECT_EQ(fields().Seed("exact"), 9007199254740991u);
  EXPECT_TRUE(error_.ok()) << error_;
  EXPECT_EQ(fields().Integer("forty", 0, 39), std::nullopt);
  EXPECT_EQ(ErrorCode(error_), "invalid_value");
  for (const char* name : {"half", "inexact", "vast"}) {
    EXPECT_EQ(fields().Integer(name, 0, INT64_MAX), std::nullopt) << name;
    EXPECT_EQ(ErrorCode(error_), "invalid_type") << name;
    EXPECT_EQ(fields().Seed(name), std::nullopt) << name;
    EXPECT_EQ(ErrorCode(error_), "invalid_type") << name;
  }
}

TEST_F(JsonFieldsTest, AbsentAndNullAreTheSame) {
  for (const char* name : {"nothing", "absent"}) {
    EXPECT_EQ(fields_.Bool(name), std::nullopt);
    EXPECT_EQ(fields_.Number(name, 0, 1), std::nullopt);
    EXPECT_EQ(fields_.Integer(name, 0, 1), std::nullopt);
    EXPECT_EQ(fields_.String(name), std::nullopt);
    EXPECT_EQ(fields_.Array(name), nullptr);
    EXPECT_TRUE(fields_.Strings(name, 1).empty());
  }
  EXPECT_TRUE(error_.ok());
}

TEST_F(JsonFieldsTest, TheFirstErrorStaysAndNamesItsPath) {
  EXPECT_EQ(fields_.Integer("half", 0, 9), std::nullopt);
  EXPECT_EQ(fields_.Bool("text"), std::nullopt);
  EXPECT_EQ(ErrorParam(error_), "outer.half");
  EXPECT_EQ(ErrorCode(error_), "invalid_type");
  EXPECT_EQ(error_.message(),
            "Invalid type for 'outer.half': expected an integer, but got a number instead.");
}

TEST_F(JsonFieldsTest, RangesAreClosedAndSayWhatTheyAre) {
  EXPECT_EQ(fields_.Integer("one", 1, 1), 1);
  EXPECT_TRUE(error_.ok());
  EXPECT_EQ(fields_.Integer("big", 0, INT64_MAX), std::nullopt);
  EXPECT_THAT(std::string(error_.message()), HasSubstr("but got 18446744073709551615"));
  error_ = absl::OkStatus();
  EXPECT_EQ(fields_.Number("half", 0.75, 1.0), std::nullopt);
  EXPECT_THAT(std::string(error_.message()), HasSubstr("from 0.75 to 1, but got 0.5"));
}

TEST_F(JsonFieldsTest, ListsOfStringsAreCheckedOneByOne) {
  EXPECT_TRUE(fields_.Strings("mixed", 2).empty());
  EXPECT_EQ(ErrorParam(error_), "outer.mixed[1]");
  error_ = absl::OkStatus();
  EXPECT_TRUE(fields_.Strings("texts", 1).empty());
  EXPECT_EQ(ErrorCode(error_), "array_above_max_length");
}

TEST_F(JsonFieldsTest, WhatSaysNothingIsNotRefused) {
  for (const char* name : {"nothing", "absent", "list", "object"}) fields_.RefuseIfSet(name, "no.");
  fields_.RefuseUnless("text", "abc", "no.");
  EXPECT_TRUE(error_.ok());
  fields_.RefuseIfSet("texts", "there are none here.");
  EXPECT_EQ(error_.message(), "Unsupported parameter: 'outer.texts': there are none here.");
  EXPECT_EQ(ErrorCode(error_), "unsupported_parameter");
}

}  // namespace
}  // namespace tandem::gateway

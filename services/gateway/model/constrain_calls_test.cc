// Which answers the constraints of requests with tools allow.
#include "services/gateway/model/constrain_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>

#include "services/gateway/constraint/testing/vocabularies.h"
#include "services/gateway/constraint/testing/walks.h"
#include "services/gateway/tool_calls/answer_reader.h"
#include "services/gateway/tool_calls/call_schema.h"
#include "services/gateway/tool_calls/tool_messages.h"

namespace tandem::gateway {
namespace {

using constraint::ConstraintSource;
using constraint::SourceKind;
using ::testing::HasSubstr;

constexpr char kForecast[] = R"({"type": "object", "properties": {"city": {"$ref": "#/$defs/city"},
    "days": {"type": "integer", "minimum": 1, "maximum": 9}, "note": {"type": "string"}},
    "required": ["city"],
    "$defs": {"city": {"enum": ["Paris", "Rome"]}}})";
constexpr char kRoll[] = R"({"type": "object", "properties": {"$defs": {"type": "null"},
    "n": {"$ref": "#/$defs/n"}}, "required": ["n"], "$defs": {"n": {"type": "boolean"}}})";

v1::ChatRequest TwoTools(v1::ToolChoice choice) {
  v1::ChatRequest request;
  request.add_tools()->set_name("forecast");
  request.mutable_tools(0)->set_parameters_json(kForecast);
  request.add_tools()->set_name("roll");
  request.mutable_tools(1)->set_parameters_json(kRoll);
  request.set_tool_choice(choice);
  return request;
}

std::shared_ptr<const ConstraintSource> Schema(const std::string& text) {
  return std::make_shared<ConstraintSource>(
      ConstraintSource{.kind = SourceKind::kJsonSchema, .text = text});
}

class ConstrainCallsTest : public ::testing::Test {
 protected:
  // The constraint of `request`, whose text is bound by `text`.
  std::shared_ptr<constraint::Constraint> Compile(
      const v1::ChatRequest& request, std::shared_ptr<const ConstraintSource> text = nullptr) {
    EngineRequest parsed;
    parsed.constraint_source = std::move(text);
    const absl::Status status = ConstrainCalls(request, ToolFormat::kGemma3, parsed);
    EXPECT_TRUE(status.ok()) << status;
    if (parsed.constraint_source == nullptr) return nullptr;
    auto compiled = constraint::MakeConstraint(*parsed.constraint_source, trie_);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return compiled.ok() ? *compiled : nullptr;
  }
  bool Accepts(constraint::Constraint& constraint, const std::string& text) {
    const auto accepts = constraint::Accepts(constraint, *trie_, text);
    EXPECT_TRUE(accepts.ok()) << accepts.status();
    return accepts.ok() && *accepts;
  }

  const std::shared_ptr<const constraint::TokenTrie> trie_ = constraint::SmallVocabulary();
};

TEST_F(ConstrainCallsTest, RequiredAnswersAreCallsThatFitTheSchemas) {
  const auto calls = Compile(TwoTools(v1::TOOL_CHOICE_REQUIRED));
  ASSERT_NE(calls, nullptr);
  for (
      const char* good :
      {R"({"name": "forecast", "parameters": {"city": "Rome"}})",
       R"({"name": "forecast", "parameters": {"city": "Rome", "days": 3}})",
       R"({"name": "roll", "parameters": {"n": true}})",
       R"([{"name": "roll", "parameters": {"n": true}}])",
       R"([{"name": "roll", "parameters": {"n": true}}, {"name": "forecast", "parameters": {"city": "Paris"}}])"}) {
    EXPECT_TRUE(Accepts(*calls, good)) << good;
  }
  for (const char* bad : {"Hello", "[]", "{}", R"({"name": "other", "parameters": {}})",
                          R"({"name": "forecast", "parameters": {"city": "Oslo"}})",
                          R"({"name": "forecast", "parameters": {}})", R"({"name": "forecast"})",
                          R"({"name": "forecast", "parameters": {"city": "Rome", "more": 1}})",
                          R"({"name": "roll", "parameters": {"n": "Rome"}})",
                          R"({"name":"roll","parameters":{"n":true}})"}) {
    EXPECT_FALSE(Accepts(*calls, bad)) << bad;
  }
}

TEST_F(ConstrainCallsTest, ANamedToolIsCalledOnceIfCallsAreNotParallel) {
  v1::ChatRequest request = TwoTools(v1::TOOL_CHOICE_REQUIRED);
  request.set_required_tool("roll");
  request.set_parallel_tool_calls(false);
  const auto calls = Compile(request);
  ASSERT_NE(calls, nullptr);
  EXPECT_TRUE(Accepts(*calls, R"({"name": "roll", "parameters": {"n": true}})"));
  EXPECT_FALSE(Accepts(*calls, R"([{"name": "roll", "parameters": {"n": true}}])"));
  EXPECT_FALSE(Accepts(*calls, R"({"name": "forecast", "parameters": {"city": "Rome"}})"));
}

// Whatever the tokens are, the answer is read as calls, and nothing of it as text.
TEST_F(ConstrainCallsTest, EveryRequiredAnswerIsReadAsCalls) {
  const v1::ChatRequest request = TwoTools(v1::TOOL_CHOICE_REQUIRED);
  const auto calls = Compile(request);
  ASSERT_NE(calls, nullptr);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto text = constraint::RandomWalk(*calls, *trie_, random, 20, 400);
    ASSERT_TRUE(text.ok()) << text.status() << " seed " << seed;
    if (!text->has_value()) continue;
    AnswerReader reader(CallOptionsOf(request, ToolFormat::kGemma3));
    reader.Append(**text);
    reader.Finish();
    EXPECT_EQ(reader.text(), "") << **text;
    ASSERT_FALSE(reader.calls().empty()) << **text;
    for (const v1::ToolCall& call : reader.calls()) {
      EXPECT_TRUE(call.name() == "forecast" || call.name() == "roll") << **text;
      EXPECT_TRUE(nlohmann::json::accept(call.arguments_json())) << **text;
      EXPECT_THAT(call.arguments_json(), HasSubstr(call.name() == "roll" ? "\"n\"" : "\"city\""));
    }
  }
}

TEST_F(ConstrainCallsTest, InAutoAnAnswerFitsItsSchemaOrCalls) {
  const auto either = Compile(TwoTools(v1::TOOL_CHOICE_AUTO), Schema(R"({"type": "object",
      "properties": {"sum": {"$ref": "#/$defs/n"}}, "required": ["sum"],
      "additionalProperties": false, "$defs": {"n": {"type": "integer"}}})"));
  ASSERT_NE(either, nullptr);
  for (const char* good :
       {R"({"sum": 5})", R"({"sum":5})", R"({"name":"roll","parameters":{"n":true}})",
        R"([{"name": "roll", "parameters": {"n": true}}])"}) {
    EXPECT_TRUE(Accepts(*either, good)) << good;
  }
  for (const char* bad : {R"({"sum": true})", "text", R"({"name": "roll", "parameters": {}})"}) {
    EXPECT_FALSE(Accepts(*either, bad)) << bad;
  }
  const auto object = Compile(TwoTools(v1::TOOL_CHOICE_AUTO), std::make_shared<ConstraintSource>());
  ASSERT_NE(object, nullptr);
  EXPECT_TRUE(Accepts(*object, R"({"sum": true})"));
  EXPECT_TRUE(Accepts(*object, R"([{"name": "roll", "parameters": {"n": true}}])"));
  EXPECT_FALSE(Accepts(*object, "[1]"));
}

TEST_F(ConstrainCallsTest, WithoutToolsOrConstraintNothingChanges) {
  EXPECT_EQ(Compile(TwoTools(v1::TOOL_CHOICE_AUTO)), nullptr);
  EXPECT_EQ(Compile(v1::ChatRequest()), nullptr);
  for (const v1::ToolChoice choice : {v1::TOOL_CHOICE_NONE, v1::TOOL_CHOICE_AUTO}) {
    EngineRequest parsed;
    const auto text = Schema("{}");
    parsed.constraint_source = text;
    v1::ChatRequest request = TwoTools(choice);
    if (choice == v1::TOOL_CHOICE_AUTO) request.clear_tools();
    EXPECT_TRUE(ConstrainCalls(request, ToolFormat::kGemma3, parsed).ok());
    EXPECT_EQ(parsed.constraint_source, text);
  }
}

TEST_F(ConstrainCallsTest, WhatCannotBeBoundIsRefusedWithAWayOut) {
  EngineRequest parsed;
  for (const SourceKind kind :
       {SourceKind::kRegex, SourceKind::kChoices, SourceKind::kGbnf, SourceKind::kLark}) {
    parsed.constraint_source =
        std::make_shared<ConstraintSource>(ConstraintSource{.kind = kind, .text = "x"});
    const absl::Status status =
        ConstrainCalls(TwoTools(v1::TOOL_CHOICE_AUTO), ToolFormat::kGemma3, parsed);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("constraint: a regular expression"));
  }
  parsed.constraint_source = nullptr;
  const absl::Status required =
      ConstrainCalls(TwoTools(v1::TOOL_CHOICE_REQUIRED), ToolFormat::kFunctionGemma, parsed);
  EXPECT_THAT(std::string(required.message()), HasSubstr("tool_choice: this model"));
  EXPECT_TRUE(
      ConstrainCalls(TwoTools(v1::TOOL_CHOICE_AUTO), ToolFormat::kFunctionGemma, parsed).ok());
  parsed.constraint_source = Schema("{}");
  const absl::Status both =
      ConstrainCalls(TwoTools(v1::TOOL_CHOICE_AUTO), ToolFormat::kFunctionGemma, parsed);
  EXPECT_THAT(std::string(both.message()), HasSubstr("constraint: this model"));
}

TEST_F(ConstrainCallsTest, AnUnsupportedKeywordIsNamedByItsTool) {
  v1::ChatRequest request = TwoTools(v1::TOOL_CHOICE_REQUIRED);
  request.mutable_tools(1)->set_parameters_json(R"({"properties": {"a": {"not": {}}}})");
  EngineRequest parsed;
  ASSERT_TRUE(ConstrainCalls(request, ToolFormat::kGemma3, parsed).ok());
  const absl::Status status =
      NameSchemaPart(constraint::MakeConstraint(*parsed.constraint_source, trie_).status());
  EXPECT_EQ(std::string(status.message()),
            "tools[1].parameters_json: #/properties/a/not: is not supported");
}

}  // namespace
}  // namespace tandem::gateway

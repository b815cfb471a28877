// Bodies of /v1/messages: fields read, fields refused and their errors.
#include "services/gateway/anthropic/anthropic_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "services/gateway/anthropic/anthropic_error.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/testing/toy_pictures.h"
#include "services/gateway/api/testing/toy_served_model.h"
#include "services/gateway/tokenizer/chat_template.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTools[] = R"([{"name": "roll", "description": "Rolls.",
    "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}])";

class AnthropicRequestTest : public ::testing::Test {
 protected:
  absl::StatusOr<ApiJob> Make(const std::string& text) {
    const auto body = ParseJsonObject(text);
    EXPECT_TRUE(body.ok()) << body.status() << " " << text;
    return MakeMessagesJob(*body, *model_, "request");
  }
  std::vector<uint32_t> Rendered(const std::vector<Message>& messages) {
    return RenderChat(model_->tokenizer(), testing::kToyBos, messages).value();
  }

  std::unique_ptr<ServedModel> model_ = testing::MakeRoomyToyModel();
};

TEST_F(AnthropicRequestTest, PicturesStandAmongTheTexts) {
  const auto seeing = testing::MakeSeeingToyModel();
  std::string base64;
  absl::Base64Escape(testing::ToyBmp(10), &base64);
  const auto body = ParseJsonObject(
      R"({"model": "toy", "max_tokens": 9, "messages": [{"role": "user", "content": [
          {"type": "text", "text": "the"},
          {"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": ")" +
      base64 + R"("}}, {"type": "text", "text": "hat"}]}]})");
  const auto job = MakeMessagesJob(*body, *seeing, "request");
  ASSERT_TRUE(job.ok()) << job.status();
  const EngineRequest& run = job->runs[0];
  ASSERT_EQ(run.pictures.size(), 1u);
  EXPECT_EQ(run.picture_files->at(0), testing::ToyBmp(10));
  const auto hat = *seeing->tokenizer().Encode("\n\nhat");
  EXPECT_TRUE(std::equal(hat.begin(), hat.end(), run.prompt.begin() + run.pictures[0].end() + 1));
}

// As screenshots and files come to agents.
TEST_F(AnthropicRequestTest, PicturesOfResultsFollowTheResults) {
  const auto seeing = testing::MakeSeeingToyModel();
  const auto block = [](uint8_t grey) {
    std::string base64;
    absl::Base64Escape(testing::ToyBmp(grey), &base64);
    return R"({"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": ")" +
           base64 + R"("}})";
  };
  const auto body = ParseJsonObject(
      R"({"model": "toy", "max_tokens": 9, "messages": [
          {"role": "user", "content": "the"},
          {"role": "assistant", "content": [
              {"type": "tool_use", "id": "1", "name": "look", "input": {}},
              {"type": "tool_use", "id": "2", "name": "look", "input": {}}]},
          {"role": "user", "content": [
              {"type": "tool_result", "tool_use_id": "2", "content": [)" +
      block(10) + R"(]},
              {"type": "tool_result", "tool_use_id": "1", "content": [
                  {"type": "text", "text": "5"}, )" +
      block(20) + "]}, " + block(30) + R"(, {"type": "text", "text": "hat"}]}]})");
  const auto job = MakeMessagesJob(*body, *seeing, "request");
  ASSERT_TRUE(job.ok()) << job.status();
  const EngineRequest& run = job->runs[0];
  ASSERT_EQ(run.pictures.size(), 3u);
  EXPECT_THAT(*run.picture_files,
              ElementsAre(testing::ToyBmp(10), testing::ToyBmp(20), testing::ToyBmp(30)));
  const std::vector<uint32_t> before(run.prompt.begin(),
                                     run.prompt.begin() + run.pictures[0].first - 1);
  EXPECT_THAT(seeing->tokenizer().Decode(before),
              HasSubstr("[{\"name\": \"look\", \"result\": 5}, {\"name\": \"look\", "
                        "\"result\": \"\"}]\n\n\n\n"));
  const auto hat = *seeing->tokenizer().Encode("\n\nhat");
  EXPECT_TRUE(std::equal(hat.begin(), hat.end(), run.prompt.begin() + run.pictures[2].end() + 1));
}

TEST_F(AnthropicRequestTest, PicturesComeAsUrlsOfNamedHosts) {
  const auto seeing = testing::MakeSeeingToyModel({"example.org"});
  const auto body = [](const std::string& url) {
    return ParseJsonObject(
        R"({"model": "toy", "max_tokens": 9, "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "url", "url": ")" +
        url + R"("}}, {"type": "text", "text": "hat"}]}]})");
  };
  const auto job = MakeMessagesJob(*body("https://example.org/a.png"), *seeing, "request");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(*job->runs[0].picture_urls, ElementsAre("https://example.org/a.png"));
  // Nothing is fetched to count.
  const auto count = CountMessageTokens(*body("https://example.org/a.png"), *seeing);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, job->runs[0].prompt.size());
  const absl::Status refused =
      MakeMessagesJob(*body("https://www.example.org/a.png"), *seeing, "request").status();
  EXPECT_EQ(ErrorParam(refused), "messages[0].content[0].source.url");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("from www.example.org: --fetch-images"));
}

TEST_F(AnthropicRequestTest, EveryMemberReachesTheEngine) {
  const auto job = Make(R"({"model": "toy", "max_tokens": 9, "temperature": 0.5, "top_p": 0.25,
      "top_k": 7, "stop_sequences": ["a", "b"], "stream": true, "metadata": {"user_id": "1"},
      "service_tier": "auto", "thinking": {"type": "disabled"}, "unknown": 5,
      "system": [{"type": "text", "text": "be"}, {"type": "text", "text": "in"}],
      "messages": [{"role": "user", "content": "the"},
                   {"role": "assistant", "content": [{"type": "text", "text": "hat"}]},
                   {"role": "user", "content": [{"type": "text", "text": "an"},
                                                {"type": "text", "text": "he"}]}]})");
  ASSERT_TRUE(job.ok()) << job.status();
  const EngineRequest& run = job->runs[0];
  EXPECT_EQ(run.max_tokens, 9u);
  EXPECT_EQ(run.sampling.temperature, 0.5f);
  EXPECT_EQ(run.sampling.top_p, 0.25f);
  EXPECT_EQ(run.sampling.top_k, 7u);
  EXPECT_THAT(run.stops, ElementsAre("a", "b"));
  EXPECT_TRUE(job->writer->streams());
  EXPECT_EQ(
      run.prompt,
      Rendered(
          {{"system", "be\n\nin"}, {"user", "the"}, {"assistant", "hat"}, {"user", "an\n\nhe"}}));
}

TEST_F(AnthropicRequestTest, ToolsUsesAndResultsReachTheModel) {
  const auto job = Make(std::string(R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": "the"},
      {"role": "assistant", "content": [{"type": "text", "text": "hat"},
          {"type": "tool_use", "id": "1", "name": "roll", "input": {"n": 1}},
          {"type": "tool_use", "id": "2", "name": "roll", "input": "{\"n"}]},
      {"role": "user", "content": [
          {"type": "tool_result", "tool_use_id": "2", "is_error": true, "content": "no"},
          {"type": "tool_result", "tool_use_id": "1",
           "content": [{"type": "text", "text": "5"}]},
          {"type": "text", "text": "so"}]}], "tools": )") +
                        kTools + "}");
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string prompt = model_->tokenizer().Decode(job->runs[0].prompt);
  EXPECT_THAT(prompt, HasSubstr(R"([{"name": "roll", "description": "Rolls.", "parameters": )"
                                R"({"type": "object"}}])"));
  EXPECT_THAT(prompt, HasSubstr("hat\n[{\"name\": \"roll\", \"parameters\": {\"n\": 1}}, "
                                "{\"name\": \"roll\", \"parameters\": {\"n}]"));
  EXPECT_THAT(prompt, HasSubstr("[{\"name\": \"roll\", \"result\": 5}, {\"name\": \"roll\", "
                                "\"result\": {\"error\": \"no\"}}]\n\nso"));
}

TEST_F(AnthropicRequestTest, ChoicesAndFormatsBindTheAnswer) {
  const auto bound = [this](const std::string& fields) {
    const auto job = Make(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "x"}], )" +
                          fields + "}");
    EXPECT_TRUE(job.ok()) << job.status();
    const auto& source = job->runs[0].constraint_source;
    return source == nullptr ? "nothing" : source->text;
  };
  const std::string tools = std::string("\"tools\": ") + kTools + ", \"tool_choice\": ";
  const std::string any = bound(tools + R"({"type": "any"})");
  EXPECT_THAT(any, HasSubstr(R"("const":"roll")"));
  EXPECT_THAT(any, HasSubstr("minItems"));
  EXPECT_EQ(bound(tools + R"({"type": "tool", "name": "roll"})"), any);
  EXPECT_THAT(bound(tools + R"({"type": "any", "disable_parallel_tool_use": true})"),
              ::testing::Not(HasSubstr("minItems")));
  EXPECT_EQ(bound(tools + R"({"type": "auto"})"), "nothing");
  EXPECT_EQ(bound(tools + R"({"type": "none"})"), "nothing");
  const std::string format = R"({"type": "json_schema", "schema": {"type": "null"}})";
  EXPECT_EQ(bound("\"output_format\": " + format), R"({"type":"null"})");
  EXPECT_EQ(bound("\"output_config\": {\"format\": " + format + "}"), R"({"type":"null"})");
  EXPECT_EQ(bound(R"("output_config": {"effort": "low"}, "output_format": null)"), "nothing");
}

TEST_F(AnthropicRequestTest, CountsTheTokensThatAMessageHas) {
  const std::string members = std::string(R"("messages": [{"role": "user", "content": "the"}],
      "system": "be", "tools": )") +
                              kTools + "}";
  const auto body = ParseJsonObject("{" + members);
  const auto count = CountMessageTokens(*body, *model_);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, Make(R"({"max_tokens": 1, )" + members)->runs[0].prompt.size());
}

TEST_F(AnthropicRequestTest, WhatIsWrongOrNotDoneIsNamed) {
  const std::vector<std::pair<std::string, std::string>> faults = {
      {R"("max_tokens": null)", "max_tokens"},
      {R"("max_tokens": 0)", "max_tokens"},
      {R"("temperature": "hot")", "temperature"},
      {R"("stop_sequences": "x")", "stop_sequences"},
      {R"("stop_sequences": [""])", "stop_sequences"},
      {R"("stream": 5)", "stream"},
      {R"("system": 5)", "system"},
      {R"("system": [{"type": "image"}])", "system[0].type"},
      {R"("mcp_servers": [{}])", "mcp_servers"},
      {R"("output_format": 5)", "output_format"},
      {R"("output_format": {"schema": {}})", "output_format.type"},
      {R"("output_format": {"type": "xml"})", "output_format.type"},
      {R"("output_format": {"type": "json_schema"})", "output_format.schema"},
      {R"("output_format": {"type": "json_schema", "schema": "{}"})", "output_format.schema"},
      {R"("output_config": {"format": {"type": "json_schema"}})", "output_config.format.schema"},
      {R"("output_config": {"format": {"type": "json_schema", "schema": {}}},
          "output_format": {"type": "json_schema", "schema": {}})",
       "output_config.format.schema"},
      {R"("tools": [{"type": "bash_20250124", "name": "bash"}])", "tools[0].type"},
      {R"("tools": [{"name": "a"}])", "tools[0].input_schema"},
      {R"("tools": [{"input_schema": {}}])", "tools[0].name"},
      {R"("tools": [{"name": "a b", "input_schema": {}}])", "tools[0].name"},
      {R"("tools": [5])", "tools[0]"},
      {R"("tool_choice": {"type": "any"})", "tool_choice.type"},
      {R"("tool_choice": {"type": "tool", "name": "a"})", "tool_choice.type"},
      {R"("tool_choice": {"type": "function"})", "tool_choice.type"},
      {R"("tools": [{"name": "a", "input_schema": {}}], "tool_choice": {"type": "tool"})",
       "tool_choice.name"},
      {R"("tools": [{"name": "a", "input_schema": {}}],
          "tool_choice": {"type": "tool", "name": "b"})",
       "tool_choice.name"},
      {R"("tools": [{"name": "a", "input_schema": {"type": "null"}}],
          "tool_choice": {"type": "any"})",
       "tools[0].input_schema"},
      {R"("tool_choice": "auto")", "tool_choice"},
      {R"("messages": null)", "messages"},
      {R"("messages": [])", "messages"},
      {R"("messages": [5])", "messages[0]"},
      {R"("messages": [{"role": "system", "content": "x"}])", "messages[0].role"},
      {R"("messages": [{"role": "user"}])", "messages[0].content"},
      {R"("messages": [{"role": "user", "content": 5}])", "messages[0].content"},
      {R"("messages": [{"role": "user", "content": [{"type": "image"}]}])",
       "messages[0].content[0].source"},
      {R"("messages": [{"role": "user", "content": [{"type": "image",
           "source": {"type": "url", "url": "https://example.org/a.png"}}]}])",
       "messages[0].content[0].source.url"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "image"}]}])",
       "messages[0].content[0].type"},
      {R"("messages": [{"role": "user", "content": [{"type": "tool_use"}]}])",
       "messages[0].content[0].type"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "tool_result"}]}])",
       "messages[0].content[0].type"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]}])",
       "messages[0].content[0].name"},
      {R"("messages": [{"role": "user", "content": [{"type": "tool_result"}]}])",
       "messages[0].content[0].tool_use_id"},
      {R"("system": "be", "messages": [{"role": "user", "content": "x"}, {"role": "user",
           "content": [{"type": "tool_result", "tool_use_id": "7"}]}])",
       "messages[1]"},
  };
  for (const auto& [fields, param] : faults) {
    const absl::Status status =
        Make(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "x"}], )" + fields + "}")
            .status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << fields << ": " << status;
    EXPECT_EQ(ErrorParam(status), param) << fields << ": " << status;
  }
  EXPECT_TRUE(absl::IsNotFound(Make(R"({"model": "other", "max_tokens": 9,
      "messages": [{"role": "user", "content": "x"}]})")
                                   .status()));
}

TEST_F(AnthropicRequestTest, ErrorsHaveAnthropicsForm) {
  const std::string words(20000, 'a');
  const absl::Status status =
      Make(R"({"max_tokens": 9, "messages": [{"role": "user", "content": ")" + words + "\"}]}")
          .status();
  const Json error = AnthropicError(status, 400);
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["error"]["type"], "invalid_request_error");
  EXPECT_THAT(error["error"]["message"].get<std::string>(),
              ::testing::StartsWith("prompt is too long: "));
  const std::pair<int, const char*> types[] = {
      {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
      {413, "request_too_large"},    {429, "rate_limit_error"}, {500, "api_error"},
      {503, "overloaded_error"}};
  for (const auto& [code, type] : types) {
    const HttpResponse response =
        FormatAnthropicFailure({.http_status = code, .status = absl::UnknownError("why")});
    EXPECT_EQ(response.status, code);
    EXPECT_EQ(Json::parse(response.body)["error"], (Json{{"type", type}, {"message", "why"}}));
  }
}

}  // namespace
}  // namespace tandem::gateway

// Answers of /v1/messages, whole and streamed.
#include "services/gateway/anthropic/anthropic_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "services/gateway/api/json.h"
#include "services/gateway/api/testing/toy_served_model.h"

namespace tandem::gateway {
namespace {

constexpr uint32_t kA = 261;  // the toy vocabulary's "a"
constexpr char kTwoCalls[] =
    R"(Hm. [{"name": "roll", "parameters": {"n": 1}}, {"name": "roll", "parameters": {"n": 2}}])";

class AnthropicWriterTest : public ::testing::Test {
 protected:
  // The answer of these pieces.  Its tokens spell `letters`.
  std::string Write(const AnthropicWriterOptions& options, const std::vector<std::string>& pieces,
                    v1::FinishReason reason = v1::FINISH_REASON_STOP,
                    const std::string& letters = "") {
    const auto writer = MakeAnthropicWriter(*model_, options);
    std::string out;
    writer->Begin(out);
    for (const std::string& piece : pieces) {
      StreamUpdate update;
      update.text = piece;
      writer->Update(0, update, out);
    }
    StreamUpdate tokens;
    for (const char c : letters) tokens.tokens.push_back({.token = kA + (c - 'a')});
    writer->Update(0, tokens, out);
    StreamEnd end;
    end.reason = reason;
    end.usage.set_prompt_tokens(11);
    end.usage.set_cached_tokens(4);
    end.usage.set_completion_tokens(3);
    writer->End(0, end, out);
    writer->Finish(out);
    return out;
  }
  static std::vector<Json> Events(const std::string& stream) {
    std::vector<Json> events;
    for (size_t at = 0; at < stream.size();) {
      const size_t end = stream.find("\n\n", at);
      const std::string event = stream.substr(at, end - at);
      const size_t data = event.find("\ndata: ");
      events.push_back(Json::parse(event.substr(data + 7)));
      EXPECT_EQ(event.substr(0, data), "event: " + events.back()["type"].get<std::string>());
      at = end + 2;
    }
    return events;
  }

  std::unique_ptr<ServedModel> model_ = testing::MakeToyModel();
};

TEST_F(AnthropicWriterTest, AWholeAnswerHasItsBlocks) {
  const Json answer = Json::parse(Write({.calls = {.names = {"roll"}}}, {kTwoCalls}));
  EXPECT_EQ(answer["type"], "message");
  EXPECT_EQ(answer["role"], "assistant");
  EXPECT_EQ(answer["stop_reason"], "tool_use");
  EXPECT_TRUE(answer["stop_sequence"].is_null());
  EXPECT_EQ(answer["usage"], (Json{{"input_tokens", 7},
                                   {"cache_creation_input_tokens", 0},
                                   {"cache_read_input_tokens", 4},
                                   {"output_tokens", 3}}));
  ASSERT_EQ(answer["content"].size(), 3u);
  EXPECT_EQ(answer["content"][0], (Json{{"type", "text"}, {"text", "Hm."}}));
  EXPECT_EQ(answer["content"][2]["type"], "tool_use");
  EXPECT_EQ(answer["content"][2]["name"], "roll");
  EXPECT_EQ(answer["content"][2]["input"], (Json{{"n", 2}}));
}

TEST_F(AnthropicWriterTest, AStreamPutsTheSameTogether) {
  std::vector<std::string> bytes;
  for (const char c : std::string(kTwoCalls)) bytes.emplace_back(1, c);
  const std::vector<Json> events = Events(Write(
      {.stream = true, .prompt_tokens = 11, .calls = {.names = {"roll"}, .id_prefix = "toolu_"}},
      bytes));
  EXPECT_EQ(events[0]["type"], "message_start");
  EXPECT_EQ(events[0]["message"]["usage"]["input_tokens"], 11);
  EXPECT_EQ(events[0]["message"]["content"], Json::array());
  EXPECT_TRUE(events[0]["message"]["stop_reason"].is_null());
  EXPECT_EQ(events[1]["type"], "ping");
  EXPECT_EQ(events[events.size() - 2]["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(events[events.size() - 2]["usage"]["output_tokens"], 3);
  EXPECT_EQ(events.back()["type"], "message_stop");
  std::vector<std::string> blocks;
  size_t stopped = 0;
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type == "content_block_start") {
      EXPECT_EQ(event["index"], blocks.size());
      EXPECT_EQ(stopped, blocks.size()) << "a block begins before the last one stops";
      const Json& block = event["content_block"];
      blocks.push_back(block["type"].get<std::string>() + ":");
      if (block["type"] == "tool_use") {
        EXPECT_THAT(block["id"].get<std::string>(), ::testing::StartsWith("toolu_"));
        EXPECT_EQ(block["input"], Json::object());
      }
    } else if (type == "content_block_delta") {
      EXPECT_EQ(event["index"], blocks.size() - 1);
      const Json& delta = event["delta"];
      blocks.back() += delta[delta["type"] == "text_delta" ? "text" : "partial_json"];
    } else if (type == "content_block_stop") {
      EXPECT_EQ(event["index"], stopped++);
    }
  }
  EXPECT_THAT(blocks,
              ::testing::ElementsAre("text:Hm.", "tool_use:{\"n\": 1}", "tool_use:{\"n\": 2}"));
}

TEST_F(AnthropicWriterTest, SaysWhyItStopped) {
  const auto reason = [this](const std::vector<std::string>& stops, const std::string& letters,
                             v1::FinishReason finish) {
    const Json answer = Json::parse(Write({.stops = stops}, {"the"}, finish, letters));
    return answer["stop_reason"].get<std::string>() + " " + answer["stop_sequence"].dump();
  };
  EXPECT_EQ(reason({}, "the", v1::FINISH_REASON_STOP), "end_turn null");
  EXPECT_EQ(reason({}, "the", v1::FINISH_REASON_LENGTH), "max_tokens null");
  EXPECT_EQ(reason({"hat", "at"}, "thehat", v1::FINISH_REASON_STOP), "stop_sequence \"hat\"");
  EXPECT_EQ(reason({"hat"}, "thehatx", v1::FINISH_REASON_STOP), "end_turn null");
}

TEST_F(AnthropicWriterTest, ACallThatBreaksOffHasItsInputAsText) {
  const Json answer =
      Json::parse(Write({.calls = {.names = {"roll"}}}, {R"({"name": "roll", "parameters": {"n)"},
                        v1::FINISH_REASON_LENGTH));
  EXPECT_EQ(answer["stop_reason"], "max_tokens");
  EXPECT_EQ(answer["content"][0]["input"], R"({"n)");
}

TEST_F(AnthropicWriterTest, AFailureIsAnEvent) {
  const auto writer = MakeAnthropicWriter(*model_, {.stream = true});
  std::string out;
  writer->Fail(absl::UnavailableError("a worker was lost"), out);
  EXPECT_EQ(Events(out)[0]["error"],
            (Json{{"type", "overloaded_error"}, {"message", "a worker was lost"}}));
}

}  // namespace
}  // namespace tandem::gateway

// Events to OpenAI's JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "services/gateway/api/api_error.h"
#include "services/gateway/api/testing/toy_served_model.h"
#include "services/gateway/api/token_json.h"
#include "services/gateway/openai/chat_writer.h"
#include "services/gateway/openai/completion_writer.h"
#include "services/gateway/openai/openai_error.h"
#include "services/gateway/openai/openai_parts.h"
#include "services/gateway/openai/responses_writer.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kA = 261;  // the toy vocabulary's "a"

StreamUpdate Letters(const std::string& letters) {
  StreamUpdate update{.text = letters};
  for (const char c : letters) {
    const uint32_t token = kA + static_cast<uint32_t>(c - 'a');
    update.tokens.push_back(
        {.token = token, .logprob = -0.5f, .alternatives = {{token, -0.5f}, {kA + 25, -2.0f}}});
  }
  return update;
}

StreamEnd EndOf(uint32_t prompt, uint32_t completion, v1::FinishReason reason) {
  StreamEnd end{.reason = reason};
  end.usage.set_prompt_tokens(prompt);
  end.usage.set_cached_tokens(prompt / 2);
  end.usage.set_completion_tokens(completion);
  end.usage.set_seed(7);
  v1::DeviceTime* time = end.usage.add_device_times();
  time->set_worker("gpu0");
  time->set_seconds(0.25);
  time->set_joules(12.5);
  time = end.usage.add_device_times();
  time->set_worker("npu0");
  time->set_seconds(0.5);
  return end;
}

// The data of each event; "[DONE]" as a string.
std::vector<Json> Events(const std::string& stream) {
  std::vector<Json> events;
  size_t at = 0;
  while (at < stream.size()) {
    const size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "a stream that ends in mid-event";
    std::string event = stream.substr(at, end - at);
    const size_t data = event.find("data: ");
    event = event.substr(data + 6);
    events.push_back(event == "[DONE]" ? Json(event) : Json::parse(event));
    at = end + 2;
  }
  return events;
}

class OpenAiWriterTest : public ::testing::Test {
 protected:
  std::unique_ptr<ServedModel> model_ = testing::MakeToyModel();
};

TEST_F(OpenAiWriterTest, AChatStreamHasRoleTextReasonUsageAndDone) {
  const auto writer = MakeChatWriter(*model_, {.stream = true, .include_usage = true});
  std::string out;
  writer->Begin(out);
  writer->Update(0, Letters("he"), out);
  writer->Update(0, {}, out);
  writer->Update(0, Letters("y"), out);
  writer->End(0, EndOf(11, 4, v1::FINISH_REASON_STOP), out);
  writer->Finish(out);
  const std::vector<Json> events = Events(out);
  ASSERT_EQ(events.size(), 6u) << out;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(events[i]["id"], events[0]["id"]);
    EXPECT_EQ(events[i]["created"], events[0]["created"]);
    EXPECT_EQ(events[i]["model"], "toy");
    EXPECT_EQ(events[i]["object"], "chat.completion.chunk");
  }
  EXPECT_TRUE(events[0]["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[1]["choices"][0]["delta"], Json({{"content", "he"}}));
  EXPECT_EQ(events[2]["choices"][0]["delta"], Json({{"content", "y"}}));
  EXPECT_EQ(events[3]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "stop");
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(events[i].contains("usage"));
    EXPECT_TRUE(events[i]["usage"].is_null());
    EXPECT_TRUE(events[i]["choices"][0]["logprobs"].is_null());
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(events[i]["choices"][0]["finish_reason"].is_null());
  }
  EXPECT_EQ(events[4]["choices"], Json::array());
  EXPECT_EQ(events[4]["usage"]["prompt_tokens"], 11);
  EXPECT_EQ(events[4]["usage"]["completion_tokens"], 4);
  EXPECT_EQ(events[4]["usage"]["total_tokens"], 15);
  EXPECT_EQ(events[4]["usage"]["prompt_tokens_details"]["cached_tokens"], 5);
  EXPECT_EQ(events[4]["tandem"]["device_seconds"], Json({{"gpu0", 0.25}, {"npu0", 0.5}}));
  EXPECT_EQ(events[4]["tandem"]["device_joules"], Json({{"gpu0", 12.5}}));
  EXPECT_EQ(events[4]["tandem"]["seed"], 7);
  EXPECT_EQ(events[5], "[DONE]");
}

TEST_F(OpenAiWriterTest, WithoutIncludeUsageThereIsNone) {
  const auto writer = MakeChatWriter(*model_, {.stream = true});
  std::string out;
  writer->Begin(out);
  writer->End(0, EndOf(11, 0, v1::FINISH_REASON_LENGTH), out);
  writer->Finish(out);
  EXPECT_EQ(out.find("usage"), std::string::npos);
  EXPECT_EQ(Events(out)[1]["choices"][0]["finish_reason"], "length");
}

TEST_F(OpenAiWriterTest, AWholeChatHasItsChoicesInOrderAndCountsThePromptOnce) {
  const auto writer = MakeChatWriter(*model_, {.logprobs = true, .num_choices = 2});
  std::string out;
  writer->Begin(out);
  writer->Update(1, Letters("b"), out);
  writer->Update(0, Letters("a"), out);
  writer->End(1, EndOf(5, 1, v1::FINISH_REASON_STOP), out);
  writer->End(0, EndOf(5, 1, v1::FINISH_REASON_LENGTH), out);
  EXPECT_EQ(out, "");
  writer->Finish(out);
  const Json body = Json::parse(out);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "a");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_TRUE(body["choices"][0]["message"]["refusal"].is_null());
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][1]["message"]["content"], "b");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 2) << "counted once, too";
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
  const Json token = body["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(token["token"], "a");
  EXPECT_EQ(token["logprob"], -0.5);
  EXPECT_EQ(token["bytes"], Json::array({97}));
  EXPECT_EQ(token["top_logprobs"][1]["token"], "z");
  EXPECT_EQ(token["top_logprobs"].size(), 2u);
}

TEST_F(OpenAiWriterTest, LogprobsOfAStreamComeWithTheirText) {
  const auto writer = MakeChatWriter(*model_, {.stream = true, .logprobs = true});
  std::string out;
  writer->Update(0, Letters("ab"), out);
  writer->End(0, EndOf(1, 2, v1::FINISH_REASON_STOP), out);
  const std::vector<Json> events = Events(out);
  EXPECT_EQ(events[0]["choices"][0]["logprobs"]["content"].size(), 2u);
  EXPECT_TRUE(events[1]["choices"][0]["logprobs"].is_null());
}

TEST_F(OpenAiWriterTest, AnErrorInAStreamIsAnErrorObject) {
  const auto writer = MakeChatWriter(*model_, {.stream = true});
  std::string out;
  writer->Fail(absl::UnavailableError("a worker is lost"), out);
  const std::vector<Json> events = Events(out);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["error"]["message"], "a worker is lost");
  EXPECT_EQ(events[0]["error"]["type"], "server_error");
}

TEST_F(OpenAiWriterTest, ACompletionEchoesItsPromptWithOffsets) {
  const auto writer = MakeCompletionWriter(
      *model_, {.logprobs = true, .echoes = {{.text = "xy", .first_token = kA + 23}}});
  std::string out;
  StreamUpdate update = Letters("ab");
  update.prompt_tokens = Letters("y").tokens;
  writer->Update(0, update, out);
  writer->End(0, EndOf(2, 2, v1::FINISH_REASON_LENGTH), out);
  writer->Finish(out);
  const Json choice = Json::parse(out)["choices"][0];
  EXPECT_EQ(choice["text"], "xyab");
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::array({"x", "y", "a", "b"}));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::array({0, 1, 2, 3}));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json::array({nullptr, -0.5, -0.5, -0.5}));
  EXPECT_TRUE(choice["logprobs"]["top_logprobs"][0].is_null());
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][2], Json({{"a", -0.5}, {"z", -2.0}}));
}

TEST_F(OpenAiWriterTest, ACompletionStreamCountsEachPromptOnce) {
  const auto writer = MakeCompletionWriter(
      *model_, {.stream = true, .include_usage = true, .num_prompts = 2, .num_choices = 2});
  std::string out;
  writer->Begin(out);
  for (size_t run = 0; run < 4; ++run) {
    writer->Update(run, Letters("a"), out);
    writer->End(run, EndOf(run < 2 ? 10 : 20, 1, v1::FINISH_REASON_STOP), out);
  }
  writer->Finish(out);
  const std::vector<Json> events = Events(out);
  ASSERT_EQ(events.size(), 10u);
  EXPECT_EQ(events[6]["choices"][0]["index"], 3);
  EXPECT_EQ(events[6]["choices"][0]["text"], "a");
  EXPECT_EQ(events[7]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[8]["usage"]["prompt_tokens"], 30);
  EXPECT_EQ(events[8]["usage"]["completion_tokens"], 4);
}

TEST_F(OpenAiWriterTest, AResponseStreamHasItsEventsInOrder) {
  const auto writer = MakeResponsesWriter(*model_, {.stream = true});
  std::string out;
  writer->Begin(out);
  writer->Update(0, Letters("he"), out);
  writer->End(0, EndOf(3, 2, v1::FINISH_REASON_LENGTH), out);
  writer->Finish(out);
  std::vector<std::string> types;
  const std::vector<Json> events = Events(out);
  for (size_t i = 0; i < events.size(); ++i) {
    types.push_back(events[i]["type"]);
    EXPECT_EQ(events[i]["sequence_number"], i);
    EXPECT_NE(out.find("event: " + types.back() + "\ndata: "), std::string::npos);
  }
  EXPECT_THAT(types,
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.incomplete"));
  EXPECT_EQ(events[4]["delta"], "he");
  EXPECT_EQ(events[0]["response"]["output"], Json::array());
  const Json last = events.back()["response"];
  EXPECT_EQ(last["id"], events[0]["response"]["id"]);
  EXPECT_EQ(last["output"][0]["content"][0]["text"], "he");
  EXPECT_EQ(last["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(last["usage"]["input_tokens"], 3);
  EXPECT_EQ(last["usage"]["input_tokens_details"]["cached_tokens"], 1);
  EXPECT_EQ(last["usage"]["output_tokens"], 2);
}

TEST_F(OpenAiWriterTest, AWholeResponseIsTheSameObject) {
  const auto writer = MakeResponsesWriter(*model_, {.top_p = 0.95f});
  std::string out;
  writer->Begin(out);
  writer->Update(0, Letters("he"), out);
  writer->End(0, EndOf(3, 3, v1::FINISH_REASON_STOP), out);
  writer->Finish(out);
  const Json body = Json::parse(out);
  EXPECT_EQ(body["object"], "response");
  EXPECT_EQ(body["status"], "completed");
  EXPECT_TRUE(body["error"].is_null());
  EXPECT_EQ(body["top_p"], 0.95);
  EXPECT_EQ(body["output"][0]["role"], "assistant");
  EXPECT_EQ(body["output"][0]["content"][0]["type"], "output_text");
}

TEST_F(OpenAiWriterTest, AResponseHasItsLogprobsInItsDeltasAndAtItsEnd) {
  const auto names = [](const Json& logprobs) {
    std::string text;
    for (const Json& token : logprobs) text += token["token"].get<std::string>();
    return text;
  };
  for (const bool stream : {true, false}) {
    const auto writer = MakeResponsesWriter(*model_, {.stream = stream, .logprobs = true});
    std::string out;
    if (stream) writer->Begin(out);
    writer->Update(0, Letters("he"), out);
    writer->Update(0, Letters("y"), out);
    writer->End(0, EndOf(3, 3, v1::FINISH_REASON_STOP), out);
    EXPECT_EQ(out.empty(), !stream);
    writer->Finish(out);
    Json response;
    if (stream) {
      for (const Json& event : Events(out)) {
        const std::string type = event["type"];
        if (type == "response.output_text.delta") {
          EXPECT_EQ(names(event["logprobs"]), event["delta"]);
        } else if (type == "response.output_text.done") {
          EXPECT_EQ(names(event["logprobs"]), "hey");
        } else if (type == "response.content_part.done") {
          EXPECT_EQ(names(event["part"]["logprobs"]), "hey");
        } else if (type == "response.output_item.done") {
          EXPECT_EQ(names(event["item"]["content"][0]["logprobs"]), "hey");
        } else if (type == "response.completed") {
          response = event["response"];
        }
      }
    } else {
      response = Json::parse(out);
    }
    const Json& part = response["output"][0]["content"][0];
    EXPECT_EQ(part["text"], "hey");
    EXPECT_EQ(names(part["logprobs"]), "hey");
    EXPECT_EQ(part["logprobs"][2]["top_logprobs"].size(), 2u);
  }
}

TEST(OpenAiErrorTest, HasTypeParamAndCodeByStatus) {
  const auto error = [](int http_status, const absl::Status& status) {
    return Json::parse(FormatOpenAiFailure({http_status, status, {}}).body)["error"];
  };
  const Json param = error(400, ParamError("n", "invalid_value", "no"));
  EXPECT_EQ(param, Json({{"message", "no"},
                         {"type", "invalid_request_error"},
                         {"param", "n"},
                         {"code", "invalid_value"}}));
  EXPECT_EQ(error(404, absl::NotFoundError("model: none"))["code"], "model_not_found");
  EXPECT_TRUE(error(404, absl::NotFoundError("no such path"))["code"].is_null());
  EXPECT_EQ(error(401, absl::UnauthenticatedError("key"))["code"], "invalid_api_key");
  EXPECT_EQ(error(429, absl::ResourceExhaustedError("full"))["type"], "rate_limit_error");
  EXPECT_EQ(error(503, absl::UnavailableError("lost"))["type"], "server_error");
}

TEST(OpenAiPartsTest, TokensThatAreNoTextKeepTheirBytes) {
  const auto model = testing::MakeToyModel();
  std::string list;
  AppendTokenLogprobs(
      std::vector<Decision>{{.token = testing::kToyFirstByte + 0xC3}, {.token = testing::kToyEos}},
      model->tokenizer(), list);
  const Json tokens = Json::parse("[" + list + "]");
  const Json& half = tokens[0];
  EXPECT_EQ(half["token"], "\uFFFD");
  EXPECT_EQ(half["bytes"], Json::array({0xC3}));
  const Json& control = tokens[1];
  EXPECT_EQ(control["token"], "<eos>");
  EXPECT_EQ(control["bytes"], Json::array());
}

}  // namespace
}  // namespace tandem::gateway

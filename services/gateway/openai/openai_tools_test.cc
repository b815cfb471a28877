// Tools, calls and their results in OpenAI's two shapes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "services/gateway/api/api_error.h"
#include "services/gateway/api/testing/toy_served_model.h"
#include "services/gateway/openai/chat_request.h"
#include "services/gateway/openai/chat_writer.h"
#include "services/gateway/openai/responses_request.h"
#include "services/gateway/openai/responses_writer.h"
#include "services/gateway/tokenizer/chat_template.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;
using MakeJob = absl::StatusOr<ApiJob> (*)(const Json&, const ServedModel&, const std::string&);

constexpr char kChatTools[] = R"([{"type": "function", "function": {"name": "roll",
    "description": "Rolls.", "strict": true,
    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}}])";
constexpr char kResponsesTools[] = R"([{"type": "function", "name": "roll", "description": "Rolls.",
    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}, "strict": true}])";

class OpenAiToolsTest : public ::testing::Test {
 protected:
  absl::StatusOr<ApiJob> Make(MakeJob make, const std::string& text) {
    const auto body = ParseJsonObject(text);
    EXPECT_TRUE(body.ok()) << body.status() << " " << text;
    return make(*body, *model_, "request");
  }
  std::vector<uint32_t> Rendered(const std::vector<Message>& messages) {
    return RenderChat(model_->tokenizer(), testing::kToyBos, messages).value();
  }
  // Runs an answer of these pieces through the writer.
  static std::string Write(AnswerWriter& writer, const std::vector<std::string>& pieces,
                           v1::FinishReason reason = v1::FINISH_REASON_STOP) {
    std::string out;
    writer.Begin(out);
    for (const std::string& piece : pieces) {
      StreamUpdate update;
      update.text = piece;
      writer.Update(0, update, out);
    }
    StreamEnd end;
    end.reason = reason;
    writer.End(0, end, out);
    writer.Finish(out);
    return out;
  }
  static std::vector<Json> Events(const std::string& stream) {
    std::vector<Json> events;
    for (size_t at = stream.find("data: {"); at != std::string::npos;
         at = stream.find("data: {", at + 1)) {
      events.push_back(Json::parse(stream.substr(at + 6, stream.find('\n', at) - at - 6)));
    }
    return events;
  }

  std::unique_ptr<ServedModel> model_ = testing::MakeRoomyToyModel();
};

const CallOptions kRoll = {.names = {"roll"}};
constexpr char kTwoCalls[] =
    R"([{"name": "roll", "parameters": {"n": 1}}, {"name": "roll", "parameters": {"n": 2}}])";

TEST_F(OpenAiToolsTest, BothShapesGiveTheModelTheSame) {
  const auto chat = Make(MakeChatJob, std::string(R"({"messages": [
      {"role": "user", "content": "the"},
      {"role": "assistant", "content": "hat", "tool_calls": [
          {"id": "1", "type": "function", "function": {"name": "roll", "arguments": "{\"n\":1}"}},
          {"id": "2", "type": "function", "function": {"name": "roll", "arguments": ""}}]},
      {"role": "tool", "tool_call_id": "2", "content": "5"},
      {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "an"}]}],
      "parallel_tool_calls": false, "tools": )") +
                                          kChatTools + "}");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto responses = Make(MakeResponsesJob, std::string(R"({"input": [
      {"role": "user", "content": "the"}, {"role": "assistant", "content": "hat"},
      {"type": "function_call", "call_id": "1", "name": "roll", "arguments": "{\"n\":1}"},
      {"type": "function_call", "id": "fc_2", "call_id": "2", "name": "roll", "arguments": "",
       "status": "completed"},
      {"type": "function_call_output", "call_id": "2", "output": "5"},
      {"type": "function_call_output", "call_id": "1",
       "output": [{"type": "input_text", "text": "an"}]}],
      "parallel_tool_calls": false, "tools": )") + kResponsesTools +
                                                    "}");
  ASSERT_TRUE(responses.ok()) << responses.status();
  const std::string functions =
      "You have access to functions. If you decide to invoke any of the functions, put it in the "
      "format of\n{\"name\": function name, \"parameters\": dictionary of argument name and its "
      "value}\n\nYou should not include any other text in the response if you call a function.\n"
      "[{\"name\": \"roll\", \"description\": \"Rolls.\", \"parameters\": {\"type\": \"object\", "
      "\"properties\": {\"n\": {\"type\": \"integer\"}}}}]";
  const std::vector<uint32_t> prompt = Rendered(
      {{"system", functions},
       {"user", "the"},
       {"assistant",
        "hat\n[{\"name\": \"roll\", \"parameters\": {\"n\": 1}}, {\"name\": \"roll\", "
        "\"parameters\": {}}]"},
       {"user",
        "[{\"name\": \"roll\", \"result\": \"an\"}, {\"name\": \"roll\", \"result\": 5}]"}});
  EXPECT_EQ(chat->runs[0].prompt, prompt);
  EXPECT_EQ(responses->runs[0].prompt, prompt);
}

// As responses give it: text after a call, before its result.
TEST_F(OpenAiToolsTest, TextAfterACallBelongsToItsMessage) {
  const auto job = Make(MakeResponsesJob, std::string(R"({"input": [
      {"role": "user", "content": "the"},
      {"type": "function_call", "call_id": "1", "name": "roll", "arguments": "{\"n\":1}"},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hat"}]},
      {"type": "function_call_output", "call_id": "1", "output": "5"}], "tools": )") +
                                              kResponsesTools + "}");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(model_->tokenizer().Decode(job->runs[0].prompt),
              HasSubstr("hat\n{\"name\": \"roll\", \"parameters\": {\"n\": 1}}"));
}

TEST_F(OpenAiToolsTest, AllowedToolsAreThoseThatTheModelSees) {
  const std::string tools =
      R"([{"type": "function", "name": "roll"}, {"type": "function", "name": "hat"}])";
  const auto make = [&](const std::string& mode, const std::string& name) {
    return Make(MakeResponsesJob,
                R"({"input": "the", "tool_choice": {"type": "allowed_tools", "mode": ")" + mode +
                    R"(", "tools": [{"type": "function", "name": ")" + name + R"("}]}, "tools": )" +
                    tools + "}");
  };
  const auto job = make("auto", "hat");
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string prompt = model_->tokenizer().Decode(job->runs[0].prompt);
  EXPECT_THAT(prompt, HasSubstr("\"hat\""));
  EXPECT_THAT(prompt, Not(HasSubstr("\"roll\"")));
  EXPECT_EQ(job->runs[0].constraint_source, nullptr);
  const auto bound = make("required", "hat");
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_THAT(bound->runs[0].constraint_source->text,
              AllOf(HasSubstr(R"("const":"hat")"), Not(HasSubstr("roll"))));
  EXPECT_THAT(std::string(make("auto", "none").status().message()),
              HasSubstr("\"none\" is not in 'tools'"));
  EXPECT_THAT(std::string(make("maybe", "hat").status().message()),
              HasSubstr("'auto' and 'required'"));
  const auto chat =
      Make(MakeChatJob, std::string(R"({"messages": [{"role": "user", "content": "the"}],
      "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
          {"type": "function", "function": {"name": "roll"}}]}}, "tools": )") +
                            kChatTools + "}");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_THAT(chat->runs[0].constraint_source->text, HasSubstr(R"("const":"roll")"));
}

TEST_F(OpenAiToolsTest, WithChoiceNoneTheModelSeesNoTools) {
  const std::string with = std::string(R"({"messages": [{"role": "user", "content": "the"}],
      "tool_choice": "none", "tools": )") +
                           kChatTools + "}";
  EXPECT_EQ(Make(MakeChatJob, with)->runs[0].prompt, Rendered({{"user", "the"}}));
}

TEST_F(OpenAiToolsTest, ChoicesThatAskForACallBindTheAnswer) {
  const auto source = [this](MakeJob make, const std::string& input, const std::string& tools,
                             const std::string& choice) {
    const auto job =
        Make(make, "{" + input + ", \"tools\": " + tools + ", \"tool_choice\": " + choice + "}");
    EXPECT_TRUE(job.ok()) << job.status();
    const auto& bound = job->runs[0].constraint_source;
    return bound == nullptr ? "nothing" : bound->text;
  };
  const std::string messages = R"("messages": [{"role": "user", "content": "the"}])";
  const std::string input = R"("input": "the")";
  const std::string roll = source(MakeChatJob, messages, kChatTools, R"("required")");
  EXPECT_THAT(roll, HasSubstr(R"("const":"roll")"));
  EXPECT_THAT(roll, HasSubstr(R"("minItems":1)"));
  EXPECT_EQ(source(MakeChatJob, messages, kChatTools,
                   R"({"type": "function", "function": {"name": "roll"}})"),
            roll);
  EXPECT_EQ(source(MakeResponsesJob, input, kResponsesTools, R"("required")"), roll);
  EXPECT_EQ(
      source(MakeResponsesJob, input, kResponsesTools, R"({"type": "function", "name": "roll"})"),
      roll);
  EXPECT_THAT(
      source(MakeChatJob, messages, kChatTools, R"("required", "parallel_tool_calls": false)"),
      ::testing::Not(HasSubstr("minItems")));
  for (const char* free : {"\"auto\"", "\"none\"", "null"}) {
    EXPECT_EQ(source(MakeChatJob, messages, kChatTools, free), "nothing") << free;
  }
}

TEST_F(OpenAiToolsTest, StrictHasAnEffectWhereACallMustCome) {
  const auto ignored = [this](const std::string& choice) {
    const auto job = Make(MakeResponsesJob, R"({"input": "the", "tool_choice": )" + choice +
                                                ", \"tools\": " + kResponsesTools + "}");
    EXPECT_TRUE(job.ok()) << job.status();
    const Json answer = Json::parse(Write(*job->writer, {kTwoCalls}));
    EXPECT_EQ(answer["tool_choice"], Json::parse(choice));
    return answer["tandem"].value("ignored", Json());
  };
  EXPECT_EQ(ignored("\"auto\""), Json::array({"tools[0].strict"}));
  EXPECT_TRUE(ignored("\"required\"").is_null());
  EXPECT_TRUE(ignored(R"({"type": "function", "name": "roll"})").is_null());
}

TEST_F(OpenAiToolsTest, WrongToolsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> faults = {
      {R"("tools": {"a": 1})", "tools"},
      {R"("tools": [5])", "tools[0]"},
      {R"("tools": [{"type": "custom"}])", "tools[0].type"},
      {R"("tools": [{"type": "function"}])", "tools[0].function"},
      {R"("tools": [{"function": {}}])", "tools[0].function.name"},
      {R"("tools": [{"function": {"name": "a b"}}])", "tools[0].function.name"},
      {R"("tools": [{"function": {"name": "a", "parameters": 5}}])",
       "tools[0].function.parameters"},
      {R"("tools": [{"function": {"name": "a", "description": 5}}])",
       "tools[0].function.description"},
      {R"("tools": [{"function": {"name": "a"}}, {"function": {"name": "a"}}])", "tools[1].name"},
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("tool_choice": {"type": "function", "function": {"name": "a"}})", "tool_choice"},
      {R"("tool_choice": "always")", "tool_choice"},
      {R"("tool_choice": 5)", "tool_choice"},
      {R"("tool_choice": {"type": "custom", "custom": {"name": "a"}})", "tool_choice.type"},
      {R"("tool_choice": {"type": "custom"})", "tool_choice.type"},
      {R"("tool_choice": {"type": "function"})", "tool_choice.function"},
      {R"("tool_choice": {"type": "function", "function": {}})", "tool_choice.function.name"},
      {R"("tool_choice": {"type": "function", "function": {"name": ""}})",
       "tool_choice.function.name"},
      {R"("tools": [{"function": {"name": "a"}}],
          "tool_choice": {"type": "function", "function": {"name": "b"}})",
       "tool_choice"},
      {R"("tools": [{"function": {"name": "a", "parameters": {"type": "array"}}}],
          "tool_choice": "required")",
       "tools[0].function.parameters"},
      {R"("parallel_tool_calls": 5)", "parallel_tool_calls"},
  };
  for (const auto& [fields, param] : faults) {
    const absl::Status status =
        Make(MakeChatJob, R"({"messages": [{"role": "user", "content": "the"}], )" + fields + "}")
            .status();
    EXPECT_EQ(ErrorParam(status), param) << fields << ": " << status;
  }
}

TEST_F(OpenAiToolsTest, ResponsesNameTheItemThatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> faults = {
      {R"({"role": "user", "content": "x"}, {"type": "function_call_output", "call_id": "7",
           "output": "x"})",
       "input[1]"},
      {R"({"type": "function_call_output", "output": "x"})", "input[0].call_id"},
      {R"({"type": "function_call_output", "call_id": "7"})", "input[0].output"},
      {R"({"type": "function_call", "call_id": "7"})", "input[0].name"},
      {R"({"type": "function_call", "name": "7"})", "input[0].call_id"},
      {R"({"type": "function_call", "call_id": "7", "name": "f"})", "input[0]"},
      {R"(5)", "input[0]"},
      {"", "input"},
  };
  for (const auto& [items, param] : faults) {
    const absl::Status status =
        Make(MakeResponsesJob, R"({"instructions": "be", "input": [)" + items + "]}").status();
    EXPECT_EQ(ErrorParam(status), param) << items << ": " << status;
  }
}

TEST_F(OpenAiToolsTest, AWholeAnswerHasItsCalls) {
  const auto writer = MakeChatWriter(*model_, {.calls = kRoll});
  const Json answer = Json::parse(Write(*writer, {kTwoCalls}));
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  const Json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"]["name"], "roll");
  EXPECT_EQ(calls[1]["function"]["arguments"], "{\"n\": 2}");
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

TEST_F(OpenAiToolsTest, AStreamHasIdAndNameFirstAndThenTheArguments) {
  const auto writer = MakeChatWriter(*model_, {.stream = true, .calls = kRoll});
  std::vector<std::string> bytes;
  for (const char c : std::string("Hm. ") + kTwoCalls) bytes.emplace_back(1, c);
  std::string text;
  std::vector<std::string> arguments;
  for (const Json& event : Events(Write(*writer, bytes))) {
    const Json& choice = event["choices"][0];
    if (!choice["finish_reason"].is_null()) {
      EXPECT_EQ(choice["finish_reason"], "tool_calls");
    }
    text += choice["delta"].value("content", "");
    if (!choice["delta"].contains("tool_calls")) continue;
    const Json& call = choice["delta"]["tool_calls"][0];
    if (call.contains("id")) {
      EXPECT_EQ(call["index"], arguments.size());
      EXPECT_EQ(call["type"], "function");
      EXPECT_EQ(call["function"], (Json{{"name", "roll"}, {"arguments", ""}}));
      arguments.emplace_back();
    } else {
      EXPECT_EQ(call["index"], arguments.size() - 1);
      arguments.back() += call["function"]["arguments"].get<std::string>();
    }
  }
  EXPECT_EQ(text, "Hm.");
  EXPECT_EQ(arguments, (std::vector<std::string>{"{\"n\": 1}", "{\"n\": 2}"}));
}

TEST_F(OpenAiToolsTest, AStreamHasTheLogprobOfEachTokenOfACall) {
  constexpr uint32_t kLetter = 261;  // of one byte
  const std::string call = R"({"name": "roll", "parameters": {"n": 1}})";
  const auto writer = MakeChatWriter(*model_, {.stream = true, .logprobs = true, .calls = kRoll});
  std::string out;
  // A token for each character: the last one is the call's end alone.
  for (const char c : call) {
    writer->Update(0, {.text = std::string(1, c), .tokens = {{.token = kLetter}}}, out);
  }
  writer->End(0, {.reason = v1::FINISH_REASON_STOP}, out);
  size_t num_logprobs = 0;
  for (const Json& event : Events(out)) {
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (!logprobs.is_null()) num_logprobs += logprobs["content"].size();
  }
  EXPECT_EQ(num_logprobs, call.size());
}

TEST_F(OpenAiToolsTest, ACallThatBreaksOffEndsForItsLength) {
  const auto writer = MakeChatWriter(*model_, {.calls = kRoll});
  const Json answer = Json::parse(
      Write(*writer, {R"({"name": "roll", "parameters": {"n")"}, v1::FINISH_REASON_LENGTH));
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"n\"");
}

TEST_F(OpenAiToolsTest, ResponsesHaveAnItemForEachCall) {
  for (const bool stream : {false, true}) {
    const auto writer = MakeResponsesWriter(*model_, {.stream = stream, .calls = kRoll});
    const std::string out = Write(*writer, {"Hm. ", kTwoCalls});
    Json answer;
    std::vector<std::string> types;
    std::string arguments;
    if (stream) {
      for (const Json& event : Events(out)) {
        const std::string type = event["type"];
        EXPECT_EQ(event["sequence_number"], types.size());
        types.push_back(type.substr(type.find('.') + 1));
        if (types.back() == "function_call_arguments.delta") {
          arguments += event["delta"].get<std::string>();
        }
        if (types.back() == "completed") answer = event["response"];
      }
      EXPECT_EQ(types, (std::vector<std::string>{
                           "created", "in_progress", "output_item.added", "content_part.added",
                           "output_text.delta", "output_text.done", "content_part.done",
                           "output_item.done", "output_item.added", "function_call_arguments.delta",
                           "function_call_arguments.done", "output_item.done", "output_item.added",
                           "function_call_arguments.delta", "function_call_arguments.done",
                           "output_item.done", "completed"}));
      EXPECT_EQ(arguments, "{\"n\": 1}{\"n\": 2}");
    } else {
      answer = Json::parse(out);
    }
    ASSERT_EQ(answer["output"].size(), 3u);
    EXPECT_EQ(answer["output"][0]["content"][0]["text"], "Hm.");
    const Json& call = answer["output"][2];
    EXPECT_EQ(call["type"], "function_call");
    EXPECT_EQ(call["status"], "completed");
    EXPECT_EQ(call["name"], "roll");
    EXPECT_EQ(call["arguments"], "{\"n\": 2}");
    EXPECT_THAT(call["call_id"].get<std::string>(), HasSubstr("call_"));
  }
}

TEST_F(OpenAiToolsTest, AnEmptyResponseHasAMessageAllTheSame) {
  const auto writer = MakeResponsesWriter(*model_, {.calls = kRoll});
  const Json answer = Json::parse(Write(*writer, {}));
  ASSERT_EQ(answer["output"].size(), 1u);
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "");
}

}  // namespace
}  // namespace tandem::gateway

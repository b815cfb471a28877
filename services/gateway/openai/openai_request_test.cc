// Bodies of the three generating routes: which are read, which are refused and how.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "services/gateway/api/api_error.h"
#include "services/gateway/api/testing/toy_served_model.h"
#include "services/gateway/openai/chat_request.h"
#include "services/gateway/openai/completion_request.h"
#include "services/gateway/openai/responses_request.h"
#include "services/gateway/tokenizer/chat_template.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;

using MakeJob = absl::StatusOr<ApiJob> (*)(const Json&, const ServedModel&, const std::string&);

class OpenAiRequestTest : public ::testing::Test {
 protected:
  // `fields`: members beside the ones without which the request is wrong.
  absl::StatusOr<ApiJob> Chat(const std::string& fields) {
    return Make(MakeChatJob, R"({"messages": [{"role": "user", "content": "the hat"}])", fields);
  }
  absl::StatusOr<ApiJob> Completion(const std::string& fields) {
    return Make(MakeCompletionJob, R"({"prompt": "the hat")", fields);
  }
  absl::StatusOr<ApiJob> Responses(const std::string& fields) {
    return Make(MakeResponsesJob, R"({"input": "the hat")", fields);
  }
  absl::StatusOr<ApiJob> Make(MakeJob make, const std::string& begin, const std::string& fields) {
    const auto body = ParseJsonObject(begin + (fields.empty() ? "}" : ", " + fields + "}"));
    EXPECT_TRUE(body.ok()) << body.status() << " " << fields;
    return make(*body, *model_, "request");
  }
  std::vector<uint32_t> Rendered(const std::vector<Message>& messages) {
    return RenderChat(model_->tokenizer(), testing::kToyBos, messages).value();
  }

  struct Fault {
    const char* fields;
    const char* param;
    const char* code;
  };
  template <class Call>
  void ExpectFaults(const std::vector<Fault>& faults, const Call& call) {
    for (const Fault& fault : faults) {
      const absl::Status status = call(fault.fields).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << fault.fields << ": " << status;
      EXPECT_EQ(ErrorParam(status), fault.param) << fault.fields << ": " << status;
      EXPECT_EQ(ErrorCode(status), fault.code) << fault.fields << ": " << status;
    }
  }

  std::unique_ptr<ServedModel> model_ = testing::MakeToyModel();
};

TEST_F(OpenAiRequestTest, EveryParameterOfAChatReachesTheEngine) {
  const auto job = Chat(R"("temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125,
      "repetition_penalty": 1.5, "presence_penalty": -1, "frequency_penalty": 2, "seed": 42,
      "logit_bias": {"270": -100, "271": 1.5}, "max_tokens": 9, "stop": ["a", "b"],
      "ignore_eos": true, "cache_prompt": false, "cache_salt": "pepper", "priority": -7, "logprobs": true, "top_logprobs": 3, "user": "someone", "n": 3,
      "unknown": {"ignored": 1}, "tools": [], "tool_choice": "none",
      "response_format": {"type": "text"}, "store": false)");
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_THAT(job->runs, SizeIs(3));
  const EngineRequest& run = job->runs[0];
  EXPECT_EQ(run.sampling.temperature, 0.5f);
  EXPECT_EQ(run.sampling.top_p, 0.25f);
  EXPECT_EQ(run.sampling.top_k, 7u);
  EXPECT_EQ(run.sampling.min_p, 0.125f);
  EXPECT_EQ(run.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(run.sampling.presence_penalty, -1.0f);
  EXPECT_EQ(run.sampling.frequency_penalty, 2.0f);
  EXPECT_THAT(run.sampling.logit_bias, ElementsAre(Pair(270, -100.0f), Pair(271, 1.5f)));
  EXPECT_EQ(run.max_tokens, 9u);
  EXPECT_THAT(run.stops, ElementsAre("a", "b"));
  EXPECT_TRUE(run.ignore_eos);
  EXPECT_FALSE(run.use_prefix_cache);
  EXPECT_EQ(run.cache_salt, "pepper");
  EXPECT_EQ(run.priority, -7) << "before the key bounds it";
  EXPECT_EQ(run.num_alternatives, 3u);
  EXPECT_EQ(run.request_id, "request");
  EXPECT_EQ(run.prompt, Rendered({{"user", "the hat"}}));
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(job->runs[i].sampling.seed, 42 + i);
  EXPECT_FALSE(job->writer->streams());
}

TEST_F(OpenAiRequestTest, WithoutParametersTheModelsDefaultsHold) {
  const auto job = Chat("");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->runs[0].sampling.temperature, model_->sampling_defaults().temperature);
  EXPECT_EQ(job->runs[0].max_tokens, kNoTokenLimit);
  EXPECT_TRUE(job->runs[0].use_prefix_cache);
  EXPECT_LT(job->runs[0].sampling.seed, uint64_t{1} << 53);
  EXPECT_EQ(Completion("")->runs[0].max_tokens, 16u);
  EXPECT_EQ(Chat(R"("max_completion_tokens": 4, "max_tokens": 4)")->runs[0].max_tokens, 4u);
  EXPECT_EQ(Chat(R"("stop": "x")")->runs[0].stops, std::vector<std::string>{"x"});
  EXPECT_GT(Chat(R"("top_p": 0)")->runs[0].sampling.top_p, 0.0f);
  EXPECT_EQ(Chat(R"("top_k": -1)")->runs[0].sampling.top_k, 0u);
  EXPECT_LT(Chat(R"("seed": -1)")->runs[0].sampling.seed, uint64_t{1} << 53);
  EXPECT_EQ(Chat(R"("seed": -2)")->runs[0].sampling.seed, UINT64_MAX - 1);
  EXPECT_EQ(job->runs[0].sampling.penalty_window, kWholeText);
}

// As llama.cpp's and LM Studio's clients send it.
TEST_F(OpenAiRequestTest, ALimitOfMinusOneIsNoLimit) {
  for (const auto& job :
       {Chat(R"("max_tokens": -1)"), Chat(R"("max_completion_tokens": -1)"),
        Completion(R"("max_tokens": -1)"), Responses(R"("max_output_tokens": -1)")}) {
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->runs[0].max_tokens, kNoTokenLimit);
  }
}

TEST_F(OpenAiRequestTest, PenaltiesLookBackAsFarAsTheyAreTold) {
  const auto params = [this](const char* fields) { return Chat(fields)->runs[0].sampling; };
  EXPECT_EQ(params(R"("repeat_penalty": 1.5)").repetition_penalty, 1.5f);
  EXPECT_EQ(params(R"("repeat_penalty": 1.5)").penalty_window, 64u);
  EXPECT_EQ(params(R"("repetition_penalty": 1.5)").penalty_window, kWholeText);
  EXPECT_EQ(params(R"("repetition_penalty": 1.5, "repeat_last_n": 9)").penalty_window, 9u);
  EXPECT_EQ(params(R"("repeat_penalty": 1.5, "repeat_last_n": -1)").penalty_window, kWholeText);
  const SamplingParams off =
      params(R"("repeat_penalty": 1.5, "presence_penalty": 1, "repeat_last_n": 0)");
  EXPECT_EQ(off.repetition_penalty, 1.0f);
  EXPECT_EQ(off.presence_penalty, 0.0f);
}

TEST_F(OpenAiRequestTest, MembersTakenWithoutEffectAreToldInTheAnswer) {
  const auto ignored = [](const absl::StatusOr<ApiJob>& job) {
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return Json();
    std::string out;
    job->writer->End(0, {.reason = v1::FINISH_REASON_STOP}, out);
    job->writer->Finish(out);
    return Json::parse(out)["tandem"].value("ignored", Json());
  };
  EXPECT_EQ(ignored(Chat(R"("store": true, "reasoning_effort": "low")")),
            Json({"store", "reasoning_effort"}));
  EXPECT_EQ(ignored(Responses(R"("store": true, "reasoning": {"effort": "high", "summary": "auto"},
                                 "include": ["reasoning.encrypted_content"])")),
            Json({"store", "reasoning.effort", "reasoning.summary"}));
  for (const char* none : {"", R"("store": false, "reasoning_effort": "none")"}) {
    EXPECT_TRUE(ignored(Chat(none)).is_null()) << none;
  }
}

TEST_F(OpenAiRequestTest, RefusalsSpeakOfThisServerAndSayWhatToDoInstead) {
  const absl::Status previous = Responses(R"("previous_response_id": "resp_1")").status();
  EXPECT_THAT(std::string(previous.message()),
              HasSubstr("this server does not keep responses; send the whole conversation"));
  for (const char* fields :
       {R"("response_format": {"type": "grammar"})", R"("audio": {"a": 1})",
        R"("prediction": {"type": "tokens"})", R"("service_tier": "flex")",
        R"("web_search_options": {"a": 1})",
        R"("messages": [{"role": "user", "content": [{"type": "input_audio"}]}])",
        R"("messages": [{"role": "user", "content": [{"type": "image_url",
             "image_url": {"url": "http://example.org/a.png"}}]}])"}) {
    EXPECT_THAT(std::string(Chat(fields).status().message()), HasSubstr("this server ")) << fields;
    if (std::string_view(fields).find("http:") != std::string_view::npos) {
      EXPECT_THAT(std::string(Chat(fields).status().message()), HasSubstr("--fetch-images"));
    }
  }
}

TEST_F(OpenAiRequestTest, ContentIsTextOrPartsAndDeveloperIsSystem) {
  const auto body = ParseJsonObject(R"({"messages": [
      {"role": "developer", "content": "be in"},
      {"role": "user", "content": [{"type": "text", "text": "the "},
                                   {"type": "text", "text": "hat"}], "name": "someone"},
      {"role": "assistant", "content": "an", "tool_calls": []},
      {"role": "user", "content": "he"}]})");
  const auto job = MakeChatJob(*body, *model_, "r");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(
      job->runs[0].prompt,
      Rendered({{"system", "be in"}, {"user", "the hat"}, {"assistant", "an"}, {"user", "he"}}));
}

TEST_F(OpenAiRequestTest, WrongParametersAreNamed) {
  const std::vector<Fault> of_all = {
      {R"("temperature": 2.5)", "temperature", "invalid_value"},
      {R"("temperature": "hot")", "temperature", "invalid_type"},
      {R"("top_p": -0.1)", "top_p", "invalid_value"},
      {R"("top_k": 1.5)", "top_k", "invalid_type"},
      {R"("seed": 1.5)", "seed", "invalid_type"},
      {R"("stop": "")", "stop", "invalid_value"},
      {R"("stop": 5)", "stop", "invalid_type"},
      {R"("stop": ["a", 5])", "stop[1]", "invalid_type"},
      {R"("frequency_penalty": 3)", "frequency_penalty", "invalid_value"},
      {R"("logit_bias": [])", "logit_bias", "invalid_type"},
      {R"("logit_bias": {"hat": 1})", "logit_bias", "invalid_value"},
      {R"("logit_bias": {"270": 101})", "logit_bias.270", "invalid_value"},
      {R"("logit_bias": {"270": null})", "logit_bias.270", "invalid_type"},
      {R"("stream": "yes")", "stream", "invalid_type"},
      {R"("stream_options": {"include_usage": true})", "stream_options", "invalid_value"},
      {R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage",
       "invalid_type"},
      {R"("n": 0)", "n", "invalid_value"},
      {R"("n": 1000000)", "n", "invalid_value"},
      {R"("user": 5)", "user", "invalid_type"},
      {R"("model": 5)", "model", "invalid_type"},
  };
  ExpectFaults(of_all, [this](const char* fields) { return Chat(fields); });
  ExpectFaults(of_all, [this](const char* fields) { return Completion(fields); });
  std::string stops = R"("stop": ["x")";
  for (int i = 0; i < 10000; ++i) stops += ", \"x\"";
  stops += "]";
  ExpectFaults({{stops.c_str(), "stop", "array_above_max_length"}},
               [this](const char* fields) { return Chat(fields); });
  const absl::Status bias = Chat(R"("logit_bias": {"99999": 1})").status();
  EXPECT_EQ(ErrorParam(bias), "logit_bias") << bias;
}

TEST_F(OpenAiRequestTest, WhatTheEngineCannotDoIsRefusedByName) {
  const std::vector<Fault> of_chat = {
      {R"("functions": [{"name": "f"}])", "functions", "unsupported_parameter"},
      {R"("modalities": ["text", "audio"])", "modalities", "unsupported_parameter"},
      {R"("audio": {"voice": "x"})", "audio", "unsupported_parameter"},
      {R"("prediction": {"type": "tokens"})", "prediction.type", "unsupported_parameter"},
      {R"("prediction": {"content": "x"})", "prediction.type", "missing_required_parameter"},
      {R"("prediction": {"type": "content"})", "prediction.content", "missing_required_parameter"},
      {R"("prediction": "x")", "prediction", "invalid_type"},
      {R"("prediction": {"type": "content", "content": 5})", "prediction.content", "invalid_type"},
      {R"("reasoning_effort": 5)", "reasoning_effort", "invalid_type"},
      {R"("web_search_options": {"a": 1})", "web_search_options", "unsupported_parameter"},
      {R"("store": "yes")", "store", "invalid_type"},
      {R"("service_tier": "flex")", "service_tier", "unsupported_parameter"},
      {R"("top_logprobs": 3)", "top_logprobs", "invalid_value"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "invalid_value"},
      {R"("logprobs": 5)", "logprobs", "invalid_type"},
      {R"("max_tokens": 0)", "max_tokens", "invalid_value"},
      {R"("max_tokens": -2)", "max_tokens", "invalid_value"},
      {R"("repeat_last_n": -2)", "repeat_last_n", "invalid_value"},
      {R"("repeat_penalty": 0)", "repeat_penalty", "invalid_value"},
      {R"("repeat_penalty": 1.1, "repetition_penalty": 1.2)", "repeat_penalty", "invalid_value"},
      {R"("max_tokens": 1, "max_completion_tokens": 2)", "max_tokens", "invalid_value"},
  };
  ExpectFaults(of_chat, [this](const char* fields) { return Chat(fields); });
  const std::vector<Fault> of_completions = {
      {R"("suffix": "x")", "suffix", "unsupported_parameter"},
      {R"("best_of": 3)", "best_of", "unsupported_parameter"},
      {R"("logprobs": 21)", "logprobs", "invalid_value"},
      {R"("logprobs": true)", "logprobs", "invalid_type"},
      {R"("echo": 1)", "echo", "invalid_type"},
  };
  ExpectFaults(of_completions, [this](const char* fields) { return Completion(fields); });
  const std::vector<Fault> of_responses = {
      {R"("previous_response_id": "resp_1")", "previous_response_id", "unsupported_parameter"},
      {R"("conversation": "c")", "conversation", "unsupported_parameter"},
      {R"("store": 1)", "store", "invalid_type"},
      {R"("background": true)", "background", "unsupported_parameter"},
      {R"("tools": [{"type": "web_search"}])", "tools[0].type", "unsupported_parameter"},
      {R"("tools": [{"type": "function"}])", "tools[0].name", "missing_required_parameter"},
      {R"("max_tool_calls": 3)", "max_tool_calls", "unsupported_parameter"},
      {R"("reasoning": {"effort": 1})", "reasoning.effort", "invalid_type"},
      {R"("truncation": "auto")", "truncation", "unsupported_parameter"},
      {R"("include": ["file_search_call.results"])", "include", "unsupported_parameter"},
      {R"("max_output_tokens": 0)", "max_output_tokens", "invalid_value"},
      {R"("temperature": 3)", "temperature", "invalid_value"},
  };
  ExpectFaults(of_responses, [this](const char* fields) { return Responses(fields); });
}

TEST_F(OpenAiRequestTest, WrongMessagesAreNamedByTheirPath) {
  const std::vector<Fault> faults = {
      {R"("messages": null)", "messages", "missing_required_parameter"},
      {R"("messages": "hi")", "messages", "invalid_type"},
      {R"("messages": [])", "messages", "empty_array"},
      {R"("messages": [5])", "messages[0]", "invalid_type"},
      {R"("messages": [{"content": "x"}])", "messages[0].role", "missing_required_parameter"},
      {R"("messages": [{"role": "user"}])", "messages[0].content", "missing_required_parameter"},
      {R"("messages": [{"role": "king", "content": "x"}])", "messages[0].role", "invalid_value"},
      {R"("messages": [{"role": "tool", "content": "x"}])", "messages[0].tool_call_id",
       "missing_required_parameter"},
      {R"("messages": [{"role": "tool", "content": "x", "tool_call_id": "7"}])",
       "messages[0].tool_call_id", ""},
      {R"("messages": [{"role": "user", "content": 5}])", "messages[0].content", "invalid_type"},
      {R"("messages": [{"role": "user", "content": [5]}])", "messages[0].content[0]",
       "invalid_type"},
      {R"("messages": [{"role": "user", "content": [{"type": "image_url"}]}])",
       "messages[0].content[0].image_url", "missing_required_parameter"},
      {R"("messages": [{"role": "user", "content": [{"type": "image_url",
           "image_url": {"url": "https://example.org/a.png"}}]}])",
       "messages[0].content[0].image_url.url", "unsupported_parameter"},
      {R"("messages": [{"role": "user", "content": [{"type": "image_url",
           "image_url": {"url": "data:image/png;base64,%%%%"}}]}])",
       "messages[0].content[0].image_url.url", "invalid_value"},
      {R"("messages": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}])",
       "messages[0].content[0].file_id", "unsupported_parameter"},
      {R"("messages": [{"role": "system", "content": [{"type": "image_url"}]}])",
       "messages[0].content[0].type", "unsupported_parameter"},
      {R"("messages": [{"role": "user", "content": [{"type": "text"}]}])",
       "messages[0].content[0].text", "missing_required_parameter"},
      {R"("messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}])",
       "messages[0].tool_calls[0].id", "missing_required_parameter"},
      {R"("messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "custom"}]}])",
       "messages[0].tool_calls[0].type", "unsupported_parameter"},
      {R"("messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {}}]}])",
       "messages[0].tool_calls[0].function.name", "missing_required_parameter"},
      {R"("messages": [{"role": "user", "content": "x", "tool_calls": [{"id": "1",
           "function": {"name": "f", "arguments": "{}"}}]}])",
       "messages[0].tool_calls", ""},
  };
  for (const Fault& fault : faults) {
    const auto body = ParseJsonObject("{" + std::string(fault.fields) + "}");
    const absl::Status status = MakeChatJob(*body, *model_, "r").status();
    EXPECT_EQ(ErrorParam(status), fault.param) << fault.fields << ": " << status;
    EXPECT_EQ(ErrorCode(status), fault.code) << fault.fields << ": " << status;
  }
  const auto bad = ParseJsonObject(
      R"({"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": null}]})");
  EXPECT_EQ(ErrorParam(MakeChatJob(*bad, *model_, "r").status()), "messages[1].content");
}

// Bodies as LangChain, LiteLLM, Open WebUI, Continue and others write them, with every member that
// they set to nothing in particular.
TEST_F(OpenAiRequestTest, MembersThatSayNothingChangeNothing) {
  const auto plain = Chat(R"("seed": 1)");
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (const char* fields :
       {R"("seed": 1, "stream": false, "stream_options": null, "max_tokens": null, "stop": null,
           "tools": [], "tool_choice": "none", "parallel_tool_calls": true,
           "response_format": {"type": "text"}, "logit_bias": {}, "n": null, "logprobs": null,
           "top_logprobs": null, "temperature": null, "top_p": null, "presence_penalty": null,
           "frequency_penalty": null, "user": null, "metadata": null)",
        R"("seed": 1, "n": 1, "logprobs": false, "top_logprobs": 0, "presence_penalty": 0,
           "frequency_penalty": 0.0, "stop": [], "tools": null, "tool_choice": null,
           "functions": [], "function_call": "none", "response_format": null,
           "logit_bias": null, "max_completion_tokens": null, "store": false,
           "reasoning_effort": null, "modalities": ["text"], "audio": null, "prediction": null,
           "service_tier": "auto", "user": "")",
        R"("seed": 1, "tool_choice": "auto", "reasoning_effort": "none", "verbosity": "medium",
           "metadata": {"chat_id": "1"}, "session_id": "s", "features": {}, "options": {},
           "chat_template_kwargs": {"enable_thinking": false}, "keep_alive": "5m",
           "extra_body": {}, "cache_prompt": true, "num_ctx": 4096, "store": null)"}) {
    const auto job = Chat(fields);
    ASSERT_TRUE(job.ok()) << job.status() << " " << fields;
    EXPECT_EQ(job->runs.size(), 1u);
    EXPECT_EQ(job->runs[0].prompt, plain->runs[0].prompt);
    EXPECT_EQ(job->runs[0].max_tokens, plain->runs[0].max_tokens);
    EXPECT_EQ(job->runs[0].sampling, plain->runs[0].sampling) << fields;
    EXPECT_TRUE(job->runs[0].stops.empty());
  }
}

TEST_F(OpenAiRequestTest, ConversationsOfAnyOrderAreTaken) {
  const auto body = ParseJsonObject(R"({"messages": [
      {"role": "system", "content": "be"}, {"role": "system", "content": "in", "name": "rules"},
      {"role": "user", "content": "the"}, {"role": "user", "content": "hat", "name": "someone"},
      {"role": "assistant", "content": null, "refusal": null, "annotations": [], "audio": null,
       "function_call": null, "tool_calls": null},
      {"role": "developer", "content": "an"}, {"role": "user", "content": "he"},
      {"role": "assistant", "content": "the"}]})");
  const auto job = MakeChatJob(*body, *model_, "r");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->runs[0].prompt, Rendered({{"user", "be\n\nin\n\nthe\n\nhat"},
                                           {"assistant", ""},
                                           {"user", "an\n\nhe"},
                                           {"assistant", "the"}}));
}

TEST_F(OpenAiRequestTest, APromptThatIsTooLongIsSaidOfItsParameter) {
  const std::string words(5000, 'a');
  const auto check = [&](MakeJob make, const std::string& name, const std::string& value) {
    const auto body = ParseJsonObject("{\"" + name + "\": " + value + "}");
    const absl::Status status = make(*body, *model_, "r").status();
    EXPECT_EQ(ErrorParam(status), name) << status;
    EXPECT_EQ(ErrorCode(status), "context_length_exceeded") << status;
  };
  check(MakeChatJob, "messages", R"([{"role": "user", "content": ")" + words + R"("}])");
  check(MakeCompletionJob, "prompt", "\"" + words + "\"");
  check(MakeResponsesJob, "input", "\"" + words + "\"");
}

TEST_F(OpenAiRequestTest, AnotherModelIsNotFound) {
  for (const absl::Status& status :
       {Chat(R"("model": "gpt")").status(), Completion(R"("model": "gpt")").status(),
        Responses(R"("model": "gpt")").status()}) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
  }
  EXPECT_TRUE(Chat(R"("model": "toy")").ok());
  EXPECT_TRUE(Chat(R"("model": "toy:latest")").ok());
}

TEST_F(OpenAiRequestTest, PromptsAreTextsOrTokensAndEachHasItsChoices) {
  const auto prompts = [this](const std::string& prompt, const std::string& more = "") {
    const auto body = ParseJsonObject("{\"prompt\": " + prompt + more + "}");
    return MakeCompletionJob(*body, *model_, "r");
  };
  EXPECT_THAT(prompts(R"("the")")->runs, SizeIs(1));
  EXPECT_THAT(prompts(R"(["the", "hat"])", R"(, "n": 3)")->runs, SizeIs(6));
  EXPECT_EQ(prompts("[1, 270, 271]")->runs[0].prompt, (std::vector<uint32_t>{1, 270, 271}));
  const auto two = prompts("[[1, 270], [271]]");
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->runs[1].prompt, std::vector<uint32_t>{271});
  for (const char* wrong :
       {"null", "[]", "5", "[[]]", "[\"a\", 5]", "[-1]", "[1.5]", "[99999]", "[1, \"a\"]", "{}"}) {
    const absl::Status status = prompts(wrong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong << status;
    EXPECT_TRUE(ErrorParam(status).starts_with("prompt")) << wrong << status;
  }
  EXPECT_EQ(ErrorParam(prompts(R"(["the", "hat"])", R"(, "n": 65)").status()), "n");
}

TEST_F(OpenAiRequestTest, ResponsesTakeInstructionsAndMessages) {
  const auto body = ParseJsonObject(R"({"instructions": "be in", "input": [
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "the"}]},
      {"role": "assistant", "content": [{"type": "output_text", "text": "hat"}]},
      {"role": "user", "content": "he"}], "max_output_tokens": 3})");
  const auto job = MakeResponsesJob(*body, *model_, "r");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->runs[0].prompt,
            Rendered({{"system", "be in"}, {"user", "the"}, {"assistant", "hat"}, {"user", "he"}}));
  EXPECT_EQ(job->runs[0].max_tokens, 3u);
  const auto item = ParseJsonObject(R"({"input": [{"type": "reasoning"}]})");
  EXPECT_EQ(ErrorParam(MakeResponsesJob(*item, *model_, "r").status()), "input[0].type");
}

}  // namespace
}  // namespace tandem::gateway

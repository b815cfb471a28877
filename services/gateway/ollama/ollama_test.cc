#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/testing/toy_pictures.h"
#include "services/gateway/api/testing/toy_served_model.h"
#include "services/gateway/ollama/ollama_embed.h"
#include "services/gateway/ollama/ollama_model.h"
#include "services/gateway/ollama/ollama_request.h"
#include "services/gateway/ollama/ollama_writer.h"
#include "services/gateway/tokenizer/chat_template.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

using MakeJob = absl::StatusOr<ApiJob> (*)(const Json&, const ServedModel&, const std::string&);

class OllamaTest : public ::testing::Test {
 protected:
  absl::StatusOr<ApiJob> Make(MakeJob make, const std::string& body) {
    const auto json = ParseJsonObject(body);
    EXPECT_TRUE(json.ok()) << json.status() << body;
    return make(*json, *model_, "request");
  }
  std::unique_ptr<ServedModel> model_ = testing::MakeToyModel();
};

TEST_F(OllamaTest, EveryOptionReachesTheEngine) {
  const auto job = Make(MakeOllamaChatJob, R"({"model": "toy:latest", "stream": false, "options": {
      "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "seed": 42, "num_predict": 9,
      "repeat_penalty": 1.5, "presence_penalty": -1, "frequency_penalty": 2, "stop": ["a"],
      "num_ctx": 4096, "repeat_last_n": -1, "mirostat": 0},
      "keep_alive": "5m", "think": false, "logprobs": true, "top_logprobs": 2,
      "messages": [{"role": "system", "content": "be in"}, {"role": "user", "content": "hat"}]})");
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_THAT(job->runs, SizeIs(1));
  const EngineRequest& run = job->runs[0];
  EXPECT_EQ(run.sampling.temperature, 0.5f);
  EXPECT_EQ(run.sampling.top_p, 0.25f);
  EXPECT_EQ(run.sampling.top_k, 7u);
  EXPECT_EQ(run.sampling.min_p, 0.125f);
  EXPECT_EQ(run.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(run.sampling.presence_penalty, -1.0f);
  EXPECT_EQ(run.sampling.frequency_penalty, 2.0f);
  EXPECT_EQ(run.sampling.seed, 42u);
  EXPECT_EQ(run.max_tokens, 9u);
  EXPECT_EQ(run.num_alternatives, 2u);
  EXPECT_THAT(run.stops, ElementsAre("a"));
  EXPECT_EQ(run.prompt, RenderChat(model_->tokenizer(), testing::kToyBos,
                                   {{"system", "be in"}, {"user", "hat"}})
                            .value());
  EXPECT_FALSE(job->writer->streams());
}

TEST_F(OllamaTest, NumbersOfTokensAreAsInOllama) {
  const auto run = [this](const std::string& options) {
    const auto job = Make(MakeOllamaGenerateJob,
                          R"({"model": "toy", "prompt": "hat", "options": {)" + options + "}}");
    EXPECT_TRUE(job.ok()) << job.status();
    return job->runs[0];
  };
  for (const char* most : {"0", "-1", "-2", "0.0"}) {
    EXPECT_EQ(run(std::string(R"("num_predict": )") + most).max_tokens, kNoTokenLimit) << most;
  }
  EXPECT_EQ(run(R"("num_predict": 100.0)").max_tokens, 100u);
  EXPECT_EQ(run(R"("top_k": 40.0)").sampling.top_k, 40u);
  EXPECT_EQ(run(R"("seed": 42.0)").sampling.seed, 42u);
}

TEST_F(OllamaTest, APromptIsATurnUnlessItIsRaw) {
  const auto turn =
      Make(MakeOllamaGenerateJob, R"({"model": "toy", "prompt": "hat", "system": "be in"})");
  EXPECT_EQ(turn->runs[0].prompt, RenderChat(model_->tokenizer(), testing::kToyBos,
                                             {{"system", "be in"}, {"user", "hat"}})
                                      .value());
  EXPECT_TRUE(turn->writer->streams());
  EXPECT_EQ(turn->runs[0].max_tokens, kNoTokenLimit);
  const auto raw = Make(MakeOllamaGenerateJob, R"({"model": "toy", "prompt": "h", "raw": true})");
  EXPECT_THAT(raw->runs[0].prompt, ElementsAre(testing::kToyBos, 261 + 'h' - 'a'));
}

TEST_F(OllamaTest, PicturesComeBeforeTheirText) {
  const auto seeing = testing::MakeSeeingToyModel();
  std::string base64;
  absl::Base64Escape(testing::ToyBmp(10), &base64);
  const std::string images =
      R"("images": [")" + base64 + R"(", "data:image/bmp;base64,)" + base64 + R"("])";
  const std::pair<absl::StatusOr<ApiJob> (*)(const Json&, const ServedModel&, const std::string&),
                  std::string>
      bodies[] = {
          {MakeOllamaChatJob,
           R"({"model": "toy", "messages": [{"role": "user", "content": "hat", )" + images + "}]}"},
          {MakeOllamaGenerateJob, R"({"model": "toy", "prompt": "hat", )" + images + "}"}};
  std::vector<uint32_t> prompt;
  for (const auto& [make, body] : bodies) {
    const auto job = make(*ParseJsonObject(body), *seeing, "r");
    ASSERT_TRUE(job.ok()) << job.status();
    const EngineRequest& run = job->runs[0];
    ASSERT_EQ(run.pictures.size(), 2u);
    EXPECT_EQ(run.picture_files->at(1), testing::ToyBmp(10));
    if (prompt.empty()) prompt = run.prompt;
    EXPECT_EQ(run.prompt, prompt);
  }
}

TEST_F(OllamaTest, AFormatIsJsonOrASchema) {
  const std::pair<const char*, const char*> formats[] = {
      {R"("json")", "object "},
      {R"({"type": "null", "title": "x"})", R"(schema {"type":"null","title":"x"})"},
      {"\"\"", "nothing"},
      {"null", "nothing"},
  };
  const std::pair<MakeJob, const char*> requests[] = {
      {MakeOllamaChatJob, R"("messages": [{"role": "user", "content": "hat"}])"},
      {MakeOllamaGenerateJob, R"("prompt": "hat")"},
      {MakeOllamaGenerateJob, R"("prompt": "hat", "raw": true)"},
  };
  for (const auto& [format, said] : formats) {
    for (const auto& [make, members] : requests) {
      const auto job =
          Make(make, R"({"model": "toy", "format": )" + std::string(format) + ", " + members + "}");
      ASSERT_TRUE(job.ok()) << job.status();
      const auto& source = job->runs[0].constraint_source;
      const bool schema = source != nullptr && source->kind == constraint::SourceKind::kJsonSchema;
      EXPECT_EQ(source == nullptr ? "nothing" : (schema ? "schema " : "object ") + source->text,
                said)
          << members;
      EXPECT_EQ(job->constraint_names.member, source == nullptr ? "" : "format");
    }
  }
  model_ = testing::MakeRoomyToyModel();
  const absl::Status tool = Make(MakeOllamaChatJob, R"({"model": "toy", "format": {},
      "messages": [{"role": "user", "content": "x"}],
      "tools": [{"function": {"name": "a", "parameters": {"type": "null"}}}]})")
                                .status();
  EXPECT_EQ(ErrorParam(tool), "tools[0].function.parameters") << tool;
}

TEST_F(OllamaTest, NothingToAnswerLoadsTheModel) {
  for (const auto make : {MakeOllamaChatJob, MakeOllamaGenerateJob}) {
    const auto job = Make(make, R"({"model": "toy", "stream": false})");
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_THAT(job->runs, SizeIs(0));
    std::string out;
    job->writer->Finish(out);
    EXPECT_EQ(Json::parse(out)["done_reason"], "load");
    EXPECT_EQ(Json::parse(out)["done"], true);
  }
}

TEST_F(OllamaTest, WhatIsWrongOrNotDoneIsNamed) {
  const std::pair<const char*, const char*> faults[] = {
      {R"("model": "")", "model"},
      {R"("tools": [{}])", "tools[0].function"},
      {R"("tools": [5])", "tools[0]"},
      {R"("messages": [{"role": "user", "content": "x"}],
          "tools": [{"type": "function", "function": {"name": "a b"}}])",
       "tools[0].name"},
      {R"("messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}])",
       "messages[0].tool_calls[0].function.name"},
      {R"("messages": [{"role": "tool", "content": "x"}])", "messages[0].role"},
      {R"("format": "xml")", "format"},
      {R"("format": 5)", "format"},
      {R"("format": ["json"])", "format"},
      {R"("think": true)", "think"},
      {R"("options": 5)", "options"},
      {R"("options": {"temperature": "hot"})", "options.temperature"},
      {R"("options": {"num_predict": 1.5})", "options.num_predict"},
      {R"("options": {"mirostat": 2})", "options.mirostat"},
      {R"("options": {"typical_p": 0.5})", "options.typical_p"},
      {R"("options": {"repeat_last_n": -2})", "options.repeat_last_n"},
      {R"("options": {"num_predict": -3})", "options.num_predict"},
      {R"("messages": [{"role": "user", "content": "x", "images": ["aa"]}])", "messages[0].images"},
      {R"("messages": [5])", "messages[0]"},
      {R"("messages": [{"role": "king", "content": "x"}])", "messages[0].role"},
  };
  for (const auto& [fields, param] : faults) {
    const std::string body = "{\"model\": \"toy\", " + std::string(fields) + "}";
    const absl::Status status = Make(MakeOllamaChatJob, body).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << fields << status;
    EXPECT_EQ(ErrorParam(status), param) << fields << status;
  }
  const absl::Status other = Make(MakeOllamaChatJob, R"({"model": "llama3"})").status();
  EXPECT_EQ(other, absl::NotFoundError("model 'llama3' not found, this server serves 'toy'"));
}

TEST_F(OllamaTest, ToolsCallsAndResultsReachTheModel) {
  model_ = testing::MakeRoomyToyModel();
  const auto job = Make(MakeOllamaChatJob, R"({"model": "toy", "messages": [
      {"role": "user", "content": "the"},
      {"role": "assistant", "content": "", "tool_calls": [
          {"function": {"name": "roll", "arguments": {"n": 1}}}]},
      {"role": "tool", "tool_name": "roll", "content": "5"}],
      "tools": [{"type": "function", "function": {"name": "roll", "description": "Rolls.",
          "parameters": {"type": "object"}}}]})");
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string prompt = model_->tokenizer().Decode(job->runs[0].prompt);
  EXPECT_THAT(prompt, ::testing::HasSubstr(
                          R"([{"name": "roll", "description": "Rolls.", "parameters": {"type": )"
                          R"("object"}}])"));
  EXPECT_THAT(prompt, ::testing::HasSubstr(R"({"name": "roll", "parameters": {"n": 1}})"));
  EXPECT_THAT(prompt, ::testing::HasSubstr(R"({"name": "roll", "result": 5})"));
}

TEST_F(OllamaTest, CallsAreLinesOfAStreamAndMembersOfAWholeAnswer) {
  for (const bool stream : {true, false}) {
    const auto writer =
        MakeOllamaWriter(*model_, {.chat = true, .stream = stream, .calls = {.names = {"roll"}}});
    std::string out;
    const std::string answer =
        R"(Hm. [{"name": "roll", "parameters": {"n": 1}}, {"name": "roll", "parameters": {"n)";
    writer->Begin(out);
    for (const char c : answer) {
      StreamUpdate update;
      update.text = std::string(1, c);
      writer->Update(0, update, out);
    }
    StreamEnd end;
    end.reason = v1::FINISH_REASON_LENGTH;
    writer->End(0, end, out);
    writer->Finish(out);
    if (stream) {
      EXPECT_EQ(out.back(), '\n');
    }
    std::string text;
    Json calls = Json::array();
    for (size_t at = 0; at < out.size();) {
      const size_t line_end = std::min(out.find('\n', at), out.size());
      const Json line = Json::parse(out.substr(at, line_end - at));
      text += line["message"]["content"].get<std::string>();
      if (line["message"].contains("tool_calls")) {
        for (const Json& call : line["message"]["tool_calls"]) calls.push_back(call);
      }
      at = line_end + 1;
    }
    EXPECT_EQ(text, "Hm.");
    ASSERT_EQ(calls.size(), 2u) << out;
    EXPECT_EQ(calls[0]["function"]["name"], "roll");
    EXPECT_EQ(calls[0]["function"]["arguments"], (Json{{"n", 1}}));
    EXPECT_EQ(calls[1]["function"]["index"], 1);
    EXPECT_EQ(calls[1]["function"]["arguments"], R"({"n)");
    EXPECT_NE(calls[0]["id"], calls[1]["id"]);
  }
}

TEST_F(OllamaTest, NumPredictOfMinusOneOrMinusTwoIsNoLimit) {
  for (const char* value : {"-1", "-2"}) {
    const auto job = Make(MakeOllamaGenerateJob,
                          R"({"model": "toy", "prompt": "hat", "options": {"num_predict": )" +
                              std::string(value) + "}}");
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->runs[0].max_tokens, kNoTokenLimit);
  }
}

TEST_F(OllamaTest, PenaltiesLookBackAsFarAsInOllama) {
  const auto params = [this](const std::string& options) {
    const auto job = Make(MakeOllamaGenerateJob,
                          R"({"model": "toy", "prompt": "hat", "options": {)" + options + "}}");
    EXPECT_TRUE(job.ok()) << job.status();
    return job->runs[0].sampling;
  };
  EXPECT_EQ(params(R"("repeat_penalty": 1.5)").penalty_window, 64u);
  EXPECT_EQ(params(R"("repeat_penalty": 1.5, "repeat_last_n": 33)").penalty_window, 33u);
  EXPECT_EQ(params(R"("repeat_penalty": 1.5, "repeat_last_n": -1)").penalty_window, kWholeText);
  EXPECT_EQ(params(R"("repeat_penalty": 1.5, "repeat_last_n": 0)").repetition_penalty, 1.0f);
  EXPECT_EQ(params("").penalty_window, kWholeText);
}

TEST_F(OllamaTest, AModelIsListedUnderEachOfItsNames) {
  model_ = testing::MakeToyModel({}, {.max_sequences = 1, .max_rows = 8, .chunk_rows = 8},
                                 {.aliases = {"gemma3:27b", "mine"}});
  const Json tags = OllamaTags(*model_, absl::UnixEpoch());
  ASSERT_EQ(tags.size(), 3u);
  EXPECT_EQ(tags[0]["name"], "toy:latest");
  EXPECT_EQ(tags[1]["model"], "gemma3:27b");
  EXPECT_EQ(tags[2]["name"], "mine:latest");
  EXPECT_EQ(tags[2]["digest"], tags[0]["digest"]);
  for (const char* name : {"toy", "gemma3:27b", "mine", "mine:latest"}) {
    EXPECT_TRUE(CheckOllamaName(name, *model_).ok()) << name;
  }
  EXPECT_TRUE(absl::IsNotFound(CheckOllamaName("gemma3", *model_)));
}

TEST_F(OllamaTest, EmbedsOneTextOrManyOrNone) {
  const auto make = [this](auto make_job, const std::string& fields) {
    const auto body = ParseJsonObject("{\"model\": \"toy\"" + fields + "}");
    return make_job(*body, *model_, "request");
  };
  EmbedResult result{.embeddings = {{0.5f, -0.25f}, {1.0f, 0.0f}}};
  result.usage.set_prompt_tokens(9);
  result.usage.set_total_seconds(1.5);
  const auto many = make(MakeOllamaEmbedJob, R"(, "input": ["h", "hat"], "truncate": false)");
  ASSERT_TRUE(many.ok()) << many.status();
  EXPECT_THAT(many->runs, SizeIs(2));
  EXPECT_TRUE(many->runs[0].embedding);
  EXPECT_EQ(Json::parse(many->to_body(result).value()),
            Json::parse(R"({"model": "toy", "embeddings": [[0.5, -0.25], [1, 0]],
                            "total_duration": 1500000000, "load_duration": 0,
                            "prompt_eval_count": 9})"));
  const auto one = make(MakeOllamaEmbeddingsJob, R"(, "prompt": "hat")");
  EXPECT_THAT(one->runs, SizeIs(1));
  EXPECT_EQ(one->to_body(result).value(), R"({"embedding":[0.5,-0.25]})");
  for (const char* none : {"", R"(, "input": "")", R"(, "input": [])"}) {
    const auto job = make(MakeOllamaEmbedJob, none);
    ASSERT_TRUE(job.ok()) << none << job.status();
    EXPECT_THAT(job->runs, SizeIs(0));
    EXPECT_EQ(Json::parse(job->to_body({}).value())["embeddings"], Json::array());
  }
  EXPECT_EQ(make(MakeOllamaEmbeddingsJob, "")->to_body({}).value(), R"({"embedding":[]})");
}

TEST_F(OllamaTest, EmbeddingsThatCannotBeAreRefusedByName) {
  const std::pair<const char*, const char*> faults[] = {
      {R"("model": "toy", "input": ["h", ""])", "input[1]"},
      {R"("model": "toy", "input": 5)", "input"},
      {R"("model": "toy", "input": "h", "dimensions": 7)", "dimensions"},
      {R"("model": "toy", "input": "h", "truncate": "no")", "truncate"},
      {R"("input": "h")", "model"},
  };
  for (const auto& [fields, param] : faults) {
    const auto body = ParseJsonObject("{" + std::string(fields) + "}");
    const absl::Status status = MakeOllamaEmbedJob(*body, *model_, "request").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << fields << status;
    EXPECT_EQ(ErrorParam(status), param) << fields << status;
  }
}

TEST_F(OllamaTest, AStreamIsALineAPieceAndNanosecondsAtTheEnd) {
  const auto writer = MakeOllamaWriter(*model_, {.chat = true, .model = "toy"});
  std::string out;
  writer->Update(0, {.text = "he", .tokens = {{.token = 268}, {.token = 265}}}, out);
  StreamEnd end{.reason = v1::FINISH_REASON_LENGTH};
  end.usage.set_prompt_tokens(5);
  end.usage.set_completion_tokens(2);
  end.usage.set_queue_seconds(0.5);
  end.usage.set_first_token_seconds(0.75);
  end.usage.set_total_seconds(1.5);
  writer->End(0, end, out);
  writer->Finish(out);
  const size_t line_end = out.find('\n');
  const Json first = Json::parse(out.substr(0, line_end));
  const Json last = Json::parse(out.substr(line_end + 1));
  EXPECT_EQ(first["message"], Json({{"role", "assistant"}, {"content", "he"}}));
  EXPECT_EQ(first["done"], false);
  EXPECT_FALSE(first.contains("eval_count"));
  EXPECT_EQ(last["message"]["content"], "");
  EXPECT_EQ(last["done"], true);
  EXPECT_EQ(last["done_reason"], "length");
  EXPECT_EQ(last["total_duration"], 1500000000);
  EXPECT_EQ(last["load_duration"], 500000000);
  EXPECT_EQ(last["prompt_eval_duration"], 250000000);
  EXPECT_EQ(last["eval_duration"], 750000000);
  EXPECT_EQ(last["prompt_eval_count"], 5);
  EXPECT_EQ(last["eval_count"], 2);
}

TEST_F(OllamaTest, AWholeAnswerIsOneObjectAndAnErrorOneLine) {
  const auto writer = MakeOllamaWriter(*model_, {.stream = false, .logprobs = true});
  std::string out;
  writer->Update(0, {.text = "h", .tokens = {{.token = 268, .logprob = -0.5f}}}, out);
  writer->End(0, {.reason = v1::FINISH_REASON_STOP}, out);
  EXPECT_EQ(out, "");
  writer->Finish(out);
  const Json whole = Json::parse(out);
  EXPECT_EQ(whole["response"], "h");
  EXPECT_EQ(whole["done_reason"], "stop");
  EXPECT_EQ(whole["logprobs"][0]["token"], "h");
  std::string error;
  writer->Fail(absl::UnavailableError("lost"), error);
  EXPECT_EQ(error, "{\"error\":\"lost\"}\n");
}

TEST_F(OllamaTest, AModelIsDescribedByItsNumbers) {
  ModelConfig config;  // Gemma 3 270M
  config.num_layers = 18;
  config.hidden_dim = 640;
  config.ffn_dim = 2048;
  config.num_heads = 4;
  config.num_kv_heads = 1;
  config.head_dim = 256;
  config.vocab_size = 262144;
  EXPECT_EQ(CountParameters(config), 268098176u);
  const Json show = OllamaShow(*model_, absl::UnixEpoch());
  EXPECT_EQ(show["model_info"]["general.architecture"], "gemma3");
  EXPECT_EQ(show["model_info"]["gemma3.block_count"], 6);
  EXPECT_EQ(show["details"]["quantization_level"], "Q8_0");
  EXPECT_EQ(show["capabilities"], Json::array({"completion", "tools"}));
  EXPECT_EQ(OllamaTags(*model_, absl::UnixEpoch())[0]["name"], "toy:latest");
  EXPECT_EQ(OllamaProcess(*model_, absl::UnixEpoch())["context_length"], 256);
}

}  // namespace
}  // namespace tandem::gateway

// The routes on a real server, with the toy model behind them.
#include "services/gateway/openai/openai_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "services/common/testing/eventually.h"
#include "services/gateway/api/json.h"
#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/engine/testing/gate.h"
#include "services/gateway/engine/testing/unfinished.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/http/testing/http_test_client.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {
namespace {

using testing::FakeExecutor;
using testing::FakeExecutorOptions;
using testing::Gate;
using ::testing::HasSubstr;
using testing::HttpTestClient;
using testing::HttpTestResponse;
using testing::Unfinished;

constexpr char kChat[] = R"({"messages": [{"role": "user", "content": "the hat"}], )"
                         R"("temperature": 0, "ignore_eos": true, "max_tokens": 5)";

class OpenAiRoutesTest : public ::testing::Test {
 protected:
  void Start(FakeExecutorOptions fake = {},
             const EngineOptions& engine = {.max_sequences = 8,
                                            .max_rows = 64,
                                            .chunk_rows = 16,
                                            .max_waiting = 20},
             const ModelNameOptions& names = {}) {
    launcher_ = std::make_unique<Launcher>(
        [fake](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
          return std::make_unique<FakeExecutor>(fake);
        },
        engine, names);
    HttpRouter router;
    ASSERT_TRUE(
        AddOpenAiRoutes(router, *launcher_, {.keep_alive_interval = absl::Milliseconds(10)}).ok());
    auto server = HttpServer::Start({.listen = "127.0.0.1:0"}, std::move(router));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void WaitReady() {
    auto ready = std::make_shared<Gate>();
    launcher_->Begin([ready](bool) { ready->Open(); });
    ready->Wait();
  }
  void TearDown() override {
    launcher_->EndRequests();
    server_->Shutdown(absl::Seconds(5));
  }

  HttpTestResponse Post(const std::string& path, const std::string& body) {
    return HttpTestClient(server_->port()).Call("POST", path, body);
  }
  static Json ErrorOf(const HttpTestResponse& response) {
    const Json body = Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(body.is_object() && body.contains("error")) << response.body;
    return body.is_object() ? body.value("error", Json()) : Json();
  }
  v1::SchedulerStatus Scheduler() {
    v1::GetStatusResponse status;
    launcher_->FillStatus(status);
    return status.scheduler();
  }
  void WaitUntilIdle() {
    ASSERT_TRUE(tandem::testing::Eventually([this] { return Unfinished(Scheduler()) == 0; }));
  }

  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(OpenAiRoutesTest, AnswersWholeAndStreamed) {
  Start();
  WaitReady();
  const HttpTestResponse whole = Post("/v1/chat/completions", std::string(kChat) + "}");
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(Json::parse(whole.body)["usage"]["completion_tokens"], 5);
  const HttpTestResponse stream =
      Post("/v1/chat/completions", std::string(kChat) + R"(, "stream": true})");
  EXPECT_THAT(stream.Header("content-type"), HasSubstr("text/event-stream"));
  EXPECT_TRUE(stream.complete);
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n")) << stream.body;
  EXPECT_EQ(Post("/v1/completions", R"({"prompt": "hat"})").status, 200);
  EXPECT_EQ(Post("/v1/responses", R"({"input": "hat", "max_output_tokens": 2})").status, 200);
  HttpTestClient client(server_->port());
  EXPECT_EQ(Json::parse(client.Call("GET", "/v1/models").body)["data"][0]["id"], "toy");
  EXPECT_EQ(client.Call("GET", "/v1/models/toy").status, 200);
}

TEST_F(OpenAiRoutesTest, AnswersFitTheirFormatOrTheMemberIsNamed) {
  Start();
  WaitReady();
  const std::string format = R"({"type": "json_schema", "json_schema": {"name": "pick", "schema":
      {"type": "object", "properties": {"pick": {"enum": ["an", "he"]}}, "required": ["pick"],
       "additionalProperties": false, "x-guidance": {"whitespace_flexible": false}}}})";
  const std::string chat = R"({"messages": [{"role": "user", "content": "the hat"}],
      "temperature": 2, "max_tokens": 60, "response_format": )";
  const HttpTestResponse whole = Post("/v1/chat/completions", chat + format + "}");
  ASSERT_EQ(whole.status, 200) << whole.body;
  const Json choice = Json::parse(whole.body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  const Json picked = Json::parse(choice["message"]["content"].get<std::string>());
  EXPECT_TRUE(picked["pick"] == "an" || picked["pick"] == "he") << picked;
  EXPECT_TRUE(Post("/v1/chat/completions", chat + format + R"(, "stream": true})")
                  .body.ends_with("data: [DONE]\n\n"));
  const HttpTestResponse completion =
      Post("/v1/completions", R"({"prompt": ["the", "hat"], "n": 2, "guided_choice": ["in"]})");
  ASSERT_EQ(completion.status, 200) << completion.body;
  const Json completed = Json::parse(completion.body);
  ASSERT_EQ(completed["choices"].size(), 4u);
  for (const Json& each : completed["choices"]) EXPECT_EQ(each["text"], "in");

  const HttpTestResponse wrong = Post("/v1/chat/completions", chat + R"({"type": "json_schema",
      "json_schema": {"name": "a", "schema": {"properties": {"a": {"not": {}}}}}}})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(ErrorOf(wrong)["param"], "response_format.json_schema.schema");
  EXPECT_EQ(ErrorOf(wrong)["message"],
            "Invalid 'response_format.json_schema.schema': schema: #/properties/a/not: is not "
            "supported");
  const HttpTestResponse regex =
      Post("/v1/completions", R"({"prompt": "the", "guided_regex": "a("})");
  EXPECT_EQ(regex.status, 400);
  EXPECT_EQ(ErrorOf(regex)["param"], "guided_regex");
}

TEST_F(OpenAiRoutesTest, EmbedsTextsIntoUnitVectorsInOrder) {
  Start();
  WaitReady();
  const HttpTestResponse both = Post("/v1/embeddings", R"({"input": ["the hat", "in"]})");
  ASSERT_EQ(both.status, 200) << both.body;
  const Json body = Json::parse(both.body);
  ASSERT_EQ(body["data"].size(), 2u);
  const Json second = Json::parse(Post("/v1/embeddings", R"({"input": "in"})").body);
  EXPECT_EQ(body["data"][1]["embedding"], second["data"][0]["embedding"]);
  EXPECT_NE(body["data"][0]["embedding"], second["data"][0]["embedding"]);
  double squares = 0;
  for (const Json& value : body["data"][0]["embedding"]) {
    squares += value.get<double>() * value.get<double>();
  }
  EXPECT_NEAR(squares, 1.0, 32 * 0x1p-23);  // 32 roundings to float32
  EXPECT_GT(body["usage"]["total_tokens"].get<int>(), 3);
}

TEST_F(OpenAiRoutesTest, AClientThatGoesAwayFreesItsInputs) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch&) {
    go->Wait();
    return absl::OkStatus();
  };
  Start(fake);
  WaitReady();
  {
    HttpTestClient client(server_->port());
    client.Request("POST", "/v1/embeddings", R"({"input": ["a", "b", "c", "d", "e", "f"]})");
    while (Unfinished(Scheduler()) == 0) {
    }
  }
  go->Open();
  WaitUntilIdle();
}

TEST_F(OpenAiRoutesTest, KeepsAStreamAliveWhileThePromptIsFed) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch&) {
    go->Wait();
    return absl::OkStatus();
  };
  Start(fake);
  WaitReady();
  HttpTestClient client(server_->port());
  client.Request("POST", "/v1/chat/completions", std::string(kChat) + R"(, "stream": true})");
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_EQ(client.ReadChunk(), ": keep-alive\n\n");
  go->Open();
  std::string rest;
  for (std::string chunk; !(chunk = client.ReadChunk().value_or("")).empty();) rest += chunk;
  EXPECT_THAT(rest, HasSubstr("\"role\":\"assistant\""));
  EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n")) << rest;
}

TEST_F(OpenAiRoutesTest, EveryErrorIsInOpenAisForm) {
  Start();
  WaitReady();
  const std::string deep = R"({"messages": )" + std::string(100000, '[');
  struct Case {
    const char* path;
    std::string body;
    int status;
    const char* type;
  };
  const Case cases[] = {
      {"/v1/chat/completions", "", 400, "invalid_request_error"},
      {"/v1/chat/completions", "{", 400, "invalid_request_error"},
      {"/v1/chat/completions", "[]", 400, "invalid_request_error"},
      {"/v1/chat/completions", deep, 400, "invalid_request_error"},
      {"/v1/chat/completions", "{\"messages\": \"\xFF\"}", 400, "invalid_request_error"},
      {"/v1/chat/completions", R"({"messages": "\ud800"})", 400, "invalid_request_error"},
      {"/v1/chat/completions", std::string(kChat) + R"(, "n": 1000000})", 400,
       "invalid_request_error"},
      {"/v1/chat/completions", std::string(kChat) + R"(, "presence_penalty": 1e300})", 400,
       "invalid_request_error"},
      {"/v1/chat/completions", std::string(kChat) + R"(, "model": "other"})", 404,
       "invalid_request_error"},
      {"/v1/embeddings", R"({"input": ""})", 400, "invalid_request_error"},
      {"/v1/embeddings", R"({"input": "x", "model": "other"})", 404, "invalid_request_error"},
      {"/v1/nothing", "{}", 404, "invalid_request_error"},
      {"/v1", "{}", 404, "invalid_request_error"},
      {"/v1/chat/completions/", "{}", 400, "invalid_request_error"},
      {"/v1/models", "{}", 405, "invalid_request_error"},
  };
  for (const Case& c : cases) {
    const HttpTestResponse response = Post(c.path, c.body);
    EXPECT_EQ(response.status, c.status) << c.path << " " << c.body.substr(0, 100);
    EXPECT_EQ(ErrorOf(response)["type"], c.type) << response.body;
    EXPECT_FALSE(ErrorOf(response)["message"].get<std::string>().empty());
  }
  EXPECT_TRUE(ErrorOf(Post("/v1/nothing", "{}"))["param"].is_null());
  EXPECT_EQ(Scheduler().running(), 0u);
}

TEST_F(OpenAiRoutesTest, WholeAnswersWithTooManyLogprobsAreRefused) {
  FakeExecutorOptions fake;
  fake.limits.context_len *= 8;
  fake.limits.max_table_len *= 8;
  for (uint32_t& blocks : fake.limits.num_blocks) blocks *= 8;
  Start(fake);
  WaitReady();
  const std::string chat = R"({"messages": [{"role": "user", "content": "the"}], "n": 128,
      "max_tokens": 1024, "logprobs": true, "top_logprobs": )";
  const HttpTestResponse refused = Post("/v1/chat/completions", chat + "20}");
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_EQ(ErrorOf(refused)["param"], "top_logprobs");
  EXPECT_THAT(ErrorOf(refused)["message"].get<std::string>(),
              HasSubstr("2752512 log-probabilities (128 sequences, 21 for each token), at most "
                        "1048576 fit into one"));
  const HttpTestResponse completion =
      Post("/v1/completions", R"({"prompt": "the", "n": 128, "max_tokens": 1024, "logprobs": 20})");
  EXPECT_EQ(completion.status, 400) << completion.body;
  EXPECT_EQ(ErrorOf(completion)["param"], "logprobs");
  EXPECT_EQ(Scheduler().running(), 0u);
  const HttpTestResponse fits =
      Post("/v1/completions", R"({"prompt": "the", "n": 2, "max_tokens": 8, "logprobs": 20})");
  EXPECT_EQ(fits.status, 200) << fits.body;
}

TEST_F(OpenAiRoutesTest, InvalidJsonIsNoParametersFault) {
  Start();
  WaitReady();
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"}) {
    for (const char* body : {"", "{", "[]", "{\"model\": tru}"}) {
      const HttpTestResponse response = Post(path, body);
      EXPECT_EQ(response.status, 400) << path << body;
      EXPECT_TRUE(ErrorOf(response)["param"].is_null()) << response.body;
      EXPECT_EQ(ErrorOf(response)["code"], "invalid_json") << response.body;
    }
  }
}

TEST_F(OpenAiRoutesTest, ListsTheModelUnderEachOfItsNamesAndAnswersToThem) {
  Start({}, {.max_sequences = 8, .max_rows = 64, .chunk_rows = 16, .max_waiting = 20},
        {.aliases = {"gemma3:27b", "google/gemma"}});
  WaitReady();
  HttpTestClient client(server_->port());
  const Json list = Json::parse(client.Call("GET", "/v1/models").body)["data"];
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]["id"], "toy");
  EXPECT_EQ(list[1]["id"], "gemma3:27b");
  EXPECT_EQ(list[2]["id"], "google/gemma");
  for (const Json& entry : list) EXPECT_EQ(entry["root"], "toy");
  EXPECT_EQ(Json::parse(client.Call("GET", "/v1/models/google/gemma").body)["id"], "google/gemma");
  // As OpenAI's own packages write it.
  EXPECT_EQ(client.Call("GET", "/v1/models/google%2Fgemma").status, 200);
  EXPECT_EQ(client.Call("GET", "/v1/models/gemma3").status, 404);
  for (const char* name : {"toy", "toy:latest", "gemma3:27b", "google/gemma"}) {
    const std::string model = R"("model": ")" + std::string(name) + "\"}";
    EXPECT_EQ(Post("/v1/chat/completions", std::string(kChat) + ", " + model).status, 200) << name;
    EXPECT_EQ(Post("/v1/embeddings", R"({"input": "x", )" + model).status, 200) << name;
  }
  const HttpTestResponse other =
      Post("/v1/chat/completions", std::string(kChat) + R"(, "model": "gpt-4o"})");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(ErrorOf(other)["code"], "model_not_found");
  EXPECT_EQ(ErrorOf(other)["param"], "model");
}

TEST_F(OpenAiRoutesTest, AnyNameIsAnsweredWhereTheServerWasToldSo) {
  Start({}, {.max_sequences = 8, .max_rows = 64, .chunk_rows = 16, .max_waiting = 20},
        {.any = true});
  WaitReady();
  const HttpTestResponse response =
      Post("/v1/chat/completions", std::string(kChat) + R"(, "model": "gpt-4o"})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(Json::parse(response.body)["model"], "toy");
}

TEST_F(OpenAiRoutesTest, BeforeTheModelIsUpEverythingIsUnavailable) {
  Start();
  const HttpTestResponse response = Post("/v1/chat/completions", std::string(kChat) + "}");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(ErrorOf(response)["type"], "server_error");
  EXPECT_NE(response.Header("retry-after"), "");
  WaitReady();
}

TEST_F(OpenAiRoutesTest, AFullQueueIs429WithRetryAfter) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch&) {
    go->Wait();
    return absl::OkStatus();
  };
  Start(fake, {.max_sequences = 1, .max_waiting = 0});
  WaitReady();
  // One place, and as many again for clients that have none: each connection is a client.
  HttpTestClient first(server_->port()), second(server_->port());
  const absl::Time patience = absl::Now() + absl::Seconds(60);
  for (HttpTestClient* client : {&first, &second}) {
    const auto before = Unfinished(Scheduler());
    client->Request("POST", "/v1/chat/completions", std::string(kChat) + "}");
    while (Unfinished(Scheduler()) == before) ASSERT_LT(absl::Now(), patience);
  }
  const HttpTestResponse refused = Post("/v1/chat/completions", std::string(kChat) + "}");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(ErrorOf(refused)["code"], "rate_limit_exceeded");
  EXPECT_NE(refused.Header("retry-after"), "");
  go->Open();
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(second.Read().status, 200);
}

TEST_F(OpenAiRoutesTest, AClientThatGoesAwayFreesItsPlaceStreamedOrWhole) {
  FakeExecutorOptions fake;
  fake.limits.context_len = 1 << 14;
  fake.limits.num_blocks[kGlobalGroup] = 1 << 12;
  fake.limits.max_table_len = 1 << 15;
  fake.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(1));
    return absl::OkStatus();
  };
  Start(fake);
  WaitReady();
  for (const char* stream : {"true", "false"}) {
    HttpTestClient client(server_->port());
    client.Request("POST", "/v1/completions",
                   R"({"prompt": "hat", "max_tokens": 16000, "ignore_eos": true, "stream": )" +
                       std::string(stream) + "}");
    const absl::Time patience = absl::Now() + absl::Seconds(60);
    while (Scheduler().running() == 0) ASSERT_LT(absl::Now(), patience);
    client.Close();
    WaitUntilIdle();
    EXPECT_EQ(Scheduler().kv_blocks_used(0), 0u);
  }
}

}  // namespace
}  // namespace tandem::gateway

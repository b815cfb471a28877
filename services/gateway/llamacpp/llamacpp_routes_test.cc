// The routes on a real server, with the toy model behind them.
#include "services/gateway/llamacpp/llamacpp_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "services/common/testing/eventually.h"
#include "services/gateway/api/json.h"
#include "services/gateway/api/token_routes.h"
#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/engine/testing/gate.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/http/testing/http_test_client.h"
#include "services/gateway/model/launcher.h"
#include "services/gateway/openai/openai_routes.h"

namespace tandem::gateway {
namespace {

using testing::FakeExecutor;
using testing::FakeExecutorOptions;
using testing::Gate;
using ::testing::HasSubstr;
using testing::HttpTestClient;
using testing::HttpTestResponse;
using ::testing::Not;

// One key, "key".
constexpr char kKeys[] =
    "someone sha256:2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683\n";

class LlamaCppRoutesTest : public ::testing::Test {
 protected:
  void Start(FakeExecutorOptions fake = {}, uint32_t max_sequences = 2, bool with_keys = false) {
    launcher_ = std::make_unique<Launcher>(
        [fake](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
          return std::make_unique<FakeExecutor>(fake);
        },
        EngineOptions{
            .max_sequences = max_sequences, .max_rows = 64, .chunk_rows = 16, .max_waiting = 20},
        ModelNameOptions{.aliases = {"mine"}});
    HttpRouter router;
    ASSERT_TRUE(AddTokenRoutes(router, *launcher_).ok());
    ASSERT_TRUE(AddOpenAiRoutes(router, *launcher_).ok());
    ASSERT_TRUE(AddLlamaCppRoutes(router, *launcher_, "1.2.3").ok());
    HttpServerOptions options{.listen = "127.0.0.1:0"};
    if (with_keys) options.keys = ApiKeys::Parse(kKeys).value();
    auto server = HttpServer::Start(options, std::move(router));
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
  HttpTestResponse Call(const std::string& method, const std::string& path,
                        const std::string& body = "") {
    return HttpTestClient(server_->port()).Call(method, path, body);
  }
  Json Get(const std::string& path) {
    const HttpTestResponse response = Call("GET", path);
    EXPECT_EQ(response.status, 200) << path << response.body;
    return Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  }
  Json Post(const std::string& path, const std::string& body) {
    return Json::parse(Call("POST", path, body).body, nullptr, /*allow_exceptions=*/false);
  }

  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(LlamaCppRoutesTest, PropsDescribeTheModelAndItsDefaults) {
  Start();
  WaitReady();
  const Json props = Get("/props");
  EXPECT_EQ(props["total_slots"], 2);
  EXPECT_EQ(props["model_path"], "toy");
  EXPECT_EQ(props["model_alias"], "mine");
  EXPECT_EQ(props["build_info"], "tandem-1.2.3");
  EXPECT_EQ(props["modalities"], Json({{"vision", false}, {"audio", false}}));
  EXPECT_TRUE(props["chat_template"].is_string());
  EXPECT_EQ(props["bos_token"], "<bos>");
  const Json& settings = props["default_generation_settings"];
  EXPECT_EQ(settings["n_ctx"], 256);
  EXPECT_EQ(settings["params"]["n_predict"], -1);
  EXPECT_EQ(settings["params"]["temperature"], 1.0);
  EXPECT_EQ(settings["params"]["top_p"], 0.95);
}

TEST_F(LlamaCppRoutesTest, SlotsSayWhatIsTakenAndNothingOfWhatWasAsked) {
  auto go = std::make_shared<Gate>();
  auto num_steps = std::make_shared<std::atomic<int>>(0);
  FakeExecutorOptions fake;
  fake.on_step = [go, num_steps](const StepBatch&) {
    if (++*num_steps >= 3) go->Wait();  // by then the first step is in the counts
    return absl::OkStatus();
  };
  Start(fake, /*max_sequences=*/1);
  WaitReady();
  const Json free = Get("/slots");
  ASSERT_EQ(free.size(), 1u);
  EXPECT_EQ(free[0]["is_processing"], false);
  EXPECT_EQ(free[0]["n_ctx"], 256);
  EXPECT_EQ(Call("GET", "/slots?fail_on_no_slot=1").status, 200);
  HttpTestClient client(server_->port());
  client.Request("POST", "/v1/completions",
                 R"({"prompt": "secrethat", "max_tokens": 9, "ignore_eos": true})");
  std::string body;
  ASSERT_TRUE(tandem::testing::Eventually([&] {
    body = Call("GET", "/slots").body;
    return Json::parse(body)[0]["is_processing"].get<bool>();
  }));
  EXPECT_THAT(body, Not(HasSubstr("secrethat")));
  for (const char* member : {"prompt", "generated", "params"}) {
    EXPECT_FALSE(Json::parse(body)[0].contains(member)) << body;
  }
  const HttpTestResponse full = Call("GET", "/slots?fail_on_no_slot=1");
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(Json::parse(full.body)["error"]["type"], "unavailable_error");
  go->Open();
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(LlamaCppRoutesTest, ATemplateIsAppliedToTextAndToTokens) {
  Start();
  WaitReady();
  const std::string messages =
      R"({"messages": [{"role": "system", "content": "be in"}, {"role": "user", "content": "hat"}]})";
  const Json answer = Post("/apply-template", messages);
  EXPECT_EQ(answer["prompt"],
            "<start_of_turn>user\nbe in\n\nhat<end_of_turn>\n<start_of_turn>model\n");
  ASSERT_TRUE(answer["tokens"].is_array()) << answer;
  // As a prompt the tokens are what the chat would have been.
  const std::string end = R"(, "temperature": 0, "max_tokens": 4})";
  const Json chat = Post("/v1/chat/completions", messages.substr(0, messages.size() - 1) + end);
  const Json completion =
      Post("/v1/completions", R"({"prompt": )" + DumpJson(answer["tokens"]) + end);
  EXPECT_EQ(completion["usage"]["prompt_tokens"], chat["usage"]["prompt_tokens"]);
  EXPECT_EQ(completion["choices"][0]["text"], chat["choices"][0]["message"]["content"]);
}

TEST_F(LlamaCppRoutesTest, ErrorsAreInLlamaCppsFormAndNameTheParameterOrNone) {
  Start();
  WaitReady();
  struct Case {
    const char* path;
    const char* body;
    int status;
    const char* type;
    const char* param;  // "": null
  };
  const Case cases[] = {
      {"/apply-template", "{", 400, "invalid_request_error", ""},
      {"/apply-template", "{}", 400, "invalid_request_error", "messages"},
      {"/apply-template", R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})", 400,
       "invalid_request_error", "tools[0].function"},
      {"/apply-template", R"({"messages": [], "model": "other"})", 404, "not_found_error", "model"},
      {"/tokenize", "{", 400, "invalid_request_error", ""},
      {"/tokenize", "{}", 400, "invalid_request_error", "content"},
      {"/tokenize", R"({"content": "a", "model": "other"})", 404, "not_found_error", "model"},
      {"/detokenize", R"({"tokens": [1, -1]})", 400, "invalid_request_error", "tokens[1]"},
      {"/props", "{}", 405, "invalid_request_error", ""},
  };
  for (const Case& c : cases) {
    const HttpTestResponse response = Call("POST", c.path, c.body);
    EXPECT_EQ(response.status, c.status) << c.path << c.body;
    const Json error = Json::parse(response.body)["error"];
    EXPECT_EQ(error["code"], c.status) << response.body;
    EXPECT_EQ(error["type"], c.type) << response.body;
    const std::string param = c.param;
    EXPECT_EQ(error["param"], param.empty() ? Json(nullptr) : Json(param)) << response.body;
  }
}

TEST_F(LlamaCppRoutesTest, TokensAndTheirPiecesAreGivenWhateverTheModelIsCalled) {
  Start();
  WaitReady();
  for (const char* name : {"toy", "mine", "mine:latest"}) {
    const Json answer = Post("/tokenize", R"({"content": "hñ", "with_pieces": true, "model": ")" +
                                              std::string(name) + "\"}");
    ASSERT_EQ(answer["tokens"].size(), 3u) << answer;
    EXPECT_EQ(answer["tokens"][0]["piece"], "h");
    // Half a character each: bytes.
    EXPECT_EQ(answer["tokens"][1]["piece"], Json::array({0xC3}));
    EXPECT_EQ(answer["tokens"][2]["piece"], Json::array({0xB1}));
  }
}

TEST_F(LlamaCppRoutesTest, HealthIsOkWhenTheModelIsUp) {
  Start();
  const HttpTestResponse early = Call("GET", "/v1/health");
  EXPECT_EQ(early.status, 503) << early.body;
  EXPECT_TRUE(Json::parse(early.body).contains("error"));
  EXPECT_EQ(Call("GET", "/props").status, 503);
  WaitReady();
  EXPECT_EQ(Get("/v1/health"), Json({{"status", "ok"}}));
}

TEST_F(LlamaCppRoutesTest, KeysAreAskedForEverywhereButForHealth) {
  Start({}, 2, /*with_keys=*/true);
  WaitReady();
  for (const char* path : {"/props", "/slots"}) {
    const HttpTestResponse refused = Call("GET", path);
    EXPECT_EQ(refused.status, 401) << path;
    EXPECT_EQ(Json::parse(refused.body)["error"]["type"], "authentication_error") << path;
    EXPECT_EQ(HttpTestClient(server_->port())
                  .Call("GET", path, "", "Authorization: Bearer key\r\n")
                  .status,
              200)
        << path;
  }
  EXPECT_EQ(Call("POST", "/apply-template", "{}").status, 401);
  EXPECT_EQ(Call("GET", "/v1/health").status, 200);
}

}  // namespace
}  // namespace tandem::gateway

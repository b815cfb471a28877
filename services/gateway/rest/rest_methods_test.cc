// Every method of the public API at each of its routes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "services/common/testing/eventually.h"
#include "services/gateway/constraint/testing/held_threads.h"
#include "services/gateway/rest/rest_binding.h"
#include "services/gateway/rest/testing/rest_fixture.h"

namespace tandem::gateway {
namespace {

using google::protobuf::ServiceDescriptor;
using ::testing::HasSubstr;
using testing::HttpTestResponse;

const ServiceDescriptor& Service() {
  return *v1::GenerateRequest::descriptor()->file()->service(0);
}

class RestMethodsTest : public testing::RestFixture {};

struct RouteCase {
  std::string target, body;
  int status;
  std::string answer;  // part of the body
};

// By method and path template.  MODEL stands for the model's name.
const std::map<std::string, RouteCase>& Routes() {
  static const std::string kGenerate =
      R"({"tokens": {"ids": [5, 9]}, "limits": {"maxTokens": 2}, "sampling": {"topK": 1}})";
  static const std::string kChat =
      R"({"messages": [{"role": "user", "content": "a"}], "limits": {"maxTokens": 2}})";
  static const std::string kEmbed = R"({"inputs": [{"text": "a"}, {"tokens": {"ids": [5]}}]})";
  static const std::string kText = R"({"text": "a"})";
  static const std::string kIds = R"({"ids": [5, 6]})";
  static const std::map<std::string, RouteCase> routes = {
      {"POST /tandem/v1/generate",
       {"/tandem/v1/generate", kGenerate, 200, "\"FINISH_REASON_LENGTH\""}},
      {"POST /tandem/v1/models/{model=**}:generate",
       {"/tandem/v1/models/MODEL:generate", kGenerate, 200, "\"FINISH_REASON_LENGTH\""}},
      {"POST /tandem/v1/chat", {"/tandem/v1/chat", kChat, 200, "\"completionTokens\":"}},
      {"POST /tandem/v1/models/{model=**}:chat",
       {"/tandem/v1/models/MODEL:chat", kChat, 200, "\"completionTokens\":"}},
      {"POST /tandem/v1/embed", {"/tandem/v1/embed", kEmbed, 200, "\"embeddings\":[{\"values\":["}},
      {"POST /tandem/v1/models/{model=**}:embed",
       {"/tandem/v1/models/MODEL:embed", kEmbed, 200, "\"embeddings\":[{\"values\":["}},
      {"POST /tandem/v1/tokenize", {"/tandem/v1/tokenize", kText, 200, "\"pieces\":[\""}},
      {"GET /tandem/v1/tokenize", {"/tandem/v1/tokenize?text=a", "", 200, "\"pieces\":[\""}},
      {"POST /tandem/v1/models/{model=**}:tokenize",
       {"/tandem/v1/models/MODEL:tokenize", kText, 200, "\"pieces\":[\""}},
      {"POST /tandem/v1/detokenize", {"/tandem/v1/detokenize", kIds, 200, "\"text\":\""}},
      {"GET /tandem/v1/detokenize", {"/tandem/v1/detokenize?ids=5&ids=6", "", 200, "\"text\":\""}},
      {"POST /tandem/v1/models/{model=**}:detokenize",
       {"/tandem/v1/models/MODEL:detokenize", kIds, 200, "\"text\":\""}},
      {"GET /tandem/v1/models", {"/tandem/v1/models", "", 200, "{\"models\":[{\"name\":"}},
      {"GET /tandem/v1/status", {"/tandem/v1/status", "", 200, "\"state\":\"ready\""}},
      {"GET /tandem/v1/trace", {"/tandem/v1/trace", "", 400, "no traces are kept"}},
      {"GET /tandem/v1/traces/{id=**}", {"/tandem/v1/traces/a/b", "", 400, "no traces are kept"}},
  };
  return routes;
}

TEST_F(RestMethodsTest, EveryMethodAnswersAtEachRoute) {
  StartRest();
  auto client = Connect();
  const std::string model =
      nlohmann::json::parse(client.Call("GET", "/tandem/v1/models").body)["models"][0]["name"];
  for (int i = 0; i < Service().method_count(); ++i) {
    const auto bindings = ReadBindings(*Service().method(i));
    ASSERT_TRUE(bindings.ok()) << bindings.status();
    EXPECT_FALSE(bindings->empty()) << Service().method(i)->full_name() << " has no route";
    for (const RestBinding& binding : *bindings) {
      const std::string name = binding.http_method + " " + binding.path_template;
      ASSERT_TRUE(Routes().contains(name)) << "enter a request for the route " << name;
      const RouteCase& route = Routes().at(name);
      std::string target = route.target;
      if (const size_t at = target.find("MODEL"); at != std::string::npos) {
        target.replace(at, 5, model);
      }
      const HttpTestResponse response = client.Call(binding.http_method, target, route.body);
      EXPECT_EQ(response.status, route.status) << name << ": " << response.body;
      EXPECT_THAT(response.body, HasSubstr(route.answer)) << name;
    }
  }
}

// A request and its answer as JSON and as messages: each line of the stream is a message.
TEST_F(RestMethodsTest, AStreamHasTheSameTokensOverGrpc) {
  StartRest();
  const std::string body =
      R"({"tokens": {"ids": [5, 9, 6]}, "limits": {"maxTokens": 9, "ignoreEos": true},
          "sampling": {"temperature": 0}, "logprobs": 2, "promptLogprobs": true})";
  v1::GenerateRequest request;
  request.mutable_tokens()->mutable_ids()->Add(5);
  request.mutable_tokens()->mutable_ids()->Add(9);
  request.mutable_tokens()->mutable_ids()->Add(6);
  request.mutable_limits()->set_max_tokens(9);
  request.mutable_limits()->set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(0);
  request.set_logprobs(2);
  request.set_prompt_logprobs(true);
  const Answer over_grpc = Generate(request);
  ASSERT_TRUE(over_grpc.status.ok());

  const HttpTestResponse response = Connect().Call("POST", "/tandem/v1/generate", body);
  std::vector<uint32_t> ids;
  std::string text;
  size_t num_prompt_tokens = 0;
  std::istringstream lines(response.body);
  for (std::string line; std::getline(lines, line);) {
    const auto message = nlohmann::json::parse(line);
    text += message.value("text", "");
    num_prompt_tokens += message.value("promptTokens", nlohmann::json::array()).size();
    for (const auto& token : message.value("tokens", nlohmann::json::array())) {
      const v1::Token& same = over_grpc.tokens.at(ids.size());
      ids.push_back(token["id"]);
      EXPECT_EQ(token["logprob"].get<float>(), same.logprob());
      EXPECT_EQ(token["alternatives"].size(), 2u);
    }
  }
  EXPECT_EQ(ids, over_grpc.ids());
  EXPECT_EQ(text, over_grpc.text);
  EXPECT_EQ(num_prompt_tokens, over_grpc.prompt_tokens.size());
}

// Whole and as a stream, by the names of the .proto and by those of JSON.
TEST_F(RestMethodsTest, AnswersFollowTheirConstraint) {
  StartRest();
  auto client = Connect();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("json_schema": "{\"enum\": [12]}")", "12"},
      {R"("jsonSchema": "{\"const\": null}")", "null"},
      {R"("regex": "t(h)at")", "that"},
      {R"("choices": {"texts": ["hat"]})", "hat"},
      {R"("gbnf": "root ::= [q] \"z\"")", "qz"},
      {R"("lark": "start: \"in\" \"to\"")", "into"},
  };
  const std::vector<std::pair<std::string, std::string>> prompts = {
      {"/tandem/v1/generate", R"("text": "a")"},
      {"/tandem/v1/chat", R"("messages": [{"role": "user", "content": "a"}])"}};
  for (const auto& [source, text] : cases) {
    SCOPED_TRACE(source);
    for (const auto& [target, prompt] : prompts) {
      const std::string body = "{" + prompt + R"(, "constraint": {)" + source + "}}";
      for (const char* accept : {"", "Accept: text/event-stream\r\n"}) {
        const HttpTestResponse answer = client.Call("POST", target, body, accept);
        EXPECT_EQ(answer.status, 200) << answer.body;
        std::string all;
        const std::string mark = "\"text\":\"";
        for (size_t at = 0; (at = answer.body.find(mark, at)) != std::string::npos;) {
          at += mark.size();
          size_t end = at;
          while (answer.body[end] != '"') end += answer.body[end] == '\\' ? 2 : 1;
          all += answer.body.substr(at, end - at);
        }
        EXPECT_EQ(all, text) << answer.body;
        EXPECT_THAT(answer.body, HasSubstr("FINISH_REASON_STOP"));
      }
    }
  }
}

TEST_F(RestMethodsTest, AClientThatGoesAwayCancelsItsCompilation) {
  StartRest();
  const constraint::HeldThreads held((*launcher_->model())->constraints());
  {
    auto client = Connect();
    client.Request("POST", "/tandem/v1/generate",
                   R"({"text": "a", "constraint": {"regex": "[a-z]{5}"}})");
    ASSERT_TRUE(
        tandem::testing::Eventually([&] { return launcher_->constraint_counts().waiting == 1; }));
  }
  EXPECT_TRUE(
      tandem::testing::Eventually([&] { return launcher_->constraint_counts().waiting == 0; }));
}

TEST_F(RestMethodsTest, ErrorsHaveTheCodeAndTextOfGrpc) {
  StartRest();
  auto client = Connect();
  v1::GenerateRequest hot, unknown, wrong;
  hot.set_text("a");
  hot.mutable_sampling()->set_temperature(-1);
  unknown.set_text("a");
  unknown.set_model("nobody");
  wrong.set_text("a");
  wrong.mutable_constraint()->set_json_schema(R"({"not": {}})");
  const std::vector<std::pair<v1::GenerateRequest, std::string>> cases = {
      {{}, "{}"},
      {hot, R"({"text": "a", "sampling": {"temperature": -1}})"},
      {unknown, R"({"text": "a", "model": "nobody"})"},
      {wrong, R"({"text": "a", "constraint": {"json_schema": "{\"not\": {}}"}})"},
  };
  for (const auto& [request, body] : cases) {
    const grpc::Status status = Generate(request).status;
    EXPECT_FALSE(status.ok()) << body;
    const HttpTestResponse response = client.Call("POST", "/tandem/v1/generate", body);
    const auto error = nlohmann::json::parse(response.body);
    EXPECT_EQ(error["code"], static_cast<int>(status.error_code())) << response.body;
    EXPECT_EQ(error["message"], status.error_message());
    EXPECT_EQ(response.status, HttpStatusOf(static_cast<absl::StatusCode>(status.error_code())));
  }
}

}  // namespace
}  // namespace tandem::gateway

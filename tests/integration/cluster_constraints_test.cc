// Answers of the cluster that follow a schema, an expression, a list of choices or a grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/testing/paths.h"
#include "services/gateway/http/testing/http_test_client.h"
#include "tests/integration/cluster_fixture.h"

namespace tandem::testing {
namespace {

using gateway::testing::HttpTestClient;
using gateway::testing::HttpTestResponse;
using nlohmann::json;

constexpr char kSchema[] = R"({"type": "object", "properties": {
    "city": {"type": "string", "maxLength": 20},
    "size": {"enum": ["small", "large", null]},
    "people": {"type": "integer", "minimum": 0, "maximum": 99},
    "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,6}$"}, "maxItems": 3}},
    "required": ["city", "size", "people", "tags"], "additionalProperties": false})";
constexpr char kRegex[] = "(yes|no), because [a-z]{3,12}( [a-z]{2,9}){0,5}\\.";
constexpr char kGbnf[] = R"(root ::= "[" item ("," item){1,3} "]"
item ::= num | "[" num "]"
num ::= [1-9] [0-9]{0,2})";
constexpr char kLark[] = R"(start: NAME " = " sum ";"
sum: NUMBER (" + " NUMBER)~1..3
NAME: /[a-z]{1,8}/
NUMBER: /[1-9][0-9]{0,3}/)";

bool FitsSchema(const std::string& text) {
  const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object() || value.size() != 4 || !value["city"].is_string()) return false;
  if (value["size"] != "small" && value["size"] != "large" && !value["size"].is_null())
    return false;
  if (!value["people"].is_number_integer() || value["people"] < 0 || value["people"] > 99) {
    return false;
  }
  if (!value["tags"].is_array() || value["tags"].size() > 3) return false;
  for (const json& tag : value["tags"]) {
    if (!tag.is_string() || !std::regex_match(tag.get<std::string>(), std::regex("[a-z]{1,6}"))) {
      return false;
    }
  }
  return true;
}

bool FitsGbnf(const std::string& text) {
  const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_array() || value.size() < 2 || value.size() > 4) return false;
  for (const json& item : value) {
    const json& number = item.is_array() && item.size() == 1 ? item[0] : item;
    if (!number.is_number_integer() || number < 1 || number > 999) return false;
  }
  return text.find(' ') == std::string::npos;
}

struct Shape {
  std::string name;
  v1::Constraint constraint;
  std::function<bool(const std::string&)> fits;
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes(5);
  shapes[0] = {"schema", {}, FitsSchema};
  shapes[0].constraint.set_json_schema(kSchema);
  shapes[1] = {"regex", {}, [](const std::string& text) {
                 return std::regex_match(text, std::regex(kRegex));
               }};
  shapes[1].constraint.set_regex(kRegex);
  shapes[2] = {"choices", {}, [](const std::string& text) {
                 return text == "north" || text == "south" || text == "south-east" ||
                        text == "日本";
               }};
  for (const char* choice : {"north", "south", "south-east", "日本"}) {
    shapes[2].constraint.mutable_choices()->add_texts(choice);
  }
  shapes[3] = {"gbnf", {}, FitsGbnf};
  shapes[3].constraint.set_gbnf(kGbnf);
  shapes[4] = {"lark", {}, [](const std::string& text) {
                 return std::regex_match(
                     text, std::regex("[a-z]{1,8} = [1-9][0-9]{0,3}( \\+ [1-9][0-9]{0,3}){1,3};"));
               }};
  shapes[4].constraint.set_lark(kLark);
  return shapes;
}

v1::GenerateRequest Request(const v1::Constraint& constraint, uint64_t seed) {
  v1::GenerateRequest request;
  request.set_text("user\nWhat is the capital of France?\nmodel\n");
  request.mutable_sampling()->set_temperature(1.0f);
  request.mutable_sampling()->set_seed(seed);
  request.mutable_limits()->set_max_tokens(400);
  *request.mutable_constraint() = constraint;
  return request;
}

class ClusterConstraintsTest : public ClusterFixture {
 protected:
  // All at once.
  std::vector<Answer> GenerateAll(const std::vector<v1::GenerateRequest>& requests) {
    std::vector<Answer> answers(requests.size());
    std::vector<std::thread> clients;
    std::atomic<size_t> next = 0;
    for (int c = 0; c < 12; ++c) {
      clients.emplace_back([&] {
        for (size_t i; (i = next++) < requests.size();) answers[i] = Generate(requests[i]);
      });
    }
    for (std::thread& client : clients) client.join();
    return answers;
  }
  uint16_t HttpPort() const {
    const std::string log = LogOf("gateway");
    const std::string before = "http://127.0.0.1:";
    const size_t at = log.find(before);
    EXPECT_NE(at, std::string::npos) << log;
    return static_cast<uint16_t>(std::stoi(log.substr(at + before.size())));
  }
};

// With the NPU: every answer, over gRPC and over REST, as lines and as events.
TEST_F(ClusterConstraintsTest, EveryAnswerHasItsShape) {
  StartCluster({.serve = true, .http = "127.0.0.1:0"});
  std::vector<v1::GenerateRequest> requests;
  const std::vector<Shape> shapes = Shapes();
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (const Shape& shape : shapes) requests.push_back(Request(shape.constraint, seed));
  }
  const std::vector<Answer> answers = GenerateAll(requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    const Shape& shape = shapes[i % shapes.size()];
    ASSERT_TRUE(answers[i].status.ok()) << answers[i].status.error_message();
    EXPECT_EQ(answers[i].finish_reason, v1::FINISH_REASON_STOP) << answers[i].text;
    EXPECT_TRUE(shape.fits(answers[i].text)) << shape.name << ": " << answers[i].text;
  }
  const json chat = {{"messages", {{{"role", "user"}, {"content", "Where is Rome?"}}}},
                     {"constraint", {{"jsonSchema", kSchema}}},
                     {"limits", {{"maxTokens", 400}}}};
  HttpTestClient client(HttpPort());
  for (const char* accept : {"", "Accept: text/event-stream\r\n"}) {
    const HttpTestResponse response = client.Call("POST", "/tandem/v1/chat", chat.dump(), accept);
    ASSERT_EQ(response.status, 200) << response.body;
    std::istringstream lines(response.body);
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      const size_t open = line.find('{');
      if (open == std::string::npos) continue;
      text += json::parse(line.substr(open)).value("text", "");
    }
    EXPECT_TRUE(FitsSchema(text)) << response.body;
  }
}

// Steps that wait behind another have speculative tokens, of neighbours.
TEST_F(ClusterConstraintsTest, TokensAreTheSameWithAndWithoutSpeculation) {
  std::vector<v1::GenerateRequest> requests;
  for (const Shape& shape : Shapes()) requests.push_back(Request(shape.constraint, 77));
  std::vector<Answer> alone;
  StartCluster({.npu = false, .gateway_flags = {"--no-queued-steps"}});
  for (const auto& request : requests) alone.push_back(Generate(request));
  EXPECT_EQ(Status().scheduler().steps_queued(), 0u);
  StopCluster();
  StartCluster({.npu = false});
  for (uint32_t i = 0; i < 4; ++i) requests.push_back(GreedyRequest("The capital of", 120 + i));
  const std::vector<Answer> together = GenerateAll(requests);
  EXPECT_GT(Status().scheduler().steps_queued(), 0u);
  for (size_t i = 0; i < alone.size(); ++i) {
    ASSERT_TRUE(alone[i].status.ok()) << alone[i].status.error_message();
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << alone[i].text << "\n" << together[i].text;
  }
}

// Two replicas, whose workers die in turn in the middle of the answers, with guesses from the text so
// far, against one worker without guesses.
TEST_F(ClusterConstraintsTest, TokensAreTheSameOnReplicasAndThroughLostWorkers) {
  std::vector<v1::GenerateRequest> requests;
  for (const uint64_t seed : {5, 6}) {
    for (const Shape& shape : Shapes()) requests.push_back(Request(shape.constraint, seed));
  }
  const auto expect_same = [&](const std::vector<Answer>& answers,
                               const std::vector<Answer>& expected, const char* when) {
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(answers[i].status.ok()) << when << ": " << answers[i].status.error_message();
      EXPECT_EQ(answers[i].tokens, expected[i].tokens) << when << ": " << answers[i].text;
    }
  };
  StartCluster({.npu = false, .gateway_flags = {"--speculate", "off"}});
  std::vector<Answer> alone;
  for (const auto& request : requests) alone.push_back(Generate(request));
  StopCluster();

  StartCluster({.second_gpu = true,
                .npu = false,
                .gateway_flags = {"--replicas", "2", "--speculate", "lookup"}});
  const auto both_ready = [](const auto& status) {
    return status.replicas_size() == 2 && status.replicas(0).state() == "ready" &&
           status.replicas(1).state() == "ready";
  };
  WaitForStatus("two replicas", both_ready);
  expect_same(GenerateAll(requests), alone, "both");
  uint64_t recoveries = 0;
  for (const char* worker : {"gpu", "gpu1"}) {
    // Questions go on until the replica is back, so that one of them finds the loss.
    std::atomic<bool> is_back = false;
    std::thread clients([&] {
      do {
        expect_same(GenerateAll(requests), alone, worker);
      } while (!is_back && !HasFailure());
    });
    absl::SleepFor(absl::Milliseconds(150));
    KillService(worker);
    WaitForStatus("a lost replica", [&](const auto& status) { return !both_ready(status); });
    StartService(worker);
    ++recoveries;
    WaitForStatus("the replica back", [&](const auto& status) {
      return both_ready(status) && status.recoveries() == recoveries;
    });
    is_back = true;
    clients.join();
  }
  const v1::GetStatusResponse status = Status();
  EXPECT_GT(status.replicas(0).moved_away() + status.replicas(1).moved_away(), 0u);
}

TEST_F(ClusterConstraintsTest, BombsEndAloneWhileOthersGoOn) {
  StartCluster({.npu = false});
  std::vector<v1::GenerateRequest> bombs;
  for (int i = 0; i < 24; ++i) {
    v1::Constraint bomb;
    if (i % 2 == 0) {  // 2^60 letters
      std::string grammar = absl::StrFormat("root ::= \"%d\" a0\n", i);
      for (int k = 0; k < 60; ++k) grammar += absl::StrFormat("a%d ::= a%d a%d\n", k, k + 1, k + 1);
      bomb.set_gbnf(grammar + "a60 ::= \"x\"\n");
    } else {  // 3^40 combinations
      std::string schema = "{\"allOf\":[";
      for (int k = 0; k < 40; ++k) {
        schema +=
            absl::StrFormat(R"(%s{"anyOf":[{"minLength":%d},{"minItems":%d},{"minimum":%d}]})",
                            k == 0 ? "" : ",", k + i, k, k);
      }
      bomb.set_json_schema(schema + "]}");
    }
    bombs.push_back(Request(bomb, 1));
  }
  std::vector<Answer> refused;
  std::thread attacker([&] { refused = GenerateAll(bombs); });
  const std::vector<Shape> shapes = Shapes();
  for (int round = 0; round < 2; ++round) {
    for (const Shape& shape : shapes) {
      const Answer answer = Generate(Request(shape.constraint, 5));
      EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
      EXPECT_TRUE(shape.fits(answer.text)) << answer.text;
    }
    EXPECT_TRUE(Generate(GreedyRequest("The capital of", 10)).status.ok());
  }
  attacker.join();
  for (const Answer& answer : refused) {
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << answer.status.error_message();
    EXPECT_THAT(answer.status.error_message(), ::testing::StartsWith("constraint."));
  }
}

// 60 texts that the model was not trained on, each with a schema.
TEST_F(ClusterConstraintsTest, ExtractionsParseAndAreRight) {
  StartCluster({.npu = false,
                .context_len = 1024,
                .model_folder = TestDataPath(""),
                .model_file = "demo2.Q8_0.gguf"});
  std::vector<v1::ChatRequest> requests;
  std::vector<json> expected;
  std::ifstream file(TestDataPath("extractions.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const auto item = nlohmann::ordered_json::parse(line);
    v1::ChatRequest& request = requests.emplace_back();
    v1::ChatMessage* message = request.add_messages();
    message->set_role("user");
    message->set_content(item["ask"].get<std::string>());
    request.mutable_constraint()->set_json_schema(item["schema"].dump());
    request.mutable_limits()->set_max_tokens(400);
    expected.push_back(json::parse(item["answer"].dump()));
  }
  ASSERT_EQ(requests.size(), 60u);
  for (const float temperature : {0.0f, 1.0f}) {
    std::atomic<int> right = 0;
    std::atomic<int> parsed = 0;
    std::atomic<size_t> next = 0;
    std::vector<std::thread> clients;
    for (int c = 0; c < 12; ++c) {
      clients.emplace_back([&] {
        for (size_t i; (i = next++) < requests.size();) {
          v1::ChatRequest request = requests[i];
          request.mutable_sampling()->set_temperature(temperature);
          request.mutable_sampling()->set_seed(i);
          const Answer answer = Chat(request);
          EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
          const json value = json::parse(answer.text, nullptr, /*allow_exceptions=*/false);
          EXPECT_TRUE(value.is_object()) << answer.text;
          if (!value.is_object()) continue;
          // The keys and the types; null where something else may be is not a matter of chance.
          std::vector<std::string> keys, expected_keys;
          for (const auto& [key, member] : value.items()) keys.push_back(key);
          for (const auto& [key, member] : expected[i].items()) expected_keys.push_back(key);
          EXPECT_EQ(keys, expected_keys) << answer.text;
          EXPECT_EQ(answer.finish_reason, v1::FINISH_REASON_STOP) << answer.text;
          ++parsed;
          if (value == expected[i]) ++right;
        }
      });
    }
    for (std::thread& client : clients) client.join();
    std::printf("temperature %.0f: %d of 60 parse, %d are right\n", temperature, parsed.load(),
                right.load());
    EXPECT_EQ(parsed, 60);
    EXPECT_GE(right, temperature == 0.0f ? 59 : 50);
  }
}

}  // namespace
}  // namespace tandem::testing

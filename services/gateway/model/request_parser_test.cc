// Every parameter of a request, as a client meets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "services/gateway/grpc/testing/service_fixture.h"

namespace tandem::gateway {
namespace {

using testing::Greedy;
using testing::GreedyRequest;
using ::testing::HasSubstr;

class RequestParserTest : public testing::ServiceFixture {};

using Fault = std::function<void(v1::GenerateRequest&)>;

// A parameter's name, and how to set it wrongly.
std::vector<std::pair<std::string, Fault>> Faults() {
  const float nan = std::nanf("");
  return {
      {"temperature", [](auto& r) { r.mutable_sampling()->set_temperature(-1.0f); }},
      {"temperature", [nan](auto& r) { r.mutable_sampling()->set_temperature(nan); }},
      {"temperature", [](auto& r) { r.mutable_sampling()->set_temperature(INFINITY); }},
      {"top_p", [](auto& r) { r.mutable_sampling()->set_top_p(0.0f); }},
      {"top_p", [nan](auto& r) { r.mutable_sampling()->set_top_p(nan); }},
      {"min_p", [](auto& r) { r.mutable_sampling()->set_min_p(1.5f); }},
      {"repetition_penalty", [](auto& r) { r.mutable_sampling()->set_repetition_penalty(0.0f); }},
      {"presence_penalty", [](auto& r) { r.mutable_sampling()->set_presence_penalty(3.0f); }},
      {"frequency_penalty", [](auto& r) { r.mutable_sampling()->set_frequency_penalty(-1e30f); }},
      {"logit_bias", [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[100000] = 1; }},
      {"logit_bias", [nan](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[1] = nan; }},
      {"logit_bias",
       [](auto& r) {
         for (uint32_t i = 0; i < 5000; ++i) (*r.mutable_sampling()->mutable_logit_bias())[i] = 0;
       }},
      {"stop",
       [](auto& r) {
         for (int i = 0; i < 17; ++i) r.mutable_limits()->add_stop("x");
       }},
      {"stop[0]", [](auto& r) { r.mutable_limits()->add_stop(""); }},
      {"stop[1]",
       [](auto& r) {
         r.mutable_limits()->add_stop("x");
         r.mutable_limits()->add_stop(std::string(1025, 'y'));
       }},
      {"priority", [](auto& r) { r.mutable_limits()->set_priority(101); }},
      {"priority", [](auto& r) { r.mutable_limits()->set_priority(-101); }},
      {"cache_salt", [](auto& r) { r.mutable_limits()->set_cache_salt(std::string(257, 's')); }},
      {"logprobs", [](auto& r) { r.set_logprobs(21); }},
      {"request_id", [](auto& r) { r.set_request_id(std::string(129, 'x')); }},
      {"request_id", [](auto& r) { r.set_request_id("a\nb"); }},
      {"tokens[1]",
       [](auto& r) {
         r.mutable_tokens()->add_ids(1);
         r.mutable_tokens()->add_ids(5000);
       }},
      {"constraint: ", [](auto& r) { r.mutable_constraint(); }},
      {"constraint.json: ", [](auto& r) { r.mutable_constraint()->set_json(false); }},
      {"constraint.json_schema: ", [](auto& r) { r.mutable_constraint()->set_json_schema("{"); }},
      {"constraint.regex: ", [](auto& r) { r.mutable_constraint()->set_regex("("); }},
      {"constraint.choices: ", [](auto& r) { r.mutable_constraint()->mutable_choices(); }},
      {"constraint.gbnf: ", [](auto& r) { r.mutable_constraint()->set_gbnf("root ::= ("); }},
      {"constraint.lark: ", [](auto& r) { r.mutable_constraint()->set_lark("start: ("); }},
      {"prompt", [](auto& r) { r.clear_prompt(); }},
      {"prompt", [](auto& r) { r.mutable_tokens(); }},
  };
}

TEST_F(RequestParserTest, NamesEveryParameterThatIsOutOfRange) {
  Start();
  const auto faults = Faults();
  for (size_t i = 0; i < faults.size(); ++i) {
    v1::GenerateRequest request;
    request.set_text("the hat");
    faults[i].second(request);
    const Answer answer = Generate(request);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << "fault " << i;
    EXPECT_THAT(answer.status.error_message(), HasSubstr(faults[i].first)) << "fault " << i;
  }
}

TEST_F(RequestParserTest, APromptLongerThanTheContextIsRefusedWithBothNumbers) {
  Start();
  v1::GenerateRequest request = Greedy(GreedyRequest(1, 300, 5));
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("context_length_exceeded"));
  EXPECT_THAT(answer.status.error_message(), HasSubstr("300"));
  EXPECT_THAT(answer.status.error_message(), HasSubstr("256"));
  request.set_text(std::string(1 << 20, 'x'));  // refused without encoding a megabyte
  EXPECT_THAT(Generate(request).status.error_message(), HasSubstr("context_length_exceeded"));
}

TEST_F(RequestParserTest, TextThatIsNotUtf8IsRefused) {
  Start();
  v1::GenerateRequest request;
  request.set_text("ab\xFFgh");
  EXPECT_FALSE(Generate(request).status.ok());
  EXPECT_EQ(Status().state(), "ready");
}

TEST_F(RequestParserTest, AnotherModelIsNotFound) {
  Start();
  v1::GenerateRequest request;
  request.set_text("a");
  request.set_model("other");
  EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(RequestParserTest, AnAliasIsAsGoodAsTheModelsName) {
  Start({}, {.max_sequences = 8, .max_rows = 64, .chunk_rows = 16, .max_waiting = 20}, 4096,
        {.aliases = {"gemma3:27b"}});
  v1::GenerateRequest request = Greedy(GreedyRequest(1, 5, 2));
  for (const char* name : {"", "toy", "gemma3:27b", "gemma3:27b:latest"}) {
    request.set_model(name);
    EXPECT_TRUE(Generate(request).status.ok()) << name;
  }
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  ASSERT_TRUE(stub_->ListModels(&context, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_THAT(models.models(0).aliases(), ::testing::ElementsAre("gemma3:27b"));
  EXPECT_EQ(models.models(0).quantization(), "Q8_0");
}

TEST_F(RequestParserTest, AWindowOfNothingTakesThePenaltiesOff) {
  Start();
  v1::GenerateRequest request = Greedy(GreedyRequest(1, 5, 20));
  const std::string plain = Generate(request).text;
  request.mutable_sampling()->set_presence_penalty(2.0f);
  request.mutable_sampling()->set_repetition_penalty(0.01f);  // repeats whatever it can
  EXPECT_NE(Generate(request).text, plain);
  request.mutable_sampling()->set_penalty_window(0);
  EXPECT_EQ(Generate(request).text, plain);
  request.mutable_sampling()->set_presence_penalty(3.0f);  // wrong all the same
  EXPECT_FALSE(Generate(request).status.ok());
}

}  // namespace
}  // namespace tandem::gateway

// What each method answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "services/gateway/grpc/testing/service_fixture.h"
#include "services/gateway/tokenizer/chat_template.h"

namespace tandem::gateway {
namespace {

using testing::ExpectedTokens;
using testing::Greedy;
using testing::GreedyRequest;
using testing::ToyLimits;
using testing::ToyTokenizer;

class GenerationServiceTest : public testing::ServiceFixture {};

TEST_F(GenerationServiceTest, StreamsTextTokensAndAReport) {
  Start();
  const EngineRequest request = GreedyRequest(1, 20, 30);
  v1::GenerateRequest proto = Greedy(request);
  proto.set_request_id("mine");
  proto.mutable_sampling()->set_seed(99);
  const Answer answer = Generate(proto);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.ids(), ExpectedTokens(request, ToyLimits()));
  EXPECT_EQ(answer.text, ToyTokenizer().Decode(answer.ids()));
  EXPECT_EQ(answer.messages[0].placement(), "everything on toy0");
  EXPECT_EQ(answer.messages[0].request_id(), "mine");
  EXPECT_EQ(answer.last().finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(answer.last().usage().prompt_tokens(), 20u);
  EXPECT_EQ(answer.last().usage().completion_tokens(), 30u);
  EXPECT_EQ(answer.last().usage().seed(), 99u);
  EXPECT_FALSE(answer.tokens[0].has_logprob());
}

TEST_F(GenerationServiceTest, TheReportedSeedGivesTheSameAnswerAgain) {
  Start();
  v1::GenerateRequest proto;
  proto.set_text("the thin hat");
  proto.mutable_limits()->set_max_tokens(20);
  proto.mutable_limits()->set_ignore_eos(true);
  const Answer first = Generate(proto);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_FALSE(first.messages[0].request_id().empty());
  proto.mutable_sampling()->set_seed(first.last().usage().seed());
  EXPECT_EQ(Generate(proto).ids(), first.ids());
}

TEST_F(GenerationServiceTest, ReportsLogProbabilitiesOfPromptAndAnswer) {
  Start();
  v1::GenerateRequest proto = Greedy(GreedyRequest(2, 40, 5));
  proto.set_logprobs(2);
  proto.set_prompt_logprobs(true);
  const Answer answer = Generate(proto);
  ASSERT_TRUE(answer.status.ok());
  ASSERT_EQ(answer.prompt_tokens.size(), 39u);
  for (const v1::Token& token : answer.prompt_tokens) {
    EXPECT_LE(token.logprob(), 0.0f);
    EXPECT_EQ(token.alternatives_size(), 2);
  }
  ASSERT_EQ(answer.tokens.size(), 5u);
  for (const v1::Token& token : answer.tokens) {
    ASSERT_EQ(token.alternatives_size(), 2);
    EXPECT_EQ(token.alternatives(0).id(), token.id());
    EXPECT_EQ(token.alternatives(0).logprob(), token.logprob());
  }
}

TEST_F(GenerationServiceTest, AnswersFollowTheirConstraint) {
  Start();
  for (const float temperature : {0.0f, 2.0f}) {
    v1::GenerateRequest proto;
    proto.set_text("the thin hat");
    proto.mutable_sampling()->set_temperature(temperature);
    proto.mutable_sampling()->set_seed(5);
    proto.mutable_constraint()->set_regex("(yes|no), [a-f]{3}");
    Answer answer = Generate(proto);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_THAT(answer.text, ::testing::MatchesRegex("(yes|no), [a-f][a-f][a-f]"));
    EXPECT_EQ(answer.last().finish_reason(), v1::FINISH_REASON_STOP);
    proto.mutable_constraint()->set_json_schema(R"({"enum": [12, "x", null]})");
    answer = Generate(proto);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_THAT(answer.text, ::testing::AnyOf("12", "\"x\"", "null"));
    proto.mutable_constraint()->mutable_choices()->add_texts("here");
    proto.mutable_constraint()->mutable_choices()->add_texts("there");
    EXPECT_THAT(Generate(proto).text, ::testing::AnyOf("here", "there"));
    proto.mutable_constraint()->set_gbnf("root ::= \"a\" [b-c]+ \"d\"");
    proto.mutable_limits()->set_max_tokens(200);
    answer = Generate(proto);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_THAT(answer.text, ::testing::MatchesRegex("a[bc]+d?"));
  }
}

TEST_F(GenerationServiceTest, ABadConstraintIsRefusedByItsPlace) {
  Start();
  v1::GenerateRequest proto;
  proto.set_text("the thin hat");
  proto.mutable_constraint();
  EXPECT_EQ(Generate(proto).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  proto.mutable_constraint()->set_json_schema(R"({"properties": {"a": {"not": {}}}})");
  const Answer answer = Generate(proto);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(answer.status.error_message(),
            "constraint.json_schema: schema: #/properties/a/not: is not supported");
}

// Over the limits of a compilation, and of following what was compiled.
TEST_F(GenerationServiceTest, ABombIsTheClientsFault) {
  Start();
  std::string doubling = "root ::= a0\n";
  for (int i = 0; i < 60; ++i) {
    doubling += absl::StrFormat("a%d ::= a%d a%d\n", i, i + 1, i + 1);
  }
  v1::GenerateRequest proto;
  proto.set_text("the thin hat");
  proto.mutable_constraint()->set_gbnf(doubling + "a60 ::= \"x\"\n");
  Answer answer = Generate(proto);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(answer.status.error_message(), ::testing::StartsWith("constraint.gbnf: grammar: "));
  proto.mutable_constraint()->set_regex(std::string(2 << 20, 'a'));
  answer = Generate(proto);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(answer.status.error_message(), ::testing::HasSubstr("2097152 bytes"));
}

TEST_F(GenerationServiceTest, ChatFollowsAConstraint) {
  Start();
  v1::ChatRequest request;
  v1::ChatMessage* message = request.add_messages();
  message->set_role("user");
  message->set_content("a hat");
  request.mutable_constraint()->set_lark("start: (\"to\" | \"be\") /[x-z]/");
  for (uint64_t seed = 0; seed < 5; ++seed) {
    request.mutable_sampling()->set_seed(seed);
    grpc::ClientContext context;
    auto reader = stub_->Chat(&context, request);
    v1::ChatResponse response;
    std::string text;
    while (reader->Read(&response)) text += response.text();
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_THAT(text, ::testing::MatchesRegex("(to|be)[xyz]"));
  }
}

TEST_F(GenerationServiceTest, AChatThatMustCallAnswersWithCallsAlone) {
  testing::FakeExecutorOptions fake;  // with room for a prompt that lists a tool
  fake.limits.context_len *= 8;
  fake.limits.max_table_len *= 8;
  for (uint32_t& blocks : fake.limits.num_blocks) blocks *= 8;
  Start(fake);
  v1::ChatRequest request;
  request.add_messages()->set_role("user");
  request.mutable_messages(0)->set_content("a hat");
  request.add_tools()->set_name("roll");
  request.mutable_tools(0)->set_parameters_json(
      R"({"properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"],
          "$defs": {"n": {"enum": [6, 20]}}})");
  request.set_tool_choice(v1::TOOL_CHOICE_REQUIRED);
  request.set_required_tool("roll");
  request.set_parallel_tool_calls(false);
  request.mutable_sampling()->set_temperature(2.0f);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    request.mutable_sampling()->set_seed(seed);
    grpc::ClientContext context;
    auto reader = stub_->Chat(&context, request);
    v1::ChatResponse response;
    std::string name, arguments;
    while (reader->Read(&response)) {
      EXPECT_EQ(response.text(), "");
      for (const v1::ToolCallDelta& delta : response.tool_calls()) {
        name += delta.name();
        arguments += delta.arguments_json();
      }
    }
    const grpc::Status status = reader->Finish();
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.finish_reason(), v1::FINISH_REASON_TOOL_CALLS);
    EXPECT_EQ(name, "roll");
    EXPECT_THAT(arguments, ::testing::AnyOf("{\"n\": 6}", "{\"n\": 20}"));
  }
  request.mutable_tools(0)->set_parameters_json(R"({"properties": {"n": {"not": {}}}})");
  grpc::ClientContext context;
  auto reader = stub_->Chat(&context, request);
  v1::ChatResponse response;
  EXPECT_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "tools[0].parameters_json: #/properties/n/not: is not supported");
}

TEST_F(GenerationServiceTest, ChatRendersTheConversation) {
  Start();
  v1::ChatRequest request;
  v1::ChatMessage* message = request.add_messages();
  message->set_role("user");
  message->set_content("in the hat");
  request.mutable_limits()->set_max_tokens(8);
  request.mutable_sampling()->set_temperature(0.0f);
  grpc::ClientContext context;
  auto reader = stub_->Chat(&context, request);
  v1::ChatResponse response;
  uint32_t prompt_tokens = 0;
  int num_messages = 0;
  while (reader->Read(&response)) {
    EXPECT_EQ(response.placement(), num_messages++ == 0 ? "everything on toy0" : "");
    prompt_tokens = response.usage().prompt_tokens();
  }
  EXPECT_TRUE(reader->Finish().ok());
  const auto rendered = RenderChat(ToyTokenizer(), testing::kToyBos, {{"user", "in the hat"}});
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(prompt_tokens, rendered->size());
}

TEST_F(GenerationServiceTest, TokenizesAndDetokenizes) {
  Start();
  v1::TokenizeRequest tokenize;
  tokenize.set_text("the h\u00e9 <bos>");
  tokenize.set_add_bos(true);
  v1::TokenizeResponse tokens;
  grpc::ClientContext first;
  ASSERT_TRUE(stub_->Tokenize(&first, tokenize, &tokens).ok());
  EXPECT_EQ(tokens.ids(0), testing::kToyBos);
  EXPECT_EQ(std::count(tokens.ids().begin(), tokens.ids().end(), testing::kToyBos), 1);
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_ids() = tokens.ids();
  v1::DetokenizeResponse text;
  grpc::ClientContext second;
  ASSERT_TRUE(stub_->Detokenize(&second, detokenize, &text).ok());
  EXPECT_EQ(text.text(), tokenize.text());
  detokenize.add_ids(77777);
  grpc::ClientContext third;
  EXPECT_EQ(stub_->Detokenize(&third, detokenize, &text).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GenerationServiceTest, ListsTheModelAndTellsItsStatus) {
  Start();
  v1::ListModelsResponse models;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->ListModels(&context, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_EQ(models.models(0).name(), "toy");
  EXPECT_EQ(models.models(0).context_len(), 256u);
  Generate(Greedy(GreedyRequest(1, 20, 30)));
  const v1::GetStatusResponse status = Status();
  EXPECT_EQ(status.state(), "ready");
  EXPECT_EQ(status.version(), "test");
  EXPECT_EQ(status.workers(0).name(), "toy0");
  EXPECT_EQ(status.scheduler().prompt_tokens(), 20u);
  EXPECT_EQ(status.scheduler().completion_tokens(), 30u);
  EXPECT_EQ(status.scheduler().steps(), 31u);
  EXPECT_GT(status.scheduler().step_bytes(), 31u * sizeof(StepHeader));
}

TEST_F(GenerationServiceTest, MetadataNameTheRequestAndItsSpan) {
  Start();
  v1::GenerateRequest proto = Greedy(GreedyRequest(1, 20, 3));
  proto.set_request_id("mine");
  const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-";
  grpc::ClientContext context;
  context.AddMetadata("traceparent", trace + "00f067aa0ba902b7-01");
  auto reader = stub_->Generate(&context, proto);
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
  }
  ASSERT_TRUE(reader->Finish().ok());
  const auto& metadata = context.GetServerInitialMetadata();
  ASSERT_EQ(metadata.count("traceparent"), 1u);
  ASSERT_EQ(metadata.count("x-request-id"), 1u);
  EXPECT_EQ(metadata.find("x-request-id")->second, "mine");
  const grpc::string_ref span = metadata.find("traceparent")->second;
  EXPECT_TRUE(span.starts_with(trace));
  EXPECT_NE(span, trace + "00f067aa0ba902b7-01");
}

TEST_F(GenerationServiceTest, TracesThatAreNotKeptCannotBeAskedFor) {
  Start();
  grpc::ClientContext context;
  v1::GetTraceResponse trace;
  EXPECT_EQ(stub_->GetTrace(&context, {}, &trace).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(GenerationServiceTest, BeforeTheModelIsUpRequestsAreUnavailable) {
  Start();
  auto blocked = std::make_unique<Launcher>(
      [](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
        return absl::UnavailableError("loader does not answer");
      },
      EngineOptions());
  GenerationService service(*blocked, {.version = "test"});
  const std::string target = "unix:" + path_.string() + ".2";
  auto server =
      Server::Start({.listen = {target}}, {{v1::Generation::service_full_name(), &service}});
  ASSERT_TRUE(server.ok()) << server.status();
  auto stub = v1::Generation::NewStub(CreateChannel(target));
  grpc::ClientContext context;
  v1::GenerateRequest request;
  request.set_text("a");
  auto reader = stub->Generate(&context, request);
  v1::GenerateResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext status_context;
  v1::GetStatusResponse status;
  EXPECT_TRUE(stub->GetStatus(&status_context, {}, &status).ok());
  EXPECT_EQ(status.state(), "starting");
  (*server)->Shutdown(absl::Seconds(1));
}

}  // namespace
}  // namespace tandem::gateway

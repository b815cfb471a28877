#include "services/gateway/service/generation_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <thread>

#include "services/common/rpc/channel.h"
#include "services/common/rpc/server.h"
#include "services/gateway/engine/testing/engine_harness.h"
#include "services/gateway/tokenizer/chat_template.h"

namespace tandem::gateway {
namespace {

using testing::ExpectedTokens;
using testing::FakeExecutor;
using testing::FakeExecutorOptions;
using testing::Gate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ToyLimits;
using testing::ToyTokenizer;

// A server on a unix socket with the toy model behind it.
class GenerationServiceTest : public ::testing::Test {
 protected:
  void Start(FakeExecutorOptions fake = {},
             EngineOptions options = {.max_sequences = 8,
                                      .max_rows = 64,
                                      .chunk_rows = 16,
                                      .max_waiting = 20},
             uint32_t max_unread_tokens = 4096) {
    launcher_ = std::make_unique<Launcher>(
        [fake](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
          return std::make_unique<FakeExecutor>(fake);
        },
        options);
    service_ = std::make_unique<GenerationService>(
        *launcher_,
        GenerationServiceOptions{.version = "test", .max_unread_tokens = max_unread_tokens});
    path_ = std::filesystem::temp_directory_path() /
            ("tandem_service_test_" + std::to_string(::getpid()) + ".sock");
    auto server = Server::Start({.listen = {"unix:" + path_.string()}},
                                {{v1::Generation::service_full_name(), service_.get()}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::Generation::NewStub(CreateChannel(server_->targets()[0]));
    auto ready = std::make_shared<Gate>();
    launcher_->Begin([ready](bool) { ready->Open(); });
    ready->Wait();
  }

  void TearDown() override {
    launcher_->EndRequests();
    server_->Shutdown(absl::Seconds(1));
    server_.reset();
  }

  struct Answer {
    grpc::Status status;
    std::string text;
    std::vector<v1::Token> tokens;
    std::vector<v1::Token> prompt_tokens;
    std::vector<v1::GenerateResponse> messages;

    const v1::GenerateResponse& last() const { return messages.back(); }
    std::vector<uint32_t> ids() const {
      std::vector<uint32_t> ids;
      for (const v1::Token& token : tokens) ids.push_back(token.id());
      return ids;
    }
  };

  Answer Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto reader = stub_->Generate(&context, request);
    Answer answer;
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
      answer.text += message.text();
      answer.tokens.insert(answer.tokens.end(), message.tokens().begin(), message.tokens().end());
      answer.prompt_tokens.insert(answer.prompt_tokens.end(), message.prompt_tokens().begin(),
                                  message.prompt_tokens().end());
      answer.messages.push_back(message);
    }
    answer.status = reader->Finish();
    return answer;
  }

  v1::GetStatusResponse Status() {
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    EXPECT_TRUE(stub_->GetStatus(&context, {}, &response).ok());
    return response;
  }

  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<GenerationService> service_;
  std::filesystem::path path_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

v1::GenerateRequest Greedy(const EngineRequest& request) {
  v1::GenerateRequest proto;
  proto.mutable_tokens()->mutable_ids()->Assign(request.prompt.begin(), request.prompt.end());
  proto.mutable_sampling()->set_temperature(0.0f);
  proto.mutable_limits()->set_max_tokens(request.max_tokens);
  proto.mutable_limits()->set_ignore_eos(true);
  return proto;
}

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

TEST_F(GenerationServiceTest, NamesEveryParameterThatIsOutOfRange) {
  Start();
  using Fault = std::function<void(v1::GenerateRequest&)>;
  const float nan = std::nanf("");
  const std::vector<std::pair<std::string, Fault>> faults = {
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
      {"logprobs", [](auto& r) { r.set_logprobs(21); }},
      {"request_id", [](auto& r) { r.set_request_id(std::string(129, 'x')); }},
      {"request_id", [](auto& r) { r.set_request_id("a\nb"); }},
      {"tokens[1]",
       [](auto& r) {
         r.mutable_tokens()->add_ids(1);
         r.mutable_tokens()->add_ids(5000);
       }},
      {"prompt", [](auto& r) { r.clear_prompt(); }},
      {"prompt", [](auto& r) { r.mutable_tokens(); }},
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    v1::GenerateRequest request;
    request.set_text("the hat");
    faults[i].second(request);
    const Answer answer = Generate(request);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << "fault " << i;
    EXPECT_THAT(answer.status.error_message(), HasSubstr(faults[i].first)) << "fault " << i;
  }
}

TEST_F(GenerationServiceTest, APromptLongerThanTheContextIsRefusedWithBothNumbers) {
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

TEST_F(GenerationServiceTest, TextThatIsNotUtf8IsRefused) {
  Start();
  v1::GenerateRequest request;
  request.set_text("ab\xFFgh");
  EXPECT_FALSE(Generate(request).status.ok());
  EXPECT_EQ(Status().state(), "ready");
}

TEST_F(GenerationServiceTest, AnotherModelIsNotFound) {
  Start();
  v1::GenerateRequest request;
  request.set_text("a");
  request.set_model("other");
  EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::NOT_FOUND);
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

TEST_F(GenerationServiceTest, AClientThatGoesAwayFreesItsPlace) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(1));
    return absl::OkStatus();
  };
  Start(fake);
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Greedy(GreedyRequest(1, 20, kNoTokenLimit)));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  context.TryCancel();
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  const absl::Time patience = absl::Now() + absl::Seconds(30);
  while (Status().scheduler().running() > 0) ASSERT_LT(absl::Now(), patience);
  EXPECT_EQ(Status().scheduler().kv_blocks_used(0), 0u);
}

TEST_F(GenerationServiceTest, ADeadlineEndsTheCallAndFreesItsPlace) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(5));
    return absl::OkStatus();
  };
  Start(fake);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  auto reader = stub_->Generate(&context, Greedy(GreedyRequest(1, 20, kNoTokenLimit)));
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  const absl::Time patience = absl::Now() + absl::Seconds(30);
  while (Status().scheduler().running() > 0) ASSERT_LT(absl::Now(), patience);
}

TEST_F(GenerationServiceTest, AFullQueueIsResourceExhausted) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch&) {
    go->Wait();
    return absl::OkStatus();
  };
  Start(fake, {.max_sequences = 1, .max_waiting = 1});
  std::vector<std::thread> clients;
  std::atomic<int> served = 0;
  for (uint32_t i = 0; i < 2; ++i) {
    clients.emplace_back([&, i] {
      if (Generate(Greedy(GreedyRequest(i, 5, 3))).status.ok()) ++served;
    });
  }
  while (Status().scheduler().running() + Status().scheduler().waiting() < 2) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  const grpc::Status refused = Generate(Greedy(GreedyRequest(9, 5, 3))).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("queue"));
  go->Open();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(served.load(), 2);
}

TEST_F(GenerationServiceTest, AReaderThatStandsStillDoesNotHoldUpOthers) {
  FakeExecutorOptions fake;
  fake.limits.context_len = 1 << 16;
  fake.limits.num_blocks[kGlobalGroup] = 1 << 14;
  fake.limits.max_table_len = 1 << 17;
  Start(fake, {.max_sequences = 8, .max_rows = 64, .chunk_rows = 64}, /*max_unread_tokens=*/256);
  grpc::ClientContext still_context;
  v1::GenerateRequest endless = Greedy(GreedyRequest(1, 20, kNoTokenLimit));
  endless.set_logprobs(20);  // large messages fill the connection's window soon
  auto still = stub_->Generate(&still_context, endless);
  const EngineRequest request = GreedyRequest(2, 20, 50);
  const Answer answer = Generate(Greedy(request));
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.ids(), ExpectedTokens(request, fake.limits));
  const absl::Time patience = absl::Now() + absl::Seconds(60);
  while (Status().scheduler().running() > 0) {
    ASSERT_LT(absl::Now(), patience);
    absl::SleepFor(absl::Milliseconds(5));
  }
  v1::GenerateResponse message;
  while (still->Read(&message)) {
  }
  EXPECT_EQ(still->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GenerationServiceTest, AnErrorInMidStreamComesAfterTheTextBeforeIt) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch& step) {
    return step.header.step_id > 10 ? absl::InternalError("segment 2: refused") : absl::OkStatus();
  };
  Start(fake);
  const Answer answer = Generate(Greedy(GreedyRequest(1, 5, 50)));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(answer.tokens.size(), 10u);
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

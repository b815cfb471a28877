// Embed: its answers, its errors, and requests of many inputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/gateway/engine/testing/unfinished.h"
#include "services/gateway/grpc/testing/service_fixture.h"
#include "services/gateway/model/request_parser.h"

namespace tandem::gateway {
namespace {

using testing::EmbeddingRequest;
using testing::ExpectedEmbedding;
using testing::FakeExecutorOptions;
using testing::Gate;
using testing::Greedy;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::ToyLimits;
using testing::ToyTokenizer;
using testing::Unfinished;

class EmbedTest : public testing::ServiceFixture {
 protected:
  grpc::Status Embed(const v1::EmbedRequest& request, v1::EmbedResponse& response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return stub_->Embed(&context, request, &response);
  }
  static void AddTokens(const EngineRequest& input, v1::EmbedRequest& request) {
    request.add_inputs()->mutable_tokens()->mutable_ids()->Assign(input.prompt.begin(),
                                                                  input.prompt.end());
  }
  static std::vector<float> Values(const v1::Embedding& embedding) {
    return {embedding.values().begin(), embedding.values().end()};
  }
  void WaitUntilIdle() {
    const absl::Time patience = absl::Now() + absl::Seconds(30);
    while (Unfinished(Status().scheduler()) > 0) {
      ASSERT_LT(absl::Now(), patience);
    }
    EXPECT_EQ(Status().scheduler().kv_blocks_used(0), 0u);
  }
};

TEST_F(EmbedTest, TextsAndTokensAreEmbeddedInOrder) {
  Start({.watts = 40.0});
  v1::EmbedRequest request;
  request.set_request_id("mine");
  request.add_inputs()->set_text("the thin hat");
  const EngineRequest tokens = EmbeddingRequest(1, 50);
  AddTokens(tokens, request);
  v1::EmbedResponse response;
  const grpc::Status status = Embed(request, response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.embeddings_size(), 2);
  EngineRequest text;
  text.prompt = ToyTokenizer().Encode("the thin hat").value();
  text.prompt.insert(text.prompt.begin(), testing::kToyBos);
  EXPECT_EQ(Values(response.embeddings(0)), ExpectedEmbedding(text, ToyLimits()));
  EXPECT_EQ(Values(response.embeddings(1)), ExpectedEmbedding(tokens, ToyLimits()));
  EXPECT_EQ(response.request_id(), "mine");
  EXPECT_EQ(response.placement(), "everything on toy0");
  EXPECT_EQ(response.usage().prompt_tokens(), text.prompt.size() + 50);
  EXPECT_EQ(response.usage().completion_tokens(), 0u);
  EXPECT_GE(response.usage().total_seconds(), response.usage().queue_seconds());
  ASSERT_EQ(response.usage().device_times_size(), 1);
  EXPECT_GT(response.usage().device_times(0).seconds(), 0);
  EXPECT_NEAR(response.usage().device_times(0).joules(),
              40.0 * response.usage().device_times(0).seconds(), 1e-12);
}

TEST_F(EmbedTest, MoreInputsThanTheQueueHoldsBesideOthers) {
  Start({}, {.max_sequences = 2, .max_rows = 64, .chunk_rows = 16, .max_waiting = 4});
  v1::EmbedRequest request;
  for (uint32_t i = 0; i < 50; ++i) AddTokens(EmbeddingRequest(i, 1 + i), request);
  v1::EmbedResponse response;
  const grpc::Status status = Embed(request, response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.embeddings_size(), 50);
  for (uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(Values(response.embeddings(static_cast<int>(i))),
              ExpectedEmbedding(EmbeddingRequest(i, 1 + i), ToyLimits()))
        << i;
  }
  EXPECT_EQ(response.usage().prompt_tokens(), 50u * 51 / 2);
}

TEST_F(EmbedTest, WhatIsWrongIsNamedWithItsInput) {
  Start();
  const auto refuse = [this](const std::function<void(v1::EmbedRequest&)>& set) {
    v1::EmbedRequest request;
    request.add_inputs()->set_text("hat");
    set(request);
    v1::EmbedResponse response;
    const grpc::Status status = Embed(request, response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(response.embeddings_size(), 0);
    return status.error_message();
  };
  EXPECT_THAT(refuse([](auto& request) { request.clear_inputs(); }), HasSubstr("inputs: 0 of"));
  EXPECT_THAT(refuse([](auto& request) {
                for (int i = 0; i < kMaxEmbedInputs; ++i) request.add_inputs()->set_text("a");
              }),
              HasSubstr("inputs: 2049 of"));
  EXPECT_THAT(refuse([](auto& request) { request.add_inputs()->set_text(""); }),
              HasSubstr("inputs[1].text: is empty"));
  EXPECT_THAT(refuse([](auto& request) { request.add_inputs(); }),
              HasSubstr("inputs[1].prompt: neither"));
  EXPECT_THAT(refuse([](auto& request) { request.add_inputs()->mutable_tokens()->add_ids(9999); }),
              HasSubstr("inputs[1].tokens[0]: 9999"));
  EXPECT_THAT(refuse([](auto& request) { AddTokens(EmbeddingRequest(1, 256), request); }),
              HasSubstr("context_length_exceeded: the prompt has 256 tokens"));
  v1::EmbedRequest request;
  request.set_model("other");
  v1::EmbedResponse response;
  EXPECT_EQ(Embed(request, response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(EmbedTest, OneInputThatFailsFailsTheCallAndFreesTheOthers) {
  Start();
  v1::EmbedRequest request;
  for (uint32_t i = 0; i < 20; ++i) AddTokens(EmbeddingRequest(i, 100), request);
  request.mutable_inputs(5)->mutable_tokens()->set_ids(7, testing::kToyPoison);
  v1::EmbedResponse response;
  EXPECT_EQ(Embed(request, response).error_code(), grpc::StatusCode::DATA_LOSS);
  WaitUntilIdle();
}

TEST_F(EmbedTest, AClientThatGoesAwayOrIsOutOfTimeFreesItsPlaces) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch&) {
    go->Wait();
    return absl::OkStatus();
  };
  Start(fake);
  v1::EmbedRequest request;
  for (uint32_t i = 0; i < 30; ++i) AddTokens(EmbeddingRequest(i, 100), request);
  v1::EmbedResponse response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(stub_->Embed(&context, request, &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  go->Open();
  WaitUntilIdle();
}

TEST_F(EmbedTest, AFullQueueRefusesTheWholeRequest) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch&) {
    go->Wait();
    return absl::OkStatus();
  };
  Start(fake, {.max_sequences = 1, .max_rows = 64, .chunk_rows = 16, .max_waiting = 0});
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Greedy(GreedyRequest(1, 20, 5)));
  while (Unfinished(Status().scheduler()) == 0) {
  }
  v1::EmbedRequest request;
  AddTokens(EmbeddingRequest(1, 10), request);
  v1::EmbedResponse response;
  EXPECT_EQ(Embed(request, response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  go->Open();
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

}  // namespace
}  // namespace tandem::gateway

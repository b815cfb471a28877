#include "services/gateway/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "services/gateway/engine/testing/engine_harness.h"

namespace tandem::gateway {
namespace {

using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::Gate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::MakeEngine;
using testing::StreamReader;
using testing::ToyLimits;
using testing::ToyTokenizer;

TEST(EngineTest, AnswersWithTheModelsTokensAndTheirText) {
  auto engine = MakeEngine();
  const EngineRequest request = GreedyRequest(1, 40, 30);
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  const StreamEnd& end = reader.ReadToEnd();
  EXPECT_TRUE(end.status.ok()) << end.status;
  EXPECT_EQ(end.reason, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(reader.tokens(), ExpectedTokens(request, ToyLimits()));
  EXPECT_EQ(reader.text, ToyTokenizer().Decode(reader.tokens()));
  EXPECT_EQ(end.usage.prompt_tokens(), 40u);
  EXPECT_EQ(end.usage.completion_tokens(), 30u);
  EXPECT_GE(end.usage.total_seconds(), end.usage.first_token_seconds());
  EXPECT_GE(end.usage.first_token_seconds(), end.usage.queue_seconds());
  ASSERT_EQ(end.usage.device_times_size(), 1);
  EXPECT_EQ(end.usage.device_times(0).worker(), "toy0");
  EXPECT_NEAR(end.usage.device_times(0).seconds(), 32e-6, 1e-9);  // 3 chunks and 29 tokens
  EXPECT_EQ(end.usage.device_times(0).joules(), 0.0) << "its power is not readable";
}

TEST(EngineTest, RequestsShareTheEnergyOfTheirStepsByRows) {
  auto engine = MakeEngine({.watts = 50.0});
  std::vector<StreamReader> readers(4);
  for (uint32_t i = 0; i < readers.size(); ++i) {
    ASSERT_TRUE(engine->Submit(GreedyRequest(i, 40, 30), readers[i].stream()).ok());
  }
  for (StreamReader& reader : readers) {
    const StreamEnd& end = reader.ReadToEnd();
    ASSERT_EQ(end.usage.device_times_size(), 1);
    const v1::DeviceTime& time = end.usage.device_times(0);
    EXPECT_GT(time.seconds(), 0.0);
    EXPECT_NEAR(time.joules(), 50.0 * time.seconds(), 1e-12);
  }
}

TEST(EngineTest, NeighboursDoNotChangeAnAnswer) {
  auto engine = MakeEngine();
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (uint32_t i = 0; i < 16; ++i) {
    EngineRequest request = GreedyRequest(i, 1 + 11 * i, 20 + i);
    if (i % 2 == 1) request.sampling = {.temperature = 1.0f, .seed = i};
    readers.push_back(std::make_unique<StreamReader>());
    ASSERT_TRUE(engine->Submit(request, readers.back()->stream()).ok());
  }
  for (uint32_t i = 0; i < 16; ++i) {
    EngineRequest request = GreedyRequest(i, 1 + 11 * i, 20 + i);
    if (i % 2 == 1) request.sampling = {.temperature = 1.0f, .seed = i};
    EXPECT_TRUE(readers[i]->ReadToEnd().status.ok());
    EXPECT_EQ(readers[i]->tokens(), ExpectedTokens(request, ToyLimits())) << "request " << i;
  }
}

TEST(EngineTest, StopsAtAStopTokenUnlessToldToIgnoreIt) {
  auto engine = MakeEngine();
  // A request whose answer meets a stop token before the context ends.
  for (uint32_t seed = 0;; ++seed) {
    ASSERT_LT(seed, 100u);
    EngineRequest request = GreedyRequest(seed, 5, kNoTokenLimit);
    request.ignore_eos = false;
    const std::vector<uint32_t> expected = ExpectedTokens(request, ToyLimits());
    if (request.prompt.size() + expected.size() >= ToyLimits().context_len) continue;
    StreamReader reader;
    ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
    EXPECT_EQ(reader.ReadToEnd().reason, v1::FINISH_REASON_STOP);
    EXPECT_EQ(reader.tokens(), expected);
    return;
  }
}

TEST(EngineTest, EndsWhereTheContextEnds) {
  auto engine = MakeEngine();
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(GreedyRequest(3, 250, kNoTokenLimit), reader.stream()).ok());
  EXPECT_EQ(reader.ReadToEnd().reason, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(reader.tokens().size(), 6u);
  StreamReader too_long;
  const absl::Status status = engine->Submit(GreedyRequest(3, 256, 1), too_long.stream());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("context_length_exceeded"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("256"));
}

TEST(EngineTest, EndsBeforeAStopString) {
  auto engine = MakeEngine();
  EngineRequest request = GreedyRequest(4, 10, 60);
  StreamReader plain;
  ASSERT_TRUE(engine->Submit(request, plain.stream()).ok());
  plain.ReadToEnd();
  const size_t middle = plain.text.find_first_of("abcdefghijklmnopqrstuvwxyz", 10);
  ASSERT_NE(middle, std::string::npos);
  request.stops = {plain.text.substr(middle, 1)};
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  EXPECT_EQ(reader.ReadToEnd().reason, v1::FINISH_REASON_STOP);
  EXPECT_EQ(reader.text, plain.text.substr(0, plain.text.find(request.stops[0])));
}

TEST(EngineTest, ReportsLogProbabilitiesAndAlternatives) {
  auto engine = MakeEngine();
  EngineRequest request = GreedyRequest(5, 45, 4);
  request.num_alternatives = 3;
  request.prompt_logprobs = true;
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  ASSERT_TRUE(reader.ReadToEnd().status.ok());
  ASSERT_EQ(reader.prompt.size(), 44u);
  std::vector<uint32_t> tokens = request.prompt;
  for (const Decision& decision : reader.decisions) tokens.push_back(decision.token);
  for (size_t i = 1; i < tokens.size(); ++i) {
    const Decision& decision = i < 45 ? reader.prompt[i - 1] : reader.decisions[i - 45];
    const std::span<const uint32_t> before(tokens.data(), i);
    const OutputResult expected =
        testing::ToyHead(testing::ToyLogitsAfter(before, ToyLimits()), 3, tokens[i]);
    EXPECT_EQ(decision.token, tokens[i]);
    EXPECT_NEAR(decision.logprob, expected.target_logit - expected.log_sum_exp, 1e-5);
    ASSERT_EQ(decision.alternatives.size(), 3u) << i;
    EXPECT_EQ(decision.alternatives[0].token, expected.candidates[0].token);
  }
}

TEST(EngineTest, NoTokensWantedComputesThePromptAlone) {
  auto engine = MakeEngine();
  EngineRequest request = GreedyRequest(6, 30, 0);
  request.prompt_logprobs = true;
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  EXPECT_EQ(reader.ReadToEnd().reason, v1::FINISH_REASON_LENGTH);
  EXPECT_TRUE(reader.tokens().empty());
  EXPECT_EQ(reader.prompt.size(), 29u);
}

TEST(EngineTest, AsksForEveryLogitOnlyWhenASamplerNeedsThem) {
  std::atomic<int> with_logits = 0;
  FakeExecutorOptions fake;
  fake.on_step = [&](const StepBatch& step) {
    if (step.header.want_logits != 0) ++with_logits;
    return absl::OkStatus();
  };
  auto engine = MakeEngine(fake);
  StreamReader greedy;
  ASSERT_TRUE(engine->Submit(GreedyRequest(7, 5, 10), greedy.stream()).ok());
  greedy.ReadToEnd();
  EXPECT_EQ(with_logits.load(), 0);
  EngineRequest request = GreedyRequest(7, 5, 10);
  request.sampling = {.temperature = 1.5f, .top_k = 0, .top_p = 1.0f, .seed = 11};
  StreamReader all;
  ASSERT_TRUE(engine->Submit(request, all.stream()).ok());
  EXPECT_TRUE(all.ReadToEnd().status.ok());
  EXPECT_EQ(all.tokens(), ExpectedTokens(request, ToyLimits()));
  EXPECT_EQ(with_logits.load(), 10);
}

TEST(EngineTest, AFullQueueRefusesAndAnEndMakesRoom) {
  Gate go;
  FakeExecutorOptions fake;
  fake.on_step = [&](const StepBatch&) {
    go.Wait();
    return absl::OkStatus();
  };
  auto engine = MakeEngine(fake, {.max_sequences = 2, .max_waiting = 3});
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (uint32_t i = 0; i < 5; ++i) {
    readers.push_back(std::make_unique<StreamReader>());
    ASSERT_TRUE(engine->Submit(GreedyRequest(i, 4, 3), readers.back()->stream()).ok());
  }
  StreamReader refused;
  EXPECT_EQ(engine->Submit(GreedyRequest(9, 4, 3), refused.stream()).code(),
            absl::StatusCode::kResourceExhausted);
  go.Open();
  for (auto& reader : readers) EXPECT_TRUE(reader->ReadToEnd().status.ok());
  StreamReader later;
  ASSERT_TRUE(engine->Submit(GreedyRequest(9, 4, 3), later.stream()).ok());
  EXPECT_TRUE(later.ReadToEnd().status.ok());
}

TEST(EngineTest, ACancelledRequestIsGoneWithinAStep) {
  auto engine = MakeEngine();
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 5, kNoTokenLimit), reader.stream()).ok());
  reader.Read();
  reader.stream()->Cancel();
  const absl::Status status = reader.ReadToEnd().status;
  // It may have reached the context's end before the engine looked.
  EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  v1::GetStatusResponse gateway;
  engine->FillStatus(gateway);
  EXPECT_EQ(gateway.scheduler().running(), 0u);
  EXPECT_EQ(gateway.scheduler().kv_blocks_used(0), 0u);
  EXPECT_EQ(gateway.state(), "ready");
}

TEST(EngineTest, AReaderThatNeverReadsIsGivenUp) {
  auto engine = MakeEngine();
  StreamReader reader(/*max_unread_tokens=*/7);
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 5, 100), reader.stream()).ok());
  engine->Drain(absl::Seconds(60));
  const StreamEnd& end = reader.ReadToEnd();
  EXPECT_EQ(end.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(reader.tokens().size(), 7u);
}

TEST(EngineTest, ADeadlineThatPassesEndsTheRequest) {
  auto engine = MakeEngine();
  EngineRequest request = GreedyRequest(1, 5, 100);
  request.deadline = absl::Now() - absl::Seconds(1);
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  EXPECT_EQ(reader.ReadToEnd().status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(EngineTest, DrainingFinishesWhatRunsAndRefusesWhatComes) {
  auto engine = MakeEngine();
  StreamReader reader;
  const EngineRequest request = GreedyRequest(1, 5, 50);
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  engine->Drain(absl::Seconds(60));
  StreamReader late;
  EXPECT_EQ(engine->Submit(request, late.stream()).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(reader.tokens().size(), 50u);
}

TEST(EngineTest, DestructionEndsEveryStream) {
  StreamReader reader;
  {
    FakeExecutorOptions fake;
    fake.limits.context_len = 1 << 20;
    fake.limits.max_table_len = 1 << 20;
    fake.limits.num_blocks[kGlobalGroup] = 1 << 17;
    auto engine = MakeEngine(fake);
    ASSERT_TRUE(engine->Submit(GreedyRequest(1, 5, kNoTokenLimit), reader.stream()).ok());
    reader.Read();
  }
  EXPECT_EQ(reader.ReadToEnd().status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem::gateway

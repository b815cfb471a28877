// Steps queued behind the one that runs, their rows fed with guesses.
#include <gtest/gtest.h>

#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/engine_harness.h"

namespace tandem::gateway {
namespace {

using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using testing::MakeEngine;
using testing::StreamReader;
using testing::ToyLimits;

v1::SchedulerStatus SchedulerOf(const Engine& engine) {
  v1::GetStatusResponse status;
  engine.FillStatus(status);
  return status.scheduler();
}

TEST(EngineQueueTest, EveryTokenAfterTheFirstIsFedAndNoStepIsWasted) {
  auto engine = MakeEngine();
  const EngineRequest request = GreedyRequest(1, 10, 30);
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  ASSERT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(reader.tokens(), ExpectedTokens(request, ToyLimits()));
  const v1::SchedulerStatus status = SchedulerOf(*engine);
  EXPECT_EQ(status.steps(), 30u) << "the end by max_tokens is known beforehand";
  EXPECT_EQ(status.steps_queued(), 29u);
  EXPECT_EQ(status.rows_fed(), 29u);
  EXPECT_EQ(status.wrong_guesses(), 0u);
}

TEST(EngineQueueTest, WrongGuessesChangeNoToken) {
  FakeExecutorOptions fake;
  fake.wrong_guess_in = 2;
  auto engine = MakeEngine(fake);
  std::vector<std::unique_ptr<StreamReader>> readers;
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 24; ++i) {
    EngineRequest& request = requests.emplace_back(GreedyRequest(i, 1 + 9 * (i % 12), 30));
    request.ignore_eos = i % 3 != 0;
    if (i % 2 == 1) request.sampling = {.temperature = 0.9f, .min_p = 0.01f, .seed = i};
    if (i % 4 == 2) request.sampling.repetition_penalty = 1.3f;
    request.prompt_logprobs = i % 5 == 0;
    readers.push_back(std::make_unique<StreamReader>());
    ASSERT_TRUE(engine->Submit(request, readers.back()->stream()).ok());
  }
  for (uint32_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(readers[i]->ReadToEnd().status.ok());
    EXPECT_EQ(readers[i]->tokens(), ExpectedTokens(requests[i], ToyLimits())) << i;
    if (requests[i].prompt_logprobs) {
      EXPECT_EQ(readers[i]->prompt.size(), requests[i].prompt.size() - 1) << i;
    }
  }
  EXPECT_GT(SchedulerOf(*engine).wrong_guesses(), 3u);
}

TEST(EngineQueueTest, WhatTheDeviceCannotGuessIsWaitedFor) {
  auto engine = MakeEngine();
  EngineRequest request = GreedyRequest(3, 8, 20);
  request.sampling.repetition_penalty = 1.2f;
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  ASSERT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(reader.tokens(), ExpectedTokens(request, ToyLimits()));
  EXPECT_EQ(SchedulerOf(*engine).steps(), 20u);
  EXPECT_EQ(SchedulerOf(*engine).rows_fed(), 0u);
}

TEST(EngineQueueTest, APromptsNextChunkIsQueuedBehindTheOneThatRuns) {
  auto engine = MakeEngine();  // chunks of 16
  const EngineRequest request = GreedyRequest(4, 100, 1);
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  ASSERT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(reader.tokens(), ExpectedTokens(request, ToyLimits()));
  EXPECT_EQ(SchedulerOf(*engine).steps(), 7u);
  EXPECT_EQ(SchedulerOf(*engine).steps_queued(), 6u);
  EXPECT_EQ(SchedulerOf(*engine).rows_fed(), 0u);
}

// Whoever asks while a step runs is in the step that begins next, although steps are queued.
TEST(EngineQueueTest, ARequestThatComesWhileAStepRunsIsInTheNextOne) {
  Engine* engine = nullptr;
  const EngineRequest newcomer = GreedyRequest(2, 5, 1);
  StreamReader first, second;
  std::vector<uint32_t> rows;  // of each step that ran
  size_t ran_before = 0;       // steps that had ended when the newcomer came
  FakeExecutorOptions fake;
  fake.on_step = [&](const StepBatch& step) {
    rows.push_back(step.header.num_rows);
    return absl::OkStatus();
  };
  fake.until_due = [&] {  // a step runs, and it is time to choose the next
    if (rows.size() != 5 || ran_before != 0) return;
    ran_before = rows.size();
    TANDEM_CHECK(engine->Submit(newcomer, second.stream()).ok());
  };
  auto owned = MakeEngine(fake);
  engine = owned.get();
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 10, 30), first.stream()).ok());
  ASSERT_TRUE(first.ReadToEnd().status.ok());
  ASSERT_TRUE(second.ReadToEnd().status.ok());
  EXPECT_EQ(second.tokens(), ExpectedTokens(newcomer, ToyLimits()));
  owned.reset();  // the engine's thread has ended
  ASSERT_EQ(ran_before, 5u);
  EXPECT_EQ(rows[5], 1u) << "the step that runs when the newcomer comes";
  EXPECT_EQ(rows[6], 6u) << "the next one: the newcomer's prompt beside a decode row";
}

TEST(EngineQueueTest, NoLoneStepAnnouncesAnother) {
  int flushes = 0;
  FakeExecutorOptions fake;
  fake.on_flush = [&flushes] { ++flushes; };
  auto engine = MakeEngine(fake);
  std::vector<EngineRequest> requests = {GreedyRequest(1, 10, 30), GreedyRequest(2, 8, 20),
                                         GreedyRequest(3, 100, 1),
                                         testing::EmbeddingRequest(4, 100)};
  requests[1].sampling.repetition_penalty = 1.2f;  // every token is waited for
  for (const EngineRequest& request : requests) {
    StreamReader reader;
    ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
    ASSERT_TRUE(reader.ReadToEnd().status.ok());
  }
  engine.reset();
  EXPECT_EQ(flushes, 0);
}

}  // namespace
}  // namespace tandem::gateway

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/engine_harness.h"

namespace tandem::gateway {
namespace {

using testing::EmbeddingRequest;
using testing::ExpectedEmbedding;
using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::MakeEngine;
using testing::StreamReader;
using testing::ToyLimits;

// The toy model's hidden states are whole numbers: sums are exact whatever the chunks.
TEST(EngineEmbeddingTest, IsTheUnitMeanOfThePromptWhateverTheChunksAndNeighbours) {
  for (const uint32_t chunk_rows : {1u, 7u, 64u}) {
    for (const bool queue_steps : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "chunk " << chunk_rows << " queued " << queue_steps);
      FakeExecutorOptions fake;
      fake.queue_steps = queue_steps;
      auto engine = MakeEngine(
          fake, {.max_sequences = 8, .max_rows = 64, .chunk_rows = chunk_rows, .max_waiting = 100});
      StreamReader neighbour;
      const EngineRequest generates = GreedyRequest(50, 20, 60);
      ASSERT_TRUE(engine->Submit(generates, neighbour.stream()).ok());
      StreamReader readers[4];
      for (uint32_t i = 0; i < 4; ++i) {
        ASSERT_TRUE(engine->Submit(EmbeddingRequest(i, 1 + 23 * i), readers[i].stream()).ok());
      }
      for (uint32_t i = 0; i < 4; ++i) {
        const StreamEnd& end = readers[i].ReadToEnd();
        ASSERT_TRUE(end.status.ok()) << end.status;
        EXPECT_EQ(end.reason, v1::FINISH_REASON_STOP);
        EXPECT_EQ(end.embedding, ExpectedEmbedding(EmbeddingRequest(i, 1 + 23 * i), ToyLimits()));
        EXPECT_EQ(end.usage.prompt_tokens(), 1 + 23 * i);
        EXPECT_EQ(end.usage.completion_tokens(), 0u);
        EXPECT_TRUE(readers[i].text.empty() && readers[i].tokens().empty());
      }
      EXPECT_TRUE(neighbour.ReadToEnd().status.ok());
      EXPECT_EQ(neighbour.tokens(), ExpectedTokens(generates, ToyLimits()));
      EXPECT_TRUE(neighbour.end->embedding.empty());
      v1::GetStatusResponse status;
      engine->FillStatus(status);
      EXPECT_EQ(status.scheduler().prompt_tokens(), 20u + 1 + 24 + 47 + 70);
    }
  }
}

TEST(EngineEmbeddingTest, APromptThatIsComputedAnewIsNotCountedTwice) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch& step) {
    return step.header.step_id % 9 == 5 ? absl::UnavailableError("gpu0 is gone") : absl::OkStatus();
  };
  auto engine = MakeEngine(fake, {.max_sequences = 8,
                                  .max_rows = 48,
                                  .chunk_rows = 16,
                                  .max_waiting = 100,
                                  .max_attempts = 100,
                                  .min_recovery_pause = absl::Milliseconds(1)});
  StreamReader neighbour;
  ASSERT_TRUE(engine->Submit(GreedyRequest(7, 10, 100), neighbour.stream()).ok());
  StreamReader readers[5];
  for (uint32_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(engine->Submit(EmbeddingRequest(i, 40 + 15 * i), readers[i].stream()).ok());
  }
  for (uint32_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(readers[i].ReadToEnd().status.ok()) << readers[i].end->status;
    EXPECT_EQ(readers[i].end->embedding,
              ExpectedEmbedding(EmbeddingRequest(i, 40 + 15 * i), ToyLimits()));
  }
  EXPECT_TRUE(neighbour.ReadToEnd().status.ok());
  v1::GetStatusResponse status;
  engine->FillStatus(status);
  EXPECT_GT(status.recoveries(), 0u);
}

TEST(EngineEmbeddingTest, APromptThatIsSetAsideIsNotCountedTwice) {
  testing::Gate all_there;
  FakeExecutorOptions fake;
  fake.limits.num_blocks[kGlobalGroup] = 33;  // 264 positions
  fake.on_step = [&](const StepBatch&) {
    all_there.Wait();
    return absl::OkStatus();
  };
  // Four answers grow for as long as the youngest's prompt is fed, four rows a step.
  auto engine =
      MakeEngine(fake, {.max_sequences = 8, .max_rows = 48, .chunk_rows = 4, .max_waiting = 100});
  StreamReader neighbours[4], readers[3];
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(engine->Submit(GreedyRequest(i, 4, 80), neighbours[i].stream()).ok());
  }
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(engine->Submit(EmbeddingRequest(i, 150 + i), readers[i].stream()).ok());
  }
  all_there.Open();
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(readers[i].ReadToEnd().status.ok()) << readers[i].end->status;
    EXPECT_EQ(readers[i].end->embedding,
              ExpectedEmbedding(EmbeddingRequest(i, 150 + i), ToyLimits()));
  }
  for (uint32_t i = 0; i < 4; ++i) {
    neighbours[i].ReadToEnd();
    EXPECT_EQ(neighbours[i].tokens(), ExpectedTokens(GreedyRequest(i, 4, 80), ToyLimits()));
  }
  v1::GetStatusResponse status;
  engine->FillStatus(status);
  EXPECT_GT(status.scheduler().preemptions(), 0u);
}

TEST(EngineEmbeddingTest, HiddenStatesThatAreNotFiniteFailTheirRequestAlone) {
  auto engine = MakeEngine();
  EngineRequest poisoned = EmbeddingRequest(2, 40);
  poisoned.prompt[3] = testing::kToyPoison;
  StreamReader healthy, broken;
  ASSERT_TRUE(engine->Submit(EmbeddingRequest(1, 40), healthy.stream()).ok());
  ASSERT_TRUE(engine->Submit(poisoned, broken.stream()).ok());
  EXPECT_EQ(broken.ReadToEnd().status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(broken.end->status.message()), HasSubstr("40 tokens"));
  EXPECT_TRUE(broken.end->embedding.empty());
  EXPECT_TRUE(healthy.ReadToEnd().status.ok());
}

}  // namespace
}  // namespace tandem::gateway

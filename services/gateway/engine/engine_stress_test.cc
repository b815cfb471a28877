// A thousand requests from several threads, with cancellations, slow readers, lost workers, failed
// steps and too few KV blocks, checked token by token against the toy model run alone.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/engine_harness.h"

namespace tandem::gateway {
namespace {

using testing::ExpectedEmbedding;
using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using testing::StreamReader;
using testing::ToyLimits;

constexpr int kThreads = 4;
constexpr int kRequestsPerThread = 250;
constexpr uint32_t kSeed = 2024;

struct Tally {
  std::atomic<int> finished = 0;
  std::atomic<int> cancelled = 0;
  std::atomic<int> failed = 0;
  std::atomic<int> slow = 0;
};

EngineRequest RandomRequest(std::mt19937& random) {
  EngineRequest request = GreedyRequest(random(), 1 + random() % 90, 1 + random() % 40);
  // Half of them begin as one of four others.
  if (random() % 2 == 0) {
    const EngineRequest story = GreedyRequest(random() % 4, 90, 1);
    const size_t alike = random() % request.prompt.size();
    std::copy_n(story.prompt.begin(), alike, request.prompt.begin());
  }
  request.use_prefix_cache = random() % 10 != 0;
  request.ignore_eos = random() % 2 == 0;
  if (random() % 2 == 0) {
    request.sampling = {.temperature = 0.7f + 0.1f * (random() % 10), .seed = random()};
    if (random() % 3 == 0) request.sampling.top_k = 0;
    if (random() % 3 == 0) request.sampling.repetition_penalty = 1.2f;
  }
  request.prompt_logprobs = random() % 5 == 0;
  if (random() % 6 == 0) request = testing::EmbeddingRequest(random(), 1 + random() % 90);
  return request;
}

void OneRequest(Engine& engine, std::mt19937& random, Tally& tally) {
  const EngineRequest request = RandomRequest(random);
  const bool slow = random() % 20 == 0;
  StreamReader reader(slow ? 5 : 100000);
  ASSERT_TRUE(engine.Submit(request, reader.stream()).ok());
  const bool cancel = random() % 10 == 0;
  if (cancel) {
    if (random() % 2 == 0) reader.Read();
    reader.stream()->Cancel();
  }
  const StreamEnd& end = reader.ReadToEnd();
  const std::vector<uint32_t> expected = ExpectedTokens(request, ToyLimits());
  const std::vector<uint32_t> tokens = reader.tokens();
  ASSERT_LE(tokens.size(), expected.size());
  ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.begin()))
      << request.request_id << " differs from the model run alone";
  if (end.status.ok()) {
    ++tally.finished;
    EXPECT_EQ(tokens.size(), expected.size());
    if (request.embedding) {
      EXPECT_EQ(end.embedding, ExpectedEmbedding(request, ToyLimits())) << request.request_id;
    }
    if (request.prompt_logprobs) {
      EXPECT_EQ(reader.prompt.size(), request.prompt.size() - 1);
    }
  } else if (absl::IsCancelled(end.status)) {
    ++tally.cancelled;
    EXPECT_TRUE(cancel);
  } else if (absl::IsResourceExhausted(end.status)) {
    ++tally.slow;
    EXPECT_TRUE(slow);
  } else {
    ++tally.failed;
    EXPECT_TRUE(absl::IsInternal(end.status)) << end.status;
  }
}

struct Variant {
  const char* name;
  bool queue_steps;
  uint32_t wrong_guess_in;
};
class EngineStressTest : public ::testing::TestWithParam<Variant> {};

TEST_P(EngineStressTest, AThousandRequestsWithFaultsAllEndAsTheyShould) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  FakeExecutorOptions fake;
  fake.queue_steps = GetParam().queue_steps;
  fake.wrong_guess_in = GetParam().wrong_guess_in;
  fake.limits.num_blocks[kGlobalGroup] = 40;  // 320 positions for 8 sequences of up to 130
  fake.limits.num_blocks[kWindowGroup] = 30;
  fake.limits.max_logit_outputs = 3;
  fake.on_step = [random = std::mt19937(kSeed)](const StepBatch&) mutable {
    const uint32_t draw = random() % 200;
    if (draw == 0) return absl::UnavailableError("gone");
    if (draw == 1) return absl::InternalError("refused");
    return absl::OkStatus();
  };
  Tally tally;
  v1::GetStatusResponse status;
  {
    auto engine = testing::MakeEngine(fake, {.max_sequences = 8,
                                             .max_rows = 48,
                                             .chunk_rows = 16,
                                             .max_waiting = 1000,
                                             .min_recovery_pause = absl::Milliseconds(1)});
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        // Several requests of one client are under way at once.
        std::vector<std::thread> clients;
        clients.reserve(5);
        for (int c = 0; c < 5; ++c) {
          clients.emplace_back([&, t, c] {
            std::mt19937 random(kSeed + 100 * t + c);
            for (int i = 0; i < kRequestsPerThread / 5; ++i) OneRequest(*engine, random, tally);
          });
        }
        for (std::thread& client : clients) client.join();
      });
    }
    for (std::thread& thread : threads) thread.join();
    engine->FillStatus(status);
  }
  EXPECT_EQ(tally.finished + tally.cancelled + tally.failed + tally.slow,
            kThreads * kRequestsPerThread);
  EXPECT_GT(tally.finished.load(), 500);
  EXPECT_EQ(status.scheduler().running(), 0u);
  EXPECT_EQ(status.scheduler().waiting(), 0u);
  EXPECT_EQ(status.scheduler().kv_blocks_used(0), 0u);
  EXPECT_EQ(status.scheduler().kv_blocks_used(1), 0u);
  EXPECT_GT(status.recoveries(), 0u);
  EXPECT_GT(status.scheduler().preemptions(), 0u);
  EXPECT_GT(status.scheduler().prefix_tokens_found(), 500u);
  EXPECT_GT(status.scheduler().kv_blocks_evicted(0), 0u);
  EXPECT_EQ(status.scheduler().steps_queued() > 0, GetParam().queue_steps);
  EXPECT_EQ(status.scheduler().rows_fed() > 0, GetParam().queue_steps);
  EXPECT_EQ(status.scheduler().wrong_guesses() > 100, GetParam().wrong_guess_in != 0);
}

INSTANTIATE_TEST_SUITE_P(Variants, EngineStressTest,
                         ::testing::Values(Variant{"StepByStep", false, 0},
                                           Variant{"Queued", true, 0},
                                           Variant{"QueuedWithWrongGuesses", true, 3}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tandem::gateway

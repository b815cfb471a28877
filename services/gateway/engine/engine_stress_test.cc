// A thousand requests from several threads, with cancellations, slow readers, lost workers, failed
// steps and too few KV blocks, with and without guesses of drafters, checked token by token against
// the toy model run alone.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/engine_harness.h"
#include "services/gateway/speculation/lookup_drafter.h"
#include "services/gateway/speculation/testing/scripted_drafter.h"

namespace tandem::gateway {
namespace {

using testing::ExpectedEmbedding;
using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using testing::StreamReader;
using testing::ToyLimits;

constexpr int kClients = 20;  // several requests are under way at once
constexpr int kRequestsPerClient = 50;
constexpr uint32_t kSeed = 2024;

uint32_t SeedOf(int client) { return kSeed + 100 * client; }

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

// One drafter knows the answers of all clients, nearly; the other finds what there is.
absl::StatusOr<std::vector<std::unique_ptr<Drafter>>> MakeDrafters(const Executor&,
                                                                   const Executor::Progress&) {
  auto scripted = std::make_unique<testing::ScriptedDrafter>(
      testing::Script{.right = 0.7, .vocab_size = ToyLimits().vocab_size});
  for (int client = 0; client < kClients; ++client) {
    std::mt19937 random(SeedOf(client));
    for (int i = 0; i < kRequestsPerClient; ++i) {
      const EngineRequest request = RandomRequest(random);
      scripted->Teach(request.prompt, ExpectedTokens(request, ToyLimits()));
    }
  }
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::move(scripted));
  drafters.push_back(std::make_unique<LookupDrafter>());
  return drafters;
}

void OneRequest(Engine& engine, const EngineRequest& request, std::mt19937& random, Tally& tally) {
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
  bool drafts = false;
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
  const bool drafts = GetParam().drafts;
  fake.on_step = [drafts, random = std::mt19937(kSeed)](const StepBatch&) mutable {
    // A step takes as long whatever its rows: guesses pay.
    if (drafts) absl::SleepFor(absl::Microseconds(300));
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
                                             .min_recovery_pause = absl::Milliseconds(1),
                                             .make_drafters = drafts ? MakeDrafters : nullptr});
    std::vector<std::thread> clients;
    clients.reserve(kClients);
    for (int client = 0; client < kClients; ++client) {
      clients.emplace_back([&, client] {
        std::mt19937 requests(SeedOf(client));
        std::mt19937 random(SeedOf(client) + 1);
        for (int i = 0; i < kRequestsPerClient; ++i) {
          OneRequest(*engine, RandomRequest(requests), random, tally);
        }
      });
    }
    for (std::thread& client : clients) client.join();
    engine->FillStatus(status);
  }
  EXPECT_EQ(tally.finished + tally.cancelled + tally.failed + tally.slow,
            kClients * kRequestsPerClient);
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
  EXPECT_EQ(status.scheduler().wrong_guesses() > (drafts ? 0 : 100),
            GetParam().wrong_guess_in != 0);
  ASSERT_EQ(status.scheduler().drafters_size(), drafts ? 2 : 0);
  if (!drafts) return;
  const v1::DrafterStatus& scripted = status.scheduler().drafters(0);
  EXPECT_GT(scripted.accepted_tokens(), 1000u);
  EXPECT_GT(scripted.drafted_tokens(), scripted.accepted_tokens() + 300);
}

INSTANTIATE_TEST_SUITE_P(Variants, EngineStressTest,
                         ::testing::Values(Variant{"StepByStep", false, 0},
                                           Variant{"Queued", true, 0},
                                           Variant{"QueuedWithWrongGuesses", true, 3},
                                           Variant{"Drafted", false, 0, true},
                                           Variant{"QueuedAndDrafted", true, 3, true}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tandem::gateway

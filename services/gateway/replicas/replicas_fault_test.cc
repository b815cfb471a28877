// Requests over replicas that lose their workers: every stream goes on, with the tokens that it
// would have had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "services/common/testing/eventually.h"
#include "services/gateway/engine/testing/constrained_answers.h"
#include "services/gateway/replicas/testing/toy_replicas.h"
#include "services/gateway/speculation/lookup_drafter.h"

namespace tandem::gateway {
namespace {

using testing::AwaitState;
using testing::ExpectedConstrained;
using testing::ExpectedEmbedding;
using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::Gate;
using testing::GreedyRequest;
using testing::MakeReadyReplicas;
using testing::MixedRequests;
using testing::StatusOf;
using testing::StreamReader;
using testing::ToyLimits;
using testing::ToyOptions;
using testing::ToyStart;

// A replica whose worker is lost in step `step_id`, and comes back when the gate opens.
FakeExecutorOptions LostAt(uint64_t step_id, Gate& back) {
  FakeExecutorOptions fake;
  fake.on_step = [step_id](const StepBatch& step) {
    return step.header.step_id == step_id ? absl::UnavailableError("gone") : absl::OkStatus();
  };
  fake.on_recover = [&back](StepLimits&) {
    back.Wait();
    return absl::OkStatus();
  };
  return fake;
}

TEST(ReplicasFaultTest, RequestsGoOnElsewhereWhileTheWorkerIsAway) {
  Gate back;
  auto replicas = MakeReadyReplicas({ToyStart(0, LostAt(9, back)), ToyStart(1)}, ToyOptions());
  std::vector<std::unique_ptr<StreamReader>> readers;
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 12; ++i) {
    requests.push_back(GreedyRequest(i, 10 + 9 * i, 30));
    if (i % 3 == 1) requests.back().sampling = {.temperature = 1.2f, .seed = 77 + i};
    requests.back().prompt_logprobs = i == 4;
    if (i == 6) requests.back() = testing::EmbeddingRequest(i, 100);
    readers.push_back(std::make_unique<StreamReader>());
    ASSERT_TRUE(replicas->Submit(requests[i], readers[i]->stream()).ok());
  }
  for (uint32_t i = 0; i < 12; ++i) {
    EXPECT_TRUE(readers[i]->ReadToEnd().status.ok()) << readers[i]->end->status;
    EXPECT_EQ(readers[i]->tokens(), ExpectedTokens(requests[i], ToyLimits())) << i;
  }
  EXPECT_EQ(readers[4]->prompt.size(), requests[4].prompt.size() - 1);
  EXPECT_EQ(readers[6]->end->embedding, ExpectedEmbedding(requests[6], ToyLimits()));
  v1::GetStatusResponse status = StatusOf(*replicas);
  EXPECT_EQ(status.state(), "ready");
  EXPECT_EQ(status.replicas(0).state(), "recovering");
  EXPECT_GT(status.replicas(0).moved_away(), 0u);
  EXPECT_EQ(status.replicas(0).requests() + status.replicas(1).requests(),
            requests.size() + status.replicas(0).moved_away());
  EXPECT_EQ(status.replicas(0).scheduler().kv_blocks_used(0), 0u);
  back.Open();
  AwaitState(*replicas, 0, "ready");
}

TEST(ReplicasFaultTest, ConstrainedAnswersMoveWithTheirState) {
  for (const uint64_t step : {1, 3, 6, 10, 17}) {
    SCOPED_TRACE(step);
    Gate back;
    EngineOptions options = ToyOptions();
    options.quick_constraint_work = step % 2 == 0 ? 0 : UINT64_MAX;
    options.make_drafters =
        [](const Executor&,
           const Executor::Progress&) -> absl::StatusOr<std::vector<std::unique_ptr<Drafter>>> {
      std::vector<std::unique_ptr<Drafter>> drafters;
      drafters.push_back(std::make_unique<LookupDrafter>());
      return drafters;
    };
    auto replicas = MakeReadyReplicas({ToyStart(0, LostAt(step, back)), ToyStart(1)}, options);
    const std::vector<EngineRequest> requests = MixedRequests();
    std::vector<std::unique_ptr<StreamReader>> readers;
    for (const EngineRequest& request : requests) {
      readers.push_back(std::make_unique<StreamReader>());
      ASSERT_TRUE(replicas->Submit(request, readers.back()->stream()).ok());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(readers[i]->ReadToEnd().status.ok()) << readers[i]->end->status;
      EXPECT_EQ(readers[i]->tokens(), requests[i].constraint == nullptr
                                          ? ExpectedTokens(requests[i], ToyLimits())
                                          : ExpectedConstrained(requests[i]))
          << i;
    }
    EXPECT_GT(StatusOf(*replicas).replicas(0).moved_away(), 0u);
    back.Open();
  }
}

// A constrained request enters the scheduler when its first mask is made.  Requests that move in
// before have taken the places by then.
void ExpectAdmittedRequestsToBeAnswered() {
  Gate all_are_there, lose, run, back;
  FakeExecutorOptions lost = LostAt(2, back), slow;
  lost.on_step = [&, on_step = lost.on_step](const StepBatch& step) {
    (step.header.step_id == 1 ? all_are_there : lose).Wait();
    return on_step(step);
  };
  slow.on_step = [&](const StepBatch& step) {
    (step.header.step_id == 1 ? all_are_there : run).Wait();
    return absl::OkStatus();
  };
  EngineOptions options = ToyOptions();
  options.max_sequences = 1;
  options.max_waiting = 2;
  options.quick_constraint_work = 0;  // masks are made by other threads
  auto replicas = MakeReadyReplicas({ToyStart(0, lost), ToyStart(1, slow)}, options);
  const auto pattern = testing::Compile(constraint::SourceKind::kRegex, testing::kPattern);
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (uint32_t i = 0; i < 6; ++i) {
    // One runs in each replica, and the others wait.
    const EngineRequest request =
        i < 2 ? GreedyRequest(i, 20, 30) : testing::Constrained(i, 1.0f, pattern);
    readers.push_back(std::make_unique<StreamReader>());
    ASSERT_TRUE(replicas->Submit(request, readers.back()->stream()).ok()) << i;
  }
  all_are_there.Open();
  lose.Open();
  EXPECT_TRUE(tandem::testing::Eventually(
      [&] { return StatusOf(*replicas).replicas(0).moved_away() == 3; }));
  run.Open();
  for (const auto& reader : readers) {
    EXPECT_TRUE(reader->ReadToEnd().status.ok()) << reader->end->status;
  }
  back.Open();
}

// Whether they come before the masks is up to threads: they do in one attempt of six.
TEST(ReplicasFaultTest, AnAdmittedRequestIsNotRefusedForThoseThatMoveIn) {
  for (int attempt = 0; attempt < 40; ++attempt) ExpectAdmittedRequestsToBeAnswered();
}

TEST(ReplicasFaultTest, ARequestThatKillsWorkersDoesNotKillThemAll) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch& step) {
    for (const RowEntry& row : step.rows) {
      if (row.token == testing::kToyPoison) return absl::UnavailableError("device lost");
    }
    return absl::OkStatus();
  };
  auto replicas =
      MakeReadyReplicas({ToyStart(0, fake), ToyStart(1, fake), ToyStart(2, fake)}, ToyOptions());
  EngineRequest poison = GreedyRequest(1, 20, 5);
  poison.prompt.back() = testing::kToyPoison;
  StreamReader killer, healthy;
  ASSERT_TRUE(replicas->Submit(poison, killer.stream()).ok());
  ASSERT_TRUE(replicas->Submit(GreedyRequest(2, 20, 60), healthy.stream()).ok());
  EXPECT_EQ(killer.ReadToEnd().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(healthy.ReadToEnd().status.ok());
  EXPECT_EQ(healthy.tokens(), ExpectedTokens(GreedyRequest(2, 20, 60), ToyLimits()));
  EXPECT_LE(StatusOf(*replicas).recoveries(), 3u);
}

TEST(ReplicasFaultTest, WhileAllAreLostRequestsWaitForTheFirstThatComesBack) {
  Gate back[2];
  auto replicas = MakeReadyReplicas(
      {ToyStart(0, LostAt(4, back[0])), ToyStart(1, LostAt(4, back[1]))}, ToyOptions());
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (uint32_t i = 0; i < 6; ++i) {
    readers.push_back(std::make_unique<StreamReader>());
    ASSERT_TRUE(replicas->Submit(GreedyRequest(i, 30, 20), readers.back()->stream()).ok());
  }
  AwaitState(*replicas, 0, "recovering");
  AwaitState(*replicas, 1, "recovering");
  EXPECT_EQ(StatusOf(*replicas).state(), "recovering");
  back[1].Open();
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(readers[i]->ReadToEnd().status.ok());
    EXPECT_EQ(readers[i]->tokens(), ExpectedTokens(GreedyRequest(i, 30, 20), ToyLimits()));
  }
  EXPECT_EQ(StatusOf(*replicas).replicas(0).state(), "recovering");
  back[0].Open();
}

TEST(ReplicasFaultTest, WhatOnlyTheLostReplicaHoldsWaitsForIt) {
  Gate back;
  FakeExecutorOptions small;
  small.limits.context_len = 64;
  auto replicas =
      MakeReadyReplicas({ToyStart(0, LostAt(4, back)), ToyStart(1, small)}, ToyOptions());
  const EngineRequest begun = GreedyRequest(1, 100, 20), next = GreedyRequest(2, 100, 20);
  StreamReader first, second;
  ASSERT_TRUE(replicas->Submit(EngineRequest(begun), first.stream()).ok());
  AwaitState(*replicas, 0, "recovering");
  const absl::Status taken = replicas->Submit(EngineRequest(next), second.stream());
  EXPECT_TRUE(taken.ok()) << taken;
  back.Open();
  EXPECT_TRUE(first.ReadToEnd().status.ok()) << first.end->status;
  EXPECT_EQ(first.tokens(), ExpectedTokens(begun, ToyLimits()));
  EXPECT_TRUE(second.ReadToEnd().status.ok()) << second.end->status;
  EXPECT_EQ(second.tokens(), ExpectedTokens(next, ToyLimits()));
}

// Many requests from several threads over three replicas that lose workers and refuse steps.
TEST(ReplicasFaultTest, ManyRequestsOverReplicasThatFailAllEndAsTheyShould) {
  constexpr int kClients = 12;
  constexpr int kRequests = 40;
  constexpr uint32_t kSeed = 611;
  std::vector<ReplicaStart> starts;
  for (uint32_t r = 0; r < 3; ++r) {
    FakeExecutorOptions fake;
    fake.limits.num_blocks[kGlobalGroup] = 40;
    fake.limits.num_blocks[kWindowGroup] = 30;
    fake.queue_steps = r != 1;
    fake.wrong_guess_in = r == 2 ? 3 : 0;
    fake.on_step = [random = std::mt19937(kSeed + r)](const StepBatch&) mutable {
      return random() % 60 == 0 ? absl::UnavailableError("gone") : absl::OkStatus();
    };
    starts.push_back(ToyStart(r, fake));
  }
  // So many losses would end requests of no fault of their own.
  EngineOptions options = ToyOptions();
  options.max_attempts = 1000;
  auto replicas = MakeReadyReplicas(std::move(starts), options);
  std::atomic<int> finished = 0, cancelled = 0;
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(kSeed + 100 + client);
      for (int i = 0; i < kRequests; ++i) {
        EngineRequest request = GreedyRequest(random() % 9, 1 + random() % 90, 1 + random() % 40);
        if (random() % 2 == 0) request.sampling = {.temperature = 0.9f, .seed = random()};
        StreamReader reader;
        ASSERT_TRUE(replicas->Submit(request, reader.stream()).ok());
        if (random() % 10 == 0) reader.stream()->Cancel();
        const StreamEnd& end = reader.ReadToEnd();
        const std::vector<uint32_t> expected = ExpectedTokens(request, ToyLimits());
        const std::vector<uint32_t> tokens = reader.tokens();
        ASSERT_LE(tokens.size(), expected.size());
        ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.begin()));
        if (absl::IsCancelled(end.status)) {
          ++cancelled;
          continue;
        }
        ASSERT_TRUE(end.status.ok()) << end.status;
        ASSERT_EQ(tokens.size(), expected.size());
        ++finished;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(finished + cancelled, kClients * kRequests);
  const v1::GetStatusResponse status = StatusOf(*replicas);
  uint64_t moved = 0;
  for (const v1::ReplicaStatus& replica : status.replicas()) moved += replica.moved_away();
  EXPECT_GT(moved, 20u);
  EXPECT_EQ(status.scheduler().running(), 0u);
  EXPECT_EQ(status.scheduler().waiting(), 0u);
  EXPECT_EQ(status.scheduler().kv_blocks_used(0), 0u);
  EXPECT_EQ(status.scheduler().kv_blocks_used(1), 0u);
}

}  // namespace
}  // namespace tandem::gateway

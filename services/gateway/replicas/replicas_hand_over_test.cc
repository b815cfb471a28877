// Requests whose prompts are computed by one replica and that go on at another, with their KV.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "services/common/testing/eventually.h"
#include "services/gateway/engine/testing/constrained_answers.h"
#include "services/gateway/executor/placement_moved.h"
#include "services/gateway/replicas/testing/toy_replicas.h"
#include "services/gateway/speculation/lookup_drafter.h"

namespace tandem::gateway {
namespace {

using testing::ExpectedConstrained;
using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::Gate;
using testing::GreedyRequest;
using testing::MakeReadyReplicas;
using testing::MakeReplicas;
using testing::MixedRequests;
using testing::StatusOf;
using testing::StreamReader;
using testing::ToyLimits;
using testing::ToyOptions;
using testing::ToyStart;

// An area that takes few blocks, so that a prompt is several pieces.  Steps take a while, so that
// answers do not end before their KV arrives.
FakeExecutorOptions Copying() {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Microseconds(300));
    return absl::OkStatus();
  };
  fake.limits.kv_area_bytes = 10000;
  return fake;
}

ReplicaStart Prompts(uint32_t replica, FakeExecutorOptions fake = Copying()) {
  ReplicaStart start = ToyStart(replica, std::move(fake));
  start.role = ReplicaRole::kPrompts;
  return start;
}

ReplicaStart Decode(uint32_t replica, FakeExecutorOptions fake = Copying()) {
  ReplicaStart start = ToyStart(replica, std::move(fake));
  start.role = ReplicaRole::kDecode;
  return start;
}

// No replica has a request, or a block that is held.
bool IsEmpty(const Replicas& replicas) {
  const v1::GetStatusResponse status = StatusOf(replicas);
  return std::ranges::all_of(status.replicas(), [](const v1::ReplicaStatus& replica) {
    const v1::SchedulerStatus& scheduler = replica.scheduler();
    return scheduler.running() + scheduler.waiting() == 0 && scheduler.kv_blocks_used(0) == 0 &&
           scheduler.kv_blocks_used(1) == 0;
  });
}

// All ends well, with the tokens of the model alone.
void ExpectAnswers(Replicas& replicas, const std::vector<EngineRequest>& requests) {
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (const EngineRequest& request : requests) {
    readers.push_back(std::make_unique<StreamReader>());
    const absl::Status taken = replicas.Submit(EngineRequest(request), readers.back()->stream());
    ASSERT_TRUE(taken.ok()) << taken;
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(readers[i]->ReadToEnd().status.ok()) << i << " " << readers[i]->end->status;
    EXPECT_EQ(readers[i]->tokens(), requests[i].constraint == nullptr
                                        ? ExpectedTokens(requests[i], ToyLimits())
                                        : ExpectedConstrained(requests[i]))
        << i;
  }
}

TEST(ReplicasHandOverTest, DecodingGoesOnWithThePromptsKv) {
  // Rows of every step of the replica that decodes.
  std::atomic<uint32_t> decoded = 0, most_rows = 0;
  FakeExecutorOptions decode = Copying();
  decode.on_step = [&](const StepBatch& step) {
    decoded += step.header.num_rows;
    for (const SequenceEntry& sequence : step.sequences) {
      most_rows = std::max(most_rows.load(), sequence.num_rows);
    }
    return absl::OkStatus();
  };
  FakeExecutorOptions prompts = Copying();
  prompts.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(2));
    return absl::OkStatus();
  };
  auto replicas = MakeReadyReplicas({Prompts(0, prompts), Decode(1, decode)}, ToyOptions());
  const EngineRequest request = GreedyRequest(1, 150, 60);
  ExpectAnswers(*replicas, {request});
  v1::GetStatusResponse status;
  // The answer may end before the replica that handed it over has counted that.
  EXPECT_TRUE(tandem::testing::Eventually([&] {
    status = StatusOf(*replicas);
    return status.replicas(0).handed_over() == 1 && status.replicas(0).moved_away() == 1 &&
           status.replicas(1).requests() == 1;
  })) << status.DebugString();
  EXPECT_EQ(status.replicas(0).role(), "prompts");
  EXPECT_EQ(status.replicas(1).role(), "decode");
  // 18 whole blocks of all positions; the window sees three of them.
  const KvCopyLayout layout(testing::ToyConfig(256, 20), Copying().limits);
  const uint64_t bytes = 18 * layout.BlockBytes(kGlobalGroup) + 3 * layout.BlockBytes(kWindowGroup);
  EXPECT_EQ(status.replicas(0).kv_sent_bytes(), bytes);
  EXPECT_EQ(status.replicas(1).kv_received_bytes(), bytes);
  // What follows the last whole block: of the prompt, and the tokens that were decided meanwhile.
  EXPECT_LE(most_rows, 6u + 40u) << "not the prompt";
  EXPECT_GT(decoded, 15u) << "the answer went on here";
  EXPECT_TRUE(tandem::testing::Eventually([&replicas] { return IsEmpty(*replicas); }));
}

TEST(ReplicasHandOverTest, WhatOneReplicaRefusesIsOfferedToTheNext) {
  FakeExecutorOptions no_room = Copying();
  no_room.limits.kv_area_bytes = 0;
  auto replicas = MakeReadyReplicas({Prompts(0), Decode(1, no_room), Decode(2)}, ToyOptions());
  ExpectAnswers(*replicas, {GreedyRequest(1, 150, 60)});
  const v1::GetStatusResponse status = StatusOf(*replicas);
  EXPECT_EQ(status.replicas(0).handed_over(), 1u);
  EXPECT_EQ(status.replicas(1).kv_received_bytes(), 0u);
  EXPECT_GT(status.replicas(2).kv_received_bytes(), 0u);
  EXPECT_EQ(status.replicas(2).requests(), 1u);
}

TEST(ReplicasHandOverTest, EveryKindOfRequestIsAnsweredAsByOneReplica) {
  for (const bool queue : {true, false}) {
    for (const bool drafts : {false, true}) {
      SCOPED_TRACE(queue ? "queued" : "one step at a time");
      EngineOptions options = ToyOptions();
      if (drafts) {
        options.make_drafters =
            [](const Executor&,
               const Executor::Progress&) -> absl::StatusOr<std::vector<std::unique_ptr<Drafter>>> {
          std::vector<std::unique_ptr<Drafter>> drafters;
          drafters.push_back(std::make_unique<LookupDrafter>());
          return drafters;
        };
      }
      FakeExecutorOptions fake = Copying();
      fake.queue_steps = queue;
      fake.wrong_guess_in = 3;
      auto replicas =
          MakeReadyReplicas({Prompts(0, fake), Decode(1, fake), Decode(2, fake)}, options);
      std::vector<EngineRequest> requests = MixedRequests();
      for (uint32_t i = 0; i < 20; ++i) {
        requests.push_back(GreedyRequest(i, 65 + 11 * i % 120, 40 + 7 * i % 30));
        if (i % 3 == 1) requests.back().sampling = {.temperature = 1.2f, .seed = 77 + i};
        requests.back().prompt_logprobs = i == 4;
        requests.back().use_prefix_cache = i != 5;
      }
      ExpectAnswers(*replicas, requests);
      EXPECT_GT(StatusOf(*replicas).replicas(0).handed_over(), 2u);
    }
  }
}

TEST(ReplicasHandOverTest, WhatTheReceiverHasIsNotSentAgain) {
  auto replicas = MakeReadyReplicas({Prompts(0), Decode(1)}, ToyOptions());
  const EngineRequest first = GreedyRequest(1, 150, 20);
  ExpectAnswers(*replicas, {first});
  const uint64_t sent = StatusOf(*replicas).replicas(0).kv_sent_bytes();
  EngineRequest second = first;
  const EngineRequest tail = GreedyRequest(9, 80, 1);
  second.prompt.resize(96);
  second.prompt.insert(second.prompt.end(), tail.prompt.begin(), tail.prompt.end());
  ExpectAnswers(*replicas, {second});
  // Twelve of 22 blocks are there.
  EXPECT_LT(StatusOf(*replicas).replicas(0).kv_sent_bytes() - sent, sent);
  EXPECT_EQ(StatusOf(*replicas).replicas(0).handed_over(), 2u);
}

TEST(ReplicasHandOverTest, APromptWithFewNewTokensIsComputedWhereItsPrefixIs) {
  auto replicas = MakeReadyReplicas({Prompts(0), Decode(1)}, ToyOptions());
  EngineRequest request = GreedyRequest(1, 150, 20);
  ExpectAnswers(*replicas, {request});
  request.prompt.resize(170, 5);
  ExpectAnswers(*replicas, {request, GreedyRequest(2, 40, 5)});
  const v1::GetStatusResponse status = StatusOf(*replicas);
  EXPECT_EQ(status.replicas(0).requests(), 1u);
  EXPECT_EQ(status.replicas(1).requests(), 3u);
}

TEST(ReplicasHandOverTest, TheNextTurnIsComputedWhereTheAnswerBeforeItIs) {
  auto replicas = MakeReadyReplicas({Prompts(0), Decode(1)}, ToyOptions());
  EngineRequest request = GreedyRequest(1, 100, 90);
  ExpectAnswers(*replicas, {request});
  ASSERT_EQ(StatusOf(*replicas).replicas(0).handed_over(), 1u);
  // The answer, which the replica for prompts has not, and ten tokens more.
  const std::vector<uint32_t> answer = ExpectedTokens(request, ToyLimits());
  ASSERT_EQ(answer.size(), 90u);
  request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
  request.prompt.resize(request.prompt.size() + 10, 5);
  request.max_tokens = 20;
  ExpectAnswers(*replicas, {request});
  EXPECT_EQ(StatusOf(*replicas).replicas(0).requests(), 1u);
  EXPECT_EQ(StatusOf(*replicas).replicas(1).requests(), 2u);
}

TEST(ReplicasHandOverTest, WhatAReplicaForPromptsCannotTakeIsComputedWhereItIsDecoded) {
  Gate gate;
  FakeExecutorOptions prompts = Copying();
  prompts.limits.context_len = 128;
  prompts.on_step = [&gate](const StepBatch&) {
    gate.Wait();
    return absl::OkStatus();
  };
  EngineOptions options = ToyOptions();
  options.max_sequences = 1;
  options.max_waiting = 0;
  auto replicas = MakeReadyReplicas({Prompts(0, prompts), Decode(1)}, options);
  const EngineRequest too_long = GreedyRequest(1, 150, 20);
  ExpectAnswers(*replicas, {too_long});
  EXPECT_EQ(StatusOf(*replicas).replicas(0).requests(), 0u);
  // The second finds the queue for prompts full.
  const EngineRequest first = GreedyRequest(2, 100, 10), second = GreedyRequest(3, 100, 10);
  StreamReader reader;
  ASSERT_TRUE(replicas->Submit(EngineRequest(first), reader.stream()).ok());
  ExpectAnswers(*replicas, {second});
  EXPECT_EQ(StatusOf(*replicas).replicas(0).requests(), 1u);
  EXPECT_EQ(StatusOf(*replicas).replicas(1).requests(), 2u);
  gate.Open();
  EXPECT_TRUE(reader.ReadToEnd().status.ok()) << reader.end->status;
}

TEST(ReplicasHandOverTest, AShortPromptGoesToAReplicaForPromptsWhenDecodersAreFull) {
  Gate gate;
  FakeExecutorOptions decode = Copying();
  decode.on_step = [&gate](const StepBatch&) {
    gate.Wait();
    return absl::OkStatus();
  };
  EngineOptions options = ToyOptions();
  options.max_sequences = 1;
  options.max_waiting = 0;
  auto replicas = MakeReadyReplicas({Prompts(0), Decode(1, decode)}, options);
  StreamReader reader;
  ASSERT_TRUE(replicas->Submit(GreedyRequest(1, 20, 10), reader.stream()).ok());
  ASSERT_EQ(StatusOf(*replicas).replicas(1).requests(), 1u);
  ExpectAnswers(*replicas, {GreedyRequest(2, 20, 10)});
  EXPECT_EQ(StatusOf(*replicas).replicas(0).requests(), 1u);
  gate.Open();
  EXPECT_TRUE(reader.ReadToEnd().status.ok()) << reader.end->status;
}

TEST(ReplicasHandOverTest, APromptThatIsLateWhereItBelongsIsComputedWhereItIsNot) {
  FakeExecutorOptions slow = Copying();
  slow.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(150));
    return absl::OkStatus();
  };
  auto replicas = MakeReadyReplicas({Prompts(0, slow), Decode(1)}, ToyOptions());
  // Until its steps count as measured.
  for (uint32_t i = 1; i <= 2; ++i) ExpectAnswers(*replicas, {GreedyRequest(i, 200, 20)});
  const uint64_t before = StatusOf(*replicas).replicas(0).requests();
  EXPECT_EQ(before, 2u);
  EngineRequest urgent = GreedyRequest(3, 200, 5);
  urgent.deadline = absl::Now() + absl::Milliseconds(300);
  ExpectAnswers(*replicas, {urgent});
  EXPECT_EQ(StatusOf(*replicas).replicas(0).requests(), before);
}

TEST(ReplicasHandOverTest, WithoutAReplicaThatDecodesThePromptsReplicaGoesOn) {
  auto replicas = MakeReadyReplicas({Prompts(0), Prompts(1)}, ToyOptions());
  ExpectAnswers(*replicas, {GreedyRequest(1, 150, 20), GreedyRequest(2, 50, 20)});
  EXPECT_EQ(StatusOf(*replicas).replicas(0).handed_over(), 0u);
}

TEST(ReplicasHandOverTest, WorkersThatMakeNoCopiesKeepTheirRequests) {
  auto replicas = MakeReadyReplicas({Prompts(0), Decode(1, {})}, ToyOptions());
  ExpectAnswers(*replicas, {GreedyRequest(1, 150, 20)});
  EXPECT_EQ(StatusOf(*replicas).replicas(0).handed_over(), 0u);
}

TEST(ReplicasHandOverTest, AReplicaThatDecodesTakesNoMoreThanItHasPlacesFor) {
  EngineOptions options = ToyOptions();
  options.max_sequences = 2;
  FakeExecutorOptions decode = Copying();
  std::atomic<uint32_t> most = 0;
  decode.on_step = [&most](const StepBatch& step) {
    most = std::max(most.load(), step.header.num_sequences);
    return absl::OkStatus();
  };
  auto replicas = MakeReadyReplicas({Prompts(0), Decode(1, decode)}, options);
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 12; ++i) requests.push_back(GreedyRequest(i, 100, 120));
  ExpectAnswers(*replicas, requests);
  EXPECT_LE(most, 2u);
  EXPECT_GT(StatusOf(*replicas).replicas(0).handed_over(), 0u);
}

TEST(ReplicasHandOverTest, FewBlocksDelayHandOversAndEndNone) {
  // Barely one sequence; imports may hold half, and what a sender keeps of its window is in the way
  // of its own rows.
  FakeExecutorOptions small = Copying();
  small.limits.num_blocks[kGlobalGroup] = 33;
  small.limits.num_blocks[kWindowGroup] = 5;
  auto replicas = MakeReadyReplicas({Prompts(0, small), Decode(1, small)}, ToyOptions());
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 10; ++i) requests.push_back(GreedyRequest(i, 90 + 9 * i, 30));
  ExpectAnswers(*replicas, requests);
  EXPECT_TRUE(tandem::testing::Eventually([&replicas] { return IsEmpty(*replicas); }));
}

TEST(ReplicasHandOverTest, ACopyThatFailsCostsTheCopyAlone) {
  for (const bool read : {true, false}) {
    FakeExecutorOptions failing = Copying();
    std::atomic<int> copies = 0;
    failing.on_copy = [&copies](const KvCopy&) {
      return ++copies % 3 == 0 ? absl::InternalError("no copy") : absl::OkStatus();
    };
    auto replicas = read ? MakeReadyReplicas({Prompts(0, failing), Decode(1)}, ToyOptions())
                         : MakeReadyReplicas({Prompts(0), Decode(1, failing)}, ToyOptions());
    std::vector<EngineRequest> requests;
    for (uint32_t i = 0; i < 8; ++i) requests.push_back(GreedyRequest(i, 90 + 9 * i, 30));
    ExpectAnswers(*replicas, requests);
    EXPECT_GT(copies, 3);
    EXPECT_EQ(StatusOf(*replicas).recoveries(), 0u);
  }
}

// Either side is lost at some copy or step, again and again.
TEST(ReplicasHandOverTest, LossesOnEitherSideChangeNoStream) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const auto losing = [seed](uint32_t salt, uint32_t one_in) {
      auto random = std::make_shared<std::mt19937>(seed * 31 + salt);
      FakeExecutorOptions fake = Copying();
      const auto maybe_lose = [random, one_in] {
        return (*random)() % one_in == 0 ? absl::UnavailableError("gone") : absl::OkStatus();
      };
      fake.on_copy = [maybe_lose](const KvCopy&) { return maybe_lose(); };
      fake.on_step = [maybe_lose](const StepBatch&) { return maybe_lose(); };
      return fake;
    };
    EngineOptions options = ToyOptions();
    options.max_attempts = 1000;
    auto replicas = MakeReadyReplicas(
        {Prompts(0, losing(1, 40)), Decode(1, losing(2, 60)), Decode(2, losing(3, 90))}, options);
    std::vector<EngineRequest> requests;
    for (uint32_t i = 0; i < 24; ++i) {
      requests.push_back(GreedyRequest(i, 5 + (37 * i + seed) % 180, 1 + 13 * i % 60));
      if (i % 2 == 1) requests.back().sampling = {.temperature = 1.1f, .seed = i};
    }
    ExpectAnswers(*replicas, requests);
    // Where a request came from may learn a little later that it has ended.
    EXPECT_TRUE(tandem::testing::Eventually([&replicas] { return IsEmpty(*replicas); }));
  }
}

TEST(ReplicasHandOverTest, AReplicaThatLeavesHandsItsRequestsOver) {
  Gate begun;
  FakeExecutorOptions leaving = Copying();
  std::atomic<uint32_t> steps = 0, rows_elsewhere = 0;
  leaving.on_step = [&](const StepBatch&) {
    if (++steps == 12) begun.Open();
    if (steps >= 12) absl::SleepFor(absl::Milliseconds(2));
    return absl::OkStatus();
  };
  FakeExecutorOptions staying = Copying();
  staying.on_step = [&](const StepBatch& step) {
    rows_elsewhere += step.header.num_rows;
    return absl::OkStatus();
  };
  auto replicas = MakeReplicas({ToyStart(0, leaving)}, ToyOptions(), /*changes=*/true);
  EngineRequest request = GreedyRequest(1, 120, 100);
  StreamReader reader;
  ASSERT_TRUE(replicas->Submit(EngineRequest(request), reader.stream()).ok());
  begun.Wait();
  replicas->Update({ToyStart(1, staying)});
  EXPECT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(reader.tokens(), ExpectedTokens(request, ToyLimits()));
  EXPECT_EQ(reader.end->usage.replica(), 1u);
  EXPECT_LT(rows_elsewhere, 110u) << "the prompt was computed again";
}

TEST(ReplicasHandOverTest, ABurstIsSharedByTheReplicasThatDecode) {
  EngineOptions options = ToyOptions();
  options.max_sequences = 2;
  auto replicas = MakeReadyReplicas({Prompts(0), Decode(1), Decode(2)}, options);
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 8; ++i) requests.push_back(GreedyRequest(i, 100, 120));
  ExpectAnswers(*replicas, requests);
  const v1::GetStatusResponse status = StatusOf(*replicas);
  EXPECT_GT(status.replicas(1).kv_received_bytes(), 0u);
  EXPECT_GT(status.replicas(2).kv_received_bytes(), 0u);
}

TEST(ReplicasHandOverTest, WhatAReceiverCouldNeverHoldIsNotSent) {
  FakeExecutorOptions small = Copying(), other = Copying();
  small.limits.num_blocks[kGlobalGroup] = 44;  // imports may hold 22
  other.limits.block_tokens = 4;
  other.limits.max_table_len *= 2;
  for (const FakeExecutorOptions& decode : {small, other}) {
    auto replicas = MakeReadyReplicas({Prompts(0), Decode(1, decode)}, ToyOptions());
    ExpectAnswers(*replicas, {GreedyRequest(1, 200, 40)});
    EXPECT_EQ(StatusOf(*replicas).replicas(0).handed_over(), 0u);
    EXPECT_EQ(StatusOf(*replicas).replicas(0).kv_sent_bytes(), 0u);
  }
}

TEST(ReplicasHandOverTest, NoKvIsSentForAnAnswerThatEndsWithThePrompt) {
  // Time for KV to be copied before the last rows.
  FakeExecutorOptions prompts = Copying();
  prompts.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(20));
    return absl::OkStatus();
  };
  auto replicas = MakeReadyReplicas({Prompts(0, prompts), Decode(1)}, ToyOptions());
  ExpectAnswers(*replicas, {GreedyRequest(1, 150, 0), GreedyRequest(2, 150, 1)});
  const v1::GetStatusResponse status = StatusOf(*replicas);
  EXPECT_EQ(status.replicas(0).requests(), 2u);
  EXPECT_EQ(status.replicas(0).kv_sent_bytes(), 0u);
  EXPECT_EQ(status.replicas(0).handed_over(), 0u);
}

TEST(ReplicasHandOverTest, AnAnswerWhoseMasksAreMadeByOthersMovesAsSoonAsItsKvIsThere) {
  EngineOptions options = ToyOptions();
  options.quick_constraint_work = 0;
  auto replicas = MakeReadyReplicas({Prompts(0), Decode(1)}, options);
  EngineRequest request =
      testing::Constrained(1, 0.0f, testing::Compile(constraint::SourceKind::kRegex, "[a-e]{100}"));
  request.prompt = GreedyRequest(1, 100, 1).prompt;
  ExpectAnswers(*replicas, {request});
  EXPECT_EQ(StatusOf(*replicas).replicas(0).handed_over(), 1u);
}

TEST(ReplicasHandOverTest, ADrainWaitsForRequestsOnTheirWay) {
  // The first that is waited for has none when the drain begins.
  auto replicas = MakeReadyReplicas({Decode(0), Prompts(1)}, ToyOptions());
  const EngineRequest request = GreedyRequest(1, 150, 100);
  StreamReader reader;
  ASSERT_TRUE(replicas->Submit(EngineRequest(request), reader.stream()).ok());
  replicas->Drain(absl::Minutes(1));
  replicas->Stop();
  EXPECT_TRUE(reader.ReadToEnd().status.ok()) << reader.end->status;
  EXPECT_EQ(reader.tokens(), ExpectedTokens(request, ToyLimits()));
}

TEST(ReplicasHandOverTest, KvThatGaveNaNIsForgottenWhereItWasSent) {
  // Time for some of its KV to be copied before the last rows.
  FakeExecutorOptions prompts = Copying();
  prompts.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(20));
    return absl::OkStatus();
  };
  auto replicas = MakeReadyReplicas({Prompts(0, prompts), Decode(1)}, ToyOptions());
  EngineRequest request = GreedyRequest(1, 180, 20);
  request.prompt.back() = testing::kToyPoison;
  StreamReader reader;
  ASSERT_TRUE(replicas->Submit(EngineRequest(request), reader.stream()).ok());
  EXPECT_TRUE(absl::IsDataLoss(reader.ReadToEnd().status)) << reader.end->status;
  EXPECT_TRUE(tandem::testing::Eventually(
      [&replicas] { return StatusOf(*replicas).replicas(1).kv_received_bytes() > 0; }));
  EXPECT_TRUE(tandem::testing::Eventually([&replicas] {
    return StatusOf(*replicas).replicas(1).scheduler().kv_blocks_cached(0) == 0 &&
           IsEmpty(*replicas);
  }));
}

TEST(ReplicasHandOverTest, ACopyThatCostsAWorkerIsNotTriedAgain) {
  std::atomic<int> copies = 0;
  FakeExecutorOptions fatal = Copying();
  fatal.on_copy = [&copies](const KvCopy&) {
    ++copies;
    return absl::UnavailableError("gone");
  };
  for (const bool sender : {true, false}) {
    copies = 0;
    auto replicas = sender ? MakeReadyReplicas({Prompts(0, fatal), Decode(1)}, ToyOptions())
                           : MakeReadyReplicas({Prompts(0), Decode(1, fatal)}, ToyOptions());
    ExpectAnswers(*replicas, {GreedyRequest(1, 150, 100)});
    EXPECT_EQ(copies, 1);
  }
}

TEST(ReplicasHandOverTest, ACopyThatAMoveOfThePlacementStopsIsMadeAgain) {
  for (const bool sender : {true, false}) {
    std::atomic<int> copies = 0;
    FakeExecutorOptions moves = Copying();
    moves.on_copy = [&copies](const KvCopy&) {
      return ++copies == 1 ? PlacementMovedError("another is better") : absl::OkStatus();
    };
    auto replicas = sender ? MakeReadyReplicas({Prompts(0, moves), Decode(1)}, ToyOptions())
                           : MakeReadyReplicas({Prompts(0), Decode(1, moves)}, ToyOptions());
    ExpectAnswers(*replicas, {GreedyRequest(1, 100, 140)});
    EXPECT_GT(copies, 1);
    EXPECT_EQ(StatusOf(*replicas).replicas(0).handed_over(), 1u);
  }
}

}  // namespace
}  // namespace tandem::gateway

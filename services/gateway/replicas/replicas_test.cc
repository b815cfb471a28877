#include "services/gateway/replicas/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "services/gateway/executor/model_changed.h"
#include "services/gateway/replicas/testing/toy_replicas.h"

namespace tandem::gateway {
namespace {

using testing::AwaitState;
using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::Gate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::MakeReadyReplicas;
using testing::MakeReplicas;
using testing::StatusOf;
using testing::StreamReader;
using testing::ToyLimits;
using testing::ToyStart;

EngineOptions SmallOptions() {
  return {.max_sequences = 4, .max_rows = 64, .chunk_rows = 16, .max_waiting = 4};
}

// The replica that answered.
uint32_t Answer(Replicas& replicas, const EngineRequest& request) {
  StreamReader reader;
  EXPECT_TRUE(replicas.Submit(request, reader.stream()).ok());
  const StreamEnd& end = reader.ReadToEnd();
  EXPECT_TRUE(end.status.ok()) << end.status;
  EXPECT_EQ(reader.tokens(), ExpectedTokens(request, ToyLimits()));
  return end.usage.replica();
}

TEST(ReplicasTest, OneReplicaIsPassedThrough) {
  auto replicas = MakeReplicas({ToyStart(0)}, SmallOptions());
  EXPECT_EQ(Answer(*replicas, GreedyRequest(1, 10, 5)), 0u);
  EXPECT_EQ(StatusOf(*replicas).replicas_size(), 0);
  EXPECT_EQ(replicas->placement(), "everything on toy0");
  EXPECT_FALSE(replicas->waiting());
}

TEST(ReplicasTest, RequestsThatComeTogetherAreShared) {
  Gate gate;
  FakeExecutorOptions fake;
  fake.on_step = [&gate](const StepBatch&) {
    gate.Wait();
    return absl::OkStatus();
  };
  auto replicas =
      MakeReadyReplicas({ToyStart(0, fake), ToyStart(1, fake), ToyStart(2, fake)}, SmallOptions());
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (uint32_t i = 0; i < 9; ++i) {
    readers.push_back(std::make_unique<StreamReader>());
    ASSERT_TRUE(replicas->Submit(GreedyRequest(i, 20, 10), readers.back()->stream()).ok());
  }
  gate.Open();
  for (uint32_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(readers[i]->ReadToEnd().status.ok());
    EXPECT_EQ(readers[i]->tokens(), ExpectedTokens(GreedyRequest(i, 20, 10), ToyLimits()));
  }
  const v1::GetStatusResponse status = StatusOf(*replicas);
  EXPECT_EQ(status.state(), "ready");
  EXPECT_EQ(status.placement(), "everything on toy0; everything on toy1; everything on toy2");
  EXPECT_EQ(status.scheduler().max_sequences(), 12u);
  EXPECT_EQ(status.scheduler().completion_tokens(), 90u);
  ASSERT_EQ(status.replicas_size(), 3);
  for (const v1::ReplicaStatus& replica : status.replicas()) {
    EXPECT_EQ(replica.requests(), 3u);
    EXPECT_EQ(replica.state(), "ready");
  }
}

TEST(ReplicasTest, ARequestGoesWhereItsPromptBegan) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(8));  // so that measured times differ little
    return absl::OkStatus();
  };
  auto replicas = MakeReadyReplicas({ToyStart(0, fake), ToyStart(1, fake)}, SmallOptions());
  std::set<uint32_t> used;
  for (uint32_t conversation = 0; conversation < 6; ++conversation) {
    EngineRequest request = GreedyRequest(conversation, 80, 8);
    const uint32_t first = Answer(*replicas, request);
    used.insert(first);
    for (int turn = 0; turn < 3; ++turn) {
      const std::vector<uint32_t> answer = ExpectedTokens(request, ToyLimits());
      request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
      EXPECT_EQ(Answer(*replicas, request), first);
    }
  }
  EXPECT_EQ(used.size(), 2u);
  uint64_t known = 0;
  const v1::GetStatusResponse status = StatusOf(*replicas);
  for (const v1::ReplicaStatus& replica : status.replicas()) {
    known += replica.prefix_requests();
  }
  EXPECT_EQ(known, 18u);
}

TEST(ReplicasTest, AFullReplicaIsPassedOverAndAllFullRefuse) {
  Gate gate;
  FakeExecutorOptions fake;
  fake.on_step = [&gate](const StepBatch&) {
    gate.Wait();
    return absl::OkStatus();
  };
  auto replicas = MakeReadyReplicas({ToyStart(0, fake), ToyStart(1, fake)}, SmallOptions());
  std::vector<std::unique_ptr<StreamReader>> readers;
  // The same prompt, which one replica has first.
  for (uint32_t i = 0; i < 16; ++i) {
    readers.push_back(std::make_unique<StreamReader>());
    ASSERT_TRUE(replicas->Submit(GreedyRequest(1, 40, 5), readers.back()->stream()).ok()) << i;
  }
  StreamReader one_more;
  const absl::Status full = replicas->Submit(GreedyRequest(1, 40, 5), one_more.stream());
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  gate.Open();
  for (const auto& reader : readers) EXPECT_TRUE(reader->ReadToEnd().status.ok());
}

TEST(ReplicasTest, APromptThatFitsNowhereIsRefusedOnce) {
  auto replicas = MakeReadyReplicas({ToyStart(0), ToyStart(1)}, SmallOptions());
  StreamReader reader;
  const absl::Status refused = replicas->Submit(GreedyRequest(1, 500, 5), reader.stream());
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("context_length_exceeded"));
}

TEST(ReplicasTest, AReplicaJoinsWhenItCanBeLoaded) {
  std::atomic<bool> there = false;
  ReplicaStart late = ToyStart(1);
  late.start =
      [&there, start = late.start](
          const Executor::Progress& progress) -> absl::StatusOr<std::unique_ptr<Executor>> {
    progress("waiting for gpu1", 0.0);
    if (!there) return absl::UnavailableError("gpu1: no worker answers at unix:/run/gpu1.sock");
    return start(progress);
  };
  auto replicas = MakeReplicas({ToyStart(0), late}, SmallOptions());
  EXPECT_EQ(Answer(*replicas, GreedyRequest(1, 10, 5)), 0u);
  EXPECT_TRUE(replicas->waiting());
  while (StatusOf(*replicas).replicas(1).detail().find("no worker answers") == std::string::npos) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(StatusOf(*replicas).state(), "ready");
  EXPECT_THAT(StatusOf(*replicas).detail(), HasSubstr("replica 1: "));
  there = true;
  AwaitState(*replicas, 1, "ready");
  EXPECT_EQ(Answer(*replicas, GreedyRequest(2, 10, 5)), 1u);
  EXPECT_FALSE(replicas->waiting());
}

TEST(ReplicasTest, ReplicasComeAndLeaveWithoutCuttingAStream) {
  Gate gate;
  FakeExecutorOptions slow;
  slow.on_step = [&gate](const StepBatch& step) {
    if (step.header.step_id == 3) gate.Wait();
    return absl::OkStatus();
  };
  auto replicas = MakeReplicas({ToyStart(0, slow)}, SmallOptions(), /*changes=*/true);
  StreamReader reader;
  const EngineRequest request = GreedyRequest(1, 10, 30);
  ASSERT_TRUE(replicas->Submit(request, reader.stream()).ok());
  // The first is to leave.  Until another serves it takes requests, then it ends those that it has.
  replicas->Update({ToyStart(5)});
  AwaitState(*replicas, 0, "leaving");
  AwaitState(*replicas, 1, "ready");
  EXPECT_EQ(Answer(*replicas, GreedyRequest(2, 10, 5)), 1u);
  EXPECT_EQ(StatusOf(*replicas).replicas_size(), 2);
  gate.Open();
  EXPECT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(reader.tokens(), ExpectedTokens(request, ToyLimits()));
  EXPECT_EQ(reader.end->usage.replica(), 0u);
  while (StatusOf(*replicas).replicas_size() > 1) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(StatusOf(*replicas).placement(), "everything on toy5");
  // It comes again, as another replica.
  replicas->Update({ToyStart(5), ToyStart(0)});
  while (StatusOf(*replicas).replicas_size() < 2) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(StatusOf(*replicas).replicas(1).replica(), 2u);
  AwaitState(*replicas, 1, "ready");
  EXPECT_EQ(StatusOf(*replicas).state(), "ready");
}

TEST(ReplicasTest, TheLastReplicaServesUntilAnotherDoes) {
  Gate gate;
  ReplicaStart late = ToyStart(1);
  late.start = [&gate, start = late.start](const Executor::Progress& progress) {
    gate.Wait();
    return start(progress);
  };
  auto replicas = MakeReplicas({ToyStart(0)}, SmallOptions(), /*changes=*/true);
  replicas->Update({late});
  AwaitState(*replicas, 0, "leaving");
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(Answer(*replicas, GreedyRequest(i, 10, 5)), 0u);
    absl::SleepFor(absl::Milliseconds(30));
  }
  gate.Open();
  while (StatusOf(*replicas).replicas_size() > 1) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(Answer(*replicas, GreedyRequest(1, 10, 5)), 1u);
}

// Streams from several threads while replicas come and leave.
TEST(ReplicasTest, NoStreamIsCutByReplicasThatComeAndLeave) {
  auto replicas = MakeReplicas({ToyStart(0)}, {.max_sequences = 8, .max_waiting = 100}, true);
  std::atomic<bool> done = false;
  std::vector<std::thread> clients;
  for (uint32_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (uint32_t i = 0; !done || i < 20; ++i)
        Answer(*replicas, GreedyRequest(client + i, 9, 20));
    });
  }
  for (uint32_t round = 1; round < 12; ++round) {
    replicas->Update(round % 3 == 0 ? std::vector{ToyStart(round), ToyStart(round + 100)}
                                    : std::vector{ToyStart(round)});
    absl::SleepFor(absl::Milliseconds(40));
  }
  done = true;
  for (std::thread& client : clients) client.join();
}

TEST(ReplicasTest, AReplicaOfAnotherModelDoesNotJoin) {
  FakeExecutorOptions other;
  other.model_id = "toy-2";
  auto replicas = MakeReplicas({ToyStart(0), ToyStart(1, other)}, SmallOptions());
  AwaitState(*replicas, 1, "failed");
  EXPECT_THAT(StatusOf(*replicas).replicas(1).detail(), HasSubstr("file has changed"));
  EXPECT_EQ(Answer(*replicas, GreedyRequest(1, 10, 5)), 0u);
}

TEST(ReplicasTest, ALostModelEndsAReplicaAndTheLastOneEndsAll) {
  std::atomic<bool> lost[2] = {false, false};
  std::vector<ReplicaStart> starts;
  for (uint32_t r = 0; r < 2; ++r) {
    FakeExecutorOptions fake;
    fake.on_check = [&lost, r] {
      return lost[r] ? absl::UnavailableError("gone") : absl::OkStatus();
    };
    fake.on_recover = [](StepLimits&) { return ModelChangedError("the file has changed"); };
    starts.push_back(ToyStart(r, fake));
  }
  EngineOptions options = SmallOptions();
  options.idle_check = absl::Milliseconds(1);
  Gate ended;
  options.on_model_changed = [&ended] { ended.Open(); };
  auto replicas = MakeReadyReplicas(std::move(starts), options);
  lost[0] = true;
  AwaitState(*replicas, 0, "failed");
  EXPECT_EQ(Answer(*replicas, GreedyRequest(1, 10, 5)), 1u);
  lost[1] = true;
  ended.Wait();
  StreamReader reader;
  const absl::Status refused = replicas->Submit(GreedyRequest(1, 10, 5), reader.stream());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem::gateway

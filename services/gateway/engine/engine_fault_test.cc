#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "services/gateway/engine/engine.h"
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

EngineOptions FastOptions() {
  return {.max_sequences = 8,
          .max_rows = 64,
          .chunk_rows = 16,
          .max_waiting = 100,
          .down_wait = absl::Milliseconds(50),
          .min_recovery_pause = absl::Milliseconds(1),
          .max_recovery_pause = absl::Milliseconds(5)};
}

TEST(EngineFaultTest, ALostWorkerChangesNoTokenOfGreedyOrSampledStreams) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch& step) {
    return step.header.step_id % 7 == 5 ? absl::UnavailableError("gpu0 is gone") : absl::OkStatus();
  };
  auto engine = MakeEngine(fake, FastOptions());
  std::vector<std::unique_ptr<StreamReader>> readers;
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 6; ++i) {
    requests.push_back(GreedyRequest(i, 10 + 9 * i, 25));
    if (i % 2 == 1) requests.back().sampling = {.temperature = 1.2f, .seed = 77 + i};
    requests.back().prompt_logprobs = i == 2;
    readers.push_back(std::make_unique<StreamReader>());
    ASSERT_TRUE(engine->Submit(requests[i], readers[i]->stream()).ok());
  }
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(readers[i]->ReadToEnd().status.ok()) << readers[i]->end->status;
    EXPECT_EQ(readers[i]->tokens(), ExpectedTokens(requests[i], ToyLimits())) << i;
  }
  EXPECT_EQ(readers[2]->prompt.size(), requests[2].prompt.size() - 1);
  v1::GetStatusResponse status;
  engine->FillStatus(status);
  EXPECT_GE(status.recoveries(), 3u);
  EXPECT_EQ(status.state(), "ready");
}

TEST(EngineFaultTest, AnyOtherErrorFailsTheRequestsOfThatStepAlone) {
  std::atomic<bool> fail = true;
  FakeExecutorOptions fake;
  fake.on_step = [&](const StepBatch&) {
    return fail.exchange(false) ? absl::InternalError("segment 3: no") : absl::OkStatus();
  };
  auto engine = MakeEngine(fake, FastOptions());
  StreamReader first;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 5, 5), first.stream()).ok());
  EXPECT_EQ(first.ReadToEnd().status.code(), absl::StatusCode::kInternal);
  StreamReader second;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 5, 5), second.stream()).ok());
  EXPECT_TRUE(second.ReadToEnd().status.ok());
}

TEST(EngineFaultTest, LogitsThatAreNotFiniteFailTheirRequestAlone) {
  auto engine = MakeEngine();
  EngineRequest healthy = GreedyRequest(1, 20, 30);
  EngineRequest poisoned = GreedyRequest(2, 20, 30);
  poisoned.prompt.back() = testing::kToyPoison;
  EngineRequest poisoned_prompt = GreedyRequest(3, 20, 30);
  poisoned_prompt.prompt[10] = testing::kToyPoison;
  poisoned_prompt.prompt_logprobs = true;
  StreamReader a, b, c;
  ASSERT_TRUE(engine->Submit(healthy, a.stream()).ok());
  ASSERT_TRUE(engine->Submit(poisoned, b.stream()).ok());
  ASSERT_TRUE(engine->Submit(poisoned_prompt, c.stream()).ok());
  EXPECT_EQ(b.ReadToEnd().status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(c.ReadToEnd().status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(a.ReadToEnd().status.ok());
  EXPECT_EQ(a.tokens(), ExpectedTokens(healthy, ToyLimits()));
}

TEST(EngineFaultTest, AWorkerLostWhileNothingRunsIsFoundAndRecovered) {
  std::atomic<bool> lose = true;
  std::atomic<int> recoveries = 0;
  FakeExecutorOptions fake;
  fake.on_check = [&] {
    return lose.exchange(false) ? absl::UnavailableError("npu0 is gone") : absl::OkStatus();
  };
  Gate ready;
  EngineOptions options = FastOptions();
  options.idle_check = absl::Milliseconds(1);
  options.on_ready_change = [&](bool is_ready) {
    if (!is_ready) return;
    ++recoveries;
    ready.Open();
  };
  auto engine = MakeEngine(fake, options);
  ready.Wait();
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 5, 5), reader.stream()).ok());
  EXPECT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(recoveries.load(), 1);
}

TEST(EngineFaultTest, ARequestThatKeepsKillingTheWorkerIsGivenUp) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch& step) {
    for (const RowEntry& row : step.rows) {
      if (row.token == testing::kToyPoison) return absl::UnavailableError("device lost");
    }
    return absl::OkStatus();
  };
  auto engine = MakeEngine(fake, FastOptions());
  EngineRequest killer = GreedyRequest(1, 5, 5);
  killer.prompt.back() = testing::kToyPoison;
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(killer, reader.stream()).ok());
  const StreamEnd& end = reader.ReadToEnd();
  EXPECT_EQ(end.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(end.status.message()), HasSubstr("3 times"));
  StreamReader next;
  ASSERT_TRUE(engine->Submit(GreedyRequest(2, 5, 5), next.stream()).ok());
  EXPECT_TRUE(next.ReadToEnd().status.ok());
}

TEST(EngineFaultTest, WhenRecoveryFailsRequestsEndAndLaterOnesWorkOnceItSucceeds) {
  std::atomic<bool> lose = true;
  std::atomic<bool> back = false;
  std::atomic<int> attempts = 0;
  std::atomic<int> ready_changes = 0;
  FakeExecutorOptions fake;
  fake.on_step = [&](const StepBatch&) {
    return lose.exchange(false) ? absl::UnavailableError("npu0 is gone") : absl::OkStatus();
  };
  fake.on_recover = [&](StepLimits&) {
    ++attempts;
    return back.load() ? absl::OkStatus() : absl::UnavailableError("npu0 does not answer");
  };
  EngineOptions options = FastOptions();
  options.on_ready_change = [&](bool) { ++ready_changes; };
  auto engine = MakeEngine(fake, options);
  StreamReader first;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 5, 5), first.stream()).ok());
  const absl::Status status = first.ReadToEnd().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("npu0 does not answer"));

  StreamReader waits_in_vain;
  ASSERT_TRUE(engine->Submit(GreedyRequest(2, 5, 5), waits_in_vain.stream()).ok());
  EXPECT_EQ(waits_in_vain.ReadToEnd().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_GE(attempts.load(), 1);
  v1::GetStatusResponse gateway;
  engine->FillStatus(gateway);
  EXPECT_EQ(gateway.state(), "recovering");
  EXPECT_THAT(gateway.detail(), HasSubstr("npu0"));

  back = true;
  absl::Status last;
  for (int i = 0; i < 1000; ++i) {
    StreamReader later;
    ASSERT_TRUE(engine->Submit(GreedyRequest(3, 5, 5), later.stream()).ok());
    last = later.ReadToEnd().status;
    if (last.ok()) break;
  }
  EXPECT_TRUE(last.ok()) << last;
  EXPECT_GE(ready_changes.load(), 2);
}

TEST(EngineFaultTest, CancellationAndDeadlinesAreHonouredDuringARecovery) {
  Gate recovering;
  Gate release;
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch& step) {
    return step.header.step_id == 1 ? absl::UnavailableError("gone") : absl::OkStatus();
  };
  fake.on_recover = [&](StepLimits&) {
    recovering.Open();
    release.Wait();
    return absl::OkStatus();
  };
  auto engine = MakeEngine(fake, FastOptions());
  StreamReader stays, cancelled, late;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 5, 5), stays.stream()).ok());
  recovering.Wait();
  ASSERT_TRUE(engine->Submit(GreedyRequest(2, 5, 5), cancelled.stream()).ok());
  EngineRequest hurried = GreedyRequest(3, 5, 5);
  hurried.deadline = absl::Now();
  ASSERT_TRUE(engine->Submit(hurried, late.stream()).ok());
  cancelled.stream()->Cancel();
  EXPECT_EQ(cancelled.ReadToEnd().status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(late.ReadToEnd().status.code(), absl::StatusCode::kDeadlineExceeded);
  release.Open();
  EXPECT_TRUE(stays.ReadToEnd().status.ok());
}

// Takes nothing, and counts the tokens of Keeps.
class NotingNeighbours final : public Neighbours {
 public:
  bool ready() const override { return false; }
  bool Offer(const EngineRequest&, const std::shared_ptr<KvHandOver>&) override { return false; }
  bool Take(std::unique_ptr<MovedRequest>&) override { return false; }
  void Keeps(const EngineRequest&, std::span<const uint32_t> tokens) override {
    num_kept_ = tokens.size();
  }
  size_t num_kept() const { return num_kept_; }

 private:
  std::atomic<size_t> num_kept_ = 0;
};

TEST(EngineFaultTest, WhatARequestKeepsIsCountedInTheBlocksThatItHad) {
  Gate recovering;
  Gate release;
  FakeExecutorOptions fake;
  // The prompt takes two steps, and 17 more tokens are computed: 37 rows, four blocks.
  fake.on_step = [](const StepBatch& step) {
    return step.header.step_id == 20 ? absl::UnavailableError("gone") : absl::OkStatus();
  };
  fake.on_recover = [&](StepLimits& limits) {
    limits.block_tokens *= 2;
    recovering.Open();
    release.Wait();
    return absl::OkStatus();
  };
  NotingNeighbours neighbours;
  EngineOptions options = FastOptions();
  options.neighbours = &neighbours;
  auto engine = MakeEngine(fake, options);
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 20, 60), reader.stream()).ok());
  recovering.Wait();
  reader.stream()->Cancel();
  EXPECT_EQ(reader.ReadToEnd().status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(neighbours.num_kept(), 4 * ToyLimits().block_tokens);
  release.Open();
}

TEST(EngineFaultTest, WhenTheLimitsOfNewWorkersAreRefusedLaterRequestsWaitForTheNextAttempt) {
  Gate recovering;
  Gate release;
  std::atomic<int> attempts = 0;
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch& step) {
    return step.header.step_id == 1 ? absl::UnavailableError("gone") : absl::OkStatus();
  };
  fake.on_recover = [&](StepLimits& limits) {
    limits = ToyLimits();
    if (++attempts > 1) return absl::OkStatus();
    limits.max_table_len = 1;
    recovering.Open();
    release.Wait();
    return absl::OkStatus();
  };
  EngineOptions options = FastOptions();
  options.down_wait = absl::Minutes(5);
  auto engine = MakeEngine(fake, options);
  StreamReader earlier, later;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 5, 5), earlier.stream()).ok());
  recovering.Wait();
  ASSERT_TRUE(engine->Submit(GreedyRequest(2, 5, 5), later.stream()).ok());
  release.Open();
  const absl::Status status = earlier.ReadToEnd().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_table_len is 1"));
  EXPECT_TRUE(later.ReadToEnd().status.ok());
  EXPECT_EQ(attempts.load(), 2);
}

TEST(EngineFaultTest, ARequestThatSmallerWorkersCannotHoldEndsClearly) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch& step) {
    return step.header.step_id == 20 ? absl::UnavailableError("gone") : absl::OkStatus();
  };
  fake.on_recover = [](StepLimits& limits) {
    limits.num_blocks[kGlobalGroup] = 10;  // 81 tokens
    return absl::OkStatus();
  };
  auto engine = MakeEngine(fake, FastOptions());
  StreamReader big, small;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 100, 100), big.stream()).ok());
  const EngineRequest fits = GreedyRequest(2, 10, 40);
  ASSERT_TRUE(engine->Submit(fits, small.stream()).ok());
  EXPECT_EQ(big.ReadToEnd().status.code(), absl::StatusCode::kResourceExhausted);
  v1::GetStatusResponse gateway;
  engine->FillStatus(gateway);
  EXPECT_EQ(gateway.state(), "ready");
  EXPECT_EQ(gateway.recoveries(), 1u);
  EXPECT_TRUE(small.ReadToEnd().status.ok());
  EXPECT_EQ(small.tokens(), ExpectedTokens(fits, ToyLimits()));
  EXPECT_EQ(engine->max_sequence_len(), 81u);
}

}  // namespace
}  // namespace tandem::gateway

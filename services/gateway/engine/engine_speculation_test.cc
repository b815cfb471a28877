// Guesses of drafters change no token, log-probability or text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "services/common/testing/eventually.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/engine_harness.h"
#include "services/gateway/speculation/lookup_drafter.h"
#include "services/gateway/speculation/testing/scripted_drafter.h"

namespace tandem::gateway {
namespace {

using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using testing::MakeEngine;
using testing::Script;
using testing::ScriptedDrafter;
using testing::StreamReader;
using testing::ToyLimits;

// A step takes as long whatever its rows.
FakeExecutorOptions FlatExecutor() {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Microseconds(300));
    return absl::OkStatus();
  };
  return fake;
}

// One of every kind of request whose answer depends on more than logits.
std::vector<EngineRequest> Requests() {
  std::vector<EngineRequest> requests;
  const auto add = [&](SamplingParams sampling) -> EngineRequest& {
    const auto i = static_cast<uint32_t>(requests.size());
    EngineRequest& request = requests.emplace_back(GreedyRequest(i, 3 + 7 * i, 40));
    sampling.seed = 50 + i;
    request.sampling = sampling;
    return request;
  };
  add({.temperature = 0.0f});
  add({.temperature = 1.0f});
  add({.temperature = 0.9f, .top_k = 0, .top_p = 0.9f});  // needs every logit
  add({.temperature = 0.8f, .top_k = 40, .min_p = 0.05f});
  add({.temperature = 0.0f, .repetition_penalty = 1.3f});
  add({.temperature = 1.1f, .top_k = 30, .presence_penalty = 0.7f, .frequency_penalty = 0.4f});
  add({.temperature = 1.0f, .presence_penalty = -0.5f});  // needs every logit from token 2 on
  // Its needs grow from candidates to logits as tokens are touched.
  add({.temperature = 1.0f, .top_k = 110, .frequency_penalty = 0.3f}).max_tokens = 60;
  add({.temperature = 1.0f, .logit_bias = {{270, 4.0f}, {280, -100.0f}}});
  add({.temperature = 1.0f, .repetition_penalty = 1.2f, .penalty_window = 8});
  add({.temperature = 1.0f}).num_alternatives = 5;
  add({.temperature = 0.0f}).prompt_logprobs = true;
  add({.temperature = 1.0f}).ignore_eos = false;
  add({.temperature = 1.0f}).stops = {"e", "th"};
  // Choices of one request.
  const EngineRequest choice = add({.temperature = 1.2f});
  for (uint64_t n = 1; n < 4; ++n) {
    EngineRequest other = choice;
    other.sampling.seed += 1000 * n;
    requests.push_back(other);
  }
  return requests;
}

struct Result {
  std::vector<Decision> decisions;
  std::vector<Decision> prompt;
  std::string text;
  v1::FinishReason reason;
  v1::Usage usage;
};

std::vector<Result> RunAll(Engine& engine, const std::vector<EngineRequest>& requests) {
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (const EngineRequest& request : requests) {
    readers.push_back(std::make_unique<StreamReader>());
    EXPECT_TRUE(engine.Submit(request, readers.back()->stream()).ok());
  }
  std::vector<Result> results;
  for (const auto& reader : readers) {
    const StreamEnd& end = reader->ReadToEnd();
    EXPECT_TRUE(end.status.ok()) << end.status;
    results.push_back({reader->decisions, reader->prompt, reader->text, end.reason, end.usage});
  }
  return results;
}

void ExpectSame(const std::vector<Decision>& a, const std::vector<Decision>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].token, b[i].token) << "token " << i;
    ASSERT_EQ(a[i].logprob, b[i].logprob) << "token " << i;
    ASSERT_EQ(a[i].alternatives.size(), b[i].alternatives.size());
    for (size_t k = 0; k < a[i].alternatives.size(); ++k) {
      ASSERT_EQ(a[i].alternatives[k].token, b[i].alternatives[k].token);
      ASSERT_EQ(a[i].alternatives[k].logprob, b[i].alternatives[k].logprob);
    }
  }
}

struct DraftVariant {
  const char* name;
  Script script;
  bool queue_steps = true;
  bool lookup = false;
};

class EngineSpeculationTest : public ::testing::TestWithParam<DraftVariant> {
 protected:
  // An engine whose drafter knows the tokens of `results`.
  std::unique_ptr<Engine> MakeDrafted(const std::vector<EngineRequest>& requests,
                                      const std::vector<Result>& results,
                                      FakeExecutorOptions fake) {
    fake.queue_steps = GetParam().queue_steps;
    EngineOptions options{.max_sequences = 8,
                          .max_rows = 64,
                          .chunk_rows = 16,
                          .max_waiting = 1000,
                          .min_recovery_pause = absl::Milliseconds(1)};
    options.step_seconds = [](uint32_t) { return 1.0; };  // every guess pays
    options.make_drafters = [&](const Executor&, const Executor::Progress&) -> auto{
      std::vector<std::unique_ptr<Drafter>> drafters;
      Script script = GetParam().script;
      script.vocab_size = ToyLimits().vocab_size;
      auto scripted = std::make_unique<ScriptedDrafter>(script);
      for (size_t i = 0; i < requests.size(); ++i) {
        std::vector<uint32_t> answer;
        for (const Decision& decision : results[i].decisions) answer.push_back(decision.token);
        scripted->Teach(requests[i].prompt, answer);
      }
      drafters.push_back(std::move(scripted));
      if (GetParam().lookup) drafters.push_back(std::make_unique<LookupDrafter>());
      return absl::StatusOr<std::vector<std::unique_ptr<Drafter>>>(std::move(drafters));
    };
    return MakeEngine(std::move(fake), std::move(options));
  }

  void ExpectEqualAnswers(FakeExecutorOptions fake) {
    const std::vector<EngineRequest> requests = Requests();
    const auto undrafted = MakeEngine();
    const std::vector<Result> plain = RunAll(*undrafted, requests);
    EXPECT_EQ(undrafted->counters().near_ties, 0u) << "of answers with guesses alone";
    const auto engine = MakeDrafted(requests, plain, std::move(fake));
    for (int round = 0; round < 3; ++round) {
      const std::vector<Result> drafted = RunAll(*engine, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(::testing::Message() << "request " << i << " round " << round);
        ExpectSame(drafted[i].decisions, plain[i].decisions);
        ExpectSame(drafted[i].prompt, plain[i].prompt);
        EXPECT_EQ(drafted[i].text, plain[i].text);
        EXPECT_EQ(drafted[i].reason, plain[i].reason);
        accepted_ += drafted[i].usage.accepted_prediction_tokens();
        rejected_ += drafted[i].usage.rejected_prediction_tokens();
        tokens_ += drafted[i].decisions.size();
        if (HasFatalFailure()) return;
      }
    }
    engine->FillStatus(status_);
    near_ties_ = engine->counters().near_ties;
    uint64_t accepted = 0, verified = 0;
    for (const v1::DrafterStatus& drafter : status_.scheduler().drafters()) {
      accepted += drafter.accepted_tokens();
      verified += drafter.drafted_tokens();
    }
    EXPECT_EQ(accepted, accepted_) << "usage and status agree";
    EXPECT_EQ(verified - accepted, rejected_);
  }

  uint64_t accepted_ = 0;
  uint64_t rejected_ = 0;
  uint64_t tokens_ = 0;
  uint64_t near_ties_ = 0;
  v1::GetStatusResponse status_;
};

TEST_P(EngineSpeculationTest, AnswersAreTheSame) {
  ExpectEqualAnswers(FlatExecutor());
  const Script& script = GetParam().script;
  if (script.right > 0.9) {
    EXPECT_GT(accepted_, tokens_ / 20);
    // The toy's logits are 1/37 apart: many draws are near ties, but not all.
    EXPECT_GT(near_ties_, 0u);
    EXPECT_LT(near_ties_, tokens_);
  }
  // Guesses that are never right may never be verified.
  if (script.right == 0.0) return;
  if (script.right < 0.9) {
    EXPECT_GT(rejected_, 20u);
  }
  EXPECT_GT(status_.scheduler().steps_drafted(), 0u);
}

TEST_P(EngineSpeculationTest, AnswersAreTheSameWithPreemptionsAndLostWorkers) {
  FakeExecutorOptions fake = FlatExecutor();
  fake.limits.num_blocks[kGlobalGroup] = 40;
  fake.limits.num_blocks[kWindowGroup] = 30;
  fake.wrong_guess_in = 4;
  fake.on_step = [flat = fake.on_step](const StepBatch& step) {
    if (step.header.step_id % 23 == 17) return absl::UnavailableError("gone");
    return flat(step);
  };
  ExpectEqualAnswers(std::move(fake));
  EXPECT_GT(status_.recoveries(), 3u);
  EXPECT_GT(status_.scheduler().preemptions(), 0u);
  if (GetParam().script.right > 0.0) {
    EXPECT_GT(status_.scheduler().steps_drafted(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Drafters, EngineSpeculationTest,
    ::testing::Values(DraftVariant{"Right", {.right = 1.0, .promise = 0.95f, .longest = 15}},
                      DraftVariant{"RightStepByStep", {.right = 1.0, .promise = 0.95f}, false},
                      DraftVariant{"OftenRight", {.right = 0.7}},
                      DraftVariant{"OftenWrong", {.right = 0.3}},
                      DraftVariant{"OftenWrongStepByStep", {.right = 0.3}, false},
                      DraftVariant{"AlwaysWrong", {.right = 0.0}},
                      DraftVariant{"Late",
                                   {.right = 0.9, .takes = absl::Microseconds(50), .late_by = 2}},
                      DraftVariant{"TwoDrafters", {.right = 0.8, .longest = 3}, true, true}),
    [](const auto& test) { return test.param.name; });

TEST(EngineDraftersTest, AcceptedGuessesSaveSteps) {
  EngineRequest request = GreedyRequest(1, 10, 60);
  const std::vector<uint32_t> answer = ExpectedTokens(request, ToyLimits());
  request.prediction = answer;
  EngineOptions options{.max_sequences = 8, .max_rows = 64, .chunk_rows = 16, .max_waiting = 10};
  options.make_drafters = [](const Executor&, const Executor::Progress&) {
    std::vector<std::unique_ptr<Drafter>> drafters;
    drafters.push_back(std::make_unique<LookupDrafter>());
    return absl::StatusOr<std::vector<std::unique_ptr<Drafter>>>(std::move(drafters));
  };
  auto engine = MakeEngine(FlatExecutor(), options);
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  const StreamEnd& end = reader.ReadToEnd();
  ASSERT_TRUE(end.status.ok());
  EXPECT_EQ(reader.tokens(), answer);
  v1::GetStatusResponse status;
  engine->FillStatus(status);
  EXPECT_LT(status.scheduler().steps(), 25u) << "60 tokens, as the client predicted them";
  EXPECT_EQ(end.usage.accepted_prediction_tokens() + status.scheduler().steps(), 60u);
}

TEST(EngineDraftersTest, LetGoOfTheirWorkersWhenTheEngineEnds) {
  class Stopped final : public ScriptedDrafter {
   public:
    explicit Stopped(std::atomic<bool>& stopped) : ScriptedDrafter({}), stopped_(stopped) {}
    void Stop() override { stopped_ = true; }

   private:
    std::atomic<bool>& stopped_;
  };
  std::atomic<bool> stopped = false;
  EngineOptions options;
  options.make_drafters = [&stopped](const Executor&, const Executor::Progress&) {
    std::vector<std::unique_ptr<Drafter>> drafters;
    drafters.push_back(std::make_unique<Stopped>(stopped));
    return absl::StatusOr<std::vector<std::unique_ptr<Drafter>>>(std::move(drafters));
  };
  const auto engine = MakeEngine({}, options);
  EXPECT_FALSE(stopped);
  engine->Stop();
  EXPECT_TRUE(tandem::testing::Eventually([&stopped] { return stopped.load(); }))
      << "the engine is kept while a changed file of its model is loaded";
}

TEST(EngineDraftersTest, AnErrorOfTheDraftersIsTheEngines) {
  EngineOptions options;
  options.make_drafters = [](const Executor&, const Executor::Progress&) {
    return absl::StatusOr<std::vector<std::unique_ptr<Drafter>>>(
        absl::InvalidArgumentError("another vocabulary"));
  };
  const auto engine = Engine::Create(std::make_unique<testing::FakeExecutor>(FakeExecutorOptions{}),
                                     testing::ToyTokenizer(), options);
  EXPECT_EQ(engine.status().message(), "another vocabulary");
}

TEST(EngineDraftersTest, WithoutDraftersNothingIsReported) {
  auto engine = MakeEngine();
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 10, 10), reader.stream()).ok());
  EXPECT_EQ(reader.ReadToEnd().usage.rejected_prediction_tokens(), 0u);
  v1::GetStatusResponse status;
  engine->FillStatus(status);
  EXPECT_EQ(status.scheduler().drafters_size(), 0);
  EXPECT_EQ(status.scheduler().steps_drafted(), 0u);
}

}  // namespace
}  // namespace tandem::gateway

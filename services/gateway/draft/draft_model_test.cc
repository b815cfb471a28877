// The draft model's thread: chains beside an engine thread, lost workers, another vocabulary.
#include "services/gateway/draft/draft_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "absl/time/clock.h"
#include "services/common/testing/eventually.h"
#include "services/common/testing/status_matchers.h"
#include "services/gateway/draft/draft_options.h"
#include "services/gateway/draft/draft_vocabulary.h"
#include "services/gateway/engine/testing/fake_executor.h"

namespace tandem::gateway {
namespace {

using tandem::testing::Eventually;
using tandem::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Tokens = std::vector<uint32_t>;

const Tokens kPrompt = {1, 270, 265, 280};

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

class DraftModelTest : public ::testing::Test {
 protected:
  DraftModelTest() { greedy_.temperature = 0; }

  absl::Status Start(testing::FakeExecutorOptions executor = {}) {
    executor.queue_steps = false;
    return StartWith([executor](const Executor::Progress&) {
      return std::make_unique<testing::FakeExecutor>(executor);
    });
  }
  absl::Status StartWith(DraftModel::StartExecutor start) {
    auto model = DraftModel::Create({.start = std::move(start),
                                     .name = "tiny.gguf",
                                     .idle_check = absl::Milliseconds(5),
                                     .min_pause = absl::Milliseconds(1),
                                     .max_pause = absl::Milliseconds(5)},
                                    vocabulary_, nullptr);
    if (!model.ok()) return model.status();
    model_ = *std::move(model);
    return absl::OkStatus();
  }
  void Begin(uint64_t id) { model_->Begin({.id = id, .prompt = kPrompt, .sampling = &greedy_}); }
  std::vector<DraftChain> Draft(uint64_t id, uint32_t num_decided, uint32_t max_guesses) {
    const DraftRequest request{
        .sequence = id, .num_decided = num_decided, .max_guesses = max_guesses};
    model_->Ask(std::span(&request, 1));
    std::vector<DraftChain> chains;
    model_->Take(Soon(), chains);
    return chains;
  }
  Tokens Greedy(Tokens tokens, uint32_t n) const {
    const size_t before = tokens.size();
    for (uint32_t i = 0; i < n; ++i) {
      const auto logits = testing::ToyLogitsAfter(tokens, testing::ToyLimits());
      tokens.push_back(testing::ToyHead(logits, 1, kNoToken).candidates[0].token);
      if (tokens.back() == testing::kToyEos || tokens.back() == testing::kToyEndOfTurn) break;
    }
    return {tokens.begin() + before, tokens.end()};
  }

  const Vocabulary vocabulary_ = testing::ToyVocabulary();
  SamplingParams greedy_;
  // What workers of tests look at, to the end of the model: it asks them from time to time.
  std::atomic<bool> down_ = false, slow_ = false;
  std::unique_ptr<DraftModel> model_;
};

TEST_F(DraftModelTest, GuessesWhatTheModelWouldSay) {
  ASSERT_OK(Start());
  EXPECT_EQ(model_->name(), "draft");
  EXPECT_THAT(model_->trouble(), IsEmpty());
  EXPECT_EQ(model_->placement(), "everything on toy0");
  Begin(1);
  auto chains = Draft(1, 4, 5);
  ASSERT_THAT(chains, SizeIs(1));
  EXPECT_EQ(chains[0].tokens, Greedy(kPrompt, 5));
  Tokens text = kPrompt;
  uint64_t num_guesses = chains[0].tokens.size();
  for (int round = 0; round < 10; ++round) {
    const size_t num_right = std::min<size_t>(chains[0].tokens.size(), 1 + round % 5);
    const Tokens decided(chains[0].tokens.begin(), chains[0].tokens.begin() + num_right);
    text.insert(text.end(), decided.begin(), decided.end());
    model_->Decided(1, decided, static_cast<uint32_t>(decided.size()));
    chains = Draft(1, static_cast<uint32_t>(text.size()), 5);
    ASSERT_THAT(chains, SizeIs(1));
    EXPECT_EQ(chains[0].tokens, Greedy(text, 5));
    num_guesses += chains[0].tokens.size();
  }
  const DraftCounters counters = model_->counters();
  EXPECT_EQ(counters.chains, 11u);
  EXPECT_EQ(counters.guesses, num_guesses);
  EXPECT_GE(counters.rows, num_guesses);
  EXPECT_GT(model_->TimeFor(1, 4), absl::ZeroDuration());
}

TEST_F(DraftModelTest, ItsStepsAreToldWithTheirRowsAndTimes) {
  ASSERT_TRUE(Start().ok());
  std::atomic<uint32_t> num_rows = 0, num_steps = 0;
  model_->Observe([&](const DraftStep& step) {
    EXPECT_EQ(step.plan->workers[0].name, "toy0");
    EXPECT_FALSE(step.segments.empty());
    EXPECT_LE(step.begin, step.end);
    ++num_steps;
    for (const DraftStep::Rows& rows : step.rows) {
      EXPECT_EQ(rows.sequence, 7u);
      num_rows += rows.num_rows;
    }
  });
  Begin(7);
  const std::vector<DraftChain> chains = Draft(7, kPrompt.size(), 3);
  ASSERT_THAT(chains, SizeIs(1));
  // The prompt's rows, and those of all guesses but the last.
  EXPECT_EQ(num_rows, kPrompt.size() + chains[0].tokens.size() - 1);
  EXPECT_EQ(num_steps, model_->counters().steps);
}

TEST_F(DraftModelTest, TakeReturnsAtOnceWithoutQuestionsAndAtItsTimeWithThem) {
  ASSERT_OK(Start({.on_step = [&](const StepBatch&) {
    while (slow_) absl::SleepFor(absl::Milliseconds(1));
    return absl::OkStatus();
  }}));
  std::vector<DraftChain> chains;
  model_->Take(Soon(), chains);
  EXPECT_THAT(chains, IsEmpty());
  Begin(1);
  slow_ = true;
  const DraftRequest request{.sequence = 1, .num_decided = 4, .max_guesses = 2};
  model_->Ask(std::span(&request, 1));
  const absl::Time begin = absl::Now();
  model_->Take(begin + absl::Milliseconds(10), chains);
  EXPECT_THAT(chains, IsEmpty());
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(10));
  model_->Decided(1, Greedy(kPrompt, 1), 0);  // none of these waits for the step under way
  Begin(2);
  model_->End(2);
  slow_ = false;
  model_->Take(Soon(), chains);
  ASSERT_THAT(chains, SizeIs(1));
  EXPECT_EQ(chains[0].tokens, Greedy(kPrompt, 2));
}

TEST_F(DraftModelTest, WithoutItsWorkerChainsAreEmptyUntilItIsBack) {
  ASSERT_OK(Start({.on_step =
                       [&](const StepBatch&) {
                         return down_ ? absl::UnavailableError("gpu1 is gone") : absl::OkStatus();
                       },
                   .on_recover =
                       [&](StepLimits&) {
                         return down_ ? absl::UnavailableError("gpu1 is not there")
                                      : absl::OkStatus();
                       }}));
  Begin(1);
  down_ = true;
  auto chains = Draft(1, 4, 3);
  ASSERT_THAT(chains, SizeIs(1));
  EXPECT_THAT(chains[0].tokens, IsEmpty());
  EXPECT_TRUE(Eventually([this] { return Has(model_->trouble(), "gpu1"); }));
  chains = Draft(1, 4, 3);
  ASSERT_THAT(chains, SizeIs(1)) << "an answer at once";
  EXPECT_THAT(chains[0].tokens, IsEmpty());
  const Tokens decided = Greedy(kPrompt, 2);
  model_->Decided(1, decided, 0);
  down_ = false;
  ASSERT_TRUE(Eventually([this] { return model_->trouble().empty(); }));
  Tokens text = kPrompt;
  text.insert(text.end(), decided.begin(), decided.end());
  chains = Draft(1, 6, 3);
  ASSERT_THAT(chains, SizeIs(1));
  EXPECT_EQ(chains[0].tokens, Greedy(text, 3)) << "the sequence was followed meanwhile";
  EXPECT_GE(model_->counters().losses, 1u);
}

TEST_F(DraftModelTest, AWorkerThatGoesWhileNothingIsDraftedIsNoticed) {
  ASSERT_OK(
      Start({.on_check =
                 [&] { return down_ ? absl::UnavailableError("gpu1 is gone") : absl::OkStatus(); },
             .on_recover =
                 [&](StepLimits&) {
                   return down_ ? absl::UnavailableError("gpu1 is not there") : absl::OkStatus();
                 }}));
  down_ = true;
  EXPECT_TRUE(Eventually([this] { return !model_->trouble().empty(); }));
  down_ = false;
  EXPECT_TRUE(Eventually([this] { return model_->trouble().empty(); }));
}

TEST_F(DraftModelTest, StartsWithoutItsWorkerAndTakesItWhenItComes) {
  down_ = true;
  ASSERT_OK(StartWith([&](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
    if (down_) return absl::UnavailableError("worker at unix:/npu.sock is not there");
    return std::make_unique<testing::FakeExecutor>(
        testing::FakeExecutorOptions{.queue_steps = false});
  }));
  EXPECT_TRUE(Eventually([this] { return Has(model_->trouble(), "npu.sock"); }));
  Begin(1);
  EXPECT_THAT(Draft(1, 4, 3)[0].tokens, IsEmpty());
  down_ = false;
  ASSERT_TRUE(Eventually([this] { return model_->trouble().empty(); }));
  EXPECT_EQ(Draft(1, 4, 3)[0].tokens, Greedy(kPrompt, 3)) << "it began before";
}

TEST_F(DraftModelTest, StopLetsGoOfTheWorkers) {
  class Counted final : public testing::FakeExecutor {
   public:
    explicit Counted(std::atomic<int>& alive)
        : FakeExecutor({.queue_steps = false}), alive_(alive) {
      ++alive_;
    }
    ~Counted() override { --alive_; }

   private:
    std::atomic<int>& alive_;
  };
  std::atomic<int> alive = 0;
  ASSERT_OK(
      StartWith([&alive](const Executor::Progress&) { return std::make_unique<Counted>(alive); }));
  Begin(1);
  EXPECT_THAT(Draft(1, 4, 3), SizeIs(1));
  EXPECT_EQ(alive, 1);
  model_->Stop();
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(model_->about(), "tiny.gguf on everything on toy0");
  EXPECT_GT(model_->busy_seconds(), 0.0);
}

TEST(DraftOptionsTest, ADraftHasAPlaceOfItsOwn) {
  ExecutorOptions model{.model_name = "big.gguf", .plan_token = "t"};
  model.policy.npu = NpuPolicy::kPrefer;
  const auto on_gpu = DraftExecutorOptions(model, {.model_name = "small.gguf"});
  ASSERT_OK(on_gpu.status());
  EXPECT_EQ(on_gpu->model_name, "small.gguf");
  EXPECT_EQ(on_gpu->plan_id, "draft");
  EXPECT_EQ(on_gpu->plan_token, "t") << "the same gateway's";
  EXPECT_TRUE(on_gpu->yields);
  EXPECT_EQ(on_gpu->policy.npu, NpuPolicy::kOff);
  const auto on_worker = DraftExecutorOptions(model, {.model_name = "s", .device = "gpu1"});
  ASSERT_OK(on_worker.status());
  EXPECT_EQ(on_worker->only_worker, "gpu1");
  const auto on_npu = DraftExecutorOptions(model, {.model_name = "s", .device = "npu"});
  ASSERT_OK(on_npu.status());
  EXPECT_EQ(on_npu->policy.npu, NpuPolicy::kRequire);
}

TEST(DraftOptionsTest, AnEmulatedNpuGoesWithNoOther) {
  ExecutorOptions model;
  for (const NpuPolicy policy : {NpuPolicy::kPrefer, NpuPolicy::kRequire}) {
    model.policy.npu = policy;
    EXPECT_THAT(DraftExecutorOptions(model, {.model_name = "s", .device = "emulate"}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--npu off or emulate")));
  }
  model.policy.npu = NpuPolicy::kOff;
  const auto draft = DraftExecutorOptions(model, {.model_name = "s", .device = "emulate"});
  ASSERT_OK(draft.status());
  EXPECT_EQ(draft->policy.npu, NpuPolicy::kEmulate);
}

class OtherVocabulary final : public testing::FakeExecutor {
 public:
  OtherVocabulary() : FakeExecutor({}) { other_.pieces[270] = "\xE6\x9D\xB1!"; }
  const Vocabulary& vocabulary() const override { return other_; }

 private:
  Vocabulary other_ = testing::ToyVocabulary();
};

TEST_F(DraftModelTest, AnotherVocabularyIsRefusedByTheFirstTokenThatDiffers) {
  EXPECT_THAT(
      StartWith([](const Executor::Progress&) { return std::make_unique<OtherVocabulary>(); }),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("draft model tiny.gguf has another vocabulary: its token 270 is")));
}

TEST(DraftVocabularyTest, EndsMayDifferAndTypesMayNot) {
  const Vocabulary model = testing::ToyVocabulary();
  Vocabulary draft = model;
  EXPECT_OK(CheckDraftVocabulary(model, draft, "d"));
  draft.pieces.push_back("<image_soft_token>");
  draft.types.push_back(TokenType::kNormal);
  EXPECT_OK(CheckDraftVocabulary(model, draft, "d"));
  EXPECT_OK(CheckDraftVocabulary(draft, model, "d"));
  draft.types[2] = TokenType::kNormal;
  EXPECT_THAT(CheckDraftVocabulary(model, draft, "d"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("its token 2 is \"<eos>\" (normal), the model's is \"<eos>\" "
                                 "(control)")));
  draft = model;
  std::swap(draft.pieces[265], draft.pieces[266]);
  EXPECT_THAT(CheckDraftVocabulary(model, draft, "d"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("its token 265 is")));
}

}  // namespace
}  // namespace tandem::gateway

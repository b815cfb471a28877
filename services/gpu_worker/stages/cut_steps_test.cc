// Steps cut into submissions: the same results as of whole ones, and as many submissions as parts.
#include <cstring>
#include <set>
#include <utility>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/gpu_worker/stages/gpu_worker_for_test.h"

namespace tandem::gpu {
namespace {

struct CutCase {
  const char* name;
  void (*adjust)(Tuning&);
};

constexpr testing::SmallModel kModel = {
    .num_layers = 3, .hidden_dim = 544, .ffn_dim = 608, .num_heads = 8};

void UseDecodeKernel(Tuning& tuning) {
  tuning.decode = {
      .enabled = true, .threads = 2 * tuning.subgroup_size, .lane_values = 16, .piece_bytes = 2048};
}
// Partial sums of split-K from stage to stage, at few rows.
void UsePartialSums(Tuning& tuning) {
  tuning.matvec_max_rows = 4;
  tuning.matvec_rows = 2;
  tuning.matvec_teams = 1;
  tuning.matvec_rounds = tuning.matvec_rounds_few = 1;
  tuning.wide_norm_threads = 64;
  UseDecodeKernel(tuning);
}

class CutStepsTest : public GpuWorkerTest, public ::testing::WithParamInterface<CutCase> {
 protected:
  void OpenWith(absl::Duration longest) {
    Open({.validation = true, .longest_submission = longest, .adjust_tuning = GetParam().adjust});
  }
  uint64_t Submissions() const {
    const auto counts = worker_->device().vk().CallCounts();
    const auto found = counts.find("vkQueueSubmit2");
    return found == counts.end() ? 0 : found->second;
  }
  std::unique_ptr<PlanRunner> Load(const std::vector<Segment>& segments, uint32_t num_lanes = 1) {
    auto runner = PlanRunner::Create(weights_, {worker_.get()}, segments,
                                     {.max_rows = 48, .max_outputs = 48, .num_lanes = num_lanes});
    EXPECT_OK(runner.status());
    return runner.ok() ? *std::move(runner) : nullptr;
  }

  const ModelConfig config_ = testing::MakeConfig(kModel);
  const std::shared_ptr<const WeightSet> weights_ =
      testing::RandomWeightSet(config_, {.dtype = DType::kQ8_0});
  const std::vector<uint32_t> tokens_ = Tokens(37, config_.vocab_size, 5);
};

INSTANTIATE_TEST_SUITE_P(Kernels, CutStepsTest,
                         ::testing::Values(CutCase{"Plain", UsePlainKernels},
                                           CutCase{"Decode",
                                                   [](Tuning& tuning) {
                                                     UsePlainKernels(tuning);
                                                     UseDecodeKernel(tuning);
                                                   }},
                                           CutCase{"Tiles",
                                                   [](Tuning& tuning) {
                                                     UseDecodeKernel(tuning);
                                                     tuning.tiled = {.enabled = true,
                                                                     .cooperative = false,
                                                                     .pairs = 32,
                                                                     .ahead = 0};
                                                   }},
                                           CutCase{"Matvec", UsePartialSums},
                                           CutCase{"PhaseCounters",
                                                   [](Tuning& tuning) {
                                                     UsePartialSums(tuning);
                                                     tuning.phase_counters = 1;
                                                   }},
                                           CutCase{"NormsWithinMatmuls",
                                                   [](Tuning& tuning) {
                                                     UsePartialSums(tuning);
                                                     tuning.phase_counters = 1;
                                                     tuning.norm_inputs = 1;
                                                     tuning.norm_groups = 64;
                                                   }}),
                         [](const auto& test) { return test.param.name; });

TEST_P(CutStepsTest, HaveTheBitsOfWholeSteps) {
  std::vector<Segment> hybrid;  // attention apart, as on an NPU
  const uint32_t attend = StageOrdinal({StageKind::kAttend, 1}, config_.num_layers);
  hybrid.push_back({0, 0, 0, attend - 1, 0, OutputsOf(StageKind::kQkv)});
  hybrid.push_back(
      {0, 0, attend, attend, InputsOf(StageKind::kAttend), OutputsOf(StageKind::kAttend)});
  hybrid.push_back(
      {0, 0, attend + 1, NumStages(config_.num_layers) - 1, InputsOf(StageKind::kOut), 0});
  std::vector<std::vector<float>> results;
  for (const absl::Duration longest : {absl::ZeroDuration(), kCutAll}) {
    OpenWith(longest);
    if (IsSkipped()) return;
    for (const auto& segments : {testing::WholeModel(config_), hybrid}) {
      const auto runner = Load(segments);
      ASSERT_NE(runner, nullptr);
      for (const uint32_t chunk : {1u, 4u, 33u}) {
        results.push_back(Logits(*runner, tokens_, chunk, chunk == 4));
      }
    }
  }
  ASSERT_EQ(results.size(), 12u);
  for (size_t i = 0; i < 6; ++i) {
    ASSERT_EQ(results[i].size(), results[i + 6].size());
    EXPECT_EQ(0, std::memcmp(results[i].data(), results[i + 6].data(), results[i].size() * 4)) << i;
  }
}

// Steps that are queued behind one another, over two lanes, fed with the device's guesses.
TEST_P(CutStepsTest, QueuedStepsGuessTheSameTokens) {
  std::vector<std::vector<uint32_t>> guesses;
  for (const absl::Duration longest : {absl::ZeroDuration(), kCutAll}) {
    OpenWith(longest);
    if (IsSkipped()) return;
    const auto runner = Load(testing::WholeModel(config_), 2);
    ASSERT_NE(runner, nullptr);
    StepBuilder steps(runner->limits());
    const uint32_t sequence = steps.AddSequence();
    std::vector<uint32_t>& guessed = guesses.emplace_back();
    constexpr uint32_t kSteps = 8;
    for (uint32_t step = 0; step <= kSteps; ++step) {
      if (step < kSteps) {
        steps.Begin();
        const uint32_t first = steps.AddRows(sequence, step == 0 ? tokens_ : Tokens(1, 1, 0));
        if (step > 0) steps.FeedRow(first, 0);
        steps.AddOutput(step == 0 ? static_cast<uint32_t>(tokens_.size()) - 1 : first);
        steps.set_num_candidates(8);
        steps.DrawOutput({.temperature = 100.0f, .top_k = 8, .uniform = 0.12f * step});
        ASSERT_OK(runner->SubmitStep(steps.batch(), step % 2));
      }
      if (step == 0) continue;
      ASSERT_OK(runner->WaitForStep());
      guessed.push_back(runner->Guess(0, (step - 1) % 2));
    }
  }
  EXPECT_EQ(guesses[1], guesses[0]);
  EXPECT_GT(std::set(guesses[0].begin(), guesses[0].end()).size(), 1u);
}

// Whatever the kernels.
class CutCountsTest : public CutStepsTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, CutCountsTest,
                         ::testing::Values(CutCase{"Plain", UsePlainKernels}),
                         [](const auto& test) { return test.param.name; });

TEST_P(CutCountsTest, AreOneSubmissionAPart) {
  // The stages of three layers, Embed and Head.
  constexpr uint64_t kStages = 14;
  for (const auto& [longest, parts] :
       {std::pair{absl::ZeroDuration(), uint64_t{1}}, {absl::Hours(1), 1}, {kCutAll, kStages}}) {
    OpenWith(longest);
    if (IsSkipped()) return;
    const auto runner = Load(testing::WholeModel(config_));
    ASSERT_NE(runner, nullptr);
    StepBuilder steps(runner->limits());
    const uint32_t sequence = steps.AddSequence();
    const auto submissions = [&](uint32_t rows, const std::vector<uint32_t>& outputs,
                                 bool pooled = false) {
      steps.Begin();
      const uint32_t first = steps.AddRows(sequence, Tokens(rows, config_.vocab_size, rows));
      if (pooled) steps.PoolLastRows();
      for (const uint32_t output : outputs) steps.AddOutput(first + output);
      const uint64_t before = Submissions();
      EXPECT_OK(runner->RunStep(steps.batch()));
      return Submissions() - before;
    };
    EXPECT_EQ(submissions(1, {0}), parts);
    EXPECT_EQ(submissions(40, {3, 39}), parts) << "the last Ffn is of the outputs alone";
    EXPECT_EQ(submissions(40, {3, 3}), parts);
    EXPECT_EQ(submissions(40, {39}, /*pooled=*/true), parts) << "the last Ffn takes pooling along";
    // Without outputs there is no Head, and with many rows no last Ffn.
    EXPECT_EQ(submissions(1, {}), parts == 1 ? 1 : kStages - 1);
    EXPECT_EQ(submissions(40, {}), parts == 1 ? 1 : kStages - 2);
  }
}

TEST_P(CutCountsTest, TheTimesOfStagesAddUpAcrossSubmissions) {
  OpenWith(kCutAll);
  if (IsSkipped()) return;
  const auto runner = Load(testing::WholeModel(config_));
  ASSERT_NE(runner, nullptr);
  StepBuilder steps(runner->limits());
  const uint32_t sequence = steps.AddSequence();
  for (const bool every_stage : {true, false}) {
    steps.Begin();
    steps.AddOutput(steps.AddRows(sequence, tokens_) + 36);
    ASSERT_OK(runner->WriteAndCheckStep(steps.batch()));
    ASSERT_OK_AND_ASSIGN(const SegmentResult result, runner->RunSegment(0));
    if (worker_->device().info().timestamp_valid_bits == 0) GTEST_SKIP() << "no timestamps";
    uint64_t sum = 0;
    for (const StageTime& time : result.stage_times) sum += time.device_ns;
    EXPECT_EQ(sum, result.device_ns);
    EXPECT_GT(result.device_ns, 0u);
    EXPECT_EQ(result.stage_times.size(), static_cast<size_t>(kNumDecoderStageKinds)) << every_stage;
  }
}

}  // namespace
}  // namespace tandem::gpu

// The demo model's reference outputs with Attend, Attend and Out, or all layers on an NPU's array (over XRT
// 2.25 and the emulated driver) and the rest on a reference worker, so that the difference is the array's
// arithmetic.
#include <algorithm>

#include "services/common/base/status_macros.h"
#include "services/common/reference/reference_worker.h"
#include "services/common/testing/compare.h"
#include "services/npu_worker/worker_test_support.h"
#include "tests/evaluation/evaluation_fixture.h"
#include "tests/support/greedy.h"

namespace tandem::evaluation {

constexpr char kAttend[] = "Attend";
constexpr char kAttendAndOut[] = "AttendAndOut";
constexpr char kLayers[] = "Layers";

std::vector<std::string> PlacementNames() { return {kAttend, kAttendAndOut, kLayers}; }

absl::StatusOr<Placement> MakePlacement(const std::string& name) {
  static reference::ReferenceWorker gpu({.name = "gpu0", .num_threads = 2});
  static const auto npu = npu::MakeEmulatedWorker();
  if (!npu.ok()) return npu.status();
  return Placement{{&gpu, npu->get()},
                   {.npu = NpuPolicy::kEmulate, .out_on_npu = name == kAttendAndOut}};
}

namespace {

constexpr double kMostDivergence = 0.01;  // nats

class ArrayOutputsTest : public EvaluationTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // No policy gives an NPU whole layers: one segment of all of them, between Embed and Head.
  void PlaceLayers(const std::string& folder, const testing::RunLimits& limits) {
    const auto made = MakePlacement(kLayers);
    if (absl::IsNotFound(made.status())) GTEST_SKIP() << "NO DEVICE: " << made.status();
    ASSERT_OK(made);
    const auto& weights = OpenCheckpoint(folder).weights;
    const ModelConfig& config = weights->config();
    const PortMask residual = static_cast<PortMask>(Port::kResidual);
    const std::vector<Segment> segments = {testing::SingleStage({StageKind::kEmbed}, config),
                                           {.worker = 1,
                                            .first_ordinal = 1,
                                            .last_ordinal = NumStages(config.num_layers) - 2,
                                            .inputs = residual,
                                            .outputs = residual},
                                           testing::SingleStage({StageKind::kHead}, config)};
    ASSERT_OK_AND_ASSIGN(runner_,
                         testing::PlanRunner::Create(weights, made->workers, segments, limits));
  }
};

TEST_P(ArrayOutputsTest, DistributionsOfThePromptsAgree) {
  const std::string folder = TestDataPath("demo");
  const testing::RunLimits limits = {.max_rows = 512,
                                     .max_sequences = 8,
                                     .max_outputs = 512,
                                     .max_logit_outputs = 128,
                                     .context_len = 3072,
                                     .num_blocks = {1024, 1024}};
  if (GetParam() == kLayers) {
    PlaceLayers(folder, limits);
  } else {
    Place(GetParam(), folder, limits);
  }
  if (IsSkipped() || HasFatalFailure()) return;
  // What each worker copied: the array's weights, where more than Attend is on it.
  EXPECT_EQ(runner_->load_reports()[1].weight_bytes > 0, GetParam() != kAttend);
  const auto& expected = OpenReferenceOutputs(folder);
  const size_t vocab = runner_->config().vocab_size;
  double worst = 0, sum = 0;
  size_t num_rows = 0;
  for (const testing::ReferencePrompt& prompt : expected.prompts) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> logits,
                         testing::LastLogits(*runner_, prompt.tokens, prompt.num_logit_rows));
    ASSERT_EQ(logits.size(), prompt.logits.size());
    for (size_t at = 0; at < logits.size(); at += vocab, ++num_rows) {
      const double divergence = testing::KlDivergence(std::span(prompt.logits).subspan(at, vocab),
                                                      std::span(logits).subspan(at, vocab));
      EXPECT_LE(divergence, kMostDivergence) << prompt.text << ", row " << at / vocab;
      worst = std::max(worst, divergence);
      sum += divergence;
    }
  }
  ASSERT_GT(num_rows, 0u);
  std::printf("%zu rows: worst divergence %.2e nats, mean %.2e\n", num_rows, worst,
              sum / static_cast<double>(num_rows));
}

INSTANTIATE_TEST_SUITE_P(Placements, ArrayOutputsTest, ::testing::ValuesIn(PlacementNames()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace tandem::evaluation

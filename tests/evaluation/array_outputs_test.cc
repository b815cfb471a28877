// The demo model's reference outputs with Attend, Attend and Out, or all layers on an NPU's array (over XRT
// 2.25 and the emulated driver) and the rest on a reference worker, so that the difference is the array's
// arithmetic.  Quantised models are compared with the reference worker over the same weights.
#include <algorithm>

#include "services/common/base/status_macros.h"
#include "services/common/reference/reference_worker.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/paths.h"
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
constexpr testing::RunLimits kLimits = {.max_rows = 512,
                                        .max_sequences = 8,
                                        .max_outputs = 512,
                                        .max_logit_outputs = 128,
                                        .context_len = 3072,
                                        .num_blocks = {1024, 1024}};

// Of rows of logits, in nats.
struct Divergences {
  double worst = 0, sum = 0;
  size_t num_rows = 0;

  void Add(std::span<const float> expected, std::span<const float> actual, size_t vocab) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t at = 0; at < actual.size(); at += vocab, ++num_rows) {
      const double divergence =
          testing::KlDivergence(expected.subspan(at, vocab), actual.subspan(at, vocab));
      EXPECT_LE(divergence, kMostDivergence) << "row " << at / vocab;
      worst = std::max(worst, divergence);
      sum += divergence;
    }
  }
  void Print() const {
    ASSERT_GT(num_rows, 0u);
    std::printf("%zu rows: worst divergence %.2e nats, mean %.2e\n", num_rows, worst,
                sum / static_cast<double>(num_rows));
  }
};

class ArrayTest : public EvaluationTest {
 protected:
  // No policy gives an NPU whole layers: one segment of all of them, between Embed and Head.
  void PlaceLayers(const std::string& checkpoint_path) {
    const auto made = MakePlacement(kLayers);
    if (absl::IsNotFound(made.status())) GTEST_SKIP() << "NO DEVICE: " << made.status();
    ASSERT_OK(made);
    const auto& weights = OpenCheckpoint(checkpoint_path).weights;
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
                         testing::PlanRunner::Create(weights, made->workers, segments, kLimits));
  }
};

class ArrayOutputsTest : public ArrayTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(ArrayOutputsTest, DistributionsOfThePromptsAgree) {
  const std::string folder = TestDataPath("demo");
  if (GetParam() == kLayers) {
    PlaceLayers(folder);
  } else {
    Place(GetParam(), folder, kLimits);
  }
  if (IsSkipped() || HasFatalFailure()) return;
  // All layers in one segment have no such ports.
  EXPECT_EQ(runner_->port_dtype(), GetParam() == kLayers ? DType::kF16 : DType::kBf16);
  // What each worker copied: the array's weights, where more than Attend is on it.
  EXPECT_EQ(runner_->load_reports()[1].weight_bytes > 0, GetParam() != kAttend);
  const auto& expected = OpenReferenceOutputs(folder);
  Divergences divergences;
  for (const testing::ReferencePrompt& prompt : expected.prompts) {
    SCOPED_TRACE(prompt.text);
    ASSERT_OK_AND_ASSIGN(const std::vector<float> logits,
                         testing::LastLogits(*runner_, prompt.tokens, prompt.num_logit_rows));
    divergences.Add(prompt.logits, logits, runner_->config().vocab_size);
  }
  divergences.Print();
}

INSTANTIATE_TEST_SUITE_P(Placements, ArrayOutputsTest, ::testing::ValuesIn(PlacementNames()),
                         [](const auto& instance) { return instance.param; });

struct QuantisedModel {
  std::string path;
  DType dtype;
};

class QuantisedArrayTest : public ArrayTest,
                           public ::testing::WithParamInterface<QuantisedModel> {};

TEST_P(QuantisedArrayTest, DistributionsOfThePromptsAgree) {
  const auto& [path, dtype] = GetParam();
  PlaceLayers(path);
  if (IsSkipped() || HasFatalFailure()) return;
  // The array has every matrix as the file has it, not in two bytes a weight.
  const LoadReport& report = runner_->load_reports()[1];
  EXPECT_THAT(report.note, ::testing::HasSubstr("copied as " + std::string(Traits(dtype).name)));
  EXPECT_THAT(report.note, ::testing::Not(::testing::HasSubstr("bf16")));
  const auto& weights = OpenCheckpoint(path).weights;
  reference::ReferenceWorker worker({.name = "reference", .num_threads = 2});
  ASSERT_OK_AND_ASSIGN(const auto reference,
                       testing::PlanRunner::Create(
                           weights, {&worker}, testing::WholeModel(weights->config()), kLimits));
  Divergences divergences;
  for (const auto& prompt : OpenReferenceOutputs(TestDataPath("demo")).prompts) {
    SCOPED_TRACE(prompt.text);
    ASSERT_OK_AND_ASSIGN(const std::vector<float> expected,
                         testing::LastLogits(*reference, prompt.tokens, prompt.num_logit_rows));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> logits,
                         testing::LastLogits(*runner_, prompt.tokens, prompt.num_logit_rows));
    divergences.Add(expected, logits, runner_->config().vocab_size);
  }
  divergences.Print();
}

INSTANTIATE_TEST_SUITE_P(
    Models, QuantisedArrayTest,
    ::testing::Values(QuantisedModel{SourcePath("models/demo/demo.Q8_0.gguf"), DType::kQ8_0},
                      QuantisedModel{TestDataPath("demo.Q4_0.gguf"), DType::kQ4_0}),
    [](const auto& instance) { return std::string(Traits(instance.param.dtype).name); });

}  // namespace
}  // namespace tandem::evaluation

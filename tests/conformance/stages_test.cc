// Each stage alone, all its tensors through the exchange region, at every count of rows at which
// kernels change.
#include <algorithm>
#include <map>

#include "services/common/reference/reference_model.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

using reference::Activations;

constexpr uint32_t kRowCounts[] = {1, 2, 3, 5, 8, 9, 15, 16, 17, 33, 64, 67};
constexpr uint32_t kMaxRows = 67;
constexpr RunLimits kLimits = {
    .max_rows = kMaxRows, .max_outputs = kMaxRows, .max_logit_outputs = kMaxRows};

const std::vector<float>& Rows(const Activations& rows, Port port) {
  switch (port) {
    case Port::kResidual:
      return rows.residual;
    case Port::kQ:
      return rows.q;
    case Port::kK:
      return rows.k;
    case Port::kV:
      return rows.v;
    case Port::kAttention:
      return rows.attention;
    case Port::kProjection:
      return rows.projection;
  }
  return rows.residual;
}

constexpr Port kPorts[kNumPorts] = {Port::kResidual, Port::kQ,         Port::kK,
                                    Port::kV,        Port::kAttention, Port::kProjection};

// Roundings behind a stage's outputs: weights, inputs and results of its matmuls.
double RoundingsOf(StageKind kind) {
  switch (kind) {
    case StageKind::kEmbed:
      return 0;
    case StageKind::kQkv:
    case StageKind::kAttend:
    case StageKind::kOut:
    case StageKind::kHead:
      return 3;
    case StageKind::kFfn:
      return 5;
  }
  return 0;
}

// The reference's activations before and after every stage of one sequence.
struct Capture {
  explicit Capture(const WeightSet& weights) {
    const reference::ReferenceModel model(weights, {.half_precision_exchange = true});
    tokens = MakeTokens(model.config(), kMaxRows);
    logits = model.Logits(tokens, [&](Stage stage, const Activations& rows) {
      after[StageOrdinal(stage, model.config().num_layers)] = rows;
    });
  }
  std::vector<uint32_t> tokens;
  std::map<uint32_t, Activations> after;  // by stage ordinal
  std::vector<float> logits;
};

class StageRun {
 public:
  StageRun(PlanRunner& runner, const Capture& capture, uint32_t num_rows, double epsilon)
      : runner_(runner), capture_(capture), num_rows_(num_rows), epsilon_(epsilon) {}

  void Check() {
    StepBuilder steps(runner_.limits());
    steps.Begin();
    steps.set_want_logits(true);
    steps.AddRows(steps.AddSequence(),
                  {capture_.tokens.begin(), capture_.tokens.begin() + num_rows_});
    for (uint32_t row = 0; row < num_rows_; ++row) steps.AddOutput(row);
    runner_.FillGuards();
    ASSERT_OK(runner_.WriteAndCheckStep(steps.batch()));
    for (const Segment& segment : runner_.segments()) {
      CheckStage(segment);
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_TRUE(runner_.GuardsIntact());
  }

 private:
  std::span<const float> FirstRows(const Activations& rows, Port port) const {
    const std::vector<float>& all = Rows(rows, port);
    return std::span(all).first(all.size() / kMaxRows * num_rows_);
  }

  void CheckStage(const Segment& segment) {
    const ModelConfig& config = runner_.config();
    const Stage stage = StageAt(segment.first_ordinal, config.num_layers);
    SCOPED_TRACE(StageName(stage));
    for (const Port port : kPorts) {
      if (!Has(segment.inputs, port)) continue;
      const Activations& before = capture_.after.at(segment.first_ordinal - 1);
      runner_.WritePort(port, FirstRows(before, port));
    }
    ASSERT_OK(runner_.RunSegment(segment.index));
    const double bound = NormBound(epsilon_, RoundingsOf(stage.kind));
    if (stage.kind == StageKind::kHead) return CheckLogits(bound);
    const Activations& after = capture_.after.at(segment.first_ordinal);
    for (const Port port : kPorts) {
      if (!Has(segment.outputs, port)) continue;
      SCOPED_TRACE(::testing::Message() << "port " << static_cast<uint32_t>(port));
      CheckRows(runner_.ReadPort(port, num_rows_), FirstRows(after, port), stage.kind, bound);
    }
  }

  void CheckRows(std::span<const float> actual, std::span<const float> expected, StageKind kind,
                 double bound) {
    if (kind == StageKind::kEmbed) {
      // Scale, sub-scale and embedding scale: three products.
      ASSERT_TRUE(testing::IsNear(actual, expected, 0.0, 4 * testing::kEpsilonF32));
      return;
    }
    const size_t width = expected.size() / num_rows_;
    for (uint32_t row = 0; row < num_rows_; ++row) {
      ASSERT_TRUE(testing::IsNearInNorm(actual.subspan(row * width, width),
                                        expected.subspan(row * width, width), bound))
          << "row " << row;
    }
  }

  void CheckLogits(double bound) {
    const size_t vocab = runner_.config().vocab_size;
    for (uint32_t row = 0; row < num_rows_; ++row) {
      ASSERT_TRUE(testing::IsNearInNorm(
          runner_.Logits(row), std::span(capture_.logits).subspan(row * vocab, vocab), bound))
          << "row " << row;
    }
  }

  PlanRunner& runner_;
  const Capture& capture_;
  uint32_t num_rows_;
  double epsilon_;
};

void CheckEveryRowCount(PlanRunner& runner, const Capture& capture, double epsilon) {
  for (const uint32_t num_rows : kRowCounts) {
    SCOPED_TRACE(::testing::Message() << num_rows << " rows");
    StageRun(runner, capture, num_rows, epsilon).Check();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

using StageShapeTest = WorkerShapeSuite;

TEST_P(StageShapeTest, EveryStageMatchesTheReferenceAtEveryRowCount) {
  if (!Takes(config(), DType::kBf16)) GTEST_SKIP() << "not offered: " << GetParam().name;
  const auto weights = testing::RandomWeightSet(config());
  const auto runner = RunStages(weights, kLimits);
  if (IsDeclined(runner.status())) GTEST_SKIP() << "declined: " << runner.status();
  ASSERT_OK(runner);
  CheckEveryRowCount(**runner, Capture(*weights), epsilon());
}

INSTANTIATE_TEST_SUITE_P(Shapes, StageShapeTest, ::testing::ValuesIn(testing::AwkwardConfigs()),
                         [](const auto& test) { return test.param.name; });

class StageFormatTest : public WorkerSuite, public ::testing::WithParamInterface<DType> {};

// Matrices in shards of a few tiles, and a head of its own beside the embedding.
TEST_P(StageFormatTest, EveryStageReadsTheFormatAcrossShards) {
  const ModelConfig config =
      testing::MakeConfig({.num_layers = 2, .hidden_dim = 256, .ffn_dim = 512, .vocab_size = 203});
  if (!Takes(config, GetParam())) GTEST_SKIP() << "not offered: " << Traits(GetParam()).name;
  const auto weights = testing::RandomWeightSet(
      config,
      {.dtype = GetParam(), .separate_head = true, .seed = 5, .max_region_bytes = 128 << 10});
  ASSERT_OK_AND_ASSIGN(const auto runner, RunStages(weights, kLimits));
  CheckEveryRowCount(*runner, Capture(*weights), EpsilonWith(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Formats, StageFormatTest,
                         ::testing::ValuesIn(AllDTypes().begin(), AllDTypes().end()),
                         [](const auto& test) { return std::string(Traits(test.param).name); });

}  // namespace
}  // namespace tandem::conformance

#include "tests/conformance/stage_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "services/common/testing/compare.h"
#include "services/common/testing/status_matchers.h"

namespace tandem::conformance {
namespace {

using reference::Activations;

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
    case StageKind::kVision:
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

class StageRun {
 public:
  StageRun(PlanRunner& runner, const StageCapture& capture, uint32_t num_rows,
           const StageBounds& bounds)
      : runner_(runner), capture_(capture), num_rows_(num_rows), bounds_(bounds) {}

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
    return std::span(all).first(all.size() / capture_.tokens.size() * num_rows_);
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
    const double bound = NormBound(bounds_.epsilon, RoundingsOf(stage.kind));
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
      CheckRow(row, actual.subspan(row * width, width), expected.subspan(row * width, width),
               bound);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  void CheckRow(uint32_t row, std::span<const float> actual, std::span<const float> expected,
                double bound) {
    ASSERT_TRUE(testing::IsNearInNorm(actual, expected, bound)) << "row " << row;
    if (bounds_.most_deviations == 0.0) return;
    const double mean_square_root =
        testing::Norm(expected) / std::sqrt(static_cast<double>(expected.size()));
    ASSERT_TRUE(
        testing::IsNear(actual, expected, bounds_.most_deviations * bound * mean_square_root))
        << "row " << row;
  }

  void CheckLogits(double bound) {
    const size_t vocab = runner_.config().vocab_size;
    for (uint32_t row = 0; row < num_rows_; ++row) {
      CheckRow(row, runner_.Logits(row), std::span(capture_.logits).subspan(row * vocab, vocab),
               bound);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  PlanRunner& runner_;
  const StageCapture& capture_;
  const uint32_t num_rows_;
  const StageBounds bounds_;
};

}  // namespace

StageCapture::StageCapture(const WeightSet& weights, uint32_t num_rows) {
  const reference::ReferenceModel model(weights, {.half_precision_exchange = true});
  tokens = MakeTokens(model.config(), num_rows);
  logits = model.Logits(tokens, [&](Stage stage, const Activations& rows) {
    after[StageOrdinal(stage, model.config().num_layers)] = rows;
  });
}

void CheckStages(PlanRunner& runner, const StageCapture& capture,
                 std::span<const uint32_t> row_counts, const StageBounds& bounds) {
  for (const uint32_t num_rows : row_counts) {
    SCOPED_TRACE(::testing::Message() << num_rows << " rows");
    StageRun(runner, capture, num_rows, bounds).Check();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace tandem::conformance

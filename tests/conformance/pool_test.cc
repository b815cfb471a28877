// Sums of final-normed hidden states over the rows of sequences.
#include "services/common/reference/reference_model.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

// The final-normed hidden states of a sequence's tokens, [num_tokens, hidden_dim].
std::vector<float> NormedRows(const reference::ReferenceModel& model,
                              const std::vector<uint32_t>& tokens) {
  std::vector<float> normed;
  const size_t width = model.config().hidden_dim;
  (void)model.Logits(tokens, [&](Stage stage, const reference::Activations& rows) {
    if (stage.kind != StageKind::kFfn || stage.layer_idx + 1 != model.config().num_layers) return;
    for (size_t at = 0; at < rows.residual.size(); at += width) {
      const std::vector<float> row =
          reference::Pool(model.parameters(), std::span(rows.residual).subspan(at, width));
      normed.insert(normed.end(), row.begin(), row.end());
    }
  });
  return normed;
}

using PoolShapeTest = WorkerShapeSuite;

// Three sequences in chunks; of the first and the last every chunk is pooled, the one between them
// has an output in every other step, so that steps with and without the head's logits alternate.
TEST_P(PoolShapeTest, SumsOfChunksAddUpToTheSequences) {
  if (!Takes(config(), DType::kBf16)) GTEST_SKIP() << "not offered: " << GetParam().name;
  const auto weights = testing::RandomWeightSet(config());
  const auto runner = RunWhole(weights, {});
  if (IsDeclined(runner.status())) GTEST_SKIP() << "declined: " << runner.status();
  ASSERT_OK(runner);
  constexpr uint32_t kTokens = 21;
  const size_t width = config().hidden_dim;
  const reference::ReferenceModel model(*weights, {.half_precision_exchange = true});
  std::vector<std::vector<uint32_t>> tokens;
  std::vector<std::vector<float>> normed;
  for (uint32_t s = 0; s < 3; ++s) {
    tokens.push_back(MakeTokens(config(), kTokens, 20 + s));
    normed.push_back(NormedRows(model, tokens[s]));
  }
  // Each row's error is that of a model's output; a sum's is at most the sum of its rows'.
  const double bound = NormBound(epsilon(), kRoundingsPerLayer * config().num_layers);
  for (const uint32_t chunk : {1u, 7u, kTokens}) {
    SCOPED_TRACE(::testing::Message() << "chunk " << chunk);
    StepBuilder steps((*runner)->limits());
    for (uint32_t s = 0; s < 3; ++s) steps.AddSequence();
    for (uint32_t at = 0, step = 0; at < kTokens; at += chunk, ++step) {
      steps.Begin();
      for (uint32_t s = 0; s < 3; ++s) {
        const auto first = tokens[s].begin() + at;
        const uint32_t row =
            steps.AddRows(s, {first, first + std::min<uint32_t>(chunk, kTokens - at)});
        if (s != 1) steps.PoolLastRows();
        if (s == 1 && step % 2 == 1) steps.AddOutput(row);
      }
      (*runner)->FillGuards();
      ASSERT_OK((*runner)->RunStep(steps.batch()));
      EXPECT_TRUE((*runner)->GuardsIntact());
      for (uint32_t p = 0; p < 2; ++p) {
        const uint32_t s = 2 * p;
        std::vector<double> expected(width);
        double norms = 0;
        for (uint32_t t = at; t < steps.Length(s); ++t) {
          const auto row = std::span(normed[s]).subspan(t * width, width);
          norms += testing::Norm(row);
          for (size_t i = 0; i < width; ++i) expected[i] += row[i];
        }
        const std::span<const float> actual = (*runner)->Pooled(p);
        std::vector<float> difference(width);
        for (size_t i = 0; i < width; ++i) {
          difference[i] = static_cast<float>(actual[i] - expected[i]);
        }
        ASSERT_LE(testing::Norm(difference), bound * norms)
            << "pooled sequence " << p << " from " << at;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PoolShapeTest, ::testing::ValuesIn(testing::AwkwardConfigs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tandem::conformance

// One layer in the shape of each Gemma 3 model, with a short vocabulary: each stage alone, then whole
// steps, a prompt in chunks and single rows behind it.  Sequences are longer than the window.
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "services/common/weights/packed_tensor.h"
#include "services/loader/source/weight_mix.h"
#include "services/loader/synthetic/synthetic_spec.h"
#include "tests/conformance/stage_run.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

// Errors are about normally distributed, and the norm's bound is twice what they are.
constexpr double kMostDeviations = 6;

struct LayerCase {
  const char* size;  // "27b"
  const char* type;  // of the weights, a WeightMix's name
  bool global;       // the layer attends to everything, not to a window
  uint32_t prompt;   // rows of the longest step
};

std::string NameOf(const LayerCase& c) {
  return std::string("Gemma") + c.size + "_" + c.type + (c.global ? "_global" : "_window");
}
void PrintTo(const LayerCase& c, std::ostream* out) { *out << NameOf(c); }

// The formats that files of this mix have.
testing::RandomWeightOptions FormatsOf(const loader::SyntheticSpec& spec) {
  const auto format = [&spec](WeightRole role, loader::SourcePart part) {
    return spec.mix.FormatOf(role, part, 0, 1, WeightShape(role, spec.config).cols);
  };
  testing::RandomWeightOptions options{.max_region_bytes = uint64_t{1} << 30};
  for (int r = 0; r < kNumDecoderRoles; ++r) {
    const auto role = static_cast<WeightRole>(r);
    options.role_dtypes[role] = format(role, loader::SourcePart::kWhole);
  }
  const DType v = format(WeightRole::kQkv, loader::SourcePart::kV);
  if (v != options.role_dtypes[WeightRole::kQkv]) options.v_dtype = v;
  return options;
}

class LayerShapeTest : public WorkerSuite, public ::testing::WithParamInterface<LayerCase> {};

TEST_P(LayerShapeTest, StagesAndStepsMatchTheReference) {
  const LayerCase& c = GetParam();
  ASSERT_OK_AND_ASSIGN(
      loader::SyntheticSpec spec,
      loader::ParseSyntheticName(std::string("synthetic:gemma3-") + c.size + "?type=" + c.type +
                                 "&layers=1&vocab=523&context=128&window=11"));
  spec.config.layer_is_global = {c.global};
  const auto weights = testing::RandomWeightSet(spec.config, FormatsOf(spec));
  const double epsilon = EpsilonWith(spec.mix.type);
  const RunLimits limits = {.max_rows = c.prompt,
                            .max_sequences = 2,
                            .max_outputs = c.prompt,
                            .max_logit_outputs = c.prompt};
  const std::vector<uint32_t> whole_steps = {c.prompt, 3, 1, 1};
  const uint32_t num_rows = c.prompt + 5;
  const StageCapture capture(*weights, num_rows);
  {
    ASSERT_OK_AND_ASSIGN(const auto stages, RunStages(weights, limits));
    CheckStages(*stages, capture, std::vector<uint32_t>{1, 4, c.prompt},
                {.epsilon = epsilon, .most_deviations = kMostDeviations});
    if (HasFatalFailure()) return;
  }

  ASSERT_OK_AND_ASSIGN(const auto runner, RunWhole(weights, limits));
  const double bound = NormBound(epsilon, kRoundingsPerLayer);
  const size_t vocab = spec.config.vocab_size;
  StepBuilder steps(runner->limits());
  const uint32_t sequence = steps.AddSequence();
  for (const uint32_t rows : whole_steps) {
    const uint32_t first = steps.Length(sequence);
    steps.Begin();
    steps.set_want_logits(true);
    const auto begin = capture.tokens.begin() + first;
    steps.AddRows(sequence, {begin, begin + rows});
    for (uint32_t row = 0; row < rows; ++row) steps.AddOutput(row);
    ASSERT_OK(runner->RunStep(steps.batch()));
    for (uint32_t row = 0; row < rows; ++row) {
      ASSERT_TRUE(testing::IsNearInNorm(
          runner->Logits(row), std::span(capture.logits).subspan((first + row) * vocab, vocab),
          bound))
          << "position " << first + row << " in a step of " << rows << " rows";
    }
  }
}

// Every format of the published figures, with layers of both kinds.
constexpr LayerCase kSmall[] = {
    {"270m", "q4_0", false, 33},  {"270m", "q8_0", true, 33}, {"270m", "f16", false, 33},
    {"270m", "q4_k_m", true, 33}, {"1b", "q4_0", true, 17},   {"1b", "q8_0", false, 17},
};
constexpr LayerCase kLarge[] = {
    {"1b", "q4_k_m", false, 17}, {"1b", "f16", true, 17},     {"4b", "q4_0", false, 17},
    {"4b", "q4_k_m", true, 17},  {"12b", "q4_0", true, 17},   {"12b", "q8_0", false, 17},
    {"27b", "q4_0", false, 17},  {"27b", "q4_k_m", true, 17},
};
const auto kCaseName = [](const auto& test) { return NameOf(test.param); };
INSTANTIATE_TEST_SUITE_P(Small, LayerShapeTest, ::testing::ValuesIn(kSmall), kCaseName);
INSTANTIATE_TEST_SUITE_P(Large, LayerShapeTest, ::testing::ValuesIn(kLarge), kCaseName);

}  // namespace
}  // namespace tandem::conformance

// Whatever kernels a device is given, the answers are the same: to the bit where that is promised,
// within the arithmetic's bounds elsewhere.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "services/common/reference/reference_model.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/gpu_worker/stages/gpu_worker_for_test.h"

namespace tandem::gpu {
namespace {

// What a step holds beside its rows is not taken for their block tables.
TEST_F(GpuWorkerTest, DrawsLeaveTheLogitsAlone) {
  Open({.validation = true, .adjust_tuning = [](Tuning& tuning) {
          tuning.decode = {.enabled = true, .threads = 2 * tuning.subgroup_size, .lane_values = 16};
        }});
  const ModelConfig config = testing::MakeConfig({});
  const auto weights = testing::RandomWeightSet(config);
  std::vector<std::vector<float>> results;
  for (const bool draw : {false, true}) {
    ASSERT_OK_AND_ASSIGN(const auto runner, PlanRunner::Create(weights, {worker_.get()},
                                                               testing::WholeModel(config), {}));
    StepBuilder steps(runner->limits());
    const uint32_t a = steps.AddSequence(), b = steps.AddSequence();
    std::vector<float>& logits = results.emplace_back();
    for (uint32_t step = 0; step < 40; ++step) {
      steps.Begin();
      steps.set_want_logits(true);
      for (const uint32_t sequence : {a, b}) {
        steps.AddOutput(steps.AddRows(sequence, {(7 * step + sequence) % config.vocab_size}));
        if (draw) steps.DrawOutput({.temperature = 1.0f, .top_k = 8, .uniform = 0.5f});
      }
      ASSERT_OK(runner->RunStep(steps.batch()));
      for (uint32_t i = 0; i < 2; ++i) {
        logits.insert(logits.end(), runner->Logits(i).begin(), runner->Logits(i).end());
      }
    }
  }
  EXPECT_EQ(0,
            std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)));
}

struct InvarianceCase {
  const char* name;
  DType dtype;
  testing::SmallModel model;
  bool decode = false;  // decode.comp, whatever the device
  bool matvec = false;  // matvec.comp for every row
};
// Out and down with split-K, on any device.
constexpr testing::SmallModel kMatvecModel = {
    .num_layers = 2, .hidden_dim = 544, .ffn_dim = 608, .num_heads = 8};
void UseMatvec(Tuning& tuning) {
  tuning.matvec_max_rows = 128;
  tuning.matvec_rows = 2;
  tuning.matvec_teams = 1;
  tuning.matvec_rounds = tuning.matvec_rounds_few = 1;
  tuning.wide_norm_threads = 64;
}

class BatchInvarianceTest : public GpuWorkerTest,
                            public ::testing::WithParamInterface<InvarianceCase> {};

TEST_P(BatchInvarianceTest, LogitsHaveTheSameBitsWhateverChunksAndNeighbours) {
  Open({.validation = true, .adjust_tuning = [](Tuning& tuning) {
          UsePlainKernels(tuning);
          if (GetParam().decode) {
            tuning.decode = {.enabled = true,
                             .threads = 2 * tuning.subgroup_size,
                             .lane_values = 16,
                             .at_once = 2,
                             .piece_bytes = 2048};
          }
          if (GetParam().matvec) UseMatvec(tuning);
        }});
  const ModelConfig config = testing::MakeConfig(GetParam().model);
  const auto weights = testing::RandomWeightSet(config, {.dtype = GetParam().dtype});
  ASSERT_OK_AND_ASSIGN(
      const auto runner,
      PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config), {.max_rows = 96}));
  const std::vector<uint32_t> tokens = Tokens(61, config.vocab_size, 3);
  const std::vector<float> expected = Logits(*runner, tokens, 1);
  for (const auto& [chunk, neighbours] :
       {std::pair{61u, false}, {7u, false}, {16u, true}, {1u, true}, {33u, true}}) {
    const std::vector<float> actual = Logits(*runner, tokens, chunk, neighbours);
    ASSERT_EQ(actual.size(), expected.size());
    EXPECT_EQ(0, std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)))
        << "chunks of " << chunk << (neighbours ? " with neighbours" : "");
  }
}

// Prompts in tiles and rows decoded one by one: other kernels, near enough the same numbers.
TEST_F(GpuWorkerTest, PromptsInTilesAgreeWithRowsDecodedOneByOne) {
  Open({.validation = true, .adjust_tuning = [](Tuning& tuning) {
          tuning.decode = {.enabled = true, .threads = 2 * tuning.subgroup_size, .lane_values = 16};
          tuning.tiled = {.enabled = true, .cooperative = false, .pairs = 32, .ahead = 0};
        }});
  const ModelConfig config = testing::MakeConfig({.num_layers = 2, .head_dim = 32});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker_.get()},
                                          testing::WholeModel(config), {.max_rows = 96}));
  const std::vector<uint32_t> tokens = Tokens(61, config.vocab_size, 3);
  const std::vector<float> expected = Logits(*runner, tokens, 1);
  for (const uint32_t chunk : {61u, 20u, 9u}) {
    // Attention's weights are rounded to float16 in tiles.
    EXPECT_TRUE(testing::IsNearInNorm(Logits(*runner, tokens, chunk, chunk == 20), expected,
                                      8 * testing::kEpsilonF16))
        << "chunks of " << chunk;
  }
}

// Steps with chains of guesses have recordings of their own: without tiles, with plain ones, and with
// chains.comp where the device has it.
TEST_F(GpuWorkerTest, ChainsOfSeveralSequencesAgreeWithRowsDecodedOneByOne) {
  constexpr uint32_t kSequences = 5;
  const ModelConfig config = testing::MakeConfig({.num_layers = 2, .head_dim = 64});
  const auto weights = testing::RandomWeightSet(config);
  for (const bool tiled : {false, true}) {
    Open({.validation = true, .adjust_tuning = [tiled](Tuning& tuning) {
            tuning.decode = {
                .enabled = true, .threads = 2 * tuning.subgroup_size, .lane_values = 16};
            tuning.tiled.enabled = tiled;
          }});
    ASSERT_OK_AND_ASSIGN(
        const auto runner,
        PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config),
                           {.max_rows = 96, .max_sequences = 8, .max_logit_outputs = 8}));
    StepBuilder steps(runner->limits());
    std::vector<uint32_t> ids;
    for (uint32_t s = 0; s < kSequences; ++s) ids.push_back(steps.AddSequence());
    for (const auto& [first, end] : {std::pair{0u, 7u}, {7u, 11u}}) {
      steps.Begin();
      steps.set_want_logits(true);
      for (uint32_t s = 0; s < kSequences; ++s) {
        const std::vector<uint32_t> all = Tokens(11, config.vocab_size, s);
        const uint32_t row = steps.AddRows(ids[s], {all.begin() + first, all.begin() + end});
        steps.AddOutput(row + end - first - 1);
      }
      ASSERT_OK(runner->RunStep(steps.batch()));
    }
    std::vector<std::vector<float>> actual;
    for (uint32_t s = 0; s < kSequences; ++s) {
      actual.emplace_back(runner->Logits(s).begin(), runner->Logits(s).end());
    }
    for (uint32_t s = 0; s < kSequences; ++s) {
      std::vector<float> expected = Logits(*runner, Tokens(11, config.vocab_size, s), 1);
      expected.erase(expected.begin(), expected.end() - config.vocab_size);
      EXPECT_TRUE(testing::IsNearInNorm(actual[s], expected, 8 * testing::kEpsilonF16))
          << "sequence " << s << (tiled ? ", tiled" : "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, BatchInvarianceTest,
    ::testing::Values(
        InvarianceCase{"Q8_0", DType::kQ8_0, {}},
        InvarianceCase{"Bf16", DType::kBf16, {.hidden_dim = 96, .num_kv_heads = 1}},
        InvarianceCase{
            "Q4_0Head256", DType::kQ4_0, {.num_layers = 2, .num_kv_heads = 1, .head_dim = 256}},
        InvarianceCase{"Q8_0Decode", DType::kQ8_0, {}, true},
        InvarianceCase{
            .name = "Q4_0Matvec", .dtype = DType::kQ4_0, .model = kMatvecModel, .matvec = true},
        InvarianceCase{"Q4_0Head72Decode", DType::kQ4_0, {.num_layers = 2, .head_dim = 72}, true}),
    [](const auto& test) { return test.param.name; });

// Activations of matmuls of few rows are blocks of int8: each of a layer's four matmuls adds an
// error of some 0.6% of its output, a uniform rounding error over blocks of a normal distribution.
double Int8Bound(const ModelConfig& config) { return 0.006 * std::sqrt(4 * config.num_layers) * 2; }

// Q and K in one format, V in another: still one projection, on every kernel.
TEST_F(GpuWorkerTest, PartsInDifferingFormatsMakeOneProjection) {
  const ModelConfig config = testing::MakeConfig(kMatvecModel);
  const std::vector<uint32_t> tokens = Tokens(11, config.vocab_size, 4);
  for (const DType v_dtype : {DType::kQ8_0, DType::kQ5_0}) {
    const auto weights =
        testing::RandomWeightSet(config, {.dtype = DType::kQ4_0, .v_dtype = v_dtype});
    const std::vector<float> expected =
        reference::ReferenceModel(*weights, {.half_precision_exchange = true}).Logits(tokens);
    for (const bool matvec : {false, true}) {
      Open({.validation = true, .adjust_tuning = [matvec](Tuning& tuning) {
              UsePlainKernels(tuning);
              if (matvec) UseMatvec(tuning);
            }});
      ASSERT_OK_AND_ASSIGN(const auto runner,
                           PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config),
                                              {.max_rows = 8}));
      // A layer rounds to float16 at most thirteen times.
      const double bound =
          matvec ? Int8Bound(config) : 13 * config.num_layers * testing::kEpsilonF16;
      EXPECT_TRUE(testing::IsNearInNorm(Logits(*runner, tokens, 4), expected, bound));
    }
  }
}

TEST_F(GpuWorkerTest, MatvecAgreesWithThePlainKernels) {
  const ModelConfig config = testing::MakeConfig(kMatvecModel);
  const std::vector<uint32_t> tokens = Tokens(19, config.vocab_size, 6);
  std::vector<Segment> stages;
  for (uint32_t i = 0; i < NumStages(config.num_layers); ++i) {
    stages.push_back(testing::SingleStage(StageAt(i, config.num_layers), config));
  }
  for (const DType dtype : {DType::kQ8_0, DType::kBf16}) {
    const auto weights = testing::RandomWeightSet(config, {.dtype = dtype});
    std::vector<std::vector<float>> results;
    for (const bool matvec : {false, true}) {
      Open({.validation = true, .adjust_tuning = [matvec](Tuning& tuning) {
              UsePlainKernels(tuning);
              if (matvec) UseMatvec(tuning);
            }});
      for (const auto& segments : {testing::WholeModel(config), stages}) {
        ASSERT_OK_AND_ASSIGN(const auto runner, PlanRunner::Create(weights, {worker_.get()},
                                                                   segments, {.max_rows = 8}));
        results.push_back(Logits(*runner, tokens, 7));
      }
    }
    const double bound = dtype == DType::kBf16 ? 0.002 : Int8Bound(config);
    EXPECT_TRUE(testing::IsNearInNorm(results[2], results[0], bound));
    EXPECT_EQ(0, std::memcmp(results[2].data(), results[3].data(), results[2].size() * 4))
        << "partial sums add up alike wherever a segment ends";
  }
}

// Matmuls of few rows have split-K, those of many do not.  Then the Ffn of a step's few outputs
// reads the Out of its many rows.
TEST_F(GpuWorkerTest, AFewOutputsOfManyRowsReadAWholeOut) {
  const ModelConfig config = testing::MakeConfig(kMatvecModel);
  const std::vector<uint32_t> tokens = Tokens(40, config.vocab_size, 5);
  const auto weights = testing::RandomWeightSet(config, {.dtype = DType::kQ8_0});
  std::vector<std::vector<float>> results;
  for (const uint32_t split_rows : {0u, 4u}) {
    Open({.validation = true, .adjust_tuning = [split_rows](Tuning& tuning) {
            UsePlainKernels(tuning);
            UseMatvec(tuning);
            tuning.matvec_max_rows = split_rows;
          }});
    ASSERT_OK_AND_ASSIGN(const auto runner, PlanRunner::Create(weights, {worker_.get()},
                                                               testing::WholeModel(config), {}));
    StepBuilder steps(runner->limits());
    const uint32_t sequence = steps.AddSequence();
    steps.Begin();
    steps.set_want_logits(true);
    steps.AddRows(sequence, tokens);
    for (const uint32_t row : {7u, 38u, 39u}) steps.AddOutput(row);
    ASSERT_OK(runner->RunStep(steps.batch()));
    std::vector<float>& logits = results.emplace_back();
    for (uint32_t o = 0; o < 3; ++o) {
      logits.insert(logits.end(), runner->Logits(o).begin(), runner->Logits(o).end());
    }
  }
  EXPECT_TRUE(testing::IsNearInNorm(results[1], results[0], Int8Bound(config)));
}

// Whether barriers or counters order the dispatches, step by step.
TEST_F(GpuWorkerTest, DependencyCountersChangeNoBit) {
  const ModelConfig config = testing::MakeConfig(kMatvecModel);
  const auto weights = testing::RandomWeightSet(config, {.dtype = DType::kQ4_0});
  const std::vector<uint32_t> tokens = Tokens(23, config.vocab_size, 5);
  std::vector<std::vector<float>> results;
  for (const uint32_t counters : {0u, 1u}) {
    Open({.validation = true, .adjust_tuning = [counters](Tuning& tuning) {
            UseMatvec(tuning);
            tuning.matvec_max_rows = 4;  // steps of more have barriers between, and counters
            tuning.decode = {.enabled = true,
                             .threads = 2 * tuning.subgroup_size,
                             .lane_values = 16,
                             .piece_bytes = 2048};
            tuning.phase_counters = counters;
          }});
    ASSERT_OK_AND_ASSIGN(const auto runner,
                         PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config),
                                            {.max_rows = 16}));
    for (const uint32_t chunk : {1u, 3u, 7u, 1u}) {
      results.push_back(Logits(*runner, tokens, chunk, chunk == 3));
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(0, std::memcmp(results[i].data(), results[i + 4].data(), results[i].size() * 4)) << i;
  }
}

// One row: norms as launches of their own, and within the matmuls that read them.
TEST_F(GpuWorkerTest, MatmulsThatNormTheirInputAgreeWithSeparateNorms) {
  const ModelConfig config = testing::MakeConfig(kMatvecModel);
  const std::vector<uint32_t> tokens = Tokens(23, config.vocab_size, 5);
  const auto weights = testing::RandomWeightSet(config, {.dtype = DType::kQ4_0});
  std::vector<std::vector<float>> results;
  for (const auto& [norm_inputs, counters] : {std::pair{0u, 0u}, {1u, 0u}, {1u, 1u}}) {
    Open({.validation = true,
          .adjust_tuning = [norm = norm_inputs, counters = counters](Tuning& tuning) {
            UseMatvec(tuning);
            tuning.decode = {.enabled = true,
                             .threads = 2 * tuning.subgroup_size,
                             .lane_values = 16,
                             .piece_bytes = 2048};
            tuning.phase_counters = counters;
            tuning.norm_inputs = norm;
            tuning.norm_groups = 64;  // one set of teams, so sums in another order
          }});
    ASSERT_OK_AND_ASSIGN(
        const auto runner,
        PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config), {.max_rows = 4}));
    results.push_back(Logits(*runner, tokens, 1));
  }
  // That tips some of the int8 over.
  EXPECT_TRUE(testing::IsNearInNorm(results[1], results[0], Int8Bound(config)));
  EXPECT_NE(0, std::memcmp(results[1].data(), results[0].data(), results[0].size() * 4))
      << "the same kernels";
  EXPECT_EQ(0, std::memcmp(results[1].data(), results[2].data(), results[1].size() * 4));
}

}  // namespace
}  // namespace tandem::gpu

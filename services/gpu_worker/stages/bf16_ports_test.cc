// Ports in bfloat16, as an NPU takes q, k and v and writes attention.
#include <functional>
#include <random>
#include <string>
#include <utility>

#include "services/common/base/half.h"
#include "services/common/reference/reference_worker.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/gpu_worker/stages/gpu_worker_for_test.h"

namespace tandem::gpu {
namespace {

class Bf16PortsTest : public GpuWorkerTest {
 protected:
  void SetUp() override {}

  // With the kernels of the device at hand, then with those for few rows.
  void ForEachTuning(const std::function<void()>& run) {
    for (const bool few_rows : {false, true}) {
      SCOPED_TRACE(few_rows ? "kernels for few rows" : "the device's kernels");
      GpuWorkerOptions options{.validation = true};
      if (few_rows) {
        options.adjust_tuning = [](Tuning& tuning) { tuning.matvec_max_rows = 16; };
      }
      Open(options);
      if (IsSkipped() || HasFatalFailure()) return;
      run();
    }
  }

  std::unique_ptr<PlanRunner> Load(const std::shared_ptr<const WeightSet>& weights, Stage stage,
                                   DType port_dtype) {
    auto runner = PlanRunner::Create(weights, {worker_.get()},
                                     {testing::SingleStage(stage, weights->config())},
                                     {.max_rows = 32, .port_dtype = port_dtype});
    EXPECT_OK(runner);
    return runner.ok() ? *std::move(runner) : nullptr;
  }

  // Runs the only segment for `num_rows` rows over the port `input`.
  static void RunStage(PlanRunner& runner, uint32_t num_rows, Port input,
                       const std::vector<float>& rows) {
    runner.FillGuards();
    runner.WritePort(input, rows);
    StepBuilder steps(runner.limits());
    steps.Begin();
    steps.AddRows(steps.AddSequence(), std::vector<uint32_t>(num_rows, 3));
    EXPECT_OK(runner.RunStep(steps.batch()));
    EXPECT_TRUE(runner.GuardsIntact());
  }

  static std::vector<float> Normal(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (float& value : values) value = normal(random);
    return values;
  }
};

// The kernel is the same up to its last rounding, so both are one float32 number rounded once.
TEST_F(Bf16PortsTest, QkvIsRoundedOnce) {
  ForEachTuning([&] {
    for (const uint32_t head_dim : {64u, 72u, 256u}) {
      const ModelConfig config = testing::MakeConfig({.num_layers = 1, .head_dim = head_dim});
      const auto weights = testing::RandomWeightSet(config, {.dtype = DType::kQ8_0});
      std::vector<std::vector<float>> halves;
      size_t compared = 0;
      for (const DType port_dtype : {DType::kF16, DType::kBf16}) {
        const auto runner = Load(weights, {StageKind::kQkv, 0}, port_dtype);
        ASSERT_TRUE(runner != nullptr);
        for (const uint32_t num_rows : {1u, 3u, 17u}) {
          SCOPED_TRACE("heads of " + std::to_string(head_dim) + ", rows " +
                       std::to_string(num_rows));
          const auto residual = Normal(size_t{num_rows} * config.hidden_dim, num_rows);
          RunStage(*runner, num_rows, Port::kResidual, residual);
          for (const Port port : {Port::kQ, Port::kK, Port::kV}) {
            const std::vector<float> rows = runner->ReadPort(port, num_rows);
            if (port_dtype == DType::kF16) {
              halves.push_back(rows);
              continue;
            }
            // Below float16's normal range its steps are 2^-24.
            EXPECT_TRUE(testing::IsNear(rows, halves[compared++], 0x1p-25,
                                        testing::kEpsilonBf16 + 1.01 * testing::kEpsilonF16));
          }
        }
      }
    }
  });
}

// Of numbers that both formats hold.
TEST_F(Bf16PortsTest, OutGivesTheSameBits) {
  ForEachTuning([&] {
    for (const auto& [dtype, head_dim] : {std::pair{DType::kF32, 72u},
                                          {DType::kBf16, 64u},
                                          {DType::kQ8_0, 256u},
                                          {DType::kQ4_0, 72u}}) {
      const ModelConfig config = testing::MakeConfig({.num_layers = 1, .head_dim = head_dim});
      const auto weights = testing::RandomWeightSet(config, {.dtype = dtype});
      std::vector<std::vector<float>> halves;
      size_t compared = 0;
      for (const DType port_dtype : {DType::kF16, DType::kBf16}) {
        const auto runner = Load(weights, {StageKind::kOut, 0}, port_dtype);
        ASSERT_TRUE(runner != nullptr);
        for (const uint32_t num_rows : {1u, 3u, 17u}) {
          SCOPED_TRACE(std::string(Traits(dtype).name) + ", heads of " + std::to_string(head_dim) +
                       ", rows " + std::to_string(num_rows));
          std::vector<float> attention = Normal(num_rows * config.q_dim(), num_rows);
          for (float& value : attention) {
            value = HalfToFloat(FloatToHalf(Bf16ToFloat(FloatToBf16(value))));
          }
          RunStage(*runner, num_rows, Port::kAttention, attention);
          const std::vector<float> projection = runner->ReadPort(Port::kProjection, num_rows);
          if (port_dtype == DType::kF16) {
            halves.push_back(projection);
          } else {
            EXPECT_EQ(projection, halves[compared++]);
          }
        }
      }
    }
  });
}

// What does not cross stays float16.
TEST_F(Bf16PortsTest, AttentionThatStaysHereHasTheSameBits) {
  ForEachTuning([&] {
    const ModelConfig config = testing::MakeConfig({});
    const auto weights = testing::RandomWeightSet(config, {.dtype = DType::kQ8_0});
    const std::vector<uint32_t> tokens = Tokens(30, config.vocab_size, 4);
    std::vector<std::vector<float>> logits;
    for (const DType port_dtype : {DType::kF16, DType::kBf16}) {
      ASSERT_OK_AND_ASSIGN(const auto runner,
                           PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config),
                                              {.port_dtype = port_dtype}));
      logits.push_back(Logits(*runner, tokens, 7));
    }
    EXPECT_EQ(logits[1], logits[0]);
  });
}

// Attention of the middle layer elsewhere, of the others here: against the same in float16.
TEST_F(Bf16PortsTest, ALayerThatAttendsElsewhereCostsItsRoundings) {
  ForEachTuning([&] {
    const ModelConfig config = testing::MakeConfig({});
    const auto weights = testing::RandomWeightSet(config, {.dtype = DType::kQ8_0});
    const std::vector<uint32_t> tokens = Tokens(30, config.vocab_size, 4);
    const uint32_t attend = StageOrdinal({StageKind::kAttend, 1}, config.num_layers);
    const std::vector<Segment> segments = {
        {.last_ordinal = attend - 1, .outputs = OutputsOf(StageKind::kQkv)},
        {.worker = 1,
         .first_ordinal = attend,
         .last_ordinal = attend,
         .inputs = InputsOf(StageKind::kAttend),
         .outputs = OutputsOf(StageKind::kAttend)},
        {.first_ordinal = attend + 1,
         .last_ordinal = NumStages(config.num_layers) - 1,
         .inputs = InputsOf(StageKind::kOut)}};
    std::vector<std::vector<float>> logits;
    for (const DType port_dtype : {DType::kF16, DType::kBf16}) {
      reference::ReferenceWorker npu({.stages = {StageKind::kAttend}});
      ASSERT_OK_AND_ASSIGN(
          const auto runner,
          PlanRunner::Create(weights, {worker_.get(), &npu}, segments, {.port_dtype = port_dtype}));
      logits.push_back(Logits(*runner, tokens, 7));
    }
    // q, k, v and attention are rounded once each: twice the root of four (NormBound of the conformance suite).
    EXPECT_TRUE(testing::IsNearInNorm(logits[1], logits[0], 2 * testing::kEpsilonBf16 * 2));
    EXPECT_NE(logits[1], logits[0]);
  });
}

TEST_F(Bf16PortsTest, AttendWithPortsInBfloat16IsRefusedByName) {
  Open({});
  if (IsSkipped()) return;
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  EXPECT_THAT(
      PlanRunner::Create(testing::RandomWeightSet(config), {worker_.get()},
                         {testing::SingleStage({StageKind::kAttend, 0}, config)},
                         {.port_dtype = DType::kBf16})
          .status(),
      testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                        ::testing::HasSubstr("gpu0: ports of Attend are f16, the plan has bf16")));
}

}  // namespace
}  // namespace tandem::gpu

// The stages Qkv and Ffn on an array, against float64: XRT 2.25 and its NPU plugin, both unmodified, over
// the emulated driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "services/common/testing/compare.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/weights/dequantize.h"
#include "services/npu_worker/worker_test_support.h"

namespace tandem::npu {
namespace {

using ::testing::HasSubstr;
using testing::PlanRunner;
using testing::StatusIs;
using testing::StepBuilder;

using Rows = std::vector<std::vector<double>>;

// Mean relative L1: of one GEMM, of rounding to bfloat16.
constexpr double kGemmBound = 1e-2, kRounding = 0x1p-9;
// The GEMM, over a norm's rounded output; then heads are rounded.
constexpr double kQkvBound = kGemmBound + 2 * kRounding;
// Two GEMMs, over the rounded outputs of a norm and of GeGLU.
constexpr double kFfnBound = 2 * (kGemmBound + kRounding);

// The stages in float64.
class Float64 {
 public:
  Float64(const WeightSet& weights, uint32_t layer_idx)
      : weights_(weights), config_(weights.config()), layer_idx_(layer_idx) {}

  std::vector<double> Norm(WeightRole role, std::span<const double> row) const {
    const std::vector<float> norm = Tensor(role);
    double squares = 0;
    for (const double value : row) squares += value * value;
    const double factor =
        1 / std::sqrt(squares / static_cast<double>(row.size()) + config_.rms_norm_eps);
    std::vector<double> out;
    for (size_t i = 0; i < row.size(); ++i) out.push_back(row[i] * factor * norm[i]);
    return out;
  }
  std::vector<double> Times(WeightRole role, const std::vector<double>& row) const {
    const std::vector<float> matrix = Tensor(role);
    std::vector<double> out(matrix.size() / row.size());
    for (size_t n = 0; n < out.size(); ++n) {
      for (size_t k = 0; k < row.size(); ++k) out[n] += row[k] * matrix[n * row.size() + k];
    }
    return out;
  }
  // q, k and v side by side.
  std::vector<double> Qkv(const std::vector<double>& residual, uint32_t position) const {
    std::vector<double> out = Times(WeightRole::kQkv, Norm(WeightRole::kInputNorm, residual));
    const size_t dim = config_.head_dim, half = dim / 2;
    const bool is_global = config_.is_global(layer_idx_);
    const double theta = is_global ? config_.rope_theta_global : config_.rope_theta_local;
    const double scale = is_global ? config_.rope_scale_global : 1.0;
    for (size_t head = 0; head < config_.num_heads + config_.num_kv_heads; ++head) {
      const std::span<double> numbers = std::span(out).subspan(head * dim, dim);
      const auto role = head < config_.num_heads ? WeightRole::kQNorm : WeightRole::kKNorm;
      const std::vector<double> normed = Norm(role, numbers);
      for (size_t i = 0; i < half; ++i) {
        const double angle =
            position * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim)) /
            scale;
        numbers[i] = normed[i] * std::cos(angle) - normed[i + half] * std::sin(angle);
        numbers[i + half] = normed[i + half] * std::cos(angle) + normed[i] * std::sin(angle);
      }
    }
    return out;
  }
  // What the stage adds to the residual.
  std::vector<double> Ffn(const std::vector<double>& residual,
                          const std::vector<double>& projection) const {
    const std::vector<double> attention = Norm(WeightRole::kPostAttentionNorm, projection);
    std::vector<double> sum(residual);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += attention[i];
    const std::vector<double> gate_up =
        Times(WeightRole::kGateUp, Norm(WeightRole::kPreFfnNorm, sum));
    std::vector<double> hidden;
    for (size_t i = 0; i < gate_up.size(); i += 2) {
      const double x = gate_up[i];
      const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
      hidden.push_back(0.5 * x * (1 + std::tanh(inner)) * gate_up[i + 1]);
    }
    std::vector<double> added = Norm(WeightRole::kPostFfnNorm, Times(WeightRole::kDown, hidden));
    for (size_t i = 0; i < added.size(); ++i) added[i] += attention[i];
    return added;
  }

 private:
  std::vector<float> Tensor(WeightRole role) const {
    return DequantizeTensor(weights_, *weights_.Find(role, layer_idx_));
  }

  const WeightSet& weights_;
  const ModelConfig& config_;
  const uint32_t layer_idx_;
};

// Sum of the errors over the sum of the magnitudes.
double Error(const Rows& expected, const std::vector<float>& actual) {
  double error = 0, magnitude = 0;
  size_t at = 0;
  for (const std::vector<double>& row : expected) {
    for (const double value : row) {
      error += std::fabs(value - actual[at++]);
      magnitude += std::fabs(value);
    }
  }
  EXPECT_EQ(at, actual.size());
  return error / magnitude;
}

// One stage a segment.
std::vector<Segment> LayerSegments(const ModelConfig& config,
                                   std::initializer_list<StageKind> kinds) {
  std::vector<Segment> segments;
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const StageKind kind : kinds) {
      segments.push_back(testing::SingleStage({kind, layer}, config));
    }
  }
  return segments;
}

std::vector<float> Normal(size_t size, uint32_t seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<double> RowOf(const std::vector<float>& values, size_t row, size_t width) {
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(row * width);
  return {first, first + static_cast<std::ptrdiff_t>(width)};
}

class NpuArrayLayerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static absl::StatusOr<std::unique_ptr<NpuWorker>> worker = MakeEmulatedWorker();
    ASSERT_OK(worker);
    worker_ = worker->get();
  }
  std::unique_ptr<PlanRunner> Load(std::shared_ptr<const WeightSet> weights,
                                   const std::vector<Segment>& segments,
                                   const testing::RunLimits& limits) {
    auto runner = PlanRunner::Create(std::move(weights), {worker_}, segments, limits);
    EXPECT_OK(runner.status());
    return runner.ok() ? *std::move(runner) : nullptr;
  }
  // A step of one sequence, whose last rows these are.
  static StepBatch LastRows(StepBuilder& steps, uint32_t sequence, uint32_t num_rows) {
    steps.Begin();
    steps.AddRows(sequence, std::vector<uint32_t>(num_rows, 3));
    return steps.batch();
  }

  NpuWorker* worker_ = nullptr;
};

// Formats of weights, widths that end within a tile, and positions that go on from one step to the next.
TEST_F(NpuArrayLayerTest, QkvIsWithinTheBoundForAnyNumberOfRowsAndFormat) {
  double worst = 0;
  struct Formats {
    DType dtype;
    std::optional<DType> v_dtype = std::nullopt;
  };
  for (const auto& [dtype, v_dtype] :
       {Formats{DType::kF32}, Formats{DType::kQ8_0}, Formats{DType::kQ4_0},
        Formats{DType::kQ4_0, DType::kQ8_0}, Formats{DType::kQ8_0, DType::kQ5_0}}) {
    const ModelConfig config = testing::MakeConfig({.num_layers = 2,
                                                    .hidden_dim = dtype == DType::kF32 ? 70u : 96u,
                                                    .head_dim = 128,
                                                    .context_len = 512,
                                                    .rope_scale_global = 8.0f});
    const auto weights = testing::RandomWeightSet(config, {.dtype = dtype, .v_dtype = v_dtype});
    const auto runner = Load(weights, LayerSegments(config, {StageKind::kQkv}), {.max_rows = 80});
    ASSERT_TRUE(runner != nullptr);
    StepBuilder steps(runner->limits());
    const uint32_t sequence = steps.AddSequence();
    uint32_t position = 0;
    for (const uint32_t num_rows : {63u, 1u, 65u}) {
      const std::vector<float> residual =
          Normal(size_t{num_rows} * config.hidden_dim, num_rows, 20.0f);
      runner->WritePort(Port::kResidual, residual);
      ASSERT_OK(runner->WriteAndCheckStep(LastRows(steps, sequence, num_rows)));
      for (const uint32_t layer : {0u, 1u}) {
        ASSERT_OK(runner->RunSegment(layer));
        const Float64 reference(*weights, layer);
        Rows q, k, v;
        for (uint32_t row = 0; row < num_rows; ++row) {
          const std::vector<double> all =
              reference.Qkv(RowOf(residual, row, config.hidden_dim), position + row);
          const auto k_begin = all.begin() + config.q_dim();
          const auto v_begin = k_begin + config.kv_dim();
          q.emplace_back(all.begin(), k_begin);
          k.emplace_back(k_begin, v_begin);
          v.emplace_back(v_begin, all.end());
        }
        SCOPED_TRACE(::testing::Message()
                     << Traits(dtype).name << ", V " << Traits(v_dtype.value_or(dtype)).name
                     << ", layer " << layer << ", " << num_rows << " rows from " << position);
        const std::pair<Port, const Rows*> parts[] = {
            {Port::kQ, &q}, {Port::kK, &k}, {Port::kV, &v}};
        for (const auto& [port, expected] : parts) {
          const double error = Error(*expected, runner->ReadPort(port, num_rows));
          EXPECT_LE(error, kQkvBound) << "port " << static_cast<uint32_t>(port);
          worst = std::max(worst, error);
        }
        EXPECT_EQ(runner->ReadPort(Port::kResidual, num_rows), residual);
      }
      position += num_rows;
    }
  }
  std::printf("Qkv: largest error %.5f\n", worst);
}

TEST_F(NpuArrayLayerTest, FfnIsWithinTheBoundForAnyNumberOfRowsAndFormat) {
  double worst = 0;
  for (const DType dtype : {DType::kF32, DType::kQ8_0, DType::kQ4_0}) {
    const ModelConfig config = testing::MakeConfig({.num_layers = 2,
                                                    .hidden_dim = dtype == DType::kF32 ? 70u : 96u,
                                                    .ffn_dim = dtype == DType::kF32 ? 106u : 160u});
    const auto weights = testing::RandomWeightSet(config, {.dtype = dtype});
    const auto runner = Load(weights, LayerSegments(config, {StageKind::kFfn}), {.max_rows = 80});
    ASSERT_TRUE(runner != nullptr);
    const LoadReport& report = runner->load_reports()[0];
    EXPECT_EQ(report.weight_import, ImportPath::kUpload);
    // Inputs and outputs are filled up to 64: 70 and 96 to 128, 106 and 160 to 128 and 192.
    const uint64_t ffn = dtype == DType::kF32 ? 128 : 192,
                   gate_up = dtype == DType::kF32 ? 256 : 320;
    const uint64_t matrices = dtype == DType::kF32
                                  ? 2 * 128 * (gate_up + ffn)
                                  : ShardBytes(dtype, gate_up, 128) + ShardBytes(dtype, 128, ffn);
    EXPECT_EQ(report.weight_bytes, 2 * (matrices + 3 * 128 * 4));
    for (const uint32_t num_rows : {1u, 63u, 65u}) {
      StepBuilder steps(runner->limits());
      const size_t size = size_t{num_rows} * config.hidden_dim;
      const std::vector<float> residual = Normal(size, num_rows, 20.0f);
      const std::vector<float> projection = Normal(size, num_rows + 1, 3.0f);
      runner->WritePort(Port::kResidual, residual);
      runner->WritePort(Port::kProjection, projection);
      ASSERT_OK(runner->WriteAndCheckStep(LastRows(steps, steps.AddSequence(), num_rows)));
      ASSERT_OK(runner->RunSegment(1));
      std::vector<float> added = runner->ReadPort(Port::kResidual, num_rows);
      for (size_t i = 0; i < size; ++i) added[i] -= residual[i];
      const Float64 reference(*weights, 1);
      Rows expected;
      for (uint32_t row = 0; row < num_rows; ++row) {
        expected.push_back(reference.Ffn(RowOf(residual, row, config.hidden_dim),
                                         RowOf(projection, row, config.hidden_dim)));
      }
      const double error = Error(expected, added);
      EXPECT_LE(error, kFfnBound) << Traits(dtype).name << ", " << num_rows << " rows";
      worst = std::max(worst, error);
      EXPECT_EQ(runner->ReadPort(Port::kProjection, num_rows), projection);
    }
  }
  std::printf("Ffn: largest error %.5f\n", worst);
}

// More rows than a command takes, and as many as a transaction of row functions has columns for.
TEST_F(NpuArrayLayerTest, ManyRowsTakeSeveralCommands) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1, .context_len = 1200});
  const auto runner =
      Load(testing::RandomWeightSet(config), LayerSegments(config, {StageKind::kFfn}),
           {.max_rows = 1100, .max_sequences = 1});
  ASSERT_TRUE(runner != nullptr);
  const size_t width = config.hidden_dim;
  std::vector<float> rows = Normal(1090 * width, 1, 5.0f);
  for (size_t i = 600 * width; i < rows.size(); ++i) rows[i] = rows[i - 600 * width];
  runner->WritePort(Port::kResidual, rows);
  runner->WritePort(Port::kProjection, rows);
  StepBuilder steps(runner->limits());
  ASSERT_OK(runner->RunStep(LastRows(steps, steps.AddSequence(), 1090)));
  const std::vector<float> residual = runner->ReadPort(Port::kResidual, 1090);
  for (size_t i = 0; i < 490 * width; ++i) {
    ASSERT_EQ(residual[600 * width + i], residual[i]) << i;
  }
  EXPECT_NE(residual[0], rows[0]);
}

// All stages of a layer as one segment: the same numbers as one segment a stage with ports in bfloat16.  Ports in
// float16 round v once more.
TEST_F(NpuArrayLayerTest, ALayerInOneSegmentGivesWhatFourGive) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 2});
  const auto run = [&](const std::vector<Segment>& segments, DType port_dtype) {
    const auto runner =
        Load(testing::RandomWeightSet(config), segments, {.port_dtype = port_dtype});
    if (runner == nullptr) return std::vector<float>();
    StepBuilder steps(runner->limits());
    const uint32_t sequence = steps.AddSequence();
    std::vector<float> all;
    for (const uint32_t num_rows : {9u, 1u, 20u}) {
      runner->WritePort(Port::kResidual, Normal(num_rows * config.hidden_dim, num_rows, 5.0f));
      EXPECT_OK(runner->RunStep(LastRows(steps, sequence, num_rows)));
      const std::vector<float> residual = runner->ReadPort(Port::kResidual, num_rows);
      all.insert(all.end(), residual.begin(), residual.end());
    }
    return all;
  };
  const std::vector<Segment> apart = LayerSegments(
      config, {StageKind::kQkv, StageKind::kAttend, StageKind::kOut, StageKind::kFfn});
  Segment whole = apart.front();
  whole.last_ordinal = apart.back().last_ordinal;
  whole.outputs = apart.back().outputs;
  const std::vector<float> in_bf16 = run(apart, DType::kBf16);
  EXPECT_EQ(run({whole}, DType::kF16), in_bf16);
  // One rounding a layer more, and two for the worst row.
  EXPECT_TRUE(testing::IsNearInNorm(run(apart, DType::kF16), in_bf16,
                                    2 * testing::kEpsilonBf16 * std::sqrt(config.num_layers)));
}

// q and k come out of the array in bfloat16; v is float32 there.
TEST_F(NpuArrayLayerTest, QkvInBfloat16IsFloat16sToItsRounding) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  std::vector<std::vector<float>> halves;
  size_t compared = 0;
  for (const DType port_dtype : {DType::kF16, DType::kBf16}) {
    const auto runner = Load(testing::RandomWeightSet(config),
                             LayerSegments(config, {StageKind::kQkv}), {.port_dtype = port_dtype});
    ASSERT_TRUE(runner != nullptr);
    for (const uint32_t num_rows : {1u, 3u, 17u}) {
      SCOPED_TRACE(num_rows);
      runner->FillGuards();
      runner->WritePort(Port::kResidual, Normal(num_rows * config.hidden_dim, num_rows, 5.0f));
      StepBuilder steps(runner->limits());
      ASSERT_OK(runner->RunStep(LastRows(steps, steps.AddSequence(), num_rows)));
      EXPECT_TRUE(runner->GuardsIntact());
      for (const Port port : {Port::kQ, Port::kK, Port::kV}) {
        const std::vector<float> rows = runner->ReadPort(port, num_rows);
        if (port_dtype == DType::kF16) {
          halves.push_back(rows);
          continue;
        }
        const double rounding = testing::kEpsilonBf16 + 1.01 * testing::kEpsilonF16;
        // Below float16's normal range its steps are 2^-24.
        EXPECT_TRUE(
            testing::IsNear(rows, halves[compared++], 0x1p-25, port == Port::kV ? rounding : 0.0));
      }
    }
  }
}

// NaNs of a row, and what they leave in the array's buffers, are no other row's business.
TEST_F(NpuArrayLayerTest, NansOfOneRowStayThere) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1, .hidden_dim = 70});
  const auto runner =
      Load(testing::RandomWeightSet(config),
           LayerSegments(config, {StageKind::kQkv, StageKind::kFfn}), {.max_rows = 16});
  ASSERT_TRUE(runner != nullptr);
  constexpr uint32_t kRows = 7, kSick = 2;
  const size_t width = config.hidden_dim;
  for (const bool is_sick : {true, false}) {
    std::vector<float> rows = Normal(kRows * width, 1, 5.0f);
    if (is_sick) std::fill_n(rows.begin() + kSick * width, width, std::nanf(""));
    runner->WritePort(Port::kResidual, rows);
    runner->WritePort(Port::kProjection, rows);
    StepBuilder steps(runner->limits());
    ASSERT_OK(runner->RunStep(LastRows(steps, steps.AddSequence(), kRows)));
    for (const Port port : {Port::kQ, Port::kK, Port::kV, Port::kResidual}) {
      const std::vector<float> values = runner->ReadPort(port, kRows);
      for (size_t i = 0; i < values.size(); ++i) {
        const bool is_of_sick = i / (values.size() / kRows) == kSick;
        ASSERT_EQ(std::isnan(values[i]), is_sick && is_of_sick)
            << "port " << static_cast<uint32_t>(port) << ", number " << i;
      }
    }
  }
}

TEST_F(NpuArrayLayerTest, LanesDoNotMix) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 2});
  const auto runner = Load(testing::RandomWeightSet(config),
                           LayerSegments(config, {StageKind::kQkv, StageKind::kAttend,
                                                  StageKind::kOut, StageKind::kFfn}),
                           {.num_lanes = 2});
  ASSERT_TRUE(runner != nullptr);
  const auto run = [&](bool by_turns) {
    StepBuilder first(runner->limits()), second(runner->limits(), 2);
    for (uint32_t lane = 0; lane < 2; ++lane) {
      StepBuilder& builder = lane == 0 ? first : second;
      runner->WritePort(Port::kResidual, Normal((5 + lane) * config.hidden_dim, lane, 5.0f), lane);
      EXPECT_OK(
          runner->WriteAndCheckStep(LastRows(builder, builder.AddSequence(), 5 + lane), lane));
    }
    for (uint32_t i = 0; i < 16; ++i) {
      EXPECT_OK(by_turns ? runner->RunSegment(i / 2, i % 2) : runner->RunSegment(i % 8, i / 8));
    }
    return std::pair(runner->ReadPort(Port::kResidual, 5, 0),
                     runner->ReadPort(Port::kResidual, 6, 1));
  };
  const auto alone = run(false);
  EXPECT_EQ(run(true), alone);
}

TEST_F(NpuArrayLayerTest, HeadsThatCannotBeRotatedAreRefused) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1, .head_dim = 96});
  EXPECT_THAT(PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                                 LayerSegments(config, {StageKind::kQkv}), {})
                  .status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("head size 96")));
}

}  // namespace
}  // namespace tandem::npu

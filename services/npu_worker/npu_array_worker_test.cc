// The worker on an array: XRT 2.25 and its NPU plugin, both unmodified, over the emulated driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "services/common/base/half.h"
#include "services/common/reference/reference_worker.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"
#include "services/common/weights/dequantize.h"
#include "services/npu_worker/control/attention.h"
#include "services/npu_worker/worker_test_support.h"

namespace tandem::npu {
namespace {

using ::testing::HasSubstr;
using testing::PlanRunner;
using testing::StatusIs;
using testing::StepBuilder;

class NpuArrayWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static absl::StatusOr<std::unique_ptr<NpuWorker>> worker = MakeEmulatedWorker();
    ASSERT_OK(worker);
    worker_ = worker->get();
  }
  NpuWorker* worker_ = nullptr;
};

TEST_F(NpuArrayWorkerTest, SaysThatItIsEmulatedAndWhatItRuns) {
  const WorkerDescription& self = worker_->description();
  EXPECT_TRUE(self.emulated);
  EXPECT_EQ(self.kind, DeviceKind::kNpu);
  EXPECT_THAT(self.device, HasSubstr("emulated on the host below XRT 2."));
  EXPECT_EQ(self.head_dims, (std::vector<uint32_t>{64, 128, 256}));
  EXPECT_EQ(self.stages, (std::vector<StageKind>{StageKind::kAttend, StageKind::kOut,
                                                 StageKind::kQkv, StageKind::kFfn}));
  EXPECT_EQ(self.weight_dtypes.size(), static_cast<size_t>(kNumDTypes));
  EXPECT_TRUE(self.takes_pictures);
  const std::vector<DType> ports = {DType::kBf16, DType::kF16};
  EXPECT_EQ(self.attend_port_dtypes, ports);
  EXPECT_EQ(self.matrix_port_dtypes, ports);
  EXPECT_OK(worker_->CheckHealth());
}

// Attend and Out with ports in bfloat16 against the same in float16.  `exact`: numbers that both hold.
TEST_F(NpuArrayWorkerTest, PortsInBfloat16GiveWhatFloat16Gives) {
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    const ModelConfig config = testing::MakeConfig({.num_layers = 1, .head_dim = head_dim});
    for (const bool exact : {true, false}) {
      std::vector<std::vector<float>> attention, projection;
      for (const DType port_dtype : {DType::kF16, DType::kBf16}) {
        ASSERT_OK_AND_ASSIGN(
            const auto runner,
            PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                               AttendAndOutSegments(config), {.port_dtype = port_dtype}));
        EXPECT_THAT(runner->load_reports()[0].note,
                    HasSubstr(port_dtype == DType::kBf16 ? "exchanged in bfloat16" : "converted"));
        StepBuilder steps(runner->limits());
        const uint32_t sequence = steps.AddSequence();
        for (const uint32_t num_rows : {17u, 1u, 3u}) {
          runner->FillGuards();
          std::mt19937 random(num_rows);
          std::normal_distribution<float> normal;
          for (const Port port : {Port::kQ, Port::kK, Port::kV}) {
            std::vector<float> rows(num_rows *
                                    (port == Port::kQ ? config.q_dim() : config.kv_dim()));
            for (float& value : rows) {
              value = normal(random);
              if (exact) value = HalfToFloat(FloatToHalf(Bf16ToFloat(FloatToBf16(value))));
            }
            runner->WritePort(port, rows);
          }
          steps.Begin();
          steps.AddRows(sequence, std::vector<uint32_t>(num_rows, 3));
          ASSERT_OK(runner->RunStep(steps.batch()));
          EXPECT_TRUE(runner->GuardsIntact());
          attention.push_back(runner->ReadPort(Port::kAttention, num_rows));
          projection.push_back(runner->ReadPort(Port::kProjection, num_rows));
        }
      }
      for (size_t i = 0; i < 3; ++i) {
        SCOPED_TRACE(::testing::Message() << "heads of " << head_dim << ", step " << i
                                          << (exact ? ", exact inputs" : ""));
        if (exact) {
          // float16 has no bits for the smallest: its steps are 2^-24 there.
          EXPECT_TRUE(testing::IsNear(attention[3 + i], attention[i], 0x1p-25));
          EXPECT_TRUE(testing::IsNearInNorm(projection[3 + i], projection[i], 0x1p-20));
        } else {
          // q, k and v are rounded to bfloat16 from other numbers, attention is rounded after; two for the
          // worst row.
          const double bound = 2 * testing::kEpsilonBf16 * std::sqrt(4.0);
          EXPECT_TRUE(testing::IsNearInNorm(attention[3 + i], attention[i], bound));
          EXPECT_TRUE(testing::IsNearInNorm(projection[3 + i], projection[i], bound));
        }
      }
    }
  }
}

TEST_F(NpuArrayWorkerTest, APlanWithTheReferenceHasPortsInBfloat16) {
  const ModelConfig config = testing::MakeConfig({});
  reference::ReferenceWorker gpu;
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::CreatePlanned(testing::RandomWeightSet(config), {&gpu, worker_},
                                                 {.npu = NpuPolicy::kEmulate}, {}));
  EXPECT_EQ(runner->port_dtype(), DType::kBf16);
}

TEST_F(NpuArrayWorkerTest, ReportsItsMemoryAndThatActivationsAreConverted) {
  const ModelConfig config = testing::MakeConfig({});
  ASSERT_OK_AND_ASSIGN(
      const auto runner,
      PlanRunner::Create(testing::RandomWeightSet(config), {worker_}, AttendSegments(config), {}));
  const LoadReport& report = runner->load_reports()[0];
  EXPECT_EQ(report.weight_import, ImportPath::kNone);
  EXPECT_EQ(report.exchange_import, ImportPath::kUpload);
  EXPECT_THAT(report.note, HasSubstr("converted to bfloat16"));
  const uint64_t slots = uint64_t{runner->limits().num_blocks[0]} * 16 + kZeroSlots;
  EXPECT_EQ(report.kv_bytes, config.num_layers * slots * 2 * config.kv_dim() * 2);
}

TEST_F(NpuArrayWorkerTest, StepsMakeNoBuffers) {
  const ModelConfig config = testing::MakeConfig({});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                                          AttendSegments(config), {.num_lanes = 2}));
  ASSERT_OK_AND_ASSIGN(const auto kernel, OpenDriverKernel("attention_64"));
  const uint64_t first = NextDeviceAddress(*kernel);
  const uint64_t stride = NextDeviceAddress(*kernel) - first;
  StepBuilder steps(runner->limits());
  const uint32_t sequence = steps.AddSequence();
  for (uint32_t step = 0; step < 50; ++step) {
    steps.Begin();
    steps.AddRows(sequence, std::vector<uint32_t>(1 + step % 3, 3));
    ASSERT_OK(runner->RunStep(steps.batch(), step % 2));
  }
  EXPECT_EQ(NextDeviceAddress(*kernel), first + 2 * stride);
}

// Two steps in flight take turns layer by layer, each with its own control code.
TEST_F(NpuArrayWorkerTest, LanesDoNotMix) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 2});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                                          AttendSegments(config), {.num_lanes = 2}));
  const auto run = [&](bool by_turns) {
    StepBuilder steps(runner->limits());
    std::vector<StepBatch> batches;
    StepBuilder others(runner->limits(), 2);
    for (uint32_t lane = 0; lane < 2; ++lane) {
      StepBuilder& builder = lane == 0 ? steps : others;
      builder.Begin();
      builder.AddRows(builder.AddSequence(), std::vector<uint32_t>(5 + lane, 3));
      WriteRandomInputs(*runner, 5 + lane, lane, lane);
      EXPECT_OK(runner->WriteAndCheckStep(builder.batch(), lane));
    }
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t lane = by_turns ? i % 2 : i / 2, segment = by_turns ? i / 2 : i % 2;
      EXPECT_OK(runner->RunSegment(segment, lane));
    }
    return std::pair(runner->ReadPort(Port::kAttention, 5, 0),
                     runner->ReadPort(Port::kAttention, 6, 1));
  };
  const auto alone = run(false);
  EXPECT_EQ(run(true), alone);
  EXPECT_NE(alone.first, std::vector<float>(alone.second.begin(), alone.second.begin() + 320));
}

// A long sequence whose blocks lie anywhere: every row sees what it should, which with equal keys is the
// mean of the values.  Its control code is several commands.
TEST_F(NpuArrayWorkerTest, LongSequencesInScatteredBlocksTakeSeveralCommands) {
  const ModelConfig config = testing::MakeConfig(
      {.num_layers = 1, .num_heads = 8, .num_kv_heads = 8, .context_len = 2200, .global_every = 1});
  constexpr uint32_t kChunk = 500;
  ASSERT_OK_AND_ASSIGN(
      const auto runner,
      PlanRunner::Create(testing::RandomWeightSet(config), {worker_}, AttendSegments(config),
                         {.max_rows = kChunk, .max_sequences = 1}));
  const size_t width = config.q_dim();
  StepBuilder steps(runner->limits());
  const uint32_t sequence = steps.AddSequence();
  for (uint32_t first = 0; first < 2000; first += kChunk) {
    steps.Begin();
    steps.AddRows(sequence, std::vector<uint32_t>(kChunk, 3));
    runner->WritePort(Port::kQ, std::vector<float>(kChunk * width, 1.0f));
    runner->WritePort(Port::kK, std::vector<float>(kChunk * width, 0.5f));
    // Position p has 1 + p / 4096.
    std::vector<float> values(kChunk * width);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t row = first + i / width;
      values[i] = 1 + static_cast<float>(row) / 4096;
    }
    runner->WritePort(Port::kV, values);
    ASSERT_OK(runner->RunStep(steps.batch())) << first;
    const auto attention = runner->ReadPort(Port::kAttention, kChunk);
    for (uint32_t row = 0; row < kChunk; ++row) {
      const float expected = 1 + static_cast<float>(first + row) / 8192;
      ASSERT_NEAR(attention[row * width], expected, 0.02) << first + row;
      ASSERT_NEAR(attention[row * width + width - 1], expected, 0.02) << first + row;
    }
  }
}

// What an NPU writes is no other sequence's business: a cache with NaNs of one leaves the other as it is.
TEST_F(NpuArrayWorkerTest, NansOfOneSequenceStayThere) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 2});
  ASSERT_OK_AND_ASSIGN(
      const auto runner,
      PlanRunner::Create(testing::RandomWeightSet(config), {worker_}, AttendSegments(config), {}));
  StepBuilder steps(runner->limits());
  const uint32_t sick = steps.AddSequence(), healthy = steps.AddSequence();
  constexpr uint32_t kRows = 20;
  for (int step = 0; step < 2; ++step) {
    steps.Begin();
    steps.AddRows(sick, std::vector<uint32_t>(kRows, 3));
    steps.AddRows(healthy, std::vector<uint32_t>(kRows, 3));
    WriteRandomInputs(*runner, 2 * kRows, 4);
    for (const Port port : {Port::kK, Port::kV}) {
      std::vector<float> rows = runner->ReadPort(port, 2 * kRows);
      std::fill_n(rows.begin(), rows.size() / 2, std::nanf(""));
      runner->WritePort(port, rows);
    }
    ASSERT_OK(runner->RunStep(steps.batch()));
    const std::vector<float> attention = runner->ReadPort(Port::kAttention, 2 * kRows);
    for (size_t i = 0; i < attention.size(); ++i) {
      ASSERT_EQ(std::isnan(attention[i]), i < attention.size() / 2) << i;
    }
  }
}

TEST_F(NpuArrayWorkerTest, HeadSizesWithoutAnOperatorAreRefused) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1, .head_dim = 96});
  EXPECT_THAT(
      PlanRunner::Create(testing::RandomWeightSet(config), {worker_}, AttendSegments(config), {})
          .status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("head size 96")));
}

TEST_F(NpuArrayWorkerTest, StagesThatItDoesNotRunAreRefused) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  const auto embed = testing::SingleStage({StageKind::kEmbed, 0}, config);
  EXPECT_THAT(PlanRunner::Create(testing::RandomWeightSet(config), {worker_}, {embed}, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("does not run Embed")));
}

// The projection of rows of attention, against float64.
TEST_F(NpuArrayWorkerTest, OutIsAttentionTimesWeightsForAnyNumberOfRowsAndFormat) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 2, .hidden_dim = 96});
  for (const DType dtype : {DType::kF32, DType::kQ8_0, DType::kQ4_0, DType::kQ5_K}) {
    const auto weights = testing::RandomWeightSet(
        config, {.role_dtypes = {{WeightRole::kOut, dtype}}, .max_region_bytes = 1u << 16});
    ASSERT_OK_AND_ASSIGN(
        const auto runner,
        PlanRunner::Create(weights, {worker_}, AttendAndOutSegments(config), {.max_rows = 80}));
    const LoadReport& report = runner->load_reports()[0];
    EXPECT_EQ(report.weight_import, ImportPath::kUpload);
    const DType format = dtype == DType::kQ8_0 || dtype == DType::kQ4_0 ? dtype : DType::kBf16;
    const DTypeTraits& traits = Traits(format);
    EXPECT_EQ(report.weight_bytes,
              2u * 128 * config.q_dim() / traits.block_elements * traits.block_bytes)
        << "96 outputs take 128";
    EXPECT_THAT(report.note, HasSubstr("copied as " + std::string(traits.name)));
    for (const uint32_t num_rows : {1u, 63u, 65u}) {
      StepBuilder steps(runner->limits());
      steps.Begin();
      steps.AddRows(steps.AddSequence(), std::vector<uint32_t>(num_rows, 3));
      WriteRandomInputs(*runner, num_rows, num_rows);
      ASSERT_OK(runner->RunStep(steps.batch()));
      const std::vector<float> attention = runner->ReadPort(Port::kAttention, num_rows);
      const std::vector<float> projection = runner->ReadPort(Port::kProjection, num_rows);
      const std::vector<float> matrix =
          DequantizeTensor(*weights, *weights->Find(WeightRole::kOut, 1));
      double error = 0, magnitude = 0;
      for (size_t row = 0; row < num_rows; ++row) {
        for (size_t n = 0; n < config.hidden_dim; ++n) {
          double sum = 0;
          for (size_t k = 0; k < config.q_dim(); ++k) {
            sum += double{attention[row * config.q_dim() + k]} * matrix[n * config.q_dim() + k];
          }
          error += std::fabs(sum - projection[row * config.hidden_dim + n]);
          magnitude += std::fabs(sum);
        }
      }
      EXPECT_LE(error, 1e-2 * magnitude) << Traits(dtype).name << ", " << num_rows << " rows";
    }
  }
}

// A package whose GEMM over bf16 is missing: no format but those of the others can be read.
TEST_F(NpuArrayWorkerTest, AFormatThatThePackageHasNoGemmForIsRefusedByName) {
  const TemporaryDirectory folder;
  std::filesystem::copy(DriverPackage(), folder.path(), std::filesystem::copy_options::recursive);
  const std::string manifest = folder.path() + "/package.json";
  nlohmann::json package = nlohmann::json::parse(std::ifstream(DriverPackage() + "/package.json"));
  std::erase_if(package["operators"].get_ref<nlohmann::json::array_t&>(),
                [](const nlohmann::json& op) { return op["name"] == "gemm_bf16"; });
  std::ofstream(manifest) << package.dump();
  StartupOptions options{.policy = NpuPolicy::kRequire};
  options.worker.kernel_folder = folder.path();
  ASSERT_OK_AND_ASSIGN(const auto worker, NpuWorker::Create(options.worker));
  EXPECT_EQ(worker->description().weight_dtypes, (std::vector<DType>{DType::kQ8_0, DType::kQ4_0}));
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  const auto load = [&](DType dtype) {
    const auto weights = testing::RandomWeightSet(config, {.dtype = dtype});
    return PlanRunner::Create(weights, {worker.get()}, AttendAndOutSegments(config), {}).status();
  };
  EXPECT_THAT(load(DType::kF16), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("layer 0 out: the NPU does not read f16")));
  EXPECT_OK(load(DType::kQ8_0));
}

// Attention's output stays on the array where both stages are one segment: the same numbers, unless they
// are too small for float16.
TEST_F(NpuArrayWorkerTest, AttendAndOutInOneSegmentGiveWhatTwoGive) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  const auto run = [&](const std::vector<Segment>& segments) {
    std::vector<float> projection;
    const auto runner =
        PlanRunner::Create(testing::RandomWeightSet(config), {worker_}, segments, {});
    EXPECT_OK(runner);
    if (!runner.ok()) return projection;
    StepBuilder steps((*runner)->limits());
    steps.Begin();
    steps.AddRows(steps.AddSequence(), std::vector<uint32_t>(7, 3));
    WriteRandomInputs(**runner, 7, 1);
    EXPECT_OK((*runner)->RunStep(steps.batch()));
    return (*runner)->ReadPort(Port::kProjection, 7);
  };
  const std::vector<Segment> two = AttendAndOutSegments(config);
  Segment one = two[0];
  one.last_ordinal = two[1].last_ordinal;
  one.outputs = two[1].outputs;
  const std::vector<float> apart = run(two);
  EXPECT_EQ(run({one}), apart);
  EXPECT_GT(std::ranges::count_if(apart, [](float value) { return value != 0; }), 0);
}

// More rows than a command takes.
TEST_F(NpuArrayWorkerTest, OutOfManyRowsTakesSeveralCommands) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1, .context_len = 600});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                                          {AttendAndOutSegments(config)[1]}, {.max_rows = 600}));
  StepBuilder steps(runner->limits());
  steps.Begin();
  steps.AddRows(steps.AddSequence(), std::vector<uint32_t>(580, 3));
  const size_t width = config.q_dim();
  std::vector<float> rows(580 * width);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i / width % 500) / 256;
  runner->WritePort(Port::kAttention, rows);
  ASSERT_OK(runner->RunStep(steps.batch()));
  const std::vector<float> projection = runner->ReadPort(Port::kProjection, 580);
  for (size_t i = 0; i < 80 * config.hidden_dim; ++i) {
    ASSERT_EQ(projection[500 * config.hidden_dim + i], projection[i]) << i;
  }
}

// The host checks steps before the device does.
TEST_F(NpuArrayWorkerTest, AStepInBlocksThatDoNotExistIsAnErrorAndTheNextOneRuns) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  ASSERT_OK_AND_ASSIGN(
      const auto runner,
      PlanRunner::Create(testing::RandomWeightSet(config), {worker_}, AttendSegments(config), {}));
  StepBuilder steps(runner->limits());
  steps.Begin();
  steps.AddRows(steps.AddSequence(), std::vector<uint32_t>(5, 3));
  StepBatch step = steps.batch();
  const std::vector<uint32_t> bad_table(step.block_table.size(), 0x7FFFFFFF);
  StepBatch bad = step;
  bad.block_table = bad_table;
  EXPECT_THAT(
      testing::RunSegment(*worker_, {.segment_index = 0, .step = &bad, .first_of_step = true}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("block 2147483647")));
  EXPECT_OK(runner->RunStep(step));
}

}  // namespace
}  // namespace tandem::npu

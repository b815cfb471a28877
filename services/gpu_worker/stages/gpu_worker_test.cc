// What the Vulkan worker promises beyond the conformance suite: nothing but submissions per step,
// bits that do not depend on the batch, every import path, a device that is lost.
#include "services/gpu_worker/stages/gpu_worker.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>

#include "services/common/reference/reference_model.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/step_builder.h"

namespace tandem::gpu {
namespace {

using testing::PlanRunner;
using testing::StepBuilder;

std::vector<uint32_t> Tokens(uint32_t n, uint32_t vocab_size, uint32_t seed) {
  std::vector<uint32_t> tokens(n);
  for (uint32_t i = 0; i < n; ++i) tokens[i] = (i * 2654435761u + seed * 40503u) / 7 % vocab_size;
  return tokens;
}

// Attend(i) a segment of its own, as if it ran elsewhere; the residual stays.
std::vector<Segment> CutAtAttend(const ModelConfig& config) {
  std::vector<Segment> segments;
  uint32_t first = 0;
  PortMask inputs = 0;
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const uint32_t attend = StageOrdinal({StageKind::kAttend, layer}, config.num_layers);
    segments.push_back({0, 0, first, attend - 1, inputs, OutputsOf(StageKind::kQkv)});
    segments.push_back(
        {0, 0, attend, attend, InputsOf(StageKind::kAttend), OutputsOf(StageKind::kAttend)});
    first = attend + 1;
    inputs = InputsOf(StageKind::kOut);
  }
  segments.push_back({0, 0, first, NumStages(config.num_layers) - 1, inputs, 0});
  return segments;
}

class GpuWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override { Open({.validation = true}); }

  void Open(const GpuWorkerOptions& options) {
    auto worker = GpuWorker::Create(options);
    if (worker.status().code() == absl::StatusCode::kNotFound) GTEST_SKIP() << worker.status();
    ASSERT_OK(worker.status());
    worker_ = *std::move(worker);
  }

  // Feeds `tokens` as one sequence in chunks, other sequences' rows in front of and behind its
  // own where `with_neighbours`; every logit of every token.
  std::vector<float> Logits(PlanRunner& runner, const std::vector<uint32_t>& tokens, uint32_t chunk,
                            bool with_neighbours = false) {
    std::vector<float> all;
    StepBuilder steps(runner.limits(), 1 + chunk);
    const uint32_t before = steps.AddSequence(), own = steps.AddSequence(),
                   after = steps.AddSequence();
    const uint32_t vocab = runner.config().vocab_size;
    for (uint32_t at = 0; at < tokens.size(); at += chunk) {
      const auto n = std::min<uint32_t>(chunk, static_cast<uint32_t>(tokens.size()) - at);
      steps.Begin();
      steps.set_want_logits(true);
      if (with_neighbours) steps.AddRows(before, Tokens(1 + at % 5, vocab, at));
      const uint32_t first = steps.AddRows(own, {tokens.begin() + at, tokens.begin() + at + n});
      if (with_neighbours) steps.AddRows(after, Tokens(1 + at % 3, vocab, 7 * at));
      for (uint32_t i = 0; i < n; ++i) steps.AddOutput(first + i);
      EXPECT_OK(runner.RunStep(steps.batch()));
      for (uint32_t i = 0; i < n; ++i) {
        all.insert(all.end(), runner.Logits(i).begin(), runner.Logits(i).end());
      }
    }
    return all;
  }

  std::unique_ptr<GpuWorker> worker_;
};

// Rows, outputs, sequences and positions change from step to step; what is called does not.
TEST_F(GpuWorkerTest, AHundredStepsOnlySubmitWaitAndReadTimestamps) {
  const ModelConfig config = testing::MakeConfig({});
  for (const bool hybrid : {false, true}) {
    SCOPED_TRACE(hybrid ? "one segment a layer" : "one segment");
    const auto weights = testing::RandomWeightSet(config, {.dtype = DType::kQ8_0});
    const auto segments = hybrid ? CutAtAttend(config) : testing::WholeModel(config);
    ASSERT_OK_AND_ASSIGN(const auto runner,
                         PlanRunner::Create(weights, {worker_.get()}, segments, {}));
    StepBuilder steps(runner->limits());
    const uint32_t a = steps.AddSequence(), b = steps.AddSequence();
    const auto before = worker_->device().vk().CallCounts();
    for (uint32_t i = 0; i < 100; ++i) {
      steps.Begin();
      steps.set_want_logits(i % 3 == 0);
      steps.set_num_candidates(1 + i % 64);
      const uint32_t first = steps.AddRows(a, {i % config.vocab_size});
      steps.AddRows(b, Tokens(1 + i % 3, config.vocab_size, i));
      if (i % 4 != 0) steps.AddOutput(first);
      ASSERT_OK(runner->RunStep(steps.batch()));
    }
    std::map<std::string, uint64_t> during = worker_->device().vk().CallCounts();
    for (const auto& [name, count] : before) during[name] -= count;
    std::erase_if(during, [](const auto& entry) { return entry.second == 0; });
    const uint64_t runs = 100 * segments.size();
    const std::map<std::string, uint64_t> expected = {
        {"vkGetQueryPoolResults", runs}, {"vkQueueSubmit2", runs}, {"vkWaitSemaphores", runs}};
    EXPECT_EQ(during, expected);
  }
}

TEST_F(GpuWorkerTest, AQueuedStepCallsVulkanNoMore) {
  const ModelConfig config = testing::MakeConfig({});
  ASSERT_OK_AND_ASSIGN(
      const auto runner,
      PlanRunner::Create(testing::RandomWeightSet(config), {worker_.get()},
                         testing::WholeModel(config), {.max_rows = 8, .num_lanes = 2}));
  StepBuilder steps(runner->limits());
  const uint32_t sequence = steps.AddSequence();
  const auto queue = [&](uint32_t step) {
    steps.Begin();
    const uint32_t row = steps.AddRows(sequence, {1});
    if (step > 0) steps.FeedRow(row, 0);
    steps.AddOutput(row);
    steps.DrawOutput({.temperature = 1.0f, .top_k = 1 + step, .uniform = 0.5f});
    ASSERT_OK(runner->QueueStep(steps.batch(), step % 2));
  };
  const auto before = worker_->device().vk().CallCounts();
  for (uint32_t step = 0; step < 50; ++step) {
    queue(step);
    if (step == 0) continue;
    ASSERT_OK(runner->FinishStep());
  }
  ASSERT_OK(runner->FinishStep());
  std::map<std::string, uint64_t> during = worker_->device().vk().CallCounts();
  for (const auto& [name, count] : before) during[name] -= count;
  std::erase_if(during, [](const auto& entry) { return entry.second == 0; });
  const std::map<std::string, uint64_t> expected = {
      {"vkGetQueryPoolResults", 50}, {"vkQueueSubmit2", 50}, {"vkWaitSemaphores", 50}};
  EXPECT_EQ(during, expected);
}

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
// Out and down in slices, on any device.
constexpr testing::SmallModel kMatvecModel = {
    .num_layers = 2, .hidden_dim = 544, .ffn_dim = 608, .num_heads = 8};
// One kernel for any number of rows, as on a software device: between kernels bits differ.
void UsePlainKernels(Tuning& tuning) {
  tuning.matrix.pattern = {};
  tuning.matrix.byte_sums = false;
  tuning.matvec_max_rows = 0;
  tuning.decode = {};
  tuning.tiled = {};
}
void UseMatvec(Tuning& tuning) {
  tuning.matvec_max_rows = 128;
  tuning.matvec_rows = 2;
  tuning.matvec_teams = 1;
  tuning.matvec_rounds = 1;
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

// Activations of products of few rows are blocks of int8: each of a layer's four products adds an
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
        << "slices add up alike wherever a segment ends";
  }
}

// Uploaded weights and copied activations give the bits of imported ones.
TEST_F(GpuWorkerTest, EveryImportPathGivesTheSameBits) {
  const ModelConfig config = testing::MakeConfig({});
  const auto weights = testing::RandomWeightSet(config, {.max_region_bytes = 64 << 10});
  const std::vector<uint32_t> tokens = Tokens(30, config.vocab_size, 4);
  // Every stage a segment of its own, so that every port crosses.
  std::vector<Segment> stages;
  for (uint32_t i = 0; i < NumStages(config.num_layers); ++i) {
    stages.push_back(testing::SingleStage(StageAt(i, config.num_layers), config));
  }
  std::vector<std::vector<float>> results;
  for (const bool import_memory : {true, false}) {
    Open({.import_memory = import_memory, .validation = true});
    for (const auto& segments : {testing::WholeModel(config), stages}) {
      ASSERT_OK_AND_ASSIGN(const auto runner,
                           PlanRunner::Create(weights, {worker_.get()}, segments, {}));
      const LoadReport& report = runner->load_reports()[0];
      if (!import_memory) {
        EXPECT_EQ(report.weight_import, ImportPath::kUpload);
        EXPECT_EQ(report.exchange_import, ImportPath::kUpload);
        EXPECT_NE(report.note, "") << "the reason is kept";
      } else if (worker_->device().info().external_memory_host) {
        EXPECT_EQ(report.exchange_import, ImportPath::kHostPointer);
      }
      results.push_back(Logits(*runner, tokens, 9));
    }
  }
  for (size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]) << i;
}

// More outputs than have their logits there at once: the head goes tile by tile.
TEST_F(GpuWorkerTest, RunsTheHeadInTilesOverALargeVocabulary) {
  Open({.validation = true, .adjust_tuning = UsePlainKernels});
  // 256 MiB of logits: 64 rows of 1,000,000.
  const ModelConfig config = testing::MakeConfig(
      {.num_layers = 1, .hidden_dim = 32, .vocab_size = 1'000'000, .context_len = 128});
  const auto weights = testing::RandomWeightSet(config, {.dtype = DType::kQ4_0});
  ASSERT_OK_AND_ASSIGN(
      const auto runner,
      PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config),
                         {.max_rows = 70, .max_outputs = 70, .max_logit_outputs = 1}));
  StepBuilder steps(runner->limits());
  const std::vector<uint32_t> tokens = Tokens(67, config.vocab_size, 5);
  const auto run = [&](const std::vector<uint32_t>& rows) {
    steps.Begin();
    steps.set_num_candidates(4);
    const uint32_t first = steps.AddRows(steps.AddSequence(), tokens);
    for (const uint32_t row : rows) steps.AddOutput(first + row, tokens[row]);
    EXPECT_OK(runner->RunStep(steps.batch()));
  };
  std::vector<uint32_t> every(tokens.size());
  std::iota(every.begin(), every.end(), 0);
  run(every);
  std::vector<OutputResult> together;
  for (const uint32_t o : every) together.push_back(runner->Output(o));
  for (const uint32_t row : {0u, 63u, 64u, 66u}) {
    run({row});
    EXPECT_EQ(runner->Output(0).log_sum_exp, together[row].log_sum_exp) << row;
    EXPECT_EQ(runner->Output(0).target_logit, together[row].target_logit) << row;
    EXPECT_EQ(0, std::memcmp(runner->Output(0).candidates, together[row].candidates,
                             4 * sizeof(Candidate)))
        << row;
  }
}

TEST_F(GpuWorkerTest, ReportsDeviceTimeByKindOfStage) {
  const ModelConfig config = testing::MakeConfig({});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker_.get()},
                                          testing::WholeModel(config), {}));
  StepBuilder steps(runner->limits());
  steps.Begin();
  steps.AddOutput(steps.AddRows(steps.AddSequence(), {1, 2, 3}) + 2);
  ASSERT_OK(runner->WriteAndCheckStep(steps.batch()));
  ASSERT_OK_AND_ASSIGN(const SegmentResult result, runner->RunSegment(0));
  if (worker_->device().info().timestamp_valid_bits == 0) GTEST_SKIP() << "no timestamps";
  uint64_t sum = 0;
  std::set<StageKind> kinds;
  for (const StageTime& time : result.stage_times) {
    sum += time.device_ns;
    kinds.insert(time.kind);
  }
  EXPECT_EQ(sum, result.device_ns);
  EXPECT_EQ(kinds.size(), static_cast<size_t>(kNumStageKinds));
}

TEST_F(GpuWorkerTest, IsRecreatedByTheNextLoadAfterTheDeviceIsLost) {
  const ModelConfig config = testing::MakeConfig({});
  const auto weights = testing::RandomWeightSet(config);
  const auto load = [&] {
    return PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config), {});
  };
  ASSERT_OK_AND_ASSIGN(const auto first, load());
  const std::vector<float> expected = Logits(*first, {1, 2, 3}, 3);
  worker_->device().MarkLost();
  EXPECT_THAT(worker_->CheckHealth(), testing::HasCode(absl::StatusCode::kUnavailable));
  StepBuilder steps(first->limits());
  steps.Begin();
  steps.AddRows(steps.AddSequence(), {1});
  EXPECT_THAT(first->RunStep(steps.batch()), testing::HasCode(absl::StatusCode::kUnavailable));
  ASSERT_OK_AND_ASSIGN(const auto second, load());
  EXPECT_OK(worker_->CheckHealth());
  EXPECT_EQ(Logits(*second, {1, 2, 3}, 3), expected);
}

// Bounds that no device oversteps: figures outside mean that nothing was read or computed.
TEST_F(GpuWorkerTest, CeilingsAreWithinReasonAndMeasuredOnce) {
  ASSERT_OK_AND_ASSIGN(const DeviceCeilings ceilings, worker_->Ceilings());
  EXPECT_GT(ceilings.read_bytes_per_second, 0.1e9);
  EXPECT_LT(ceilings.read_bytes_per_second, 50e12);
  EXPECT_GT(ceilings.fma_flops_per_second, 0.1e9);
  EXPECT_LT(ceilings.fma_flops_per_second, 1e15);
  EXPECT_EQ(ceilings.matrix_flops_per_second > 0, !worker_->device().info().matrix_shapes.empty());
  ASSERT_OK_AND_ASSIGN(const DeviceCeilings again, worker_->Ceilings());
  EXPECT_EQ(again.read_bytes_per_second, ceilings.read_bytes_per_second);
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Tables in a folder of this test's own.
class TunedGpuWorkerTest : public GpuWorkerTest {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tandem-tuned-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Outcome {
    std::vector<float> logits;
    std::string tuning;  // as reported
    uint32_t matmul_columns = 0;
  };
  // Of the plain kernels, which every device has.
  Outcome RunWith(TuneMode mode) {
    Open({.validation = true,
          .cache_folder = folder_,
          .tune = mode,
          .tune_seconds = 0.5,
          .adjust_tuning = UsePlainKernels});
    if (IsSkipped()) return {};
    Outcome outcome;
    const auto runner = PlanRunner::Create(weights_, {worker_.get()}, testing::WholeModel(config_),
                                           {.max_rows = 64});
    EXPECT_OK(runner.status());
    if (!runner.ok()) return outcome;
    outcome.logits = Logits(**runner, Tokens(40, config_.vocab_size, 3), 20);
    outcome.tuning = (*runner)->load_reports()[0].tuning;
    outcome.matmul_columns = worker_->tuning().matmul_columns;
    return outcome;
  }
  std::string OnlyTable() const {
    std::string found;
    for (const auto& file : std::filesystem::directory_iterator(folder_ + "/tuning")) {
      EXPECT_EQ(found, "");
      found = file.path();
    }
    return found;
  }

  const ModelConfig config_ = testing::MakeConfig({.num_layers = 2});
  const std::shared_ptr<const WeightSet> weights_ = testing::RandomWeightSet(config_);
  std::string folder_;
};

TEST_F(TunedGpuWorkerTest, ATableChangesTheKernelsAndNotTheAnswers) {
  const Outcome untuned = RunWith(TuneMode::kOff);
  if (IsSkipped()) return;
  const Outcome measured = RunWith(TuneMode::kNow);
  const std::string path = OnlyTable();
  EXPECT_EQ(measured.tuning, "tuned: " + path);
  EXPECT_EQ(measured.logits, untuned.logits) << "each output is one chain of sums";
  auto table = ParseTuningTable(ReadAll(path), path);
  ASSERT_OK(table.status());
  EXPECT_EQ(table->made_by, "tandem tune");
  ASSERT_TRUE(table->settings.contains("matmul_columns"));
  EXPECT_EQ(measured.matmul_columns, table->settings["matmul_columns"]);
  EXPECT_LE(table->trials[0].time.at(table->trials[0].chosen), 1);
  // Another choice than the one in force without a table.
  const uint32_t other = untuned.matmul_columns == 4 ? 2 : 4;
  table->settings["matmul_columns"] = other;
  ASSERT_OK(WriteTuningTable(folder_ + "/tuning", *table));
  const Outcome tuned = RunWith(TuneMode::kFirstStart);
  EXPECT_EQ(tuned.tuning, "tuned: " + path);
  EXPECT_EQ(tuned.matmul_columns, other);
  EXPECT_EQ(tuned.logits, untuned.logits);
  EXPECT_EQ(RunWith(TuneMode::kOff).matmul_columns, untuned.matmul_columns) << "nor is it read";
}

TEST_F(TunedGpuWorkerTest, ABrokenTableIsRefusedAndSaidToBe) {
  const Outcome untuned = RunWith(TuneMode::kOff);
  if (IsSkipped()) return;
  RunWith(TuneMode::kNow);
  const std::string path = OnlyTable();
  std::ofstream(path) << "{\"format\": 1";
  const Outcome refused = RunWith(TuneMode::kFirstStart);
  EXPECT_THAT(refused.tuning, ::testing::HasSubstr("refused: " + path + ": "));
  EXPECT_THAT(refused.tuning, ::testing::HasSubstr("not a table of tuning"));
  EXPECT_EQ(refused.matmul_columns, untuned.matmul_columns);
  EXPECT_EQ(refused.logits, untuned.logits);
}

TEST_F(GpuWorkerTest, RefusesWhatItsKernelsCannotRead) {
  const auto refuse = [&](const testing::SmallModel& model, const char* named) {
    const ModelConfig config = testing::MakeConfig(model);
    const auto runner = PlanRunner::Create(testing::RandomWeightSet(config), {worker_.get()},
                                           testing::WholeModel(config), {});
    EXPECT_THAT(runner.status(), testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                                   ::testing::HasSubstr(named)));
  };
  refuse({.hidden_dim = 72}, "72 columns");
  refuse({.ffn_dim = 100}, "layer 0 down: 100 columns");
  refuse({.num_heads = 8, .head_dim = 68}, "head_dim 68");
  refuse({.head_dim = 264}, "head_dim 264");
  const ModelConfig config = testing::MakeConfig({});
  EXPECT_THAT(PlanRunner::Create(testing::RandomWeightSet(config), {worker_.get()},
                                 testing::WholeModel(config), {.max_rows = 513})
                  .status(),
              testing::HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST(BucketsTest, CoverEveryCount) {
  EXPECT_EQ(Buckets(1), (std::vector<uint32_t>{1}));
  EXPECT_EQ(Buckets(64), (std::vector<uint32_t>{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(Buckets(65).back(), 128u);
  for (uint32_t n = 1; n <= 65; ++n) {
    const uint32_t bucket = Buckets(65)[BucketIndex(n)];
    EXPECT_GE(bucket, n);
    EXPECT_LT(bucket, 2 * n);
  }
}

}  // namespace
}  // namespace tandem::gpu

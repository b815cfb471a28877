// What the Vulkan worker promises beyond the conformance suite: only submissions per step,
// every import path, a device that is lost.
#include "services/gpu_worker/stages/gpu_worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>

#include "services/common/testing/compare.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/temporary_directory.h"
#include "services/common/worker/stage_work.h"
#include "services/gpu_worker/stages/gpu_worker_for_test.h"
#include "services/gpu_worker/stages/segment_program.h"

namespace tandem::gpu {
namespace {

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

// Vulkan's calls since those of `before`.
std::map<std::string, uint64_t> CallsSince(const std::map<std::string, uint64_t>& before,
                                           const GpuWorker& worker) {
  std::map<std::string, uint64_t> during = worker.device().vk().CallCounts();
  for (const auto& [name, count] : before) during[name] -= count;
  std::erase_if(during, [](const auto& entry) { return entry.second == 0; });
  return during;
}

// One submission, one wait and at most one reading of timestamps for each segment that was run.
std::map<std::string, uint64_t> CallsOf(uint64_t runs, const GpuWorker& worker) {
  std::map<std::string, uint64_t> calls = {{"vkQueueSubmit2", runs}, {"vkWaitSemaphores", runs}};
  if (!worker.device().info().query_reads_wait) calls["vkGetQueryPoolResults"] = runs;
  return calls;
}

// Rows, outputs, sequences and positions change from step to step; the Vulkan calls do not.
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
      steps.AddRows(b, Tokens(i % 25 == 9 ? 20 : 1 + i % 2, config.vocab_size, i));
      if (i % 4 != 0) steps.AddOutput(first);
      ASSERT_OK(runner->RunStep(steps.batch()));
    }
    EXPECT_EQ(CallsSince(before, *worker_), CallsOf(100 * segments.size(), *worker_));
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
    ASSERT_OK(runner->SubmitStep(steps.batch(), step % 2));
  };
  const auto before = worker_->device().vk().CallCounts();
  for (uint32_t step = 0; step < 50; ++step) {
    queue(step);
    if (step == 0) continue;
    ASSERT_OK(runner->WaitForStep());
  }
  ASSERT_OK(runner->WaitForStep());
  EXPECT_EQ(CallsSince(before, *worker_), CallsOf(50, *worker_));
}

TEST_F(GpuWorkerTest, WaitsThatPollSleepOnlyWhereTheDeviceTakesLonger) {
  const ModelConfig config = testing::MakeConfig({});
  const auto weights = testing::RandomWeightSet(config);
  std::vector<std::vector<float>> results;
  for (const absl::Duration poll :
       {absl::ZeroDuration(), absl::Nanoseconds(1), absl::Seconds(100)}) {
    Open({.validation = true, .poll = poll});
    ASSERT_OK_AND_ASSIGN(const auto runner, PlanRunner::Create(weights, {worker_.get()},
                                                               testing::WholeModel(config), {}));
    const auto before = worker_->device().vk().CallCounts();
    results.push_back(Logits(*runner, Tokens(30, config.vocab_size, 4), 3));
    auto calls = CallsSince(before, *worker_);
    EXPECT_EQ(calls["vkGetSemaphoreCounterValue"] >= 10, poll > absl::ZeroDuration());
    // The only question of a nanosecond may find the device done.
    EXPECT_GE(calls["vkWaitSemaphores"], poll == absl::ZeroDuration() ? 10u : 0u);
    EXPECT_LE(calls["vkWaitSemaphores"], poll == absl::Seconds(100) ? 0u : 10u);
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
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
        if (worker_->device().info().unified_memory()) {
          EXPECT_THAT(report.note, ::testing::AllOf(::testing::HasSubstr("dmabuf: "),
                                                    ::testing::HasSubstr("host-pointer: ")));
        }
        EXPECT_THAT(report.note, ::testing::HasSubstr("exchange: "));
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
  EXPECT_EQ(kinds.size(), static_cast<size_t>(kNumDecoderStageKinds));
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

TEST_F(GpuWorkerTest, APlanThatAnotherPlansLoadFoundLostIsUnavailable) {
  const ModelConfig config = testing::MakeConfig({});
  const auto weights = testing::RandomWeightSet(config);
  const auto load = [&](uint32_t plan) {
    return PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config),
                              {.plan = plan});
  };
  ASSERT_OK_AND_ASSIGN(const auto first, load(0));
  worker_->device().MarkLost();
  ASSERT_OK_AND_ASSIGN(const auto second, load(1));
  StepBuilder steps(first->limits());
  steps.Begin();
  steps.AddRows(steps.AddSequence(), {1});
  EXPECT_THAT(first->RunStep(steps.batch()), testing::HasCode(absl::StatusCode::kUnavailable));
  EXPECT_OK(second->RunStep(steps.batch()));
}

TEST_F(GpuWorkerTest, IsOpenedAgainByTheNextLoadWhereOnlyAPartOfItsObjectsCouldBeMade) {
  bool fails = false;
  Open({.validation = true, .adjust_tuning = [&fails](Tuning&) {
          if (fails) throw std::runtime_error("ioctl failed");
        }});
  const ModelConfig config = testing::MakeConfig({});
  const auto weights = testing::RandomWeightSet(config);
  const auto load = [&] {
    return PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config), {}).status();
  };
  worker_->device().MarkLost();
  fails = true;
  EXPECT_THROW(static_cast<void>(load()), std::runtime_error);
  EXPECT_THAT(worker_->CheckHealth(), testing::HasCode(absl::StatusCode::kUnavailable));
  fails = false;
  EXPECT_OK(load());
  EXPECT_OK(worker_->CheckHealth());
}

// Bounds that no device oversteps: figures outside mean that nothing was read or computed.
TEST_F(GpuWorkerTest, CeilingsAreWithinReasonAndTheBestSeen) {
  ASSERT_OK_AND_ASSIGN(const DeviceCeilings ceilings, worker_->Ceilings());
  EXPECT_GT(ceilings.read_bytes_per_second, 0.1e9);
  EXPECT_LT(ceilings.read_bytes_per_second, 50e12);
  EXPECT_GT(ceilings.fma_flops_per_second, 0.1e9);
  EXPECT_LT(ceilings.fma_flops_per_second, 1e15);
  EXPECT_EQ(ceilings.matrix_flops_per_second > 0, !worker_->device().info().matrix_shapes.empty());
  ASSERT_OK_AND_ASSIGN(const DeviceCeilings again, worker_->Ceilings());
  EXPECT_GE(again.read_bytes_per_second, ceilings.read_bytes_per_second);
  EXPECT_GE(again.fma_flops_per_second, ceilings.fma_flops_per_second);
}

// A step's kernels do more than multiply and add, so what they reach is below the ceiling.
TEST_F(GpuWorkerTest, NoStepComputesFasterThanTheCeiling) {
  const ModelConfig config =
      testing::MakeConfig({.num_layers = 2, .hidden_dim = 512, .ffn_dim = 1536});
  const auto weights = testing::RandomWeightSet(config, {.dtype = DType::kQ8_0});
  ASSERT_OK_AND_ASSIGN(
      const auto runner,
      PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config), {.max_rows = 64}));
  StepBuilder steps(runner->limits());
  const uint32_t sequence = steps.AddSequence();
  const SegmentCosts costs(runner->segments()[0], *weights, DType::kF16);
  double reached = 0;  // operations a second
  for (int i = 0; i < 3; ++i) {
    steps.Begin();
    steps.AddRows(sequence, Tokens(64, config.vocab_size, i));
    ASSERT_OK(runner->WriteAndCheckStep(steps.batch()));
    ASSERT_OK_AND_ASSIGN(const SegmentResult result, runner->RunSegment(0));
    double operations = 0;
    for (const StageWork& work : costs.Of(steps.batch())) {
      operations += static_cast<double>(work.operations);
    }
    if (result.device_ns == 0) GTEST_SKIP() << "no timestamps";
    reached = std::max(reached, operations / (1e-9 * static_cast<double>(result.device_ns)));
  }
  ASSERT_OK_AND_ASSIGN(const DeviceCeilings ceilings, worker_->Ceilings());
  EXPECT_LT(reached, std::max(ceilings.fma_flops_per_second, ceilings.matrix_flops_per_second));
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
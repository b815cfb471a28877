// Tables of tuning: measured, kept, read, refused.
#include "services/gpu_worker/stages/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "services/common/testing/compare.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/temporary_directory.h"
#include "services/gpu_worker/stages/gpu_worker_for_test.h"
#include "services/gpu_worker/stages/tuning_step.h"

namespace tandem::gpu {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Tables in a folder of this test's own.
class TunedGpuWorkerTest : public GpuWorkerTest {
 protected:
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
  // The one that was made.
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
  const TemporaryDirectory temporary_;
  const std::string folder_ = temporary_.path();
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

// Attention's settings come first if matmuls have none.
TEST_F(TunedGpuWorkerTest, AttentionIsMeasuredAtItsDepths) {
  Open({.validation = true,
        .cache_folder = folder_,
        .tune = TuneMode::kNow,
        .tune_seconds = 60,
        .adjust_tuning = [](Tuning& tuning) {
          UsePlainKernels(tuning);
          tuning.decode = {
              .enabled = true, .threads = 64, .lane_values = 16, .piece_bytes = 16 << 10};
          tuning.tiled = {.enabled = true, .cooperative = false, .pairs = 32, .ahead = 0};
        }});
  if (IsSkipped()) return;
  const ModelConfig config = testing::MakeConfig({.num_layers = 2, .context_len = 512});
  const auto weights = testing::RandomWeightSet(config);
  const auto runner =
      PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config), {.max_rows = 64});
  ASSERT_OK(runner.status());
  const std::string path = OnlyTable();
  const auto table = ParseTuningTable(ReadAll(path), path);
  ASSERT_OK(table.status());
  ASSERT_FALSE(table->trials.empty());
  const TuningTrial& trial = table->trials[0];
  EXPECT_EQ(trial.setting, "decode_piece_bytes");
  EXPECT_THAT(trial.cases, ::testing::ElementsAre("d1@300")) << "no deeper than the context";
  EXPECT_GT(trial.time.size(), 1u);
  EXPECT_EQ(worker_->tuning().decode.piece_bytes, trial.chosen);
  // What was measured over has left nothing behind.
  const std::vector<uint32_t> tokens = Tokens(40, config.vocab_size, 3);
  const std::vector<float> tuned = Logits(**runner, tokens, 20);
  Open({.validation = true, .adjust_tuning = UsePlainKernels});
  const auto plain =
      PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config), {.max_rows = 64});
  ASSERT_OK(plain.status());
  EXPECT_TRUE(testing::IsNearInNorm(tuned, Logits(**plain, tokens, 20), 8 * testing::kEpsilonF16));
}

TEST(TuningStepTest, CasesKeepWithinTheStepsLimits) {
  const StepLimits limits{.max_rows = 512,
                          .max_sequences = 8,
                          .max_outputs = 8,
                          .max_table_len = 2 * 64,
                          .context_len = 1024,
                          .block_tokens = 16,
                          .num_blocks = {64, 64}};
  using enum TuningWork;
  EXPECT_TRUE(Fits({kLayers, 512}, limits));
  EXPECT_FALSE(Fits({kLayers, 1024}, limits));
  EXPECT_TRUE(Fits({kHead, 8}, limits));
  EXPECT_FALSE(Fits({kHead, 16}, limits));
  EXPECT_TRUE(Fits({kDecode, 1, 1023}, limits));
  EXPECT_FALSE(Fits({kDecode, 1, 1024}, limits)) << "beyond the context";
  EXPECT_TRUE(Fits({kDecode, 8, 127}, limits));
  EXPECT_FALSE(Fits({kDecode, 8, 128}, limits)) << "more table than a step has";
  EXPECT_FALSE(Fits({kDecode, 16, 0}, limits)) << "more sequences";
  EXPECT_TRUE(Fits({kPrompt, 512, 512}, limits));
  EXPECT_FALSE(Fits({kPrompt, 512, 513}, limits));
}

// A bucket of 64 rows, in buffers for 48.
TEST_F(GpuWorkerTest, ATuningStepHasNoMoreRowsThanAStepMay) {
  LaneBuffers lane;
  for (vulkan::Buffer* buffer : {&lane.step, &lane.attention_step}) {
    ASSERT_OK_AND_ASSIGN(
        *buffer, vulkan::Buffer::Allocate(worker_->device(), 1 << 16, vulkan::MemoryKind::kExchange,
                                          "a step"));
  }
  const StepLimits limits{.max_rows = 48,
                          .max_sequences = 8,
                          .max_outputs = 40,
                          .max_table_len = 64,
                          .context_len = 1024,
                          .block_tokens = 16,
                          .num_blocks = {64, 64}};
  const auto header = [&](TuningWork work) {
    const TuningCase of{work, 64};
    EXPECT_TRUE(Fits(of, limits));
    WriteTuningStep(of, limits, {}, lane);
    StepHeader written;
    std::memcpy(&written, lane.step.mapped().data(), sizeof(written));
    return written;
  };
  EXPECT_EQ(header(TuningWork::kLayers).num_rows, 48u);
  EXPECT_EQ(header(TuningWork::kHead).num_outputs, 40u);
}

TEST(TuningStepTest, CasesHaveTheNamesOfBenchmarks) {
  using enum TuningWork;
  EXPECT_EQ((TuningCase{kLayers, 4}.Name()), "r4");
  EXPECT_EQ((TuningCase{kDecode, 8, 1023}.Name()), "d8@1023");
  EXPECT_EQ((TuningCase{kPrompt, 512, 0}.Name()), "p512@0");
  EXPECT_EQ((TuningCase{kHead, 1}.Name()), "h1");
}

}  // namespace
}  // namespace tandem::gpu

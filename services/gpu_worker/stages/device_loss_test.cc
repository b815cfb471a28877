// A lost device is freed, and its work is no result.  Runs on a device that is lost once a file is
// there (services/gpu_worker/emulator/driver/settings.h).
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/gpu_worker/stages/gpu_worker_for_test.h"

namespace tandem::gpu {
namespace {

class DeviceLossTest : public GpuWorkerTest {
 protected:
  void SetUp() override {
    lose_on_ = std::getenv("GPU_EMU_LOSE_ON");
    if (lose_on_ == nullptr) GTEST_SKIP() << "GPU_EMU_LOSE_ON is not set";
    Open({});
  }
  // The device is lost in the next submission.
  void LoseNext() const { std::ofstream(lose_on_).close(); }

  const char* lose_on_ = nullptr;
};

TEST_F(DeviceLossTest, TheNextLoadFreesAllOfALostDevice) {
  const ModelConfig config = testing::MakeConfig({});
  const auto weights = testing::RandomWeightSet(config);
  const auto load = [&] {
    return PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config), {});
  };
  ASSERT_OK_AND_ASSIGN(const auto first, load());
  const std::vector<float> expected = Logits(*first, {1, 2, 3}, 3);
  LoseNext();
  StepBuilder steps(first->limits());
  steps.Begin();
  steps.AddRows(steps.AddSequence(), {1});
  EXPECT_THAT(first->RunStep(steps.batch()), testing::HasCode(absl::StatusCode::kUnavailable));
  ::testing::internal::CaptureStdout();
  const auto second = load();
  const std::string log = ::testing::internal::GetCapturedStdout();
  ASSERT_OK(second.status());
  EXPECT_NE(log.find("device recreated"), std::string::npos) << log;
  EXPECT_EQ(log.find("device abandoned"), std::string::npos) << log;
  EXPECT_EQ(Logits(**second, {1, 2, 3}, 3), expected);
}

// No wait finds the loss: another plan's turn sees that the encoder's only submission has ended.
TEST_F(DeviceLossTest, APictureThatWasLostIsNoResult) {
  ModelConfig config = testing::MakeConfig({.num_layers = 1});
  config.vision = VisionConfig{.image_size = 16,
                               .patch_size = 4,
                               .num_layers = 1,
                               .hidden_dim = 64,
                               .ffn_dim = 96,
                               .num_heads = 2,
                               .tokens_per_image = 4,
                               .text_hidden_dim = config.hidden_dim};
  ASSERT_OK_AND_ASSIGN(
      const auto vision,
      PlanRunner::Create(testing::RandomWeightSet(config), {worker_.get()},
                         testing::VisionPlan(config), {.plan = 1, .max_pictures = 1}));
  vision->WritePixels(0, std::vector<float>(size_t{3} * 16 * 16, 0.5f));
  const std::vector<PictureEntry> entries = {{0, 4}};
  StepBatch pictures;
  pictures.header.num_pictures = 1;
  pictures.pictures = entries;
  pictures.header.step_id = 1;
  ASSERT_OK(vision->RunStep(pictures));
  LoseNext();
  pictures.header.step_id = 2;
  const absl::Status submitted = vision->SubmitStep(pictures, 0);
  if (!submitted.ok()) {
    EXPECT_THAT(submitted, testing::HasCode(absl::StatusCode::kUnavailable));
    return;
  }
  absl::SleepFor(absl::Milliseconds(200));  // the submission ends
  static_cast<void>(worker_->Advance(1));
  EXPECT_THAT(vision->WaitForStep(), testing::HasCode(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace tandem::gpu

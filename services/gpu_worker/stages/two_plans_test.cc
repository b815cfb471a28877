// Two plans on one device: long steps leave room for the other plan's, and no bit changes.
#include <utility>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/gpu_worker/stages/gpu_worker_for_test.h"

namespace tandem::gpu {
namespace {

constexpr uint32_t kMain = 0, kDraft = 1;

class TwoPlansTest : public GpuWorkerTest {
 protected:
  void SetUp() override {
    Open({.validation = true, .longest_submission = kCutAll, .adjust_tuning = UsePlainKernels});
  }
  std::unique_ptr<PlanRunner> Load(uint32_t plan, std::shared_ptr<const WeightSet> weights) {
    const std::vector<Segment> segments = testing::WholeModel(weights->config());
    auto runner = PlanRunner::Create(std::move(weights), {worker_.get()}, segments,
                                     {.max_rows = 48, .max_outputs = 48, .plan = plan});
    EXPECT_OK(runner.status());
    return runner.ok() ? *std::move(runner) : nullptr;
  }
  std::unique_ptr<PlanRunner> LoadMain() { return Load(kMain, weights_); }
  std::unique_ptr<PlanRunner> LoadDraft() { return Load(kDraft, draft_weights_); }
  // Submits a step of one sequence's `tokens`, with an output at each.
  static void Submit(PlanRunner& runner, const std::vector<uint32_t>& tokens) {
    StepBuilder steps(runner.limits());
    steps.Begin();
    steps.set_want_logits(true);
    const uint32_t first = steps.AddRows(steps.AddSequence(), tokens);
    for (uint32_t i = 0; i < tokens.size(); ++i) steps.AddOutput(first + i);
    ASSERT_OK(runner.SubmitStep(steps.batch(), 0));
  }
  static std::vector<float> Results(const PlanRunner& runner, size_t num_outputs) {
    std::vector<float> all;
    for (uint32_t i = 0; i < num_outputs; ++i) {
      all.insert(all.end(), runner.Logits(i).begin(), runner.Logits(i).end());
    }
    return all;
  }
  uint64_t Submissions() const {
    const auto counts = worker_->device().vk().CallCounts();
    const auto found = counts.find("vkQueueSubmit2");
    return found == counts.end() ? 0 : found->second;
  }

  const std::shared_ptr<const WeightSet> weights_ =
      testing::RandomWeightSet(testing::MakeConfig({.num_layers = 6}));
  const std::shared_ptr<const WeightSet> draft_weights_ =
      testing::RandomWeightSet(testing::MakeConfig({.num_layers = 1}), {.seed = 2});
  const std::vector<uint32_t> tokens_ = Tokens(33, weights_->config().vocab_size, 5);
  const std::vector<uint32_t> draft_tokens_ = Tokens(2, weights_->config().vocab_size, 6);
};

TEST_F(TwoPlansTest, AShortStepEndsWhileALongOneIsUnderWayAndBothHaveTheBitsOfEachAlone) {
  const auto alone = LoadMain();
  ASSERT_NE(alone, nullptr);
  Submit(*alone, tokens_);
  EXPECT_FALSE(worker_->HoldsBack(kMain)) << "alone, all of it is queued at once";
  ASSERT_OK(alone->WaitForStep());
  const std::vector<float> expected = Results(*alone, tokens_.size());

  const auto draft = LoadDraft();
  ASSERT_NE(draft, nullptr);
  Submit(*draft, draft_tokens_);
  ASSERT_OK(draft->WaitForStep());
  const std::vector<float> draft_expected = Results(*draft, draft_tokens_.size());

  const auto main = LoadMain();
  ASSERT_NE(main, nullptr);
  const uint64_t before = Submissions();
  Submit(*main, tokens_);
  EXPECT_EQ(Submissions() - before, DevicePlan::kMostQueued);
  EXPECT_TRUE(worker_->HoldsBack(kMain));
  Submit(*draft, draft_tokens_);
  ASSERT_OK(draft->WaitForStep());
  EXPECT_EQ(Results(*draft, draft_tokens_.size()), draft_expected);
  EXPECT_TRUE(worker_->HoldsBack(kMain)) << "the short step has waited for the whole long one";
  int turns = 1;
  for (;; ++turns) {
    ASSERT_OK_AND_ASSIGN(const bool has_run, worker_->Advance(kMain));
    if (has_run) break;
  }
  EXPECT_GT(turns, 10);
  EXPECT_FALSE(worker_->HoldsBack(kMain));
  ASSERT_OK(main->WaitForStep());
  EXPECT_EQ(Results(*main, tokens_.size()), expected);
}

// Pictures hold back likewise: a decoder's step need not wait for the whole of them.
TEST_F(TwoPlansTest, AStepEndsWhilePicturesAreEncodedAndBothHaveTheBitsOfEachAlone) {
  constexpr uint32_t kVision = 2, kPictures = 3;
  ModelConfig config = testing::MakeConfig({.num_layers = 1});
  config.vision = VisionConfig{.image_size = 64,
                               .patch_size = 4,
                               .num_layers = 12,
                               .hidden_dim = 64,
                               .ffn_dim = 96,
                               .num_heads = 2,
                               .tokens_per_image = 16,
                               .text_hidden_dim = config.hidden_dim};
  auto created =
      PlanRunner::Create(testing::RandomWeightSet(config), {worker_.get()},
                         testing::VisionPlan(config), {.plan = kVision, .max_pictures = kPictures});
  ASSERT_OK(created.status());
  PlanRunner& vision = **created;
  const size_t num_pixels = size_t{3} * config.vision->image_size * config.vision->image_size;
  std::vector<float> pixels(num_pixels);
  std::vector<PictureEntry> entries;
  for (uint32_t p = 0; p < kPictures; ++p) {
    for (size_t i = 0; i < num_pixels; ++i) {
      pixels[i] = static_cast<float>((i * 37 + p * 11) % 256) / 128.0f - 1.0f;
    }
    vision.WritePixels(p, pixels);
    entries.push_back({p * 16, 16});
  }
  StepBatch pictures;
  pictures.header.num_pictures = kPictures;
  pictures.pictures = entries;
  pictures.header.step_id = 1;
  ASSERT_OK(vision.RunStep(pictures));
  const std::vector<float> expected = vision.SoftTokens(16 * kPictures);

  const auto draft = LoadDraft();
  ASSERT_NE(draft, nullptr);
  Submit(*draft, draft_tokens_);
  ASSERT_OK(draft->WaitForStep());
  const std::vector<float> draft_expected = Results(*draft, draft_tokens_.size());

  const uint64_t before = Submissions();
  pictures.header.step_id = 2;
  ASSERT_OK(vision.SubmitStep(pictures, 0));
  EXPECT_EQ(Submissions() - before, DevicePlan::kMostQueued);
  if (!worker_->HoldsBack(kVision) && !worker_->description().emulated) {
    ASSERT_OK(vision.WaitForStep());
    GTEST_SKIP()
        << "the device encodes these pictures within the submissions that it is given at once";
  }
  EXPECT_TRUE(worker_->HoldsBack(kVision));
  Submit(*draft, draft_tokens_);
  ASSERT_OK(draft->WaitForStep());
  EXPECT_EQ(Results(*draft, draft_tokens_.size()), draft_expected);
  EXPECT_TRUE(worker_->HoldsBack(kVision)) << "the step has waited for all pictures";
  ASSERT_OK(vision.WaitForStep());
  EXPECT_FALSE(worker_->HoldsBack(kVision));
  EXPECT_EQ(vision.SoftTokens(16 * kPictures), expected);
}

TEST_F(TwoPlansTest, TheDeviceGoesOnWithTheLongStepWhileTheShortOneIsWaitedFor) {
  const auto main = LoadMain();
  const auto draft = LoadDraft();
  ASSERT_TRUE(main != nullptr && draft != nullptr);
  const uint64_t before = Submissions();
  Submit(*main, tokens_);
  Submit(*draft, draft_tokens_);
  const uint64_t at_first = Submissions() - before;
  bool has_run = false;
  while (!has_run) {
    ASSERT_OK_AND_ASSIGN(has_run, worker_->Advance(kDraft));
  }
  const auto wait = [](PlanRunner& runner) { ASSERT_OK(runner.WaitForStep()); };
  EXPECT_GT(Submissions() - before, at_first) << "of both";
  wait(*draft);
  wait(*main);
}

TEST_F(TwoPlansTest, UnloadingOneGivesTheOtherTheDeviceBack) {
  const auto main = LoadMain();
  const auto draft = LoadDraft();
  ASSERT_TRUE(main != nullptr && draft != nullptr);
  worker_->Unload(kDraft);
  Submit(*main, tokens_);
  EXPECT_FALSE(worker_->HoldsBack(kMain));
  ASSERT_OK(main->WaitForStep());
  StepBuilder steps(draft->limits());
  steps.Begin();
  steps.AddRows(steps.AddSequence(), {3});
  EXPECT_EQ(draft->SubmitStep(steps.batch(), 0).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tandem::gpu

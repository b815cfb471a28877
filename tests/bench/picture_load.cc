#include "tests/bench/picture_load.h"

#include <random>

#include "services/common/base/status_macros.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/common/weights/vision_weights.h"

namespace tandem::bench {

absl::StatusOr<Vision> LoadRandomVision(Worker& worker, const VisionConfig& vision, DType dtype,
                                        uint32_t plan, uint32_t max_pictures) {
  TANDEM_RETURN_IF_ERROR(vision.Validate());
  ModelConfig config = testing::MakeConfig({});
  config.hidden_dim = vision.text_hidden_dim;
  config.vision = vision;
  // Formats of blocks have no rows of patches, and none of FFNs that are not whole blocks.
  testing::RandomWeightOptions options{.dtype = dtype};
  for (const VisionRole role : AllVisionRoles()) {
    const bool whole = VisionShape(role, vision).cols % Traits(dtype).block_elements == 0;
    if (!whole) options.role_dtypes[ToWeightRole(role)] = DType::kF16;
  }
  Vision made = {.weights = testing::RandomWeightSet(config, options)};
  TANDEM_ASSIGN_OR_RETURN(
      made.runner, testing::PlanRunner::Create(made.weights, {&worker}, testing::VisionPlan(config),
                                               {.plan = plan, .max_pictures = max_pictures}));
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> pixels(3ull * vision.image_size * vision.image_size);
  for (float& value : pixels) value = uniform(random);
  for (uint32_t p = 0; p < max_pictures; ++p) made.runner->WritePixels(p, pixels);
  return made;
}

StepBatch PicturesStep(const VisionConfig& vision, uint32_t pictures, uint64_t step_id,
                       std::vector<PictureEntry>& entries) {
  entries.clear();
  for (uint32_t p = 0; p < pictures; ++p) {
    entries.push_back({p * vision.tokens_per_image, vision.tokens_per_image});
  }
  StepBatch step;
  step.header.step_id = step_id;
  step.header.num_pictures = pictures;
  step.pictures = entries;
  return step;
}

absl::StatusOr<std::unique_ptr<PictureLoad>> PictureLoad::Create(Worker& worker,
                                                                 const VisionConfig& vision) {
  TANDEM_ASSIGN_OR_RETURN(Vision made,
                          LoadRandomVision(worker, vision, DType::kF16, kPlan, kPictures));
  return std::unique_ptr<PictureLoad>(new PictureLoad(worker, vision, std::move(made)));
}

absl::Status PictureLoad::Feed() {
  if (is_running_) {
    if (worker_.HoldsBack(kPlan)) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(vision_.runner->WaitForStep().status());
    num_encoded_ += kPictures;
  }
  std::vector<PictureEntry> entries;
  is_running_ = true;
  return vision_.runner->SubmitStep(PicturesStep(config_, kPictures, ++num_steps_, entries), 0);
}

}  // namespace tandem::bench

// A vision encoder with random weights on a worker, alone or beside a decoder.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/common/model/vision_config.h"
#include "services/common/step/step_batch.h"
#include "services/common/testing/plan_runner.h"

namespace tandem::bench {

// Of Gemma 3 from 4B up.
inline constexpr VisionConfig kGemma3Vision = {.image_size = 896,
                                               .patch_size = 14,
                                               .num_layers = 27,
                                               .hidden_dim = 1152,
                                               .ffn_dim = 4304,
                                               .num_heads = 16,
                                               .tokens_per_image = 256,
                                               .text_hidden_dim = 2560};

struct Vision {
  std::shared_ptr<const WeightSet> weights;
  std::unique_ptr<testing::PlanRunner> runner;
};

// Loads it as plan `plan` for steps of `max_pictures` random pictures.  `dtype`: of the matrices; those
// whose rows are no whole blocks are f16.  `worker`: borrowed by the runner.
absl::StatusOr<Vision> LoadRandomVision(Worker& worker, const VisionConfig& vision, DType dtype,
                                        uint32_t plan, uint32_t max_pictures);

// A step of `pictures` pictures; refers to `entries`, which it fills.
StepBatch PicturesStep(const VisionConfig& vision, uint32_t pictures, uint64_t step_id,
                       std::vector<PictureEntry>& entries);

// Keeps a worker encoding pictures, one step after another, beside another plan.  Single-thread.
class PictureLoad {
 public:
  static constexpr uint32_t kPlan = 2;

  // `worker`: borrowed; must outlive this.
  static absl::StatusOr<std::unique_ptr<PictureLoad>> Create(Worker& worker,
                                                             const VisionConfig& vision);

  // Submits the next step if the one before has nothing left to be queued.  Called between the
  // other plan's steps.
  absl::Status Feed();
  uint64_t num_encoded() const { return num_encoded_; }

 private:
  PictureLoad(Worker& worker, const VisionConfig& config, Vision vision)
      : worker_(worker), config_(config), vision_(std::move(vision)) {}
  static constexpr uint32_t kPictures = 4;  // as many as the gateway's steps have

  Worker& worker_;  // Borrowed.
  const VisionConfig config_;
  const Vision vision_;
  bool is_running_ = false;
  uint64_t num_steps_ = 0, num_encoded_ = 0;
};

}  // namespace tandem::bench

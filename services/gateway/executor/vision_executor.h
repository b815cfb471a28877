// Has pictures encoded by the worker of the cluster that runs Vision.
//
// Vision is a plan of its own ("vision") beside the decoder's: its calls go over a stream of their
// own and take turns with the decoder's steps on the device (docs/decisions/0023), and a worker that
// is lost does not disturb the decoder on another worker.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/model/vision_config.h"
#include "services/common/worker/worker.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/executor/leased_model.h"
#include "services/gateway/executor/worker_finder.h"

namespace tandem::gateway {

// Single-thread; calls block.
class VisionExecutor {
 public:
  // `options` as Executor::Start's; plan_token must be that of the decoder's plan.  Connects to
  // nothing.  `model_id`: of the decoder's plan; empty: whatever the loader has by the name.
  // INVALID_ARGUMENT: an option out of range.
  static absl::StatusOr<std::unique_ptr<VisionExecutor>> Create(ExecutorOptions options,
                                                                std::string model_id = "");
  ~VisionExecutor();

  // Loads the plan unless it is loaded, so that no request has to wait for it.  Errors as Encode's.
  absl::Status Load() { return worker_ != nullptr ? absl::OkStatus() : Build(); }
  // The soft tokens of each picture, [tokens_per_image, text_hidden_dim].  `pixels`: one
  // [3, image_size, image_size] a picture (picture/prepare.h), any number of them.  Loads the plan
  // at the first call, and again once if its worker was lost; for a moment after that has failed it
  // fails at once.
  // INVALID_ARGUMENT: pixels of another size.  FAILED_PRECONDITION: the model has no vision encoder,
  // no worker runs it, or its file has changed since the decoder was loaded.  UNAVAILABLE: the loader or the worker is not there.  DATA_LOSS: soft
  // tokens that are not finite.  Otherwise as the worker's.
  absl::StatusOr<std::vector<std::vector<float>>> Encode(
      std::span<const std::vector<float>> pixels);

  // Pictures of one call to the worker.
  static constexpr uint32_t kPicturesOfStep = 4;

 private:
  VisionExecutor(ExecutorOptions options, std::string model_id)
      : options_(std::move(options)), model_id_(std::move(model_id)) {}

  // Model, worker, exchange region, plan and stream.
  absl::Status Build();
  absl::Status MakeExchange();
  absl::Status LoadPlan();
  absl::StatusOr<std::vector<std::vector<float>>> EncodeAll(
      std::span<const std::vector<float>> pixels);
  // At most kPicturesOfStep pictures, whose soft tokens are appended.
  absl::Status EncodeStep(std::span<const std::vector<float>> pixels,
                          std::vector<std::vector<float>>& encoded);
  WorkerPeer& worker() { return *worker_; }

  const ExecutorOptions options_;
  const std::string model_id_;
  std::unique_ptr<LeasedModel> model_;
  std::vector<WorkerPeer> peers_;               // by worker target
  WorkerPeer* worker_ = nullptr;                // of the plan, in peers_; null: no plan is loaded
  absl::Time retry_at_ = absl::InfinitePast();  // until then Encode fails with failure_
  absl::Status failure_;
  Plan plan_;
  StepLimits limits_;
  uint64_t epoch_ = 0;
  uint64_t last_step_ = 0;
  uint32_t exchange_region_id_ = 0;
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace tandem::gateway

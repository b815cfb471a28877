#include "services/gateway/make_pictures.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/executor/vision_executor.h"

namespace tandem::gateway {
namespace {

// How long a picture waits for a worker that was lost: its client waits too.
constexpr absl::Duration kWorkerWait = absl::Seconds(10);
constexpr char kProgram[] = "tandem-image-decoder";

}  // namespace

std::string DefaultImageDecoder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path folder = error ? "." : self.parent_path();
  const std::filesystem::path beside = folder / kProgram;
  const std::filesystem::path installed = folder.parent_path() / "lib" / "tandem" / kProgram;
  return std::filesystem::exists(beside, error) ? beside : installed;
}

MakePictureEncoder PicturesBy(PictureEncoderOptions options, ExecutorOptions model) {
  options.batch_pictures = VisionExecutor::kPicturesOfStep;
  model.worker_wait = std::min(model.worker_wait, kWorkerWait);
  return [options = std::move(options), model = std::move(model)](
             const Executor& executor) -> absl::StatusOr<std::unique_ptr<PictureEncoder>> {
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<VisionExecutor> made,
                            VisionExecutor::Create(model, executor.model().model_id()));
    const std::shared_ptr<VisionExecutor> vision = std::move(made);  // of the encoder alone
    const absl::Status loaded = vision->Load();
    if (absl::IsFailedPrecondition(loaded)) return loaded;
    // A worker that is lost for now is asked again for the first picture.
    if (!loaded.ok()) LogWarning("vision", {{"not_loaded", std::string(loaded.message())}});
    return PictureEncoder::Create(
        options, *executor.config().vision,
        [vision](std::span<const std::vector<float>> pixels) { return vision->Encode(pixels); });
  };
}

}  // namespace tandem::gateway

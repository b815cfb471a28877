#include "services/loader/vision/seeing_model.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/formats/opened_model.h"
#include "services/loader/vision/vision_source.h"

namespace tandem::loader {
namespace {

namespace fs = std::filesystem;

SourceTensor Converted(const VisionTensor& tensor) {
  return {.name = tensor.name,
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .file_offset = tensor.file_offset,
          .num_bytes = tensor.num_bytes,
          .file = tensor.file,
          .role = ToWeightRole(tensor.role),
          .layer_idx = tensor.layer_idx,
          .norm_offset = tensor.norm_offset};
}

// The decoder's source; the encoder's tensors have roles of their own.
class SeeingModel final : public ModelSource {
 public:
  SeeingModel(std::unique_ptr<ModelSource> text, std::unique_ptr<VisionSource> vision,
              std::vector<std::string> warnings)
      : text_(std::move(text)),
        vision_(std::move(vision)),
        warnings_(std::move(warnings)),
        config_(text_->config()),
        tensors_(text_->tensors()),
        content_id_(text_->content_id()) {
    if (vision_ == nullptr) return;
    config_.vision = vision_->config;
    for (const VisionTensor& tensor : vision_->tensors) tensors_.push_back(Converted(tensor));
    ContentHash hash;
    hash.Add(text_->content_id());
    hash.Add(vision_->content_id);
    content_id_ = hash.Finish();
  }

  std::string_view format() const override { return text_->format(); }
  const ModelConfig& config() const override { return config_; }
  const Vocabulary& vocabulary() const override { return text_->vocabulary(); }
  const std::string& chat_template() const override { return text_->chat_template(); }
  const SamplingDefaults& sampling_defaults() const override { return text_->sampling_defaults(); }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  const std::vector<SkippedTensor>& skipped() const override { return text_->skipped(); }
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return text_->metadata();
  }
  const std::string& content_id() const override { return content_id_; }

  absl::Status Read(const SourceTensor& tensor, uint64_t offset,
                    std::span<std::byte> out) const override {
    if (!IsVision(tensor.role)) return text_->Read(tensor, offset, out);
    const absl::Status read = vision_->files[tensor.file].ReadAt(tensor.file_offset + offset, out);
    return read.ok() ? read : InFile(vision_->file_names[tensor.file], InFile(tensor.name, read));
  }

 private:
  const std::unique_ptr<ModelSource> text_;
  const std::unique_ptr<VisionSource> vision_;  // null: the model reads no pictures
  const std::vector<std::string> warnings_;
  ModelConfig config_;
  std::vector<SourceTensor> tensors_;
  std::string content_id_;
};

// PERMISSION_DENIED: the encoder's file lies elsewhere than the model's, where a link led.
absl::Status CheckFolder(const std::string& vision_path, const std::string& model_path) {
  std::error_code error;
  const fs::path vision = fs::canonical(vision_path, error);
  const fs::path model = error ? fs::path() : fs::canonical(model_path, error);
  if (error) return absl::NotFoundError(error.message());
  if (vision == model || vision.parent_path() == model.parent_path()) return absl::OkStatus();
  return absl::PermissionDeniedError("it is a link out of the model's folder");
}

absl::StatusOr<std::unique_ptr<VisionSource>> OpenFitting(const std::string& vision_path,
                                                          const ModelConfig& config) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<VisionSource> vision, OpenVisionSource(vision_path));
  const absl::Status fits = CheckVisionFits(*vision, config.hidden_dim);
  if (!fits.ok()) return InFile(vision_path, fits);
  return vision;
}

absl::StatusOr<std::unique_ptr<VisionSource>> OpenFound(const std::string& vision_path,
                                                        const std::string& model_path,
                                                        const ModelConfig& config) {
  TANDEM_RETURN_IF_ERROR(CheckFolder(vision_path, model_path));
  return OpenFitting(vision_path, config);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSource>> OpenSeeingModel(
    const std::string& path, const std::optional<std::string>& named) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<ModelSource> text, OpenModelSource(path));
  if (text->format() == "synthetic") return text;
  std::vector<std::string> warnings = text->warnings();
  if (named.has_value()) {
    if (named->empty()) return text;
    auto vision = OpenFitting(*named, text->config());
    if (!vision.ok()) return vision.status();
    return std::make_unique<SeeingModel>(std::move(text), *std::move(vision), std::move(warnings));
  }
  const std::optional<std::string> found = FindVision(path);
  if (!found.has_value()) return text;
  auto vision = OpenFound(*found, path, text->config());
  if (!vision.ok()) {
    warnings.push_back(
        absl::StrFormat("pictures are not served: the vision encoder at %s cannot be used: %s",
                        *found, std::string(vision.status().message())));
  }
  return std::make_unique<SeeingModel>(std::move(text), vision.ok() ? *std::move(vision) : nullptr,
                                       std::move(warnings));
}

}  // namespace tandem::loader

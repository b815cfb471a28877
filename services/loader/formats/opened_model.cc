#include "services/loader/formats/opened_model.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_format.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/synthetic/synthetic_model.h"
#include "services/loader/synthetic/synthetic_spec.h"

namespace tandem::loader {
namespace {

class OpenedModelSource : public ModelSource {
 public:
  explicit OpenedModelSource(OpenedModel model) : model_(std::move(model)) {}

  std::string_view format() const override { return model_.format; }
  const ModelConfig& config() const override { return model_.config; }
  const Vocabulary& vocabulary() const override { return model_.vocabulary; }
  const std::string& chat_template() const override { return model_.chat_template; }
  const SamplingDefaults& sampling_defaults() const override { return model_.sampling_defaults; }
  const std::vector<std::string>& warnings() const override { return model_.warnings; }
  const std::vector<SourceTensor>& tensors() const override { return model_.tensors; }
  const std::vector<SkippedTensor>& skipped() const override { return model_.skipped; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return model_.metadata;
  }
  const std::string& content_id() const override { return model_.content_id; }

  absl::Status Read(const SourceTensor& tensor, uint64_t offset,
                    std::span<std::byte> out) const override {
    if (tensor.file >= model_.files.size()) {
      return absl::InvalidArgumentError(absl::StrFormat("tensor %s: file %d of %d", tensor.name,
                                                        tensor.file, model_.files.size()));
    }
    if (offset > tensor.num_bytes || out.size() > tensor.num_bytes - offset) {
      return absl::OutOfRangeError(absl::StrFormat("tensor %s: %d bytes at %d asked, it has %d",
                                                   tensor.name, out.size(), offset,
                                                   tensor.num_bytes));
    }
    const absl::Status status = model_.files[tensor.file].ReadAt(tensor.file_offset + offset, out);
    return status.ok() ? status
                       : InFile(model_.file_names[tensor.file], InFile(tensor.name, status));
  }

 private:
  const OpenedModel model_;
};

// A default that no request could ask for would fail requests that leave the choice to the model.
void DropUnusableSampling(OpenedModel& model) {
  SamplingDefaults& sampling = model.sampling_defaults;
  const auto drop = [&model](std::optional<float>& value, const char* name, bool usable,
                             const char* range) {
    if (!value.has_value() || usable) return;
    model.warnings.push_back(absl::StrFormat(
        "the file's sampling default %s = %g is left out: it must be in %s", name, *value, range));
    value.reset();
  };
  const float top_p = sampling.top_p.value_or(1.0f);
  const float temperature = sampling.temperature.value_or(1.0f);
  drop(sampling.top_p, "top_p", top_p > 0.0f && top_p <= 1.0f, "(0, 1]");
  drop(sampling.temperature, "temperature", temperature >= 0.0f && temperature <= 100.0f,
       "[0, 100]");
}

}  // namespace

ContentHash::ContentHash() : state_(XXH3_createState()) {
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}
ContentHash::~ContentHash() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void ContentHash::Add(std::string_view bytes) {
  const uint64_t length = bytes.size();
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), &length, sizeof(length));
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}

absl::Status ContentHash::AddFile(const FileSource& file, uint64_t header_bytes) {
  const uint64_t size = file.size();
  const int64_t modified = file.modified_ns();
  Add({reinterpret_cast<const char*>(&size), sizeof(size)});
  Add({reinterpret_cast<const char*>(&modified), sizeof(modified)});
  constexpr uint64_t kChunk = 1 << 20;
  std::string chunk;
  for (uint64_t offset = 0; offset < std::min(header_bytes, size); offset += kChunk) {
    chunk.resize(std::min(kChunk, std::min(header_bytes, size) - offset));
    TANDEM_RETURN_IF_ERROR(file.ReadAt(offset, std::as_writable_bytes(std::span(chunk))));
    Add(chunk);
  }
  return absl::OkStatus();
}

std::string ContentHash::Finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

absl::StatusOr<std::unique_ptr<ModelSource>> OpenModelSource(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("a model's path is empty or holds a NUL character");
  }
  if (IsSyntheticName(path)) return OpenSynthetic(path);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return InFile(path, absl::ErrnoToStatus(errno, "cannot be opened"));
  }
  absl::StatusOr<OpenedModel> model =
      S_ISDIR(info.st_mode) ? OpenSafetensors(path) : OpenGguf(path);
  if (!model.ok()) return model.status();
  DropUnusableSampling(*model);
  return std::make_unique<OpenedModelSource>(*std::move(model));
}

}  // namespace tandem::loader

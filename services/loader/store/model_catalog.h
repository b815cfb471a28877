// Which model files the loader may open, and by what names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::loader {

struct ModelFile {
  std::string name;  // relative to its root: "gemma-3-1b-it", "quants/demo.Q8_0.gguf"
  // Canonical, but for a link FILE.gguf to a file without that suffix: the link, in its canonical
  // folder.  Of a synthetic model its name.
  std::string path;
  std::string format;  // "gguf", "safetensors" or "synthetic", judged by names alone
  uint64_t file_bytes = 0;
  // Its vision encoder, as OpenSeeingModel takes it.
  std::optional<std::string> vision = {};
};

// Immutable, so thread-safe.
class ModelCatalog {
 public:
  // NOT_FOUND or FAILED_PRECONDITION for a root that is no readable directory.
  // `vision`: the vision encoders of models by name, as in ModelFile; FindVision finds others.
  static absl::StatusOr<ModelCatalog> Create(const std::vector<std::string>& roots,
                                             std::map<std::string, std::string> vision = {});

  // INVALID_ARGUMENT unless `name` is one to four plain path components: no empty ones, "." or
  // "..", no NUL or backslash, not absolute, at most 1024 bytes.
  static absl::Status CheckName(std::string_view name);

  // The model of a name, from the first root that has it; ".gguf" may be left out.  Synthetic names
  // (synthetic/synthetic_spec.h) are under no root, and not checked further here.  Links are
  // followed if they lead into a root: PERMISSION_DENIED otherwise.  NOT_FOUND names the roots that
  // were searched.
  absl::StatusOr<ModelFile> Resolve(std::string_view name) const;

  // Names, sizes and modification times of the files of a model that Resolve gave, its vision
  // encoder's included: what may change its content changes it.  Empty for a synthetic model.  NOT_FOUND: a file is gone.
  static absl::StatusOr<std::string> FileStamp(const ModelFile& file);

  // Every model under the roots, sorted by name, at most 1000.  A name that an earlier root holds
  // hides later ones.
  std::vector<ModelFile> List() const;

 private:
  std::vector<std::string> roots_;             // canonical
  std::map<std::string, std::string> vision_;  // by model, ".gguf" left out
};

}  // namespace tandem::loader

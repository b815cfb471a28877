#include "services/common/pull/encoder_choice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/common/model/mmproj_name.h"
#include "services/common/pull/model_store.h"
#include "services/common/pull/pull.h"

namespace tandem::pull {
namespace {

// "FOLDER/" of "FOLDER/FILE", else "".
std::string FolderOf(const std::string& file) { return file.substr(0, file.rfind('/') + 1); }

std::vector<std::string> EncodersOf(const std::vector<ListedFile>& listed) {
  std::vector<std::string> paths;
  for (const ListedFile& one : listed) {
    if (IsEncoderFile(one.path)) paths.push_back(one.path);
  }
  return paths;
}

bool Has(const std::vector<std::string>& paths, const std::string& path) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

HubFile FileOf(const HubFile& model, std::string path) {
  HubFile file = model;
  file.file = std::move(path);
  return file;
}

absl::StatusOr<EncoderChoice> TakeNamed(const HubFile& model, const std::vector<std::string>& paths,
                                        const std::string& wanted, const std::string& path) {
  if (!Has(paths, wanted)) {
    return absl::NotFoundError(
        absl::StrFormat("%s has no mmproj file '%s'; it has %s", model.repository(), wanted,
                        paths.empty() ? "none" : absl::StrJoin(paths, ", ")));
  }
  const std::string name = FileNameOf(wanted), model_name = FileNameOf(model.file);
  if (!MmprojBelongsTo(name, model_name)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s would not be found beside %s, because its name has other words: download it by hand "
        "and serve it with --mmproj FILE",
        name, model_name));
  }
  const auto there = EncoderBeside(path);
  if (there.has_value() && ChooseMmproj(model_name, {FileNameOf(there->path), name}) != name) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s would be taken before %s: remove it first", there->path, name));
  }
  return EncoderChoice{.file = FileOf(model, wanted)};
}

EncoderChoice TakeBest(const HubFile& model, const std::vector<std::string>& paths,
                       const std::string& path) {
  std::vector<std::string> folders = {FolderOf(model.file)};
  if (!folders[0].empty()) folders.emplace_back();  // the repository's root
  if (const auto there = EncoderBeside(path)) {
    for (const std::string& folder : folders) {
      const std::string same = folder + FileNameOf(there->path);
      if (Has(paths, same)) return {.file = FileOf(model, same)};
    }
    return {};
  }
  for (const std::string& folder : folders) {
    std::vector<std::string> names;
    for (const std::string& one : paths) {
      if (FolderOf(one) == folder) names.push_back(FileNameOf(one));
    }
    if (const auto name = ChooseMmproj(FileNameOf(model.file), names)) {
      return {.file = FileOf(model, folder + *name)};
    }
  }
  if (paths.empty()) {
    return {.reason =
                absl::StrFormat("%s has no vision encoder (mmproj file)", model.repository())};
  }
  return {.reason = absl::StrFormat(
              "no vision encoder of %s belongs to %s by its name: download one of %s by hand and "
              "serve it with --mmproj FILE",
              model.repository(), FileNameOf(model.file), absl::StrJoin(paths, ", "))};
}

}  // namespace

absl::StatusOr<EncoderChoice> ChooseEncoder(const Hub& hub, const HubFile& model,
                                            const std::string& wanted, const std::string& path) {
  if (wanted == kNoEncoder) return EncoderChoice();
  const auto listed = hub.List(model);
  if (!listed.ok()) {
    const absl::Status& status = listed.status();
    // A mirror may have files and no lists.
    const bool fatal = !wanted.empty() || absl::IsUnavailable(status) || absl::IsCancelled(status);
    if (fatal) return status;
    return EncoderChoice{.reason = "vision encoders cannot be looked for: " +
                                   std::string(status.message())};
  }
  const std::vector<std::string> paths = EncodersOf(*listed);
  if (!wanted.empty()) return TakeNamed(model, paths, wanted, path);
  return TakeBest(model, paths, path);
}

HubFile EncoderInStore(const HubFile& encoder, const HubFile& model) {
  return FileOf(encoder, FolderOf(model.file) + FileNameOf(encoder.file));
}

}  // namespace tandem::pull

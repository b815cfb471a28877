#include "services/common/pull/pull.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/pull/encoder_choice.h"
#include "services/common/pull/file_pull.h"
#include "services/common/pull/token.h"
#include "services/common/version/version.h"

namespace tandem::pull {
namespace {

// What a name stands for.
struct Wanted {
  HubFile file;
  std::string sha256;  // of the table
  std::string shown;
  bool pictures = true;
};

absl::StatusOr<Wanted> Look(const ModelName& name, const ModelTable& table) {
  if (name.from_hub) return Wanted{.file = name.hub};
  TANDEM_ASSIGN_OR_RETURN(const TableEntry entry, table.Find(name.text));
  return Wanted{.file = entry.hub,
                .sha256 = entry.sha256,
                .shown = entry.names.front(),
                .pictures = entry.pictures};
}

// Brings a file to `file`'s place in the store, unless it is there already.  True: it was.
absl::StatusOr<bool> BringUnlessThere(FilePull& pull, PulledModel& file) {
  if (auto there = ReadPulled(file.folder, file.hub);
      there.has_value() && pull.IsThere(there->path, there->bytes, there->sha256)) {
    const bool recorded = !there->sha256.empty();
    file = *std::move(there);
    file.sha256 = pull.remote().sha256;
    if (!recorded) TANDEM_RETURN_IF_ERROR(RecordPulled(file));
    return true;
  }
  TANDEM_RETURN_IF_ERROR(pull.Bring(file.path));
  file.commit = pull.remote().commit;
  file.sha256 = pull.remote().sha256;
  file.bytes = pull.remote().size;
  TANDEM_RETURN_IF_ERROR(RecordPulled(file));
  return false;
}

PulledModel InStore(const std::string& folder, const HubFile& file, const std::string& name) {
  return {.name = name, .path = PathInStore(folder, file), .folder = folder, .hub = file};
}

absl::Status EncoderError(const absl::Status& status) {
  if (absl::IsCancelled(status)) return status;
  return absl::Status(
      status.code(),
      absl::StrFormat("the model is there, its vision encoder is not: %s (--mmproj none leaves it "
                      "out)",
                      std::string(status.message())));
}

}  // namespace

absl::StatusOr<PullOptions> PullOptionsFromEnvironment(const std::string& folder,
                                                       const std::string& token_file) {
  PullOptions options;
  options.folder = folder.empty() ? DefaultModelsFolder() : folder;
  options.hub.endpoint = EndpointFromEnvironment();
  options.hub.http.user_agent = "tandem/" + std::string(Version());
  TANDEM_ASSIGN_OR_RETURN(const Token token, FindToken(token_file));
  options.hub.http.token = token.value;
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE"}) {
    const char* file = std::getenv(name);
    if (file != nullptr && options.hub.http.ca_file.empty()) options.hub.http.ca_file = file;
  }
  return options;
}

absl::StatusOr<PullResult> Pull(const ModelName& name, const ModelTable& table,
                                const PullOptions& options,
                                const std::function<bool(const PullProgress&)>& progress) {
  TANDEM_ASSIGN_OR_RETURN(const Wanted wanted, Look(name, table));
  HubOptions hub_options = options.hub;
  hub_options.http.keep_going = [&progress] { return progress(PullProgress()); };
  TANDEM_ASSIGN_OR_RETURN(const Hub hub, Hub::Create(std::move(hub_options)));
  TANDEM_ASSIGN_OR_RETURN(const HubFile file, hub.Choose(wanted.file));
  if (!IsModelFile(file.file)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is no whole model: pull a single GGUF file that is a model (split "
                        "files cannot be served; a vision encoder comes with its model)",
                        file.Name()));
  }
  FilePull model(hub, file, wanted.sha256, options, progress);
  TANDEM_RETURN_IF_ERROR(model.Resolve());
  PullResult result;
  result.model = InStore(options.folder, file, name.from_hub ? file.Name() : wanted.shown);
  // The encoder is looked for first, so that its errors show before gigabytes have come.
  EncoderChoice choice;
  if (wanted.pictures || !options.mmproj.empty()) {
    TANDEM_ASSIGN_OR_RETURN(choice, ChooseEncoder(hub, file, options.mmproj, result.model.path));
  }
  std::optional<FilePull> encoder;
  if (choice.file.has_value()) {
    encoder.emplace(hub, *choice.file, "", options, progress);
    const absl::Status resolved = encoder->Resolve();
    if (absl::IsNotFound(resolved) && options.mmproj.empty()) {
      choice.reason = std::string(resolved.message());
      encoder.reset();
    } else {
      TANDEM_RETURN_IF_ERROR(resolved);
    }
  }
  TANDEM_ASSIGN_OR_RETURN(result.was_there, BringUnlessThere(model, result.model));
  result.received_bytes = model.received_bytes();
  if (encoder.has_value()) {
    PulledModel beside =
        InStore(options.folder, EncoderInStore(*choice.file, file), choice.file->Name());
    const auto was_there = BringUnlessThere(*encoder, beside);
    if (!was_there.ok()) return EncoderError(was_there.status());
    result.was_there = result.was_there && *was_there;
    result.received_bytes += encoder->received_bytes();
  }
  result.model.encoder = EncoderBeside(result.model.path);
  result.no_encoder_reason = choice.reason;
  return result;
}

}  // namespace tandem::pull

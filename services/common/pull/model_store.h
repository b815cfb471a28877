// The folders that pulled models lie in.
//
//   FOLDER/OWNER/REPO/FILE        a model, whole
//   FOLDER/OWNER/REPO/.FILE.json  what it was pulled as, from where, with which checksum
//
// A vision encoder (mmproj file) has its own two beside the models that use it; it belongs to those
// that the loader would take it for (common/model/mmproj_name.h).
//
// The rest that may be there (part_file.h) is of a pull under way or interrupted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/pull/model_name.h"
#include "services/common/pull/model_table.h"

namespace tandem::pull {

// A model's vision encoder.
struct PulledEncoder {
  std::string path;
  std::string sha256;  // empty: it was put there by hand
  uint64_t bytes = 0;
};

struct PulledModel {
  std::string name;    // as it was pulled: "gemma3:27b"
  std::string path;    // of the file
  std::string folder;  // the store it is in; `path` begins with it
  HubFile hub;
  std::string commit;
  std::string sha256;
  uint64_t bytes = 0;
  std::optional<PulledEncoder> encoder;  // the one beside it that the loader would take

  uint64_t total_bytes() const { return bytes + (encoder.has_value() ? encoder->bytes : 0); }
};

// Where pulled models go: TANDEM_MODELS, else $XDG_DATA_HOME/tandem/models, else
// ~/.local/share/tandem/models, else that of the packages.
std::string DefaultModelsFolder();
// Where they are looked for: `folder`, or the default where it is empty, then that of the packages.
std::vector<std::string> ModelsFolders(const std::string& folder = "");
// The packages' folder.
inline constexpr char kSystemModelsFolder[] = "/var/lib/tandem/models";

// FOLDER/OWNER/REPO/FILE.
std::string PathInStore(const std::string& folder, const HubFile& file);

// The vision encoder beside the model's file at `path`, if it has one.
std::optional<PulledEncoder> EncoderBeside(const std::string& path);

// The file `file` of the store at `folder`; nullopt: it is not there.
std::optional<PulledModel> ReadPulled(const std::string& folder, const HubFile& file);

// The models under `folders`, sorted by name; those that an earlier folder has hide later ones.
std::vector<PulledModel> ListPulled(const std::vector<std::string>& folders);

// The model that `name` stands for.  INVALID_ARGUMENT: it is no name; NOT_FOUND says to pull it.
absl::StatusOr<PulledModel> FindPulled(const std::string& name, const ModelTable& table,
                                       const std::vector<std::string>& folders);

// The file that `text` stands for where a path is expected too: `text` itself where something lies
// there or where it is no name of a model, else the pulled model's file.  Errors as for FindPulled
// and ModelTable::FromEnvironment.
absl::StatusOr<std::string> PathOrPulled(const std::string& text);

// Removes a model, what an interrupted pull left of it, and the folders that are empty then.  A
// pulled vision encoder goes with the last model of its folder that it belongs to.
// ALREADY_EXISTS: it is being pulled; else the file system's error.
absl::Status RemovePulled(const PulledModel& model);

// Writes down what was pulled, a model or, with its own file, an encoder.
absl::Status RecordPulled(const PulledModel& model);

}  // namespace tandem::pull

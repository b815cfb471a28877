// The repository and file that a short name stands for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/pull/model_name.h"

namespace tandem::pull {

struct TableEntry {
  std::vector<std::string> names;  // the first is the one to show
  HubFile hub;
  std::string sha256;    // 64 hex digits, or empty: the host's is taken
  double gigabytes = 0;  // about; 0: not known
  bool gated = false;    // a licence must be accepted first
  bool pictures = true;  // it may have a vision encoder in its repository
};

// Immutable, so thread-safe.
class ModelTable {
 public:
  // models.json as it was built in.
  static ModelTable BuiltIn();
  // A file of the same form.  NOT_FOUND, or INVALID_ARGUMENT naming the entry.
  static absl::StatusOr<ModelTable> FromFile(const std::string& path);
  // The file that TANDEM_MODEL_TABLE names, else what was built in.
  static absl::StatusOr<ModelTable> FromEnvironment();
  static absl::StatusOr<ModelTable> Parse(std::string_view json);

  // NOT_FOUND lists the names of the same family.
  absl::StatusOr<TableEntry> Find(const std::string& name) const;
  // Whether `name`, as a user writes it, is one of them.
  bool Knows(std::string_view name) const;
  const std::vector<TableEntry>& entries() const { return entries_; }

 private:
  std::vector<TableEntry> entries_;
};

// The text of models.json.
std::string_view EmbeddedModelTable();

}  // namespace tandem::pull

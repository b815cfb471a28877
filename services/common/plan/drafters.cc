#include "services/common/plan/drafters.h"

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "services/common/base/status_macros.h"

namespace tandem {

absl::StatusOr<DrafterSet> ParseDrafters(std::string_view text) {
  DrafterSet drafters;
  if (text == "off") return drafters;
  const std::vector<std::string> names = absl::StrSplit(std::string(text), ',');
  for (const std::string& name : names) {
    bool* const chosen = name == "lookup"  ? &drafters.lookup
                         : name == "draft" ? &drafters.draft
                                           : nullptr;
    if (chosen == nullptr || *chosen) {
      return absl::InvalidArgumentError(
          absl::StrFormat("\"%s\" is not \"off\" or a list of lookup and draft, each at most once: "
                          "\"lookup\", \"draft\" or \"lookup,draft\"",
                          std::string(text)));
    }
    *chosen = true;
  }
  return drafters;
}

absl::StatusOr<DrafterSet> ChooseDrafters(std::string_view text, std::string_view draft_model) {
  if (text.empty()) return DrafterSet{.draft = !draft_model.empty()};
  TANDEM_ASSIGN_OR_RETURN(const DrafterSet drafters, ParseDrafters(text));
  if (drafters.draft && draft_model.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--speculate %s needs a draft model: name one with --draft", std::string(text)));
  }
  if (!drafters.draft && !draft_model.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--draft %s has no effect with --speculate %s: add draft to the list, or "
                        "leave --draft out",
                        std::string(draft_model), std::string(text)));
  }
  return drafters;
}

}  // namespace tandem

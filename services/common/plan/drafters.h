// What guesses tokens ahead: the flags --speculate and --draft.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// Drafters that a gateway uses.
struct DrafterSet {
  bool lookup = false;  // the text itself, where it repeats
  bool draft = false;   // a second, smaller model

  bool empty() const { return !lookup && !draft; }
};

// "off", or "lookup" and "draft" with a comma between them; INVALID_ARGUMENT for anything else.
absl::StatusOr<DrafterSet> ParseDrafters(std::string_view text);

// The same with the name of the draft model, which may be empty.  Without `text` a draft model is
// used if there is one.  INVALID_ARGUMENT: one of the two has no effect without the other.
absl::StatusOr<DrafterSet> ChooseDrafters(std::string_view text, std::string_view draft_model);

}  // namespace tandem

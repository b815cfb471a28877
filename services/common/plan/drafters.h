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

// Help of --speculate and --draft-device, which `tandem serve` passes to the gateway.
inline constexpr char kSpeculateHelp[] =
    "Guess tokens ahead and verify several at a time where this is faster; the answers are the "
    "same.  lookup: where the text repeats itself; draft: with --draft; lookup,draft: both; or "
    "off.  Default: draft where --draft is given, else off";
inline constexpr char kDraftDeviceHelp[] =
    "Where the draft model runs: gpu, npu (its attention), emulate (on an emulated NPU) or a "
    "worker's name";

// "off", or "lookup" and "draft" with a comma between them; INVALID_ARGUMENT for anything else.
absl::StatusOr<DrafterSet> ParseDrafters(std::string_view text);

// The same with the name of the draft model, which may be empty.  Without `text` a draft model is
// used if there is one.  INVALID_ARGUMENT: one of the two has no effect without the other.
absl::StatusOr<DrafterSet> ChooseDrafters(std::string_view text, std::string_view draft_model);

}  // namespace tandem

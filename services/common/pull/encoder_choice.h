// Which vision encoder of a repository a pull brings with a model.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/pull/hub.h"
#include "services/common/pull/model_name.h"

namespace tandem::pull {

struct EncoderChoice {
  std::optional<HubFile> file;  // at the hub
  std::string reason;           // why there is no file; empty: it is not wanted, or one is there
};

// The mmproj file to bring for `model`, a file of a repository, whose place in the store is `path`.
// `wanted` is as PullOptions::mmproj.  Where none is named it is the one that the loader would take
// of all in the model's folder, else of all at the repository's root.  An encoder that lies beside
// `path` already is kept: it is chosen if the repository has it, else none is.
// NOT_FOUND: `wanted` is not in the repository; INVALID_ARGUMENT: the loader would not take it for
// this model; UNAVAILABLE and CANCELLED as for Hub::List.
absl::StatusOr<EncoderChoice> ChooseEncoder(const Hub& hub, const HubFile& model,
                                            const std::string& wanted, const std::string& path);

// Where in the store `encoder` lies for `model`: beside it.
HubFile EncoderInStore(const HubFile& encoder, const HubFile& model);

}  // namespace tandem::pull

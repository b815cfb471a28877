// Pictures of a message, from files.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tandem/v1/generation.pb.h"

namespace tandem {

// Adds the picture in `path` to a message, before its text.  The gateway decodes it and says what
// is wrong with it.  NOT_FOUND, PERMISSION_DENIED: the file cannot be read; INVALID_ARGUMENT: it is
// empty or longer than a gateway takes.
absl::Status AddImageFile(const std::string& path, v1::ChatMessage& message);

}  // namespace tandem

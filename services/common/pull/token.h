// The token for the hub, which is a secret: it is never printed, logged or part of an error.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tandem::pull {

struct Token {
  std::string value;   // empty: none
  std::string origin;  // where it was found, for messages: "HF_TOKEN", "/home/me/token"
};

// The first of: `file` where one is given, HF_TOKEN, the file HF_TOKEN_PATH names, $HF_HOME/token,
// ~/.cache/huggingface/token.  None is no error, unless `file` was given.
// NOT_FOUND: `file` cannot be read; INVALID_ARGUMENT: what was found is no token (blanks or control
// characters within, over 1024 bytes).
absl::StatusOr<Token> FindToken(const std::string& file);

}  // namespace tandem::pull

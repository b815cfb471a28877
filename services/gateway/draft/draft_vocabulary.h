// Whether a draft model speaks the model's tokens.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/common/model/vocabulary.h"

namespace tandem::gateway {

// OK if the tokens that both have are the same, by piece and type.  One may have more at its end, as
// models that see pictures have; those are never guessed.  FAILED_PRECONDITION names `draft` and the
// first token that differs, with both pieces.
absl::Status CheckDraftVocabulary(const Vocabulary& model, const Vocabulary& draft,
                                  const std::string& draft_name);

}  // namespace tandem::gateway

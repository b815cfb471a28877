#include "services/gateway/draft/draft_vocabulary.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"

namespace tandem::gateway {
namespace {

std::string_view TypeName(TokenType type) {
  switch (type) {
    case TokenType::kNormal:
      return "normal";
    case TokenType::kUnknown:
      return "unknown";
    case TokenType::kControl:
      return "control";
    case TokenType::kUserDefined:
      return "user-defined";
    case TokenType::kUnused:
      return "unused";
    case TokenType::kByte:
      return "byte";
  }
  return "?";
}

std::string Describe(const Vocabulary& vocabulary, size_t token) {
  return absl::StrFormat("\"%s\" (%s)", absl::Utf8SafeCEscape(vocabulary.pieces[token]),
                         std::string(TypeName(vocabulary.types[token])));
}

}  // namespace

absl::Status CheckDraftVocabulary(const Vocabulary& model, const Vocabulary& draft,
                                  const std::string& draft_name) {
  const size_t both = std::min(model.pieces.size(), draft.pieces.size());
  for (size_t token = 0; token < both; ++token) {
    if (model.pieces[token] == draft.pieces[token] && model.types[token] == draft.types[token]) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrFormat(
        "draft model %s has another vocabulary: its token %d is %s, the model's is %s; choose a "
        "draft of the same family",
        draft_name, token, Describe(draft, token), Describe(model, token)));
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway

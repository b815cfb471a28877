#include "services/gateway/constraint/testing/walks.h"

#include <bit>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/constraint/testing/vocabularies.h"

namespace tandem::gateway::constraint {
namespace {

// Tokens of a mask: a few of a large one, so that walks do not only write long texts of letters.
uint32_t DrawToken(const std::vector<uint32_t>& mask, std::mt19937& random) {
  size_t count = 0;
  for (const uint32_t word : mask) count += static_cast<size_t>(std::popcount(word));
  if (count == 0) return kNoToken;
  size_t left = random() % count;
  for (size_t w = 0; w < mask.size(); ++w) {
    for (uint32_t word = mask[w]; word != 0; word &= word - 1) {
      if (left-- == 0)
        return static_cast<uint32_t>(w * 32) + static_cast<uint32_t>(std::countr_zero(word));
    }
  }
  return kNoToken;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Constraint>> MakeConstraint(const ConstraintSource& source,
                                                           std::shared_ptr<const TokenTrie> trie) {
  TANDEM_ASSIGN_OR_RETURN(Grammar grammar, CompileSource(source));
  return Constraint::Create(std::move(grammar), std::move(trie));
}

absl::StatusOr<bool> Accepts(Constraint& constraint, const TokenTrie& trie, std::string_view text) {
  TANDEM_ASSIGN_OR_RETURN(ConstraintState state, constraint.Start());
  for (const uint32_t token : LongestTokens(trie, text)) {
    TANDEM_ASSIGN_OR_RETURN(const bool taken, state.Advance(token));
    if (!taken) return false;
  }
  return state.Accepting();
}

absl::StatusOr<std::optional<std::string>> RandomWalk(Constraint& constraint, const TokenTrie& trie,
                                                      std::mt19937& random, int patience,
                                                      int max_tokens) {
  TANDEM_ASSIGN_OR_RETURN(ConstraintState state, constraint.Start());
  std::vector<uint32_t> mask(trie.mask_words());
  std::string text;
  for (int i = 0; i < max_tokens; ++i) {
    TANDEM_RETURN_IF_ERROR(state.Mask(mask));
    const bool may_end = state.Accepting();
    if (may_end && (i >= patience || state.Done())) return text;
    if (may_end) mask[trie.end_tokens()[0] / 32] &= ~(1u << (trie.end_tokens()[0] % 32));
    // Structure is more likely than text: else strings would hardly ever end.
    uint32_t token = DrawToken(mask, random);
    if (random() % 3 == 0) {
      for (const char c : std::string_view("\"}],:{[0")) {
        const auto byte = LongestTokens(trie, std::string_view(&c, 1))[0];
        if ((mask[byte / 32] >> (byte % 32) & 1) != 0) {
          token = byte;
          break;
        }
      }
    }
    if (token == kNoToken) {
      return absl::InternalError(absl::StrFormat("no token may follow after: %s", text));
    }
    TANDEM_ASSIGN_OR_RETURN(const bool taken, state.Advance(token));
    if (!taken) {
      return absl::InternalError(
          absl::StrFormat("token %d is in the mask and refused after: %s", token, text));
    }
    text += trie.bytes(token);
  }
  return std::nullopt;
}

}  // namespace tandem::gateway::constraint

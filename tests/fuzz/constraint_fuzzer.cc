// Schemas, regular expressions and grammars as clients send them.  The first byte is the kind; the
// text goes up to NUL; what follows chooses tokens from the masks.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/gateway/constraint/constraint.h"
#include "services/gateway/constraint/constraint_source.h"
#include "services/gateway/constraint/testing/vocabularies.h"
#include "services/gateway/constraint/work_time.h"

namespace {

using namespace tandem::gateway::constraint;

ConstraintSource SourceOf(uint8_t kind, std::string text) {
  switch (kind) {
    case 'r':
      return {.kind = SourceKind::kRegex, .text = std::move(text)};
    case 'g':
      return {.kind = SourceKind::kGbnf, .text = std::move(text)};
    case 'l':
      return {.kind = SourceKind::kLark, .text = std::move(text)};
    case 'c':
      return {.kind = SourceKind::kChoices, .choices = {std::move(text), "choice"}};
    case 'a':
      return {.kind = SourceKind::kJsonSchema,
              .text = std::move(text),
              .layout = {.any_key_order = true}};
    default:
      return {.kind = SourceKind::kJsonSchema, .text = std::move(text)};
  }
}

// The member of a mask that `choice` falls on; kNoToken where it has none.
uint32_t Choose(const std::vector<uint32_t>& mask, uint32_t choice) {
  size_t count = 0;
  for (const uint32_t word : mask) count += static_cast<size_t>(std::popcount(word));
  if (count == 0) return kNoToken;
  size_t left = choice % count;
  for (size_t w = 0;; ++w) {
    for (uint32_t word = mask[w]; word != 0; word &= word - 1) {
      if (left-- == 0)
        return static_cast<uint32_t>(w * 32) + static_cast<uint32_t>(std::countr_zero(word));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const TokenTrie> trie = SmallVocabulary();
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view text = input.substr(0, input.find('\0'));
  const std::string_view choices = input.substr(std::min(input.size(), text.size() + 1));
  const CompileLimits limits{.source_bytes = 65536,
                             .grammar_bytes = size_t{4} << 20,
                             .deadline = WorkTime() + absl::Seconds(2)};
  auto grammar = CompileSource(SourceOf(data[0], std::string(text)), limits);
  if (!grammar.ok()) {
    TANDEM_CHECK(!grammar.status().message().empty());
    return 0;
  }
  const auto constraint = Constraint::Create(
      *std::move(grammar), trie,
      {.cache_bytes = size_t{1} << 20, .memory_bytes = size_t{4} << 20, .call_work = 200'000});
  auto state = constraint->Start();
  if (!state.ok()) return 0;
  std::vector<uint32_t> mask(trie->mask_words());
  for (size_t i = 0; i < 40; ++i) {
    if (!state->Mask(mask).ok()) return 0;
    const auto at = [&](size_t n) {
      return n < choices.size() ? static_cast<uint8_t>(choices[n]) : 7u;
    };
    const uint32_t chosen = Choose(mask, at(2 * i) << 8 | at(2 * i + 1));
    // Any other token: the mask and Advance agree.
    const uint32_t other = (at(2 * i) * 31 + at(2 * i + 1)) % trie->vocab_size();
    ConstraintState copy = *state;
    const auto taken = copy.Advance(other);
    if (!taken.ok()) return 0;
    TANDEM_CHECK(*taken == ((mask[other / 32] >> (other % 32) & 1) != 0));
    const auto forced = state->ForcedBytes(64);
    if (!forced.ok()) return 0;
    if (chosen == kNoToken) return 0;
    const auto next = state->Advance(chosen);
    if (!next.ok()) return 0;
    TANDEM_CHECK(*next);
    if (trie->IsEndToken(chosen)) return 0;
    const std::string_view bytes = trie->bytes(chosen);
    const size_t shared = std::min(bytes.size(), forced->size());
    TANDEM_CHECK(bytes.substr(0, shared) == std::string_view(*forced).substr(0, shared));
  }
  TANDEM_CHECK(constraint->memory_bytes() < size_t{64} << 20);
  return 0;
}

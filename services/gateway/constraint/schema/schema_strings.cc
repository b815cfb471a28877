#include "services/gateway/constraint/schema/schema_strings.h"

#include <algorithm>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/gateway/constraint/regex/expression.h"
#include "services/gateway/constraint/regex/regex_builder.h"
#include "services/gateway/constraint/schema/json_formats.h"

namespace tandem::gateway::constraint {
namespace {

constexpr size_t kMaxPlainBytes = size_t{8} << 20;

// The schema of `clause` whose `keyword` is `value`.
const OrderedJson& Origin(const SchemaSet& clause, const char* keyword, const std::string& value) {
  for (const OrderedJson* schema : clause) {
    const auto found = schema->find(keyword);
    if (found != schema->end() && *found == value) return *schema;
  }
  return *clause.front();
}

}  // namespace

absl::StatusOr<RegexId> SchemaStrings::Compiled(const std::string& pattern, bool whole) {
  const auto known = compiled_.find((whole ? "=" : "~") + pattern);
  if (known != compiled_.end()) return known->second;
  TANDEM_ASSIGN_OR_RETURN(const RegexId regex,
                          CompilePattern(pattern, {.ecma = true}, !whole, Spelling::kJson, arena_));
  compiled_.emplace((whole ? "=" : "~") + pattern, regex);
  return regex;
}

absl::StatusOr<RegexId> SchemaStrings::Body(const SchemaFacts& facts, const SchemaSet& clause) {
  std::vector<RegexId> all;
  for (const std::string& pattern : facts.patterns) {
    const auto regex = Compiled(pattern, false);
    if (!regex.ok()) {
      return document_.Error(Origin(clause, "pattern", pattern), "pattern",
                             std::string(regex.status().message()));
    }
    all.push_back(*regex);
  }
  const std::vector<RegexId> patterns = all;
  for (const std::string& format : facts.formats) {
    const auto pattern = FormatPattern(format);
    if (!pattern) continue;  // not JSON Schema's: it says nothing
    const auto regex = Compiled(*pattern, true);
    if (!regex.ok()) return regex.status();
    all.push_back(*regex);
  }
  // A format is a hint, a pattern is not: where they have no text in common the pattern counts.
  if (!patterns.empty() && all.size() > patterns.size() && !arena_.IsLive(arena_.And(all))) {
    all = patterns;
  }
  if (all.empty() || facts.min_length > 0 || facts.max_length != UINT32_MAX) {
    if (facts.min_length > facts.max_length) return kNothing;
    // Text that no pattern looks at may be escaped in any way.
    const Spelling spelling = all.empty() ? Spelling::kJsonAny : Spelling::kJson;
    all.push_back(arena_.Repeat(arena_.Class(CodePointSet::All(), spelling), facts.min_length,
                                facts.max_length == UINT32_MAX ? kUnlimited : facts.max_length));
  }
  const RegexId body = arena_.And(std::move(all));
  return arena_.IsLive(body) ? body : kNothing;
}

absl::StatusOr<RegexId> SchemaStrings::KeyBody(const std::string& pattern,
                                               const OrderedJson& schema) {
  const auto regex = Compiled(pattern, false);
  if (regex.ok()) return regex;
  return document_.Error(schema, "patternProperties", std::string(regex.status().message()));
}

absl::StatusOr<bool> SchemaStrings::Matches(const std::string& pattern, const std::string& text,
                                            bool whole) {
  if (plain_.memory_bytes() > kMaxPlainBytes) {
    plain_ = RegexArena();
    plain_compiled_.clear();
  }
  const std::string key = (whole ? "=" : "~") + pattern;
  auto known = plain_compiled_.find(key);
  if (known == plain_compiled_.end()) {
    plain_.set_limit(2 * kMaxPlainBytes);
    plain_.set_deadline(arena_.deadline());
    TANDEM_ASSIGN_OR_RETURN(const RegexId regex, CompilePattern(pattern, {.ecma = true}, !whole,
                                                                Spelling::kPlain, plain_));
    known = plain_compiled_.emplace(key, regex).first;
  }
  RegexId state = known->second;
  for (const char c : text) {
    state = plain_.Derive(state, static_cast<uint8_t>(c));
    if (state == kNothing) return false;
  }
  return plain_.node(state).nullable;
}

}  // namespace tandem::gateway::constraint

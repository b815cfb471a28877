#include "services/gateway/constraint/constraint_source.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"
#include "services/gateway/constraint/grammar/gbnf.h"
#include "services/gateway/constraint/grammar/grammar_source.h"
#include "services/gateway/constraint/grammar/lark.h"
#include "services/gateway/constraint/regex/regex_builder.h"
#include "services/gateway/constraint/schema/schema_compiler.h"

namespace tandem::gateway::constraint {
namespace {

constexpr size_t kMaxChoices = 10'000;

absl::StatusOr<Grammar> CompileJson(const ConstraintSource& source, std::string_view schema,
                                    const CompileLimits& limits) {
  SchemaOptions options;
  options.layout = source.layout;
  options.coerce_one_of = source.coerce_one_of;
  options.max_bytes = limits.grammar_bytes;
  options.deadline = limits.deadline;
  return CompileSchema(schema, options);
}

// A grammar of one rule.
absl::StatusOr<Grammar> CompileExpression(GrammarSource source, ExpressionId body,
                                          const CompileLimits& limits) {
  source.names = {"root"};
  source.bodies = {body};
  return LowerGrammar(source, limits.grammar_bytes, limits.deadline);
}

absl::StatusOr<Grammar> CompileRegex(const std::string& pattern, const CompileLimits& limits) {
  GrammarSource source;
  source.pool.set_deadline(limits.deadline);
  TANDEM_ASSIGN_OR_RETURN(ExpressionId body, ParseRegex(pattern, {}, source.pool));
  TANDEM_ASSIGN_OR_RETURN(body, ResolveAnchors(body, false, source.pool));
  TANDEM_RETURN_IF_ERROR(source.pool.status());
  return CompileExpression(std::move(source), body, limits);
}

absl::StatusOr<Grammar> CompileChoices(const std::vector<std::string>& choices,
                                       const CompileLimits& limits) {
  GrammarSource source;
  std::vector<ExpressionId> all;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (FindInvalidUtf8(choices[i])) {
      return absl::InvalidArgumentError(absl::StrFormat("choices[%d]: is not UTF-8", i));
    }
    all.push_back(source.pool.Literal(choices[i]));
  }
  const ExpressionId body = source.pool.Alternatives(std::move(all));
  return CompileExpression(std::move(source), body, limits);
}

}  // namespace

std::string ConstraintSource::Key() const {
  std::string key = absl::StrFormat("%d %d %d %d ", static_cast<int>(kind), coerce_one_of,
                                    static_cast<int>(layout.whitespace), layout.any_key_order);
  const auto add = [&key](const std::string& part) {
    key += absl::StrFormat("%d:", part.size());
    key += part;
  };
  add(layout.whitespace_pattern);
  add(layout.item_separator);
  add(layout.key_separator);
  add(text);
  for (const std::string& choice : choices) add(choice);
  return key;
}

absl::Status CheckSource(const ConstraintSource& source, const CompileLimits& limits) {
  const size_t num_choices = source.choices.size();
  if (source.kind == SourceKind::kChoices && (num_choices < 1 || num_choices > kMaxChoices)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("choices: %d are given; 1 to %d may be", num_choices, kMaxChoices));
  }
  size_t bytes = source.text.size();
  for (const std::string& choice : source.choices) bytes += choice.size();
  if (bytes > limits.source_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "constraint: its source has %d bytes; at most %d may be", bytes, limits.source_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<Grammar> CompileSource(const ConstraintSource& source, const CompileLimits& limits) {
  TANDEM_RETURN_IF_ERROR(CheckSource(source, limits));
  switch (source.kind) {
    case SourceKind::kJsonObject:
      return CompileJson(source, R"({"type":"object"})", limits);
    case SourceKind::kJsonSchema:
      return CompileJson(source, source.text, limits);
    case SourceKind::kRegex:
      return CompileRegex(source.text, limits);
    case SourceKind::kChoices:
      return CompileChoices(source.choices, limits);
    case SourceKind::kGbnf: {
      TANDEM_ASSIGN_OR_RETURN(const GrammarSource grammar, ParseGbnf(source.text, limits.deadline));
      return LowerGrammar(grammar, limits.grammar_bytes, limits.deadline);
    }
    case SourceKind::kLark: {
      TANDEM_ASSIGN_OR_RETURN(const GrammarSource grammar, ParseLark(source.text, limits.deadline));
      return LowerGrammar(grammar, limits.grammar_bytes, limits.deadline);
    }
  }
  return absl::InvalidArgumentError("constraint: unknown kind");
}

}  // namespace tandem::gateway::constraint

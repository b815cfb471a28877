// What a client may give as the shape of an answer, and its compilation.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/constraint/grammar/grammar.h"
#include "services/gateway/constraint/schema/json_style.h"

namespace tandem::gateway::constraint {

enum class SourceKind {
  kJsonObject,  // any JSON object
  kJsonSchema,  // `text`: a schema
  kRegex,       // `text`: the whole answer matches it; RE2's syntax
  kChoices,     // the answer is one of `choices`
  kGbnf,        // `text`: llama.cpp's grammars, from the rule "root"
  kLark,        // `text`: Lark's grammars, from the rule "start"
};

struct ConstraintSource {
  SourceKind kind = SourceKind::kJsonObject;
  std::string text;
  std::vector<std::string> choices;
  JsonLayout layout;           // of JSON; a schema's own x-guidance counts more
  bool coerce_one_of = false;  // oneOf as anyOf where a value may match several branches

  // Equal for sources that compile to the same grammar.
  std::string Key() const;
};

struct CompileLimits {
  size_t source_bytes = size_t{1} << 20;
  size_t grammar_bytes = size_t{12} << 20;
  absl::Time deadline = absl::InfiniteFuture();  // of WorkTime, as all deadlines below this
};

// INVALID_ARGUMENT: the source has too many bytes or choices to be compiled.
absl::Status CheckSource(const ConstraintSource& source, const CompileLimits& limits = {});

// INVALID_ARGUMENT: CheckSource's, or the source is wrong or asks for something unsupported; the
// message names the place.  RESOURCE_EXHAUSTED: over the limits.  CANCELLED: nobody waits
// (base/cancellation.h).
absl::StatusOr<Grammar> CompileSource(const ConstraintSource& source,
                                      const CompileLimits& limits = {});

}  // namespace tandem::gateway::constraint

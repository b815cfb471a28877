#include "services/gateway/constraint/schema/schema_clauses.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/constraint/schema/schema_keywords.h"

namespace tandem::gateway::constraint {
namespace {

constexpr size_t kMaxClauses = 512;
constexpr size_t kMaxExpansions = 20'000;
constexpr int kMaxNestedOneOf = 16;

}  // namespace

absl::Status SchemaClauses::Check(const OrderedJson& schema) {
  if (!checked_.insert(&schema).second) return absl::OkStatus();
  return CheckKeywords(schema, document_);
}

absl::StatusOr<std::vector<SchemaSet>> SchemaClauses::Expand(const SchemaSet& schemas) {
  std::vector<SchemaSet> clauses;
  absl::flat_hash_set<SchemaSet> known;
  std::vector<Work> stack(1);
  for (auto it = schemas.rbegin(); it != schemas.rend(); ++it) stack[0].todo.push_back({*it});
  size_t work = 0;
  while (!stack.empty()) {
    if (++work > kMaxExpansions || clauses.size() > kMaxClauses) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("schema: %s: allOf, anyOf and oneOf make too many combinations",
                          schemas.empty() ? "#" : document_.PathOf(*schemas[0])));
    }
    Work& top = stack.back();
    if (top.todo.empty()) {
      SchemaSet key = top.clause;
      std::sort(key.begin(), key.end());
      if (known.insert(std::move(key)).second) clauses.push_back(std::move(top.clause));
      stack.pop_back();
      continue;
    }
    const auto [value, is_choice] = top.todo.back();
    top.todo.pop_back();
    if (is_choice) {
      const Work base = std::move(top);
      stack.pop_back();
      for (auto branch = value->rbegin(); branch != value->rend(); ++branch) {
        stack.push_back(base);
        stack.back().todo.push_back({&*branch});
      }
      continue;
    }
    const OrderedJson& schema = *value;
    // A schema that refers to itself asks for nothing more.
    if (!top.seen.insert(&schema).second) continue;
    TANDEM_RETURN_IF_ERROR(Check(schema));
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) stack.pop_back();
      continue;
    }
    if (HasAssertions(schema)) top.clause.push_back(&schema);
    if (schema.contains("$ref")) {
      TANDEM_ASSIGN_OR_RETURN(const OrderedJson* target, document_.Resolve(schema));
      top.todo.push_back({target});
    }
    if (const auto all = schema.find("allOf"); all != schema.end()) {
      for (auto it = all->rbegin(); it != all->rend(); ++it) top.todo.push_back({&*it});
    }
    for (const char* keyword : {"oneOf", "anyOf"}) {
      const auto branches = schema.find(keyword);
      if (branches == schema.end()) continue;
      if (keyword[0] == 'o' && branches->size() > 1) {
        TANDEM_RETURN_IF_ERROR(CheckOneOf(schema, *branches));
      }
      stack.back().todo.push_back({&*branches, true});
    }
  }
  return clauses;
}

absl::Status SchemaClauses::CheckOneOf(const OrderedJson& schema, const OrderedJson& branches) {
  if (coerce_one_of_ || !checked_one_of_.insert(&branches).second) return absl::OkStatus();
  if (++depth_ > kMaxNestedOneOf) {
    --depth_;
    return document_.Error(schema, "oneOf", "is nested in too many others");
  }
  // The branches' clauses, each with what the schema itself asks for.
  std::vector<std::vector<SchemaSet>> expanded;
  for (const OrderedJson& branch : branches) {
    auto clauses = Expand({&branch});
    if (!clauses.ok()) {
      --depth_;
      return clauses.status();
    }
    for (SchemaSet& clause : *clauses) {
      if (HasAssertions(schema) &&
          std::find(clause.begin(), clause.end(), &schema) == clause.end()) {
        clause.push_back(&schema);
      }
    }
    expanded.push_back(*std::move(clauses));
  }
  size_t pairs = 0;
  for (size_t i = 0; i < expanded.size(); ++i) {
    for (size_t j = i + 1; j < expanded.size(); ++j) {
      for (const SchemaSet& a : expanded[i]) {
        for (const SchemaSet& b : expanded[j]) {
          auto disjoint = ++pairs > kMaxExpansions ? absl::StatusOr<bool>(false) : disjoint_(a, b);
          if (disjoint.ok() && *disjoint) continue;
          --depth_;
          if (!disjoint.ok()) return disjoint.status();
          return document_.Error(
              schema, "oneOf",
              absl::StrFormat("branches %d and %d may match the same value; use anyOf", i, j));
        }
      }
    }
  }
  --depth_;
  return absl::OkStatus();
}

}  // namespace tandem::gateway::constraint

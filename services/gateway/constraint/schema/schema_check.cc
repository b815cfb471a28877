#include "services/gateway/constraint/schema/schema_check.h"

#include <algorithm>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/gateway/constraint/schema/json_formats.h"

namespace tandem::gateway::constraint {
namespace {

constexpr int kMaxValueDepth = 40;
constexpr int kMaxDisjointDepth = 6;
constexpr uint64_t kMaxWork = 100'000;

uint32_t NumCodePoints(const std::string& text) {
  return static_cast<uint32_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool Within(const Decimal& value, const NumberBounds& bounds) {
  if (bounds.min) {
    const int order = Compare(value, *bounds.min);
    if (order < 0 || (order == 0 && bounds.min_exclusive)) return false;
  }
  if (bounds.max) {
    const int order = Compare(value, *bounds.max);
    if (order > 0 || (order == 0 && bounds.max_exclusive)) return false;
  }
  return value.fraction.size() <= bounds.max_fraction;
}

bool NumbersDisjoint(const NumberBounds& a, const NumberBounds& b) {
  const auto below = [](const NumberBounds& low, const NumberBounds& high) {
    if (!low.max || !high.min) return false;
    const int order = Compare(*low.max, *high.min);
    return order < 0 || (order == 0 && (low.max_exclusive || high.min_exclusive));
  };
  return below(a, b) || below(b, a);
}

// Whether enum and const allow the value.
bool IsListed(const OrderedJson& value, const SchemaFacts& facts) {
  return !facts.values || std::ranges::any_of(*facts.values, [&](const OrderedJson* listed) {
    return SameValue(*listed, value);
  });
}

}  // namespace

absl::StatusOr<SchemaFacts> SchemaCheck::Facts(const SchemaSet& clause) {
  if (++work_ > kMaxWork) {
    return absl::ResourceExhaustedError("schema: telling its branches apart takes too long");
  }
  return CollectFacts(clause, document_,
                      [this](const std::string& pattern, const std::string& text) {
                        return strings_.Matches(pattern, text);
                      });
}

absl::StatusOr<bool> SchemaCheck::Fits(const OrderedJson& value, const OrderedJson& schema,
                                       int depth) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object() || depth > kMaxValueDepth) return true;
  TANDEM_ASSIGN_OR_RETURN(const bool own, FitsClause(value, {&schema}, depth));
  if (!own) return false;
  if (schema.contains("$ref")) {
    TANDEM_ASSIGN_OR_RETURN(const OrderedJson* target, document_.Resolve(schema));
    TANDEM_ASSIGN_OR_RETURN(const bool fits, Fits(value, *target, depth + 1));
    if (!fits) return false;
  }
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    const auto branches = schema.find(keyword);
    if (branches == schema.end()) continue;
    size_t count = 0;
    for (const OrderedJson& branch : *branches) {
      TANDEM_ASSIGN_OR_RETURN(const bool fits, Fits(value, branch, depth + 1));
      count += fits ? 1 : 0;
    }
    if (keyword[1] == 'l' && count < branches->size()) return false;
    if (count == 0) return false;
    if (keyword[0] == 'o' && count > 1) return false;
  }
  return true;
}

absl::StatusOr<bool> SchemaCheck::FitsAll(const OrderedJson& value, const SchemaSet& schemas,
                                          int depth) {
  for (const OrderedJson* schema : schemas) {
    TANDEM_ASSIGN_OR_RETURN(const bool fits, Fits(value, *schema, depth + 1));
    if (!fits) return false;
  }
  return true;
}

absl::StatusOr<bool> SchemaCheck::FitsClause(const OrderedJson& value, const SchemaSet& clause,
                                             int depth) {
  TANDEM_ASSIGN_OR_RETURN(const SchemaFacts facts, Facts(clause));
  if (!IsListed(value, facts)) return false;
  return FitsFacts(value, facts, depth);
}

absl::StatusOr<bool> SchemaCheck::FitsFacts(const OrderedJson& value, const SchemaFacts& facts,
                                            int depth) {
  const unsigned kind = KindOf(value);
  if ((facts.kinds & kind) == 0) return false;
  if ((kind & kNumberKind) != 0) return Within(Decimal::Of(value), facts.numbers);
  if (kind == kStringKind) return FitsString(value.get_ref<const std::string&>(), facts);
  if (kind == kArrayKind) return FitsArray(value, facts, depth);
  if (kind == kObjectKind) return FitsObject(value, facts, depth);
  return true;
}

absl::StatusOr<bool> SchemaCheck::FitsString(const std::string& text, const SchemaFacts& facts) {
  const uint32_t length = NumCodePoints(text);
  if (length < facts.min_length || length > facts.max_length) return false;
  for (const std::string& pattern : facts.patterns) {
    TANDEM_ASSIGN_OR_RETURN(const bool fits, strings_.Matches(pattern, text));
    if (!fits) return false;
  }
  for (const std::string& format : facts.formats) {
    const auto pattern = FormatPattern(format);
    if (!pattern) continue;
    TANDEM_ASSIGN_OR_RETURN(const bool fits, strings_.Matches(*pattern, text, true));
    if (!fits) return false;
  }
  return true;
}

absl::StatusOr<bool> SchemaCheck::FitsArray(const OrderedJson& value, const SchemaFacts& facts,
                                            int depth) {
  if (value.size() < facts.min_items || value.size() > facts.max_items) return false;
  for (size_t i = 0; i < value.size(); ++i) {
    const SchemaSet& schemas = i < facts.prefix.size() ? facts.prefix[i] : facts.rest;
    TANDEM_ASSIGN_OR_RETURN(const bool fits, FitsAll(value[i], schemas, depth));
    if (!fits) return false;
  }
  return true;
}

absl::StatusOr<bool> SchemaCheck::FitsObject(const OrderedJson& value, const SchemaFacts& facts,
                                             int depth) {
  if (value.size() < facts.min_properties || value.size() > facts.max_properties) return false;
  for (const SchemaFacts::Property& property : facts.properties) {
    const auto member = value.find(property.name);
    if (member == value.end()) {
      if (property.required) return false;
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(const bool fits, FitsAll(*member, property.schemas, depth));
    if (!fits) return false;
  }
  for (const auto& item : value.items()) {
    if (std::ranges::find(facts.properties, item.key(), &SchemaFacts::Property::name) !=
        facts.properties.end()) {
      continue;
    }
    std::vector<bool> covered(facts.additional.size(), false);
    SchemaSet schemas;
    for (const SchemaFacts::Pattern& pattern : facts.patterns_of_keys) {
      TANDEM_ASSIGN_OR_RETURN(const bool matches, strings_.Matches(pattern.pattern, item.key()));
      for (size_t i = 0; matches && i < pattern.schemas.size(); ++i) {
        if (pattern.schemas[i] == nullptr) continue;
        covered[i] = true;
        schemas.push_back(pattern.schemas[i]);
      }
    }
    for (size_t i = 0; i < covered.size(); ++i) {
      if (!covered[i] && facts.additional[i] != nullptr) schemas.push_back(facts.additional[i]);
    }
    TANDEM_ASSIGN_OR_RETURN(const bool fits, FitsAll(item.value(), schemas, depth));
    if (!fits) return false;
  }
  return true;
}

absl::StatusOr<bool> SchemaCheck::SetsDisjoint(const SchemaSet& a, const SchemaSet& b, int depth) {
  if (depth > kMaxDisjointDepth) return false;
  TANDEM_ASSIGN_OR_RETURN(const auto first, clauses_.Expand(a));
  TANDEM_ASSIGN_OR_RETURN(const auto second, clauses_.Expand(b));
  for (const SchemaSet& x : first) {
    for (const SchemaSet& y : second) {
      TANDEM_ASSIGN_OR_RETURN(const bool disjoint, Disjoint(x, y, depth + 1));
      if (!disjoint) return false;
    }
  }
  return true;
}

absl::StatusOr<bool> SchemaCheck::Disjoint(const SchemaSet& a, const SchemaSet& b, int depth) {
  TANDEM_ASSIGN_OR_RETURN(const SchemaFacts x, Facts(a));
  TANDEM_ASSIGN_OR_RETURN(const SchemaFacts y, Facts(b));
  for (const auto& [facts, other] : {std::pair(&x, &y), std::pair(&y, &x)}) {
    if (!facts->values) continue;
    for (const OrderedJson* value : *facts->values) {
      if (!IsListed(*value, *other)) continue;
      TANDEM_ASSIGN_OR_RETURN(const bool here, FitsFacts(*value, *facts, depth));
      if (!here) continue;
      TANDEM_ASSIGN_OR_RETURN(const bool there, FitsFacts(*value, *other, depth));
      if (there) return false;
    }
    return true;
  }
  const unsigned common = x.kinds & y.kinds;
  if ((common & (kNullKind | kBooleanKind)) != 0) return false;
  if ((common & kNumberKind) != 0 && !NumbersDisjoint(x.numbers, y.numbers)) return false;
  if ((common & kStringKind) != 0) {
    TANDEM_ASSIGN_OR_RETURN(const RegexId p, strings_.Body(x, a));
    TANDEM_ASSIGN_OR_RETURN(const RegexId q, strings_.Body(y, b));
    if (arena_.IsLive(arena_.And(p, q))) return false;
  }
  if ((common & kArrayKind) != 0) {
    TANDEM_ASSIGN_OR_RETURN(const bool disjoint, ArraysDisjoint(x, y, depth));
    if (!disjoint) return false;
  }
  if ((common & kObjectKind) != 0) return ObjectsDisjoint(x, y, depth);
  return true;
}

// Different lengths, or an item that both have and no value fits.
absl::StatusOr<bool> SchemaCheck::ArraysDisjoint(const SchemaFacts& a, const SchemaFacts& b,
                                                 int depth) {
  if (a.max_items < b.min_items || b.max_items < a.min_items) return true;
  const uint32_t both = std::min<uint32_t>(std::max(a.min_items, b.min_items), 16);
  for (uint32_t i = 0; i < both; ++i) {
    const SchemaSet& x = i < a.prefix.size() ? a.prefix[i] : a.rest;
    const SchemaSet& y = i < b.prefix.size() ? b.prefix[i] : b.rest;
    TANDEM_ASSIGN_OR_RETURN(const bool disjoint, SetsDisjoint(x, y, depth));
    if (disjoint) return true;
  }
  return false;
}

// A property that one of them requires and for which no value fits both.
absl::StatusOr<bool> SchemaCheck::ObjectsDisjoint(const SchemaFacts& a, const SchemaFacts& b,
                                                  int depth) {
  if (a.max_properties < b.min_properties || b.max_properties < a.min_properties) return true;
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    for (const SchemaFacts::Property& property : one->properties) {
      if (!property.required) continue;
      const auto same =
          std::ranges::find(other->properties, property.name, &SchemaFacts::Property::name);
      SchemaSet schemas;
      if (same != other->properties.end()) {
        schemas = same->schemas;
      } else if (other->patterns_of_keys.empty()) {
        for (const OrderedJson* additional : other->additional) {
          if (additional != nullptr) schemas.push_back(additional);
        }
      }
      TANDEM_ASSIGN_OR_RETURN(const bool disjoint, SetsDisjoint(property.schemas, schemas, depth));
      if (disjoint) return true;
    }
  }
  return false;
}

}  // namespace tandem::gateway::constraint

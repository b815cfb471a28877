#include "services/gateway/constraint/schema/schema_facts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway::constraint {
namespace {

const OrderedJson* Find(const OrderedJson& schema, const char* keyword) {
  const auto found = schema.find(keyword);
  return found == schema.end() ? nullptr : &*found;
}

uint32_t Count(const OrderedJson& value) {
  return static_cast<uint32_t>(std::min(value.get<double>(), 4e9));
}

unsigned KindsNamed(const std::string& name) {
  if (name == "null") return kNullKind;
  if (name == "boolean") return kBooleanKind;
  if (name == "integer") return kIntegerKind;
  if (name == "number") return kNumberKind;
  if (name == "string") return kStringKind;
  if (name == "array") return kArrayKind;
  return kObjectKind;
}

class Collector {
 public:
  Collector(const SchemaSet& clause, const SchemaDocument& document, const PatternMatcher& matches)
      : clause_(clause), document_(document), matches_(matches) {}

  absl::StatusOr<SchemaFacts> Run() {
    for (const OrderedJson* schema : clause_) {
      AddTypes(*schema);
      AddValues(*schema);
      TANDEM_RETURN_IF_ERROR(AddNumbers(*schema));
      AddStrings(*schema);
      AddCount(*schema, "minItems", "maxItems", facts_.min_items, facts_.max_items);
      AddCount(*schema, "minProperties", "maxProperties", facts_.min_properties,
               facts_.max_properties);
    }
    AddItems();
    TANDEM_RETURN_IF_ERROR(AddProperties());
    return std::move(facts_);
  }

 private:
  void AddTypes(const OrderedJson& schema) {
    const OrderedJson* type = Find(schema, "type");
    if (type == nullptr) return;
    unsigned kinds = 0;
    if (type->is_string()) {
      kinds = KindsNamed(type->get_ref<const std::string&>());
    } else {
      for (const OrderedJson& name : *type) kinds |= KindsNamed(name.get_ref<const std::string&>());
    }
    facts_.kinds &= kinds;
  }

  void AddValues(const OrderedJson& schema) {
    const auto restrict = [this](std::vector<const OrderedJson*> values) {
      if (facts_.values) {
        absl::flat_hash_set<std::string_view> texts;
        std::vector<const OrderedJson*> others;
        for (const OrderedJson* value : values) {
          if (value->is_string()) {
            texts.insert(value->get_ref<const std::string&>());
          } else {
            others.push_back(value);
          }
        }
        std::erase_if(*facts_.values, [&](const OrderedJson* value) {
          if (value->is_string()) return !texts.contains(value->get_ref<const std::string&>());
          return std::ranges::none_of(
              others, [&](const OrderedJson* other) { return SameValue(*value, *other); });
        });
      } else {
        facts_.values = std::move(values);
      }
    };
    if (const OrderedJson* values = Find(schema, "enum")) {
      std::vector<const OrderedJson*> all;
      for (const OrderedJson& value : *values) all.push_back(&value);
      restrict(std::move(all));
    }
    if (const OrderedJson* value = Find(schema, "const")) restrict({value});
  }

  void AddMin(const OrderedJson& value, bool exclusive) {
    const Decimal min = Decimal::Of(value);
    NumberBounds& numbers = facts_.numbers;
    const int order = numbers.min ? Compare(min, *numbers.min) : 1;
    if (order > 0) numbers.min_exclusive = exclusive;
    if (order == 0) numbers.min_exclusive = numbers.min_exclusive || exclusive;
    if (order > 0) numbers.min = min;
  }
  void AddMax(const OrderedJson& value, bool exclusive) {
    const Decimal max = Decimal::Of(value);
    NumberBounds& numbers = facts_.numbers;
    const int order = numbers.max ? Compare(max, *numbers.max) : -1;
    if (order < 0) numbers.max_exclusive = exclusive;
    if (order == 0) numbers.max_exclusive = numbers.max_exclusive || exclusive;
    if (order < 0) numbers.max = max;
  }

  absl::Status AddNumbers(const OrderedJson& schema) {
    // Draft 4 has exclusiveMinimum as a flag of minimum.
    const auto flag = [](const OrderedJson* value) {
      return value != nullptr && value->is_boolean() && value->get<bool>();
    };
    const OrderedJson* above = Find(schema, "exclusiveMinimum");
    const OrderedJson* below = Find(schema, "exclusiveMaximum");
    if (const OrderedJson* min = Find(schema, "minimum")) AddMin(*min, flag(above));
    if (const OrderedJson* max = Find(schema, "maximum")) AddMax(*max, flag(below));
    if (above != nullptr && above->is_number()) AddMin(*above, true);
    if (below != nullptr && below->is_number()) AddMax(*below, true);
    const OrderedJson* multiple = Find(schema, "multipleOf");
    if (multiple == nullptr) return absl::OkStatus();
    // 1, 0.1, 0.01, ...: a number of digits.
    const Decimal step = Decimal::Of(*multiple);
    const bool tenth = step.whole == "0" && !step.fraction.empty() &&
                       step.fraction.find_first_not_of('0') == step.fraction.size() - 1 &&
                       step.fraction.back() == '1';
    if (step.whole == "1" && step.fraction.empty() && !step.negative) {
      facts_.kinds &= ~static_cast<unsigned>(kFractionKind);
    } else if (tenth && !step.negative) {
      facts_.numbers.max_fraction =
          std::min(facts_.numbers.max_fraction, static_cast<uint32_t>(step.fraction.size()));
    } else if ((facts_.kinds & kNumberKind) != 0) {
      return document_.Error(schema, "multipleOf", "is supported for 1, 0.1, 0.01 and so on alone");
    }
    return absl::OkStatus();
  }

  void AddStrings(const OrderedJson& schema) {
    AddCount(schema, "minLength", "maxLength", facts_.min_length, facts_.max_length);
    if (const OrderedJson* pattern = Find(schema, "pattern")) {
      AddText(facts_.patterns, pattern->get<std::string>());
    }
    if (const OrderedJson* format = Find(schema, "format")) {
      AddText(facts_.formats, format->get<std::string>());
    }
  }
  static void AddText(std::vector<std::string>& list, std::string text) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
  }

  static void AddCount(const OrderedJson& schema, const char* min_name, const char* max_name,
                       uint32_t& min, uint32_t& max) {
    if (const OrderedJson* value = Find(schema, min_name)) min = std::max(min, Count(*value));
    if (const OrderedJson* value = Find(schema, max_name)) max = std::min(max, Count(*value));
  }

  void AddItems() {
    // Up to 2019-09 a list of schemas is in `items`, and `additionalItems` follows it.
    struct Items {
      const OrderedJson* prefix = nullptr;
      const OrderedJson* rest = nullptr;
    };
    std::vector<Items> all;
    size_t longest = 0;
    for (const OrderedJson* schema : clause_) {
      Items items{Find(*schema, "prefixItems"), Find(*schema, "items")};
      if (items.rest != nullptr && items.rest->is_array()) {
        items = {items.rest, Find(*schema, "additionalItems")};
      }
      if (items.prefix != nullptr) longest = std::max(longest, items.prefix->size());
      all.push_back(items);
    }
    facts_.prefix.resize(longest);
    for (const Items& items : all) {
      const size_t own = items.prefix == nullptr ? 0 : items.prefix->size();
      for (size_t i = 0; i < longest; ++i) {
        if (i < own) {
          facts_.prefix[i].push_back(&(*items.prefix)[i]);
        } else if (items.rest != nullptr) {
          facts_.prefix[i].push_back(items.rest);
        }
      }
      if (items.rest != nullptr) facts_.rest.push_back(items.rest);
    }
  }

  absl::Status AddProperties() {
    absl::flat_hash_map<std::string, size_t> places;
    std::vector<std::vector<size_t>> given_by;  // of each property, the schemas that list it
    const auto place = [&](const std::string& name) {
      const auto [found, added] = places.try_emplace(name, facts_.properties.size());
      if (added) {
        facts_.properties.push_back({name, {}, false});
        given_by.emplace_back();
      }
      return found->second;
    };
    for (size_t i = 0; i < clause_.size(); ++i) {
      const OrderedJson& schema = *clause_[i];
      if (const OrderedJson* properties = Find(schema, "properties")) {
        for (const auto& item : properties->items()) {
          const size_t at = place(item.key());
          facts_.properties[at].schemas.push_back(&item.value());
          given_by[at].push_back(i);
        }
      }
      if (const OrderedJson* patterns = Find(schema, "patternProperties")) {
        for (const auto& item : patterns->items()) {
          auto known = std::ranges::find(facts_.patterns_of_keys, item.key(),
                                         &SchemaFacts::Pattern::pattern);
          if (known == facts_.patterns_of_keys.end()) {
            facts_.patterns_of_keys.push_back(
                {item.key(), std::vector<const OrderedJson*>(clause_.size(), nullptr)});
            known = std::prev(facts_.patterns_of_keys.end());
          }
          known->schemas[i] = &item.value();
        }
      }
      facts_.additional.push_back(Find(schema, "additionalProperties"));
    }
    for (const OrderedJson* schema : clause_) {
      const OrderedJson* required = Find(*schema, "required");
      if (required == nullptr || !required->is_array()) continue;
      for (const OrderedJson& name : *required) {
        facts_.properties[place(name.get_ref<const std::string&>())].required = true;
      }
    }
    // What patterns and additionalProperties say of the listed ones.
    for (size_t at = 0; at < facts_.properties.size(); ++at) {
      SchemaFacts::Property& property = facts_.properties[at];
      std::vector<bool> covered(clause_.size(), false);
      for (const size_t i : given_by[at]) covered[i] = true;
      for (const SchemaFacts::Pattern& pattern : facts_.patterns_of_keys) {
        TANDEM_ASSIGN_OR_RETURN(const bool matches, matches_(pattern.pattern, property.name));
        for (size_t i = 0; matches && i < clause_.size(); ++i) {
          if (pattern.schemas[i] == nullptr) continue;
          property.schemas.push_back(pattern.schemas[i]);
          covered[i] = true;
        }
      }
      for (size_t i = 0; i < clause_.size(); ++i) {
        if (!covered[i] && facts_.additional[i] != nullptr) {
          property.schemas.push_back(facts_.additional[i]);
        }
      }
    }
    return absl::OkStatus();
  }

  const SchemaSet& clause_;
  const SchemaDocument& document_;
  const PatternMatcher& matches_;
  SchemaFacts facts_;
};

}  // namespace

absl::StatusOr<SchemaFacts> CollectFacts(const SchemaSet& clause, const SchemaDocument& document,
                                         const PatternMatcher& matches) {
  return Collector(clause, document, matches).Run();
}

unsigned KindOf(const OrderedJson& value) {
  switch (value.type()) {
    case OrderedJson::value_t::null:
      return kNullKind;
    case OrderedJson::value_t::boolean:
      return kBooleanKind;
    case OrderedJson::value_t::string:
      return kStringKind;
    case OrderedJson::value_t::array:
      return kArrayKind;
    case OrderedJson::value_t::object:
      return kObjectKind;
    case OrderedJson::value_t::number_float:
      return value.get<double>() == std::floor(value.get<double>()) ? kIntegerKind : kFractionKind;
    default:
      return kIntegerKind;
  }
}

bool SameValue(const OrderedJson& a, const OrderedJson& b) {
  if (KindOf(a) != KindOf(b)) return false;
  if (a.is_array()) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), SameValue);
  }
  if (a.is_object()) {
    if (a.size() != b.size()) return false;
    for (const auto& item : a.items()) {
      const auto other = b.find(item.key());
      if (other == b.end() || !SameValue(item.value(), *other)) return false;
    }
    return true;
  }
  return a == b;
}

}  // namespace tandem::gateway::constraint

#include "services/gateway/constraint/schema/schema_shapes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/cancellation.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/constraint/regex/expression.h"
#include "services/gateway/constraint/schema/json_numbers.h"
#include "services/gateway/constraint/schema/json_style.h"
#include "services/gateway/constraint/work_time.h"

namespace tandem::gateway::constraint {
namespace {

constexpr size_t kMaxShapes = 50'000;
// Patterns of keys whose every combination is a kind of key of its own.
constexpr size_t kMaxCombinedPatterns = 3;
constexpr size_t kMaxPatterns = 24;

}  // namespace

SchemaShapes::SchemaShapes(const SchemaDocument& document, bool coerce_one_of, absl::Time deadline,
                           RegexArena& arena)
    : document_(document),
      deadline_(deadline),
      arena_(arena),
      clauses_(document, coerce_one_of),
      strings_(document, arena),
      check_(document, clauses_, strings_, arena) {
  clauses_.set_disjoint(
      [this](const SchemaSet& a, const SchemaSet& b) { return check_.Disjoint(a, b); });
}

absl::StatusOr<std::vector<ValueShape>> SchemaShapes::Run() {
  std::vector<ValueShape> shapes;
  Shape({&document_.root()});
  for (ShapeId id = 0; id < todo_.size(); ++id) {
    TANDEM_RETURN_IF_ERROR(CheckBudget());
    shapes.emplace_back();
    const Todo todo = todo_[id];
    if (todo.value != nullptr) {
      AddValue(*todo.value, shapes.back());
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(const auto clauses, clauses_.Expand(todo.schemas));
    for (const SchemaSet& clause : clauses) {
      TANDEM_RETURN_IF_ERROR(AddClause(clause, shapes.back()));
    }
  }
  return shapes;
}

absl::Status SchemaShapes::CheckBudget() {
  TANDEM_RETURN_IF_ERROR(CheckCancelled());
  if (todo_.size() > kMaxShapes || arena_.overflowed() || WorkTime() > deadline_) {
    return absl::ResourceExhaustedError(
        "schema: it takes more time or memory to compile than a schema may");
  }
  return absl::OkStatus();
}

ShapeId SchemaShapes::Shape(const SchemaSet& schemas) {
  SchemaSet key = schemas;
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto [found, added] = ids_.try_emplace(std::move(key), static_cast<ShapeId>(todo_.size()));
  if (added) todo_.push_back({schemas});
  return found->second;
}

ShapeId SchemaShapes::ValueOf(const OrderedJson& value) {
  const auto [found, added] = value_ids_.try_emplace(&value, static_cast<ShapeId>(todo_.size()));
  if (added) todo_.push_back({{}, &value});
  return found->second;
}

void SchemaShapes::AddValue(const OrderedJson& value, ValueShape& shape) {
  if (value.is_array()) {
    ArrayShape array;
    for (const OrderedJson& item : value) array.prefix.push_back(ValueOf(item));
    array.min = array.max = static_cast<uint32_t>(value.size());
    shape.arrays.push_back(std::move(array));
  } else if (value.is_object()) {
    ObjectShape object;
    for (const auto& item : value.items()) {
      object.properties.push_back({item.key(), ValueOf(item.value()), true});
    }
    shape.objects.push_back(std::move(object));
  } else {
    shape.scalars = arena_.Or(shape.scalars, ScalarRegex(value, arena_));
  }
}

absl::Status SchemaShapes::AddValues(const SchemaFacts& facts, ValueShape& shape) {
  std::vector<RegexArena::Entry> strings;
  for (const OrderedJson* value : *facts.values) {
    TANDEM_ASSIGN_OR_RETURN(const bool fits, check_.FitsFacts(*value, facts));
    if (!fits) continue;
    if (value->is_string()) {
      strings.push_back({JsonStringText(value->get_ref<const std::string&>())});
    } else {
      AddValue(*value, shape);
    }
  }
  shape.scalars = arena_.Or(shape.scalars, arena_.LiteralTree(std::move(strings)));
  return absl::OkStatus();
}

absl::Status SchemaShapes::AddClause(const SchemaSet& clause, ValueShape& shape) {
  TANDEM_ASSIGN_OR_RETURN(
      const SchemaFacts facts,
      CollectFacts(clause, document_, [this](const std::string& pattern, const std::string& text) {
        return strings_.Matches(pattern, text);
      }));
  if (facts.values) return AddValues(facts, shape);
  std::vector<RegexId> scalars = {shape.scalars};
  if ((facts.kinds & kNullKind) != 0) scalars.push_back(arena_.Literal("null"));
  if ((facts.kinds & kBooleanKind) != 0) {
    scalars.push_back(arena_.Literal("true"));
    scalars.push_back(arena_.Literal("false"));
  }
  if ((facts.kinds & kNumberKind) != 0) {
    NumberBounds bounds = facts.numbers;
    bounds.integer = (facts.kinds & kFractionKind) == 0;
    if ((facts.kinds & kIntegerKind) != 0) scalars.push_back(NumberRegex(bounds, arena_));
  }
  if ((facts.kinds & kStringKind) != 0) {
    TANDEM_ASSIGN_OR_RETURN(const RegexId body, strings_.Body(facts, clause));
    const RegexId quote = arena_.Byte('"');
    scalars.push_back(arena_.Concat(quote, arena_.Concat(body, quote)));
  }
  shape.scalars = arena_.Or(std::move(scalars));
  if ((facts.kinds & kArrayKind) != 0 && facts.min_items <= facts.max_items) {
    ArrayShape array;
    for (const SchemaSet& schemas : facts.prefix) {
      if (array.prefix.size() < facts.max_items) array.prefix.push_back(Shape(schemas));
    }
    array.rest = Shape(facts.rest);
    array.min = facts.min_items;
    array.max = facts.max_items;
    shape.arrays.push_back(std::move(array));
  }
  if ((facts.kinds & kObjectKind) == 0 || facts.min_properties > facts.max_properties) {
    return absl::OkStatus();
  }
  ObjectShape object;
  uint32_t num_required = 0;
  for (const SchemaFacts::Property& property : facts.properties) {
    object.properties.push_back({property.name, Shape(property.schemas), property.required});
    num_required += property.required ? 1 : 0;
  }
  TANDEM_RETURN_IF_ERROR(AddExtras(facts, clause, object));
  object.min = facts.min_properties;
  object.max = facts.max_properties;
  if (object.min <= num_required) object.min = 0;
  if (object.min > 1 && !object.extras.empty()) {
    // Two members of one name count as one, and what keys were free is not remembered.
    for (const OrderedJson* schema : clause) {
      if (schema->contains("minProperties")) {
        return document_.Error(*schema, "minProperties",
                               "above 1 and the number of required properties is supported where "
                               "additionalProperties is false alone");
      }
    }
  }
  shape.objects.push_back(std::move(object));
  return absl::OkStatus();
}

// Keys that are not listed: one kind for each set of patterns that match, and one for none.
absl::Status SchemaShapes::AddExtras(const SchemaFacts& facts, const SchemaSet& clause,
                                     ObjectShape& object) {
  if (facts.max_properties == 0) return absl::OkStatus();
  const auto& patterns = facts.patterns_of_keys;
  if (patterns.size() > kMaxPatterns) {
    return document_.Error(*clause[0], "patternProperties", "has more than 24 patterns");
  }
  std::vector<RegexId> matched;
  for (const SchemaFacts::Pattern& pattern : patterns) {
    const auto origin = std::ranges::find_if(
        pattern.schemas, [](const OrderedJson* schema) { return schema != nullptr; });
    TANDEM_ASSIGN_OR_RETURN(
        const RegexId body,
        strings_.KeyBody(pattern.pattern,
                         *clause[static_cast<size_t>(origin - pattern.schemas.begin())]));
    matched.push_back(body);
  }
  std::vector<uint32_t> kinds = {0};  // a bit for each pattern that matches
  if (patterns.size() <= kMaxCombinedPatterns) {
    for (uint32_t set = 1; set < (1u << patterns.size()); ++set) kinds.push_back(set);
  } else {
    for (size_t i = 0; i < patterns.size(); ++i) {
      for (size_t j = i + 1; j < patterns.size(); ++j) {
        if (arena_.IsLive(arena_.And(matched[i], matched[j]))) {
          return document_.Error(*clause[0], "patternProperties",
                                 "more than 3 patterns that match the same keys are not supported");
        }
      }
      kinds.push_back(1u << i);
    }
  }
  std::vector<RegexArena::Entry> names;
  for (const SchemaFacts::Property& property : facts.properties) {
    std::string text = JsonStringText(property.name);
    names.push_back({text.substr(1, text.size() - 2)});
  }
  const RegexId listed = arena_.Not(arena_.LiteralTree(std::move(names)));
  const RegexId any =
      arena_.Repeat(arena_.Class(CodePointSet::All(), Spelling::kJson), 0, kUnlimited);
  for (const uint32_t set : kinds) {
    SchemaSet schemas;
    bool never = false;
    for (size_t i = 0; i < clause.size(); ++i) {
      bool covered = false;
      for (size_t p = 0; p < patterns.size(); ++p) {
        if ((set >> p & 1) == 0 || patterns[p].schemas[i] == nullptr) continue;
        schemas.push_back(patterns[p].schemas[i]);
        covered = true;
      }
      if (!covered && facts.additional[i] != nullptr) schemas.push_back(facts.additional[i]);
    }
    for (const OrderedJson* schema : schemas) {
      never = never || (schema->is_boolean() && !schema->get<bool>());
    }
    if (never) continue;
    std::vector<RegexId> key = {any, listed};
    for (size_t p = 0; p < patterns.size(); ++p) {
      key.push_back((set >> p & 1) != 0 ? matched[p] : arena_.Not(matched[p]));
    }
    const RegexId body = arena_.And(std::move(key));
    if (arena_.IsLive(body)) object.extras.push_back({body, Shape(schemas)});
  }
  return absl::OkStatus();
}

namespace {

class Pruner {
 public:
  explicit Pruner(std::vector<ValueShape>& shapes) : shapes_(shapes) {}

  void Run() {
    std::vector<std::vector<ShapeId>> users(shapes_.size());
    for (ShapeId id = 0; id < shapes_.size(); ++id) {
      const auto use = [&](ShapeId used) { users[used].push_back(id); };
      for (const ArrayShape& array : shapes_[id].arrays) {
        for (const ShapeId item : array.prefix) use(item);
        if (array.prefix.size() < array.min) use(array.rest);
      }
      for (const ObjectShape& object : shapes_[id].objects) {
        for (const auto& property : object.properties) use(property.value);
        for (const auto& extra : object.extras) use(extra.value);
      }
    }
    std::vector<ShapeId> left(shapes_.size());
    for (ShapeId id = 0; id < shapes_.size(); ++id) left[id] = id;
    while (!left.empty()) {
      const ShapeId id = left.back();
      left.pop_back();
      if (shapes_[id].complete || !Completes(shapes_[id])) continue;
      shapes_[id].complete = true;
      left.insert(left.end(), users[id].begin(), users[id].end());
    }
    for (ValueShape& shape : shapes_) Trim(shape);
  }

 private:
  bool IsComplete(ShapeId id) const { return shapes_[id].complete; }

  bool Completes(const ValueShape& shape) const {
    return shape.scalars != kNothing ||
           std::ranges::any_of(shape.arrays,
                               [this](const ArrayShape& array) { return Completes(array); }) ||
           std::ranges::any_of(shape.objects,
                               [this](const ObjectShape& object) { return Completes(object); });
  }
  bool Completes(const ArrayShape& array) const {
    for (uint32_t i = 0; i < array.min && i < array.prefix.size(); ++i) {
      if (!IsComplete(array.prefix[i])) return false;
    }
    return array.min <= array.prefix.size() || IsComplete(array.rest);
  }
  bool Completes(const ObjectShape& object) const {
    uint64_t required = 0;
    uint64_t available = 0;
    for (const auto& property : object.properties) {
      const bool complete = IsComplete(property.value);
      if (property.required && !complete) return false;
      required += property.required ? 1 : 0;
      available += complete ? 1 : 0;
    }
    const bool open = std::ranges::any_of(
        object.extras, [this](const auto& extra) { return IsComplete(extra.value); });
    return required <= object.max && (open || available >= object.min);
  }

  void Trim(ValueShape& shape) {
    std::erase_if(shape.arrays, [this](const ArrayShape& array) { return !Completes(array); });
    std::erase_if(shape.objects, [this](const ObjectShape& object) { return !Completes(object); });
    for (ArrayShape& array : shape.arrays) {
      for (uint32_t i = 0; i < array.prefix.size(); ++i) {
        if (IsComplete(array.prefix[i])) continue;
        array.max = std::min(array.max, i);
        array.prefix.resize(i);
      }
      if (!IsComplete(array.rest)) {
        array.max = std::min(array.max, static_cast<uint32_t>(array.prefix.size()));
      }
    }
    for (ObjectShape& object : shape.objects) {
      std::erase_if(object.properties,
                    [this](const auto& property) { return !IsComplete(property.value); });
      std::erase_if(object.extras, [this](const auto& extra) { return !IsComplete(extra.value); });
    }
  }

  std::vector<ValueShape>& shapes_;
};

}  // namespace

void PruneShapes(std::vector<ValueShape>& shapes) { Pruner(shapes).Run(); }

}  // namespace tandem::gateway::constraint

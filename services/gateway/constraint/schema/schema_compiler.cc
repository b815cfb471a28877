#include "services/gateway/constraint/schema/schema_compiler.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/gateway/constraint/regex/expression.h"
#include "services/gateway/constraint/schema/schema_document.h"
#include "services/gateway/constraint/schema/schema_shapes.h"

namespace tandem::gateway::constraint {
namespace {

// Writes the rules of shapes.
class Writer {
 public:
  Writer(const std::vector<ValueShape>& shapes, const JsonStyle& style, Grammar& grammar)
      : shapes_(shapes), style_(style), regexes_(grammar.regexes), parts_(grammar.parts) {}

  void WriteAll() {
    for (size_t i = 0; i < shapes_.size(); ++i) parts_.AddRule();
    for (ShapeId id = 0; id < shapes_.size(); ++id) {
      parts_.SetRule(id, Value(shapes_[id], style_.before_value));
    }
  }
  // The whole text: no whitespace before it.
  RuleId WriteRoot(ShapeId id) {
    const RuleId rule = parts_.AddRule();
    parts_.SetRule(rule, Value(shapes_[id], kEmptyText));
    return rule;
  }

 private:
  PartId Value(const ValueShape& shape, RegexId before) {
    std::vector<PartId> choices;
    choices.push_back(parts_.Terminal(regexes_.Concat(before, shape.scalars)));
    for (const ArrayShape& array : shape.arrays) choices.push_back(Array(array, before));
    for (const ObjectShape& object : shape.objects) choices.push_back(Object(object, before));
    return parts_.Choice(std::move(choices));
  }

  PartId Array(const ArrayShape& array, RegexId before) {
    const PartId open = parts_.Terminal(regexes_.Concat(before, regexes_.Byte('[')));
    const PartId comma = parts_.Terminal(style_.comma);
    const PartId end = parts_.Terminal(style_.end_array);
    const auto num_prefix = static_cast<uint32_t>(array.prefix.size());
    // After `written` items, which are at least the prefix.
    const auto rest_after = [&](uint32_t written) {
      const uint32_t min = array.min > written ? array.min - written : 0;
      const uint32_t max = array.max == UINT32_MAX ? kUnlimited : array.max - written;
      const PartId next = parts_.Sequence(comma, parts_.Call(array.rest));
      return parts_.Sequence(parts_.Repeat(next, min, max), end);
    };
    if (num_prefix == 0) {
      PartId items = kStuck;
      if (array.max > 0) items = parts_.Sequence(parts_.Call(array.rest), rest_after(1));
      return parts_.Sequence(open, parts_.Choice({array.min == 0 ? end : kStuck, items}));
    }
    PartId after = array.max >= num_prefix ? rest_after(num_prefix) : kStuck;
    for (uint32_t i = num_prefix; i-- > 0;) {
      const PartId item = parts_.Call(array.prefix[i]);
      const PartId next = i == 0 ? item : parts_.Sequence(comma, item);
      after = parts_.Choice({array.min <= i ? end : kStuck, parts_.Sequence(next, after)});
      if (array.max <= i) after = array.min <= i ? end : kStuck;
    }
    return parts_.Sequence(open, after);
  }

  PartId Object(const ObjectShape& object, RegexId before) {
    ObjectSpec spec;
    for (const auto& property : object.properties) {
      spec.properties.push_back({JsonStringText(property.name), property.value, property.required});
    }
    const RegexId quote = regexes_.Byte('"');
    for (const auto& extra : object.extras) {
      spec.extras.push_back(
          {regexes_.Concat(quote, regexes_.Concat(extra.key, quote)), extra.value});
    }
    spec.min_members = object.min;
    spec.max_members = object.max;
    spec.any_order = style_.any_key_order;
    spec.open = style_.before_key;
    spec.comma = style_.next_key;
    spec.colon = style_.colon;
    spec.close = style_.end_object;
    return parts_.Sequence(parts_.Terminal(regexes_.Concat(before, regexes_.Byte('{'))),
                           parts_.Members(parts_.AddObject(std::move(spec))));
  }

  const std::vector<ValueShape>& shapes_;
  const JsonStyle& style_;
  RegexArena& regexes_;
  PartArena& parts_;
};

// The options of the schema itself, as llguidance spells them.
absl::Status ReadGuidance(const OrderedJson& root, SchemaOptions& options) {
  const auto found = root.is_object() ? root.find("x-guidance") : root.end();
  if (found == root.end()) return absl::OkStatus();
  const auto wrong = [](const std::string& name) {
    return absl::InvalidArgumentError("schema: #/x-guidance/" + name + ": has a wrong value");
  };
  if (!found->is_object()) return wrong("");
  for (const auto& item : found->items()) {
    const std::string& name = item.key();
    const OrderedJson& value = item.value();
    JsonLayout& layout = options.layout;
    if (name == "whitespace_flexible" || name == "coerce_one_of") {
      if (!value.is_boolean()) return wrong(name);
      if (name[0] == 'c') {
        options.coerce_one_of = value.get<bool>();
      } else {
        layout.whitespace =
            value.get<bool>() ? JsonWhitespace::kFlexible : JsonWhitespace::kCompact;
      }
    } else if (name == "whitespace_pattern" || name == "item_separator" ||
               name == "key_separator" || name == "key_order") {
      if (!value.is_string()) return wrong(name);
      const auto text = value.get<std::string>();
      if (name == "whitespace_pattern") layout.whitespace_pattern = text;
      if (name == "item_separator") layout.item_separator = text;
      if (name == "key_separator") layout.key_separator = text;
      if (name == "key_order") {
        if (text != "any" && text != "declared") return wrong(name);
        layout.any_key_order = text == "any";
      }
    } else {
      return absl::InvalidArgumentError(
          "schema: #/x-guidance: an unknown option; known are "
          "whitespace_flexible, whitespace_pattern, item_separator, "
          "key_separator, key_order and coerce_one_of");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Grammar> CompileSchema(std::string_view schema, const SchemaOptions& given) {
  TANDEM_ASSIGN_OR_RETURN(const auto document, SchemaDocument::Parse(schema));
  SchemaOptions options = given;
  TANDEM_RETURN_IF_ERROR(ReadGuidance(document->root(), options));
  Grammar grammar;
  grammar.regexes.set_limit(options.max_bytes);
  grammar.regexes.set_deadline(options.deadline);
  TANDEM_ASSIGN_OR_RETURN(const JsonStyle style, MakeJsonStyle(options.layout, grammar.regexes));
  TANDEM_ASSIGN_OR_RETURN(
      std::vector<ValueShape> shapes,
      SchemaShapes(*document, options.coerce_one_of, options.deadline, grammar.regexes).Run());
  PruneShapes(shapes);
  const bool too_large = grammar.regexes.overflowed();
  if (!too_large && !shapes[0].complete) {
    return absl::InvalidArgumentError("schema: #: no value fits it");
  }
  if (!too_large) {
    Writer writer(shapes, style, grammar);
    writer.WriteAll();
    grammar.root = writer.WriteRoot(0);
  }
  if (too_large || grammar.regexes.overflowed() || grammar.memory_bytes() > options.max_bytes) {
    return absl::ResourceExhaustedError("schema: it takes more time or memory than a schema may");
  }
  grammar.regexes.set_deadline(absl::InfiniteFuture());
  return grammar;
}

}  // namespace tandem::gateway::constraint

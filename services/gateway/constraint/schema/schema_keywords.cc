#include "services/gateway/constraint/schema/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/constraint/schema/json_formats.h"

namespace tandem::gateway::constraint {
namespace {

enum class Value {
  kSchema,
  kSchemas,
  kSchemaMap,
  kItems,
  kCount,
  kNumber,
  kString,
  kStrings,
  kArray,
  kAny,
  kType,
  kFormat,
  kLimit,
};

struct Keyword {
  std::string_view name;
  Value value;
  bool asserts = true;
};

constexpr Keyword kKeywords[] = {
    {"type", Value::kType},
    {"enum", Value::kArray},
    {"const", Value::kAny},
    {"properties", Value::kSchemaMap},
    {"patternProperties", Value::kSchemaMap},
    {"additionalProperties", Value::kSchema},
    {"required", Value::kStrings},
    {"minProperties", Value::kCount},
    {"maxProperties", Value::kCount},
    {"items", Value::kItems},
    {"prefixItems", Value::kSchemas},
    {"additionalItems", Value::kSchema},
    {"minItems", Value::kCount},
    {"maxItems", Value::kCount},
    {"minLength", Value::kCount},
    {"maxLength", Value::kCount},
    {"pattern", Value::kString},
    {"format", Value::kFormat},
    {"minimum", Value::kNumber},
    {"maximum", Value::kNumber},
    {"exclusiveMinimum", Value::kLimit},
    {"exclusiveMaximum", Value::kLimit},
    {"multipleOf", Value::kNumber},
    {"allOf", Value::kSchemas, false},
    {"anyOf", Value::kSchemas, false},
    {"oneOf", Value::kSchemas, false},
    {"$ref", Value::kString, false},
};

// Keywords that constrain values in ways that are not supported.
constexpr std::string_view kUnsupported[] = {
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "contains",
    "uniqueItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "$dynamicRef",
    "$recursiveRef",
};

bool IsSchema(const OrderedJson& value) { return value.is_object() || value.is_boolean(); }

bool IsCount(const OrderedJson& value) {
  if (value.is_number_integer()) return value.is_number_unsigned() || value.get<int64_t>() >= 0;
  return value.is_number_float() && value.get<double>() >= 0 &&
         value.get<double>() == std::floor(value.get<double>());
}

bool IsTypeName(const OrderedJson& value) {
  static constexpr std::string_view kTypes[] = {"null",   "boolean", "integer", "number",
                                                "string", "array",   "object"};
  return value.is_string() && std::find(std::begin(kTypes), std::end(kTypes),
                                        value.get_ref<const std::string&>()) != std::end(kTypes);
}

const char* WhatIsWrong(Value kind, const OrderedJson& value) {
  const auto all = [&](auto is) { return std::all_of(value.begin(), value.end(), is); };
  switch (kind) {
    case Value::kSchema:
      return IsSchema(value) ? nullptr : "must be a schema";
    case Value::kSchemas:
      return value.is_array() && !value.empty() && all(IsSchema) ? nullptr
                                                                 : "must be a list of schemas";
    case Value::kSchemaMap:
      return value.is_object() && all(IsSchema) ? nullptr : "must be an object of schemas";
    case Value::kItems:
      return IsSchema(value) || (value.is_array() && all(IsSchema))
                 ? nullptr
                 : "must be a schema or a list of schemas";
    case Value::kCount:
      return IsCount(value) ? nullptr : "must be a whole number of at least 0";
    case Value::kNumber:
      return value.is_number() ? nullptr : "must be a number";
    case Value::kLimit:
      return value.is_number() || value.is_boolean() ? nullptr : "must be a number";
    case Value::kString:
    case Value::kFormat:
      return value.is_string() ? nullptr : "must be a string";
    case Value::kStrings:
      if (value.is_boolean()) return nullptr;  // draft 3's; it has no meaning here
      return value.is_array() && all([](const OrderedJson& v) { return v.is_string(); })
                 ? nullptr
                 : "must be a list of strings";
    case Value::kArray:
      return value.is_array() ? nullptr : "must be a list";
    case Value::kType:
      return IsTypeName(value) || (value.is_array() && !value.empty() && all(IsTypeName))
                 ? nullptr
                 : "must be null, boolean, integer, number, string, array or object, or a list of "
                   "these";
    case Value::kAny:
      return nullptr;
  }
  return nullptr;
}

// Values of unsupported keywords that say nothing.
bool SaysNothing(std::string_view keyword, const OrderedJson& value, const OrderedJson& schema) {
  if (keyword == "uniqueItems") return value.is_boolean() && !value.get<bool>();
  // Keys are strings.
  if (keyword == "propertyNames" && value == OrderedJson{{"type", "string"}}) return true;
  if (keyword == "unevaluatedItems" || keyword == "unevaluatedProperties" ||
      keyword == "propertyNames") {
    return (value.is_boolean() && value.get<bool>()) || (value.is_object() && value.empty());
  }
  if (keyword == "if") return !schema.contains("then") && !schema.contains("else");
  if (keyword == "then" || keyword == "else") return !schema.contains("if");
  if (keyword == "not") {
    return value.is_boolean() && !value.get<bool>();
  }
  return value.is_object() && value.empty() && keyword.starts_with("depende");
}

}  // namespace

absl::Status CheckKeywords(const OrderedJson& schema, const SchemaDocument& document) {
  if (schema.is_boolean()) return absl::OkStatus();
  if (!schema.is_object()) {
    return document.Error(schema, "", "must be a schema: an object or a boolean");
  }
  for (const auto& item : schema.items()) {
    const std::string& name = item.key();
    if (std::find(std::begin(kUnsupported), std::end(kUnsupported), name) !=
            std::end(kUnsupported) &&
        !SaysNothing(name, item.value(), schema)) {
      return document.Error(schema, name, "is not supported");
    }
    const auto keyword = std::find_if(std::begin(kKeywords), std::end(kKeywords),
                                      [&](const Keyword& known) { return known.name == name; });
    if (keyword == std::end(kKeywords)) continue;
    if (const char* wrong = WhatIsWrong(keyword->value, item.value())) {
      return document.Error(schema, name, wrong);
    }
    if (keyword->value == Value::kFormat) {
      const std::string& format = item.value().get_ref<const std::string&>();
      if (IsStandardFormat(format) && !FormatPattern(format)) {
        return document.Error(schema, name,
                              absl::StrFormat("\"%s\" is not supported", ClientText(format)));
      }
    }
  }
  return absl::OkStatus();
}

bool HasAssertions(const OrderedJson& schema) {
  if (!schema.is_object()) return false;
  for (const Keyword& keyword : kKeywords) {
    if (keyword.asserts && schema.contains(keyword.name)) return true;
  }
  return false;
}

}  // namespace tandem::gateway::constraint

#include "services/gateway/api/json_fields.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "services/gateway/api/api_error.h"

namespace tandem::gateway {
namespace {

// The value of a whole number that is written as a float, such as 40.0; else nullopt.
std::optional<int64_t> WholeFloat(const Json& value) {
  constexpr double kEnd = 9007199254740992.0;  // 2^53: from there on floats skip integers
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) >= kEnd) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

bool SaysNothing(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_structured() && value.empty();
}

const Json* JsonFields::Find(std::string_view name) const {
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void JsonFields::Fail(std::string_view name, std::string_view code, std::string_view message) {
  if (error_.ok()) error_ = ParamError(PathOf(name), code, message);
}

void JsonFields::Missing(std::string_view name) {
  Fail(name, "missing_required_parameter",
       absl::StrFormat("Missing required parameter: '%s'.", PathOf(name)));
}

void JsonFields::WrongType(std::string_view name, std::string_view expected) {
  const Json* value = Find(name);
  Fail(name, "invalid_type",
       absl::StrFormat("Invalid type for '%s': expected %s, but got %s instead.", PathOf(name),
                       std::string(expected),
                       value == nullptr ? "nothing" : std::string(JsonTypeName(*value))));
}

void JsonFields::Unsupported(std::string_view name, std::string_view why) {
  Fail(name, "unsupported_parameter",
       absl::StrFormat("Unsupported parameter: '%s': %s", PathOf(name), std::string(why)));
}

void JsonFields::RefuseIfSet(std::string_view name, std::string_view why) {
  const Json* value = Find(name);
  if (value != nullptr && !SaysNothing(*value)) Unsupported(name, why);
}

void JsonFields::RefuseUnless(std::string_view name, const Json& only, std::string_view why) {
  const Json* value = Find(name);
  if (value != nullptr && *value != only) Unsupported(name, why);
}

std::optional<bool> JsonFields::Bool(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  WrongType(name, "a boolean");
  return std::nullopt;
}

std::optional<double> JsonFields::Number(std::string_view name, double low, double high) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    WrongType(name, "a number");
    return std::nullopt;
  }
  const double number = value->get<double>();
  if (number >= low && number <= high) return number;
  Fail(name, "invalid_value",
       absl::StrFormat("Invalid '%s': expected a number from %g to %g, but got %s instead.",
                       PathOf(name), low, high, DumpJson(*value)));
  return std::nullopt;
}

std::optional<int64_t> JsonFields::Integer(std::string_view name, int64_t low, int64_t high) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number = WholeFloat(*value);
  if (!number.has_value() && !value->is_number_integer()) {
    WrongType(name, "an integer");
    return std::nullopt;
  }
  const bool fits = !value->is_number_unsigned() || value->get<uint64_t>() <= uint64_t{INT64_MAX};
  if (!number.has_value() && fits) number = value->get<int64_t>();
  if (number.has_value() && *number >= low && *number <= high) return number;
  Fail(name, "invalid_value",
       absl::StrFormat("Invalid '%s': expected an integer from %d to %d, but got %s instead.",
                       PathOf(name), low, high, DumpJson(*value)));
  return std::nullopt;
}

std::optional<uint64_t> JsonFields::Seed(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  if (value->is_number_integer()) return static_cast<uint64_t>(value->get<int64_t>());
  if (const auto number = WholeFloat(*value)) return static_cast<uint64_t>(*number);
  WrongType(name, "an integer of 64 bits");
  return std::nullopt;
}

std::optional<std::string> JsonFields::String(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  WrongType(name, "a string");
  return std::nullopt;
}

std::vector<std::string> JsonFields::Strings(std::string_view name, size_t max_size) {
  const Json* value = Find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) {
    WrongType(name, "a string or an array of strings");
    return {};
  }
  if (value->size() > max_size) {
    Fail(name, "array_above_max_length",
         absl::StrFormat("Invalid '%s': array too long. Expected at most %d elements, but got %d "
                         "instead.",
                         PathOf(name), max_size, value->size()));
    return {};
  }
  std::vector<std::string> strings;
  for (size_t i = 0; i < value->size(); ++i) {
    const Json& element = (*value)[i];
    if (!element.is_string()) {
      const std::string at = absl::StrFormat("%s[%d]", std::string(name), i);
      Fail(at, "invalid_type",
           absl::StrFormat("Invalid type for '%s': expected a string, but got %s instead.",
                           PathOf(at), std::string(JsonTypeName(element))));
      return {};
    }
    strings.push_back(element.get<std::string>());
  }
  return strings;
}

const Json* JsonFields::Array(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr || value->is_array()) return value;
  WrongType(name, "an array");
  return nullptr;
}

const Json* JsonFields::Object(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr || value->is_object()) return value;
  WrongType(name, "an object");
  return nullptr;
}

}  // namespace tandem::gateway

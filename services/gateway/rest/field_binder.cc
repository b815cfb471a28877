#include "services/gateway/rest/field_binder.h"

#include <google/protobuf/util/json_util.h>

#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"
#include "services/gateway/http/path_template.h"

namespace tandem::gateway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

absl::Status BadValue(const FieldDescriptor& field, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrFormat("%s: '%s' is not a %s", field.name(),
                                                    ClientText(text), field.cpp_type_name()));
}

absl::StatusOr<std::string> DecodeQueryPart(std::string_view part) {
  std::string spaced(part);
  for (char& c : spaced) {
    if (c == '+') c = ' ';
  }
  if (!IsValidPath("/" + spaced)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "query: '%s' has a '%%' without two hexadecimal digits", ClientText(spaced)));
  }
  std::string text = PercentDecode(spaced);
  if (FindInvalidUtf8(text).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("query: '%s' is not UTF-8", ClientText(spaced)));
  }
  return text;
}

// Sets or adds one value of a scalar type.
template <class Value>
void Store(Message& message, const FieldDescriptor& field,
           void (Reflection::*set)(Message*, const FieldDescriptor*, Value) const,
           void (Reflection::*add)(Message*, const FieldDescriptor*, Value) const, Value value) {
  (message.GetReflection()->*(field.is_repeated() ? add : set))(&message, &field, std::move(value));
}

absl::Status StoreFloat(Message& message, const FieldDescriptor& field, const std::string& text) {
  double value = 0.0;
  const bool special = text == "NaN" || text == "Infinity" || text == "-Infinity";
  if (!absl::SimpleAtod(text, &value) || (!special && !std::isfinite(value))) {
    return BadValue(field, text);
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    Store(message, field, &Reflection::SetDouble, &Reflection::AddDouble, value);
    return absl::OkStatus();
  }
  const float narrow = static_cast<float>(value);
  if (std::isfinite(value) && !std::isfinite(narrow)) return BadValue(field, text);
  Store(message, field, &Reflection::SetFloat, &Reflection::AddFloat, narrow);
  return absl::OkStatus();
}

absl::Status StoreString(Message& message, const FieldDescriptor& field, const std::string& text) {
  std::string value = text;
  const bool bytes = field.type() == FieldDescriptor::TYPE_BYTES;
  if (!bytes && FindInvalidUtf8(text).has_value()) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: not UTF-8", field.name()));
  }
  if (bytes && !absl::Base64Unescape(text, &value) && !absl::WebSafeBase64Unescape(text, &value)) {
    return BadValue(field, text);
  }
  Store(message, field, &Reflection::SetString, &Reflection::AddString, std::move(value));
  return absl::OkStatus();
}

absl::Status StoreEnum(Message& message, const FieldDescriptor& field, const std::string& text) {
  const EnumValueDescriptor* value = field.enum_type()->FindValueByName(text);
  int32_t number = value != nullptr ? value->number() : 0;
  if (value == nullptr && !absl::SimpleAtoi(text, &number)) return BadValue(field, text);
  Store(message, field, &Reflection::SetEnumValue, &Reflection::AddEnumValue, number);
  return absl::OkStatus();
}

template <class Value>
absl::Status StoreInteger(Message& message, const FieldDescriptor& field, const std::string& text,
                          void (Reflection::*set)(Message*, const FieldDescriptor*, Value) const,
                          void (Reflection::*add)(Message*, const FieldDescriptor*, Value) const) {
  Value value = 0;
  // SimpleAtoi accepts blanks and a plus sign; JSON does not.
  const bool plain = text.find_first_not_of("-0123456789") == std::string::npos;
  if (!plain || !absl::SimpleAtoi(text, &value)) return BadValue(field, text);
  Store(message, field, set, add, value);
  return absl::OkStatus();
}

// A message whose JSON form is a string or a scalar.
absl::Status StoreMessage(Message& message, const FieldDescriptor& field, const std::string& text) {
  const Descriptor& type = *field.message_type();
  const std::string& name = type.full_name();
  const bool wrapper = type.file()->name() == "google/protobuf/wrappers.proto";
  if (!wrapper && name != "google.protobuf.Timestamp" && name != "google.protobuf.Duration" &&
      name != "google.protobuf.FieldMask") {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: it is a %s; name a field in it, like %s.x", field.name(), name, field.name()));
  }
  const Reflection& reflection = *message.GetReflection();
  Message* value = field.is_repeated() ? reflection.AddMessage(&message, &field)
                                       : reflection.MutableMessage(&message, &field);
  if (wrapper) return FieldBinder(*value).Set("value", text);
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) return BadValue(field, text);
    json.push_back(c);
  }
  json.push_back('"');
  if (!google::protobuf::util::JsonStringToMessage(json, value).ok()) return BadValue(field, text);
  return absl::OkStatus();
}

absl::Status StoreValue(Message& message, const FieldDescriptor& field, const std::string& text) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return StoreInteger<int32_t>(message, field, text, &Reflection::SetInt32,
                                   &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return StoreInteger<int64_t>(message, field, text, &Reflection::SetInt64,
                                   &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return StoreInteger<uint32_t>(message, field, text, &Reflection::SetUInt32,
                                    &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return StoreInteger<uint64_t>(message, field, text, &Reflection::SetUInt64,
                                    &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return StoreFloat(message, field, text);
    case FieldDescriptor::CPPTYPE_BOOL:
      if (text != "true" && text != "false") return BadValue(field, text);
      Store(message, field, &Reflection::SetBool, &Reflection::AddBool, text == "true");
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM:
      return StoreEnum(message, field, text);
    case FieldDescriptor::CPPTYPE_STRING:
      return StoreString(message, field, text);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return StoreMessage(message, field, text);
  }
  return BadValue(field, text);
}

}  // namespace

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseQuery(
    std::string_view query) {
  std::vector<std::pair<std::string, std::string>> parameters;
  while (!query.empty()) {
    const size_t ampersand = query.find('&');
    const std::string_view part = query.substr(0, ampersand);
    query = ampersand == std::string_view::npos ? "" : query.substr(ampersand + 1);
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    TANDEM_ASSIGN_OR_RETURN(std::string name, DecodeQueryPart(part.substr(0, equals)));
    const std::string_view raw = equals == std::string_view::npos ? "" : part.substr(equals + 1);
    TANDEM_ASSIGN_OR_RETURN(std::string value, DecodeQueryPart(raw));
    parameters.emplace_back(std::move(name), std::move(value));
  }
  return parameters;
}

absl::StatusOr<std::vector<const FieldDescriptor*>> FindFieldPath(const Descriptor& message,
                                                                  std::string_view path) {
  std::vector<const FieldDescriptor*> fields;
  const Descriptor* at = &message;
  for (const absl::string_view name :
       absl::StrSplit(absl::string_view(path.data(), path.size()), '.')) {
    const FieldDescriptor* found = nullptr;
    for (int i = 0; at != nullptr && i < at->field_count(); ++i) {
      const FieldDescriptor* field = at->field(i);
      if (field->name() == name || field->json_name() == name) found = field;
    }
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %s has no such field", ClientText(path), message.full_name()));
    }
    if (!fields.empty() && fields.back()->is_repeated()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: '%s' is repeated, so a path cannot name a field in it",
                          ClientText(path), fields.back()->name()));
    }
    fields.push_back(found);
    at = found->message_type();
  }
  return fields;
}

absl::Status FieldBinder::Forbid(std::string_view path) {
  TANDEM_ASSIGN_OR_RETURN(FieldPath fields, FindFieldPath(*message_.GetDescriptor(), path));
  forbidden_.insert(std::move(fields));
  return absl::OkStatus();
}

absl::Status FieldBinder::Set(std::string_view path, const std::string& text) {
  TANDEM_ASSIGN_OR_RETURN(FieldPath fields, FindFieldPath(*message_.GetDescriptor(), path));
  const std::string name(path);
  for (size_t n = 1; n <= fields.size(); ++n) {
    if (forbidden_.contains(
            FieldPath(fields.begin(), fields.begin() + static_cast<ptrdiff_t>(n)))) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: the path or the body sets it already", name));
    }
  }
  const FieldDescriptor& leaf = *fields.back();
  if (leaf.is_map()) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: a map must be in the body", name));
  }
  if (!leaf.is_repeated() && !set_.insert(fields).second) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: given twice", name));
  }
  Message* message = &message_;
  for (const FieldDescriptor* field : fields) {
    const Reflection& reflection = *message->GetReflection();
    if (const auto* oneof = field->real_containing_oneof(); oneof != nullptr) {
      const FieldDescriptor* other = reflection.GetOneofFieldDescriptor(*message, oneof);
      if (other != nullptr && other != field) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s: '%s' is set already, and only one of them may be", name, other->name()));
      }
    }
    if (field != fields.back()) message = reflection.MutableMessage(message, field);
  }
  return StoreValue(*message, leaf, text);
}

}  // namespace tandem::gateway

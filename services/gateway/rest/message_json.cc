#include "services/gateway/rest/message_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/api/json.h"

namespace tandem::gateway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Readers of encoded fields.  `bytes` come from the encoder of this process, so they are
// well-formed.

uint64_t TakeVarint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

template <class Value>
Value TakeFixed(std::string_view& bytes) {
  static_assert(std::endian::native == std::endian::little);
  Value value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  bytes.remove_prefix(sizeof(value));
  return value;
}

std::string_view TakeSized(std::string_view& bytes) {
  const auto size = static_cast<size_t>(TakeVarint(bytes));
  const std::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return taken;
}

template <class Integer>
Integer TakeZigzag(std::string_view& bytes) {
  const uint64_t value = TakeVarint(bytes);
  return static_cast<Integer>((value >> 1) ^ (~(value & 1) + 1));
}

// Whether `text` needs no escapes: printable ASCII without quotes and backslashes.
bool IsPlain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; });
}

void AppendText(std::string_view text, std::string& out) {
  if (IsPlain(text)) {
    out.append(1, '"').append(text).append(1, '"');
  } else {
    out += DumpJson(std::string(text));
  }
}

void AppendBase64(std::string_view bytes, std::string& out) {
  std::string base64;
  absl::Base64Escape(absl::string_view(bytes.data(), bytes.size()), &base64);
  out.append(1, '"').append(base64).append(1, '"');
}

// The shortest text that reads back as the same number.
template <class Number>
void AppendNumber(Number number, std::string& out) {
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), number).ptr;
  out.append(text, end);
}

// JSON readers hold numbers as doubles, which not all 64-bit integers fit.
template <class Integer>
void AppendLongInteger(Integer integer, std::string& out) {
  out.push_back('"');
  AppendNumber(integer, out);
  out.push_back('"');
}

template <class Float>
void AppendFloat(Float value, std::string& out) {
  if (std::isnan(value)) {
    out += "\"NaN\"";
  } else if (std::isinf(value)) {
    out += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else {
    AppendNumber(value, out);
  }
}

void AppendEnum(const FieldDescriptor& field, int number, std::string& out) {
  if (field.enum_type()->full_name() == "google.protobuf.NullValue") {
    out += "null";
  } else if (const EnumValueDescriptor* value = field.enum_type()->FindValueByNumber(number)) {
    AppendText(value->name(), out);
  } else {
    AppendNumber(number, out);
  }
}

absl::Status AppendMessage(std::string_view bytes, const Descriptor& type, std::string& out);

// Takes one value of `field` and appends it.
absl::Status AppendValue(std::string_view& bytes, const FieldDescriptor& field, std::string& out) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_DOUBLE:
      AppendFloat(TakeFixed<double>(bytes), out);
      break;
    case FieldDescriptor::TYPE_FLOAT:
      AppendFloat(TakeFixed<float>(bytes), out);
      break;
    case FieldDescriptor::TYPE_INT64:
      AppendLongInteger(static_cast<int64_t>(TakeVarint(bytes)), out);
      break;
    case FieldDescriptor::TYPE_UINT64:
      AppendLongInteger(TakeVarint(bytes), out);
      break;
    case FieldDescriptor::TYPE_SINT64:
      AppendLongInteger(TakeZigzag<int64_t>(bytes), out);
      break;
    case FieldDescriptor::TYPE_FIXED64:
      AppendLongInteger(TakeFixed<uint64_t>(bytes), out);
      break;
    case FieldDescriptor::TYPE_SFIXED64:
      AppendLongInteger(TakeFixed<int64_t>(bytes), out);
      break;
    case FieldDescriptor::TYPE_INT32:
      AppendNumber(static_cast<int32_t>(TakeVarint(bytes)), out);
      break;
    case FieldDescriptor::TYPE_UINT32:
      AppendNumber(static_cast<uint32_t>(TakeVarint(bytes)), out);
      break;
    case FieldDescriptor::TYPE_SINT32:
      AppendNumber(TakeZigzag<int32_t>(bytes), out);
      break;
    case FieldDescriptor::TYPE_FIXED32:
      AppendNumber(TakeFixed<uint32_t>(bytes), out);
      break;
    case FieldDescriptor::TYPE_SFIXED32:
      AppendNumber(TakeFixed<int32_t>(bytes), out);
      break;
    case FieldDescriptor::TYPE_BOOL:
      out += TakeVarint(bytes) != 0 ? "true" : "false";
      break;
    case FieldDescriptor::TYPE_ENUM:
      AppendEnum(field, static_cast<int>(TakeVarint(bytes)), out);
      break;
    case FieldDescriptor::TYPE_STRING:
      AppendText(TakeSized(bytes), out);
      break;
    case FieldDescriptor::TYPE_BYTES:
      AppendBase64(TakeSized(bytes), out);
      break;
    case FieldDescriptor::TYPE_MESSAGE:
      return AppendMessage(TakeSized(bytes), *field.message_type(), out);
    case FieldDescriptor::TYPE_GROUP:
      return absl::InternalError(
          absl::StrFormat("%s: groups have no JSON form", field.full_name()));
  }
  return absl::OkStatus();
}

// An entry of a map, which has a key and a value.  The key is a text in JSON, whatever its type.
absl::Status AppendEntry(std::string_view entry, const Descriptor& type, std::string& out) {
  const size_t begin = out.size();
  TakeVarint(entry);  // the tag
  TANDEM_RETURN_IF_ERROR(AppendValue(entry, *type.map_key(), out));
  if (out[begin] != '"') {
    out.insert(begin, 1, '"');
    out.push_back('"');
  }
  out.push_back(':');
  TakeVarint(entry);
  return AppendValue(entry, *type.map_value(), out);
}

// Takes what one tag brings: a value, an entry of a map, or packed numbers.
absl::Status AppendTagged(std::string_view& bytes, const FieldDescriptor& field, bool sized,
                          std::string& out) {
  if (!field.is_repeated()) return AppendValue(bytes, field, out);
  if (field.is_map()) return AppendEntry(TakeSized(bytes), *field.message_type(), out);
  if (!sized || !field.is_packable()) return AppendValue(bytes, field, out);
  std::string_view numbers = TakeSized(bytes);
  while (true) {
    TANDEM_RETURN_IF_ERROR(AppendValue(numbers, field, out));
    if (numbers.empty()) return absl::OkStatus();
    out.push_back(',');
  }
}

// A type with its own JSON form: google.protobuf.Timestamp and the like.
absl::Status AppendWellKnown(std::string_view bytes, const Descriptor& type, std::string& out) {
  const std::unique_ptr<Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
  std::string json;
  message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  const auto status = google::protobuf::util::MessageToJsonString(*message, &json);
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrFormat("%s has no JSON form: %s", type.full_name(),
                        std::string(status.message().data(), status.message().size())));
  }
  out += json;
  return absl::OkStatus();
}

absl::Status AppendMessage(std::string_view bytes, const Descriptor& type, std::string& out) {
  if (type.well_known_type() != Descriptor::WELLKNOWNTYPE_UNSPECIFIED) {
    return AppendWellKnown(bytes, type, out);
  }
  const auto end_list = [&out](const FieldDescriptor* list) {
    if (list != nullptr) out.push_back(list->is_map() ? '}' : ']');
  };
  char separator = '{';
  const FieldDescriptor* list = nullptr;  // the repeated field whose elements come now
  while (!bytes.empty()) {
    const auto tag = static_cast<uint32_t>(TakeVarint(bytes));
    const FieldDescriptor* field = type.FindFieldByNumber(static_cast<int>(tag >> 3));
    if (field == nullptr) {
      return absl::InternalError(absl::StrFormat("%s has no field %d", type.full_name(), tag >> 3));
    }
    if (field == list) {
      out.push_back(',');
    } else {
      end_list(list);
      list = field->is_repeated() ? field : nullptr;
      out.push_back(std::exchange(separator, ','));
      out.append(1, '"').append(field->json_name()).append("\":");  // names need no escapes
      if (list != nullptr) out.push_back(list->is_map() ? '{' : '[');
    }
    TANDEM_RETURN_IF_ERROR(AppendTagged(bytes, *field, (tag & 7) == 2, out));
  }
  end_list(list);
  out += separator == '{' ? "{}" : "}";
  return absl::OkStatus();
}

}  // namespace

absl::Status AppendMessageJson(const Message& message, std::string& out) {
  return AppendMessage(message.SerializeAsString(), *message.GetDescriptor(), out);
}

}  // namespace tandem::gateway

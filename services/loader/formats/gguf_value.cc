#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/loader/formats/gguf.h"
#include "services/loader/formats/printable.h"

namespace tandem::loader {
namespace {

constexpr std::string_view kTypeNames[kNumGgufTypes] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

template <typename T>
T LoadElement(const std::vector<std::byte>& bytes, uint64_t index) {
  TANDEM_CHECK(index < bytes.size() / sizeof(T));
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

bool IsInteger(GgufType type) {
  return type != GgufType::kF32 && type != GgufType::kF64 && type != GgufType::kBool &&
         type != GgufType::kString && type != GgufType::kArray;
}

absl::Status WrongType(std::string_view key, const GgufValue& value, std::string_view expected) {
  return FormatError(value.offset,
                     absl::StrFormat("%s: expected %s, file has %s", std::string(key),
                                     std::string(expected), std::string(GgufTypeName(value.type))));
}

std::string PrintNumber(GgufType type, const GgufValue& value, uint64_t index) {
  switch (type) {
    case GgufType::kBool:
      return value.Number(index) != 0 ? "true" : "false";
    case GgufType::kU64:
      return absl::StrFormat("%d", LoadElement<uint64_t>(value.numbers, index));
    case GgufType::kI64:
      return absl::StrFormat("%d", LoadElement<int64_t>(value.numbers, index));
    case GgufType::kF32:
    case GgufType::kF64:
      return absl::StrFormat("%.7g", value.Number(index));
    default:
      return absl::StrFormat("%.0f", value.Number(index));
  }
}

}  // namespace

std::string_view GgufTypeName(GgufType type) { return kTypeNames[static_cast<uint32_t>(type)]; }

double GgufValue::Number(uint64_t index) const {
  switch (type == GgufType::kArray ? element_type : type) {
    case GgufType::kU8:
    case GgufType::kBool:
      return LoadElement<uint8_t>(numbers, index);
    case GgufType::kI8:
      return LoadElement<int8_t>(numbers, index);
    case GgufType::kU16:
      return LoadElement<uint16_t>(numbers, index);
    case GgufType::kI16:
      return LoadElement<int16_t>(numbers, index);
    case GgufType::kU32:
      return LoadElement<uint32_t>(numbers, index);
    case GgufType::kI32:
      return LoadElement<int32_t>(numbers, index);
    case GgufType::kF32:
      return LoadElement<float>(numbers, index);
    case GgufType::kU64:
      return static_cast<double>(LoadElement<uint64_t>(numbers, index));
    case GgufType::kI64:
      return static_cast<double>(LoadElement<int64_t>(numbers, index));
    case GgufType::kF64:
      return LoadElement<double>(numbers, index);
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  TANDEM_CHECK(false);
}

const GgufValue* GgufHeader::Find(std::string_view key) const {
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [key](const GgufKey& entry) { return entry.name == key; });
  return found == keys.end() ? nullptr : &found->value;
}

absl::StatusOr<std::optional<uint64_t>> GgufHeader::Unsigned(std::string_view key,
                                                             uint64_t max) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!IsInteger(value->type)) return WrongType(key, *value, "an integer");
  // The callers' bounds lie far below 2^53, where doubles are exact.
  const double number = value->Number();
  if (number < 0 || number > static_cast<double>(max)) {
    return FormatError(value->offset, absl::StrFormat("%s is %.0f, must be in [0, %d]",
                                                      std::string(key), number, max));
  }
  return static_cast<uint64_t>(number);
}

absl::StatusOr<std::optional<float>> GgufHeader::Float(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kF32 && value->type != GgufType::kF64) {
    return WrongType(key, *value, "a float");
  }
  const auto number = static_cast<float>(value->Number());
  if (!std::isfinite(number)) {
    return FormatError(value->offset, absl::StrFormat("%s is not finite", std::string(key)));
  }
  return number;
}

absl::StatusOr<std::optional<bool>> GgufHeader::Bool(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kBool) return WrongType(key, *value, "a bool");
  return value->Number() != 0;
}

absl::StatusOr<std::optional<std::string>> GgufHeader::String(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) return WrongType(key, *value, "a string");
  return value->text;
}

std::string PrintGgufValue(const GgufValue& value, size_t max_length) {
  if (value.type == GgufType::kString) return Printable(value.text, max_length);
  if (value.type != GgufType::kArray) return PrintNumber(value.type, value, 0);
  std::string out =
      absl::StrFormat("[%s x %d]", std::string(GgufTypeName(value.element_type)), value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    if (out.size() >= max_length) return out + ", ...";
    out += i == 0 ? " " : ", ";
    if (value.element_type == GgufType::kString) {
      out += Printable(value.strings[i], 24);
    } else if (value.element_type == GgufType::kArray) {
      out += PrintGgufValue(value.arrays[i], 24);
    } else {
      out += PrintNumber(value.element_type, value, i);
    }
  }
  return out;
}

}  // namespace tandem::loader

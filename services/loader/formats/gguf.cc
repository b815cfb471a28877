#include "services/loader/formats/gguf.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/loader/formats/gguf_tensors.h"

namespace tandem::loader {
namespace {

// Limits that no real file comes near (a 262,144-piece vocabulary takes 7 MB of header).
constexpr uint64_t kMaxHeaderBytes = 64 << 20;
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 16;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxArrays = 1 << 16;  // in the whole file, nested ones included
constexpr int kMaxArrayDepth = 4;
constexpr uint32_t kMaxAlignment = 1 << 16;

constexpr uint64_t kTypeBytes[kNumGgufTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

std::string_view Quoted(std::string_view name) { return name.substr(0, 80); }

class GgufParser {
 public:
  explicit GgufParser(const ByteSource& source)
      : file_bytes_(source.size()), reader_(source, std::min(source.size(), kMaxHeaderBytes)) {}

  absl::StatusOr<GgufHeader> Parse();

 private:
  absl::Status ParsePreamble();
  absl::Status ParseKeys();
  absl::Status ReadAlignment();
  absl::StatusOr<GgufType> ReadType(std::string_view what);
  absl::Status ReadValue(GgufValue& value, int depth, std::string_view key);
  absl::Status ReadArray(GgufValue& value, int depth, std::string_view key);
  absl::Status ReadNumbers(GgufValue& value, GgufType type, uint64_t count, std::string_view key);

  uint64_t file_bytes_;
  ByteReader reader_;
  GgufHeader header_;
  uint64_t num_keys_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t num_arrays_ = 0;
};

absl::StatusOr<GgufHeader> GgufParser::Parse() {
  TANDEM_RETURN_IF_ERROR(ParsePreamble());
  TANDEM_RETURN_IF_ERROR(ParseKeys());
  TANDEM_RETURN_IF_ERROR(ReadAlignment());
  TANDEM_RETURN_IF_ERROR(ReadGgufTensors(reader_, file_bytes_, num_tensors_, header_));
  return std::move(header_);
}

absl::Status GgufParser::ParsePreamble() {
  TANDEM_ASSIGN_OR_RETURN(const std::string magic, reader_.ReadString(4, 4, "magic"));
  if (magic != "GGUF") return FormatError(0, "no GGUF file: it does not begin with \"GGUF\"");
  TANDEM_ASSIGN_OR_RETURN(header_.version, reader_.Read<uint32_t>("version"));
  if (header_.version == 0x02000000u || header_.version == 0x03000000u) {
    return FormatError(4, "the file is big-endian; only little-endian GGUF is supported");
  }
  if (header_.version != 2 && header_.version != 3) {
    return FormatError(
        4, absl::StrFormat("GGUF version %d; versions 2 and 3 are supported", header_.version));
  }
  TANDEM_ASSIGN_OR_RETURN(num_tensors_, reader_.Read<uint64_t>("tensor count"));
  TANDEM_ASSIGN_OR_RETURN(num_keys_, reader_.Read<uint64_t>("key count"));
  // The shortest key takes 13 bytes, the shortest tensor description 32.
  if (num_tensors_ > kMaxTensors || num_tensors_ > reader_.remaining() / 32) {
    return FormatError(8, absl::StrFormat("claims %d tensors; %d bytes are left (and at most %d "
                                          "tensors are accepted)",
                                          num_tensors_, reader_.remaining(), kMaxTensors));
  }
  if (num_keys_ > kMaxKeys || num_keys_ > reader_.remaining() / 13) {
    return FormatError(16, absl::StrFormat("claims %d keys; %d bytes are left (and at most %d "
                                           "keys are accepted)",
                                           num_keys_, reader_.remaining(), kMaxKeys));
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufType> GgufParser::ReadType(std::string_view what) {
  const uint64_t at = reader_.offset();
  TANDEM_ASSIGN_OR_RETURN(const uint32_t type, reader_.Read<uint32_t>(what));
  if (type >= kNumGgufTypes) {
    return FormatError(at, absl::StrFormat("%s: unknown value type %d", std::string(what), type));
  }
  return static_cast<GgufType>(type);
}

absl::Status GgufParser::ParseKeys() {
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < num_keys_; ++i) {
    GgufKey key;
    const uint64_t at = reader_.offset();
    TANDEM_ASSIGN_OR_RETURN(key.name, reader_.ReadSizedString(kMaxKeyBytes, "a key's name"));
    if (key.name.empty()) return FormatError(at, "a key's name is empty");
    const std::string what(Quoted(key.name));
    if (!seen.insert(key.name).second) {
      return FormatError(at, absl::StrFormat("key %s appears twice", what));
    }
    TANDEM_ASSIGN_OR_RETURN(key.value.type, ReadType(what));
    TANDEM_RETURN_IF_ERROR(ReadValue(key.value, 0, what));
    header_.keys.push_back(std::move(key));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadValue(GgufValue& value, int depth, std::string_view key) {
  value.offset = reader_.offset();
  if (value.type == GgufType::kString) {
    TANDEM_ASSIGN_OR_RETURN(value.text, reader_.ReadSizedString(kMaxHeaderBytes, key));
    return absl::OkStatus();
  }
  if (value.type == GgufType::kArray) return ReadArray(value, depth, key);
  return ReadNumbers(value, value.type, 1, key);
}

absl::Status GgufParser::ReadNumbers(GgufValue& value, GgufType type, uint64_t count,
                                     std::string_view key) {
  const uint64_t at = reader_.offset();
  const uint64_t element_bytes = kTypeBytes[static_cast<uint32_t>(type)];
  if (count > reader_.remaining() / element_bytes) {
    return FormatError(
        at, absl::StrFormat("%s: %d values of type %s, %d bytes are left", std::string(key), count,
                            std::string(GgufTypeName(type)), reader_.remaining()));
  }
  value.numbers.resize(count * element_bytes);
  TANDEM_RETURN_IF_ERROR(reader_.ReadBytes(value.numbers, key));
  if (type != GgufType::kBool) return absl::OkStatus();
  for (uint64_t i = 0; i < count; ++i) {
    if (value.numbers[i] > std::byte{1}) {
      return FormatError(at + i, absl::StrFormat("%s: a bool of value %d", std::string(key),
                                                 std::to_integer<int>(value.numbers[i])));
    }
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadArray(GgufValue& value, int depth, std::string_view key) {
  if (depth >= kMaxArrayDepth || ++num_arrays_ > kMaxArrays) {
    return FormatError(reader_.offset(),
                       absl::StrFormat("%s: arrays nested deeper than %d, or more than %d of them",
                                       std::string(key), kMaxArrayDepth, kMaxArrays));
  }
  TANDEM_ASSIGN_OR_RETURN(value.element_type, ReadType(key));
  const uint64_t count_at = reader_.offset();
  TANDEM_ASSIGN_OR_RETURN(value.count, reader_.Read<uint64_t>(key));
  if (value.element_type != GgufType::kString && value.element_type != GgufType::kArray) {
    return ReadNumbers(value, value.element_type, value.count, key);
  }
  // A string takes 8 bytes at least, an array 12.
  if (value.count > reader_.remaining() / 8) {
    return FormatError(count_at,
                       absl::StrFormat("%s: an array of %d, %d bytes are left", std::string(key),
                                       value.count, reader_.remaining()));
  }
  for (uint64_t i = 0; i < value.count; ++i) {
    if (value.element_type == GgufType::kString) {
      TANDEM_ASSIGN_OR_RETURN(std::string text, reader_.ReadSizedString(kMaxHeaderBytes, key));
      value.strings.push_back(std::move(text));
    } else {
      GgufValue nested;
      nested.type = GgufType::kArray;
      nested.offset = reader_.offset();
      TANDEM_RETURN_IF_ERROR(ReadArray(nested, depth + 1, key));
      value.arrays.push_back(std::move(nested));
    }
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadAlignment() {
  const GgufValue* value = header_.Find("general.alignment");
  if (value == nullptr) return absl::OkStatus();
  if (value->type != GgufType::kU32) {
    return FormatError(value->offset,
                       absl::StrFormat("general.alignment: expected u32, file has %s",
                                       std::string(GgufTypeName(value->type))));
  }
  const auto alignment = static_cast<uint64_t>(value->Number());
  if (alignment < 8 || alignment > kMaxAlignment || !std::has_single_bit(alignment)) {
    return FormatError(value->offset,
                       absl::StrFormat("general.alignment is %d, must be a power of two in [8, %d]",
                                       alignment, kMaxAlignment));
  }
  header_.alignment = static_cast<uint32_t>(alignment);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GgufHeader> ParseGguf(const ByteSource& source) {
  return GgufParser(source).Parse();
}

}  // namespace tandem::loader

// Protocol buffers' wire format, read without a schema compiler: fields of one message in turn.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/loader/formats/byte_source.h"

namespace tandem::loader {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct WireField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;      // varints and fixed-size values
  std::string_view bytes;  // kBytes: within the message
  uint64_t offset = 0;     // of the field in the file

  float AsFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
};

// Single-thread.  `bytes` is borrowed and begins at `offset` in its file.
class WireReader {
 public:
  WireReader(std::string_view bytes, uint64_t offset) : bytes_(bytes), offset_(offset) {}

  bool done() const { return at_ == bytes_.size(); }
  // Offset in the file of a part of the message.
  uint64_t OffsetOf(std::string_view part) const {
    return offset_ + static_cast<uint64_t>(part.data() - bytes_.data());
  }

  // REQUIRES !done().  INVALID_ARGUMENT: a varint over 64 bits, groups, lengths past the end.
  absl::StatusOr<WireField> Next() {
    WireField field;
    field.offset = offset_ + at_;
    TANDEM_ASSIGN_OR_RETURN(const uint64_t tag, Varint());
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) return Error(field, "bad field number");
    field.number = static_cast<uint32_t>(tag >> 3);
    field.type = static_cast<WireType>(tag & 7);
    switch (field.type) {
      case WireType::kVarint: {
        TANDEM_ASSIGN_OR_RETURN(field.value, Varint());
        return field;
      }
      case WireType::kFixed64:
      case WireType::kFixed32: {
        const size_t width = field.type == WireType::kFixed64 ? 8 : 4;
        if (width > bytes_.size() - at_) return Error(field, "value cut short");
        std::memcpy(&field.value, bytes_.data() + at_, width);
        at_ += width;
        return field;
      }
      case WireType::kBytes: {
        TANDEM_ASSIGN_OR_RETURN(const uint64_t length, Varint());
        if (length > bytes_.size() - at_) {
          return Error(
              field, absl::StrFormat("length %d, %d bytes are left", length, bytes_.size() - at_));
        }
        field.bytes = bytes_.substr(at_, length);
        at_ += length;
        return field;
      }
    }
    return Error(field, absl::StrFormat("wire type %d", tag & 7));
  }

 private:
  static absl::Status Error(const WireField& field, const std::string& reason) {
    return FormatError(field.offset, absl::StrFormat("field %d: %s", field.number, reason));
  }

  absl::StatusOr<uint64_t> Varint() {
    uint64_t value = 0;
    const uint64_t start = offset_ + at_;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) return FormatError(start, "number cut short");
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return FormatError(start, "number over 64 bits");
  }

  std::string_view bytes_;
  uint64_t offset_;
  size_t at_ = 0;
};

}  // namespace tandem::loader

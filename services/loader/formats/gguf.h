// The header of a GGUF file, versions 2 and 3, checked but not interpreted.
//
//   file     = "GGUF" u32:version u64:num_tensors u64:num_keys key* tensor* pad data
//   key      = string:name u32:type value
//   value    = u8 | i8 | u16 | i16 | u32 | i32 | f32 | bool | string | array | u64 | i64 | f64
//   string   = u64:length byte*
//   array    = u32:element_type u64:count value*
//   tensor   = string:name u32:num_dims u64:dims* u32:type u64:offset
//
// Little-endian.  dims[0] is the fastest dimension (columns).  A tensor's offset counts from the
// start of `data`, which begins at the next multiple of general.alignment (default 32).
// Source: the GGUF specification in ggml's docs/gguf.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/tensor/dtype.h"
#include "services/loader/formats/byte_source.h"

namespace tandem::loader {

enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
inline constexpr uint32_t kNumGgufTypes = 13;

std::string_view GgufTypeName(GgufType type);

// One value; which members are used depends on `type` and, for arrays, on `element_type`.
struct GgufValue {
  GgufType type = GgufType::kU8;
  uint64_t offset = 0;             // of the value in the file
  std::vector<std::byte> numbers;  // a scalar, or an array's numbers and bools, as in the file
  std::string text;
  GgufType element_type = GgufType::kU8;
  uint64_t count = 0;  // elements of an array
  std::vector<std::string> strings;
  std::vector<GgufValue> arrays;

  // Element `index` of an array of numbers or bools (index 0: a scalar) as a double; exact for
  // all but 64-bit integers past 2^53.  REQUIRES index < count, or a scalar and index 0.
  double Number(uint64_t index = 0) const;
};

struct GgufKey {
  std::string name;
  GgufValue value;
};

struct GgufTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> dims;  // 1 to 4, fastest first, each at least 1
  uint64_t info_offset = 0;    // of its description in the file
  uint64_t file_offset = 0;    // of its data in the file
  uint64_t num_bytes = 0;
};

struct GgufHeader {
  uint32_t version = 0;
  uint32_t alignment = 32;
  uint64_t data_offset = 0;
  std::vector<GgufKey> keys;        // in file order, names unique
  std::vector<GgufTensor> tensors;  // in file order, names unique, inside the file, disjoint

  const GgufValue* Find(std::string_view key) const;
  // Typed look-ups: nullopt for an absent key, INVALID_ARGUMENT naming key, offset and type for a
  // value of another type or outside the range.
  absl::StatusOr<std::optional<uint64_t>> Unsigned(std::string_view key, uint64_t max) const;
  absl::StatusOr<std::optional<float>> Float(std::string_view key) const;
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string>> String(std::string_view key) const;
};

// INVALID_ARGUMENT "at byte N: reason".  Memory stays in proportion to the bytes really there:
// nothing is allocated by a count or a length before as many bytes have been seen to exist.
absl::StatusOr<GgufHeader> ParseGguf(const ByteSource& source);

// At most `max_length` characters of a value, for people; arrays as "[string x 4096] a, b, ...".
std::string PrintGgufValue(const GgufValue& value, size_t max_length);

}  // namespace tandem::loader

// Writes GGUF files for tests, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/loader/formats/gguf.h"

namespace tandem::loader::testing {

// The bytes of a number.
template <typename T>
std::string Packed(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
// A GGUF string: length, then bytes.
std::string PackedString(std::string_view text);
// A GGUF array of numbers.
template <typename T>
std::string PackedArray(GgufType element_type, const std::vector<T>& values) {
  std::string bytes = Packed(static_cast<uint32_t>(element_type)) + Packed(uint64_t{values.size()});
  for (const T value : values) bytes += Packed(value);
  return bytes;
}

struct GgufBuilder {
  struct Key {
    std::string name;
    uint32_t type = 0;
    std::string value;  // as in the file
  };
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // fastest first
    uint32_t type = 0;           // ggml's number
    std::string data;
    std::optional<uint64_t> claimed_offset;  // instead of the right one
  };

  uint32_t version = 3;
  uint64_t alignment = 32;  // of the data; does not write the key
  std::optional<uint64_t> claimed_num_keys;
  std::optional<uint64_t> claimed_num_tensors;
  std::vector<Key> keys;
  std::vector<Tensor> tensors;

  // Each replaces the key of that name or appends one.
  void Set(const std::string& name, GgufType type, std::string value);
  void SetString(const std::string& name, std::string_view value);
  void SetU32(const std::string& name, uint32_t value);
  void SetF32(const std::string& name, float value);
  void SetBool(const std::string& name, bool value);
  void SetStrings(const std::string& name, const std::vector<std::string>& values);
  void SetF32s(const std::string& name, const std::vector<float>& values);
  void SetI32s(const std::string& name, const std::vector<int32_t>& values);
  void RemoveKey(const std::string& name);
  void RemoveTensor(const std::string& name);
  // REQUIRES there is one.
  Tensor& FindTensor(const std::string& name);

  std::string Build() const;
};

// A whole Gemma 3 model of under 5 KB: one layer, hidden and FFN size 8, 2 heads and 1 KV head of
// 8, float16 matrices, float32 norms, 10 pieces.  Tensor data counts up from 0, byte by byte.
GgufBuilder SmallGguf();

// The pieces of that model, and of SmallRelease.
struct SmallPiece {
  std::string piece;
  float score = 0;
  int32_t type = 1;
};
std::vector<SmallPiece> SmallPieces();

}  // namespace tandem::loader::testing

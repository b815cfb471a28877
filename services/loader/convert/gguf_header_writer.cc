#include "services/loader/convert/gguf_header_writer.h"

#include <bit>
#include <utility>

#include "services/loader/formats/ggml_types.h"
#include "services/loader/formats/gguf.h"

namespace tandem::loader {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendText(std::string& bytes, std::string_view text) {
  Append(bytes, uint64_t{text.size()});
  bytes.append(text);
}

void AppendType(std::string& bytes, GgufType type) { Append(bytes, static_cast<uint32_t>(type)); }

void AppendKey(std::string& bytes, std::string_view key, GgufType type) {
  AppendText(bytes, key);
  AppendType(bytes, type);
}

void AppendArrayKey(std::string& bytes, std::string_view key, GgufType element, size_t count) {
  AppendKey(bytes, key, GgufType::kArray);
  AppendType(bytes, element);
  Append(bytes, uint64_t{count});
}

uint64_t AlignUp(uint64_t value) {
  constexpr uint64_t kAlignment = GgufHeaderWriter::kAlignment;
  return (value + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void GgufHeaderWriter::AddString(std::string_view key, std::string_view value) {
  AppendKey(keys_, key, GgufType::kString);
  AppendText(keys_, value);
  ++num_keys_;
}

void GgufHeaderWriter::AddU32(std::string_view key, uint32_t value) {
  AppendKey(keys_, key, GgufType::kU32);
  Append(keys_, value);
  ++num_keys_;
}

void GgufHeaderWriter::AddF32(std::string_view key, float value) {
  AppendKey(keys_, key, GgufType::kF32);
  Append(keys_, value);
  ++num_keys_;
}

void GgufHeaderWriter::AddBool(std::string_view key, bool value) {
  AppendKey(keys_, key, GgufType::kBool);
  Append(keys_, static_cast<uint8_t>(value));
  ++num_keys_;
}

void GgufHeaderWriter::AddStrings(std::string_view key, const std::vector<std::string>& values) {
  AppendArrayKey(keys_, key, GgufType::kString, values.size());
  for (const std::string& value : values) AppendText(keys_, value);
  ++num_keys_;
}

void GgufHeaderWriter::AddF32s(std::string_view key, const std::vector<float>& values) {
  AppendArrayKey(keys_, key, GgufType::kF32, values.size());
  for (const float value : values) Append(keys_, value);
  ++num_keys_;
}

void GgufHeaderWriter::AddI32s(std::string_view key, const std::vector<int32_t>& values) {
  AppendArrayKey(keys_, key, GgufType::kI32, values.size());
  for (const int32_t value : values) Append(keys_, value);
  ++num_keys_;
}

void GgufHeaderWriter::AddBools(std::string_view key, const std::vector<bool>& values) {
  AppendArrayKey(keys_, key, GgufType::kBool, values.size());
  for (const bool value : values) Append(keys_, static_cast<uint8_t>(value));
  ++num_keys_;
}

void GgufHeaderWriter::AddTensor(std::string name, std::vector<uint64_t> dims, DType dtype,
                                 uint64_t num_bytes) {
  const uint64_t offset = AlignUp(data_bytes_);
  entries_.push_back({std::move(name), std::move(dims), dtype, offset, num_bytes});
  data_bytes_ = offset + num_bytes;
}

std::string GgufHeaderWriter::Build() const {
  std::string bytes = "GGUF";
  Append(bytes, uint32_t{3});
  Append(bytes, uint64_t{entries_.size()});
  Append(bytes, num_keys_);
  bytes += keys_;
  for (const GgufEntry& entry : entries_) {
    AppendText(bytes, entry.name);
    Append(bytes, static_cast<uint32_t>(entry.dims.size()));
    for (const uint64_t dim : entry.dims) Append(bytes, dim);
    Append(bytes, GgmlOfDType(entry.dtype));
    Append(bytes, entry.offset);
  }
  bytes.resize(AlignUp(bytes.size()));
  return bytes;
}

}  // namespace tandem::loader

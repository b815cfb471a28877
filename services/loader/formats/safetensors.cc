#include "services/loader/formats/safetensors.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_format.h"
#include "services/loader/formats/json.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kMaxJsonHeaderBytes = 100'000'000;
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

struct StoredType {
  std::string_view name;
  uint32_t bytes;
  std::optional<DType> dtype;  // the decoder's own
};
constexpr StoredType kStoredTypes[] = {
    {"BF16", 2, DType::kBf16},    {"F16", 2, DType::kF16},      {"F32", 4, DType::kF32},
    {"F64", 8, std::nullopt},     {"BOOL", 1, std::nullopt},    {"U8", 1, std::nullopt},
    {"I8", 1, std::nullopt},      {"F8_E4M3", 1, std::nullopt}, {"F8_E5M2", 1, std::nullopt},
    {"F8_E8M0", 1, std::nullopt}, {"U16", 2, std::nullopt},     {"I16", 2, std::nullopt},
    {"U32", 4, std::nullopt},     {"I32", 4, std::nullopt},     {"U64", 8, std::nullopt},
    {"I64", 8, std::nullopt},
};

// Where a tensor's name stands in the header, for messages; the header's start when not found.
uint64_t OffsetOfName(std::string_view header, std::string_view name) {
  const size_t at = header.find(absl::StrFormat("\"%s\"", std::string(name)));
  return 8 + (at == std::string_view::npos ? 0 : at);
}

class TensorReader {
 public:
  TensorReader(std::string_view header, uint64_t data_offset, uint64_t data_bytes)
      : header_(header), data_offset_(data_offset), data_bytes_(data_bytes) {}

  absl::StatusOr<FileTensor> Read(const std::string& name, const nlohmann::json& entry) const {
    FileTensor tensor;
    tensor.name = name;
    for (const auto& [key, unused] : entry.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        return Error(name, absl::StrFormat("unknown member \"%s\"", key.substr(0, 40)));
      }
    }
    const absl::StatusOr<uint64_t> element_bytes = ReadType(entry, tensor);
    if (!element_bytes.ok()) return Error(name, MessageOf(element_bytes.status()));
    const absl::StatusOr<uint64_t> num_bytes = ReadShape(entry, *element_bytes, tensor);
    if (!num_bytes.ok()) return Error(name, MessageOf(num_bytes.status()));
    tensor.num_bytes = *num_bytes;
    const absl::Status placed = ReadOffsets(entry, tensor);
    if (!placed.ok()) return Error(name, MessageOf(placed));
    return tensor;
  }

  absl::Status Error(std::string_view name, std::string_view reason) const {
    return FormatError(
        OffsetOfName(header_, name),
        absl::StrFormat("tensor %s: %s", std::string(name.substr(0, 120)), std::string(reason)));
  }

 private:
  static absl::StatusOr<uint64_t> ReadType(const nlohmann::json& entry, FileTensor& tensor) {
    TANDEM_ASSIGN_OR_RETURN(const auto name, JsonString(entry, "dtype"));
    if (!name.has_value()) return absl::InvalidArgumentError("dtype is missing");
    for (const StoredType& type : kStoredTypes) {
      if (type.name != *name) continue;
      tensor.dtype = type.dtype;
      tensor.dtype_name = *name;
      return type.bytes;
    }
    return absl::InvalidArgumentError(absl::StrFormat("unknown dtype \"%s\"", name->substr(0, 40)));
  }

  static absl::StatusOr<uint64_t> ReadShape(const nlohmann::json& entry, uint64_t element_bytes,
                                            FileTensor& tensor) {
    const nlohmann::json* shape = JsonMember(entry, "shape");
    if (shape == nullptr || !shape->is_array()) {
      return absl::InvalidArgumentError("shape is missing or no array");
    }
    if (shape->size() > 8) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%d dimensions, at most 8 are accepted", shape->size()));
    }
    uint64_t num_bytes = element_bytes;
    for (const nlohmann::json& dim : *shape) {
      if (!dim.is_number_unsigned()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("dimension %s is no natural number", PrintJson(dim, 40)));
      }
      const auto value = dim.get<uint64_t>();
      if (value != 0 && num_bytes > static_cast<uint64_t>(kMaxInt64) / value) {
        return absl::InvalidArgumentError(
            absl::StrFormat("the byte size of shape %s overflows", PrintJson(*shape, 80)));
      }
      num_bytes *= value;
      tensor.shape.push_back(value);
    }
    return num_bytes;
  }

  absl::Status ReadOffsets(const nlohmann::json& entry, FileTensor& tensor) const {
    const nlohmann::json* offsets = JsonMember(entry, "data_offsets");
    if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
        !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
      return absl::InvalidArgumentError("data_offsets is not two natural numbers");
    }
    const auto begin = (*offsets)[0].get<uint64_t>();
    const auto end = (*offsets)[1].get<uint64_t>();
    if (begin > end || end > data_bytes_) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "data_offsets [%d, %d) do not lie in the data's %d bytes", begin, end, data_bytes_));
    }
    if (end - begin != tensor.num_bytes) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "shape and dtype make %d bytes, data_offsets %d", tensor.num_bytes, end - begin));
    }
    tensor.file_offset = data_offset_ + begin;
    return absl::OkStatus();
  }

  std::string_view header_;
  uint64_t data_offset_;
  uint64_t data_bytes_;
};

absl::Status ReadMetadata(const nlohmann::json& metadata, SafetensorsHeader& out) {
  if (!metadata.is_object()) return FormatError(8, "__metadata__ is no object");
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) {
      return FormatError(8, absl::StrFormat("__metadata__ \"%s\" is no string", key.substr(0, 80)));
    }
    out.metadata.emplace_back(key, value.get<std::string>());
  }
  return absl::OkStatus();
}

// Tensors in order of offset: each must begin where the one before it ends.
absl::Status CheckCoverage(const TensorReader& reader, const std::vector<FileTensor>& tensors,
                           uint64_t data_offset, uint64_t file_bytes) {
  uint64_t next = data_offset;
  for (const FileTensor& tensor : tensors) {
    if (tensor.file_offset != next) {
      return reader.Error(
          tensor.name,
          absl::StrFormat("its data begins at byte %d, %s the tensor before it, "
                          "which ends at %d",
                          tensor.file_offset,
                          tensor.file_offset < next ? "inside" : "with a hole after", next));
    }
    next += tensor.num_bytes;
  }
  if (next == file_bytes) return absl::OkStatus();
  return FormatError(next, absl::StrFormat("%d bytes belong to no tensor", file_bytes - next));
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensors(const ByteSource& source) {
  ByteReader reader(source, source.size());
  TANDEM_ASSIGN_OR_RETURN(const uint64_t header_bytes, reader.Read<uint64_t>("header length"));
  if (header_bytes > kMaxJsonHeaderBytes || header_bytes > reader.remaining()) {
    return FormatError(0, absl::StrFormat("a header of %d bytes; %d are left (and at most %d are "
                                          "accepted)",
                                          header_bytes, reader.remaining(), kMaxJsonHeaderBytes));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string text,
                          reader.ReadString(header_bytes, kMaxJsonHeaderBytes, "header"));
  if (!text.starts_with('{')) return FormatError(8, "the header does not begin with '{'");
  absl::StatusOr<nlohmann::json> document = ParseJson(text);
  if (!document.ok()) return InFile("in the header that begins at byte 8", document.status());

  SafetensorsHeader header;
  header.data_offset = 8 + header_bytes;
  const TensorReader tensors(text, header.data_offset, source.size() - header.data_offset);
  for (const auto& [name, entry] : document->items()) {
    if (name == "__metadata__") {
      TANDEM_RETURN_IF_ERROR(ReadMetadata(entry, header));
      continue;
    }
    if (!entry.is_object()) return tensors.Error(name, "its description is no object");
    TANDEM_ASSIGN_OR_RETURN(FileTensor tensor, tensors.Read(name, entry));
    header.tensors.push_back(std::move(tensor));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const FileTensor& a, const FileTensor& b) {
              return std::pair(a.file_offset, a.num_bytes) < std::pair(b.file_offset, b.num_bytes);
            });
  TANDEM_RETURN_IF_ERROR(CheckCoverage(tensors, header.tensors, header.data_offset, source.size()));
  return header;
}

}  // namespace tandem::loader

#include "services/loader/formats/gguf_tensors.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/loader/formats/ggml_types.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kMaxTensorNameBytes = 64;  // the format's own limit

// The dimensions; their product in `num_elements`, which fits 62 bits.
absl::Status ReadDims(ByteReader& reader, GgufTensor& tensor, uint64_t& num_elements) {
  const uint64_t dims_at = reader.offset();
  TANDEM_ASSIGN_OR_RETURN(const uint32_t num_dims, reader.Read<uint32_t>(tensor.name));
  if (num_dims < 1 || num_dims > 4) {
    return FormatError(dims_at, absl::StrFormat("tensor %s has %d dimensions, must have 1 to 4",
                                                tensor.name, num_dims));
  }
  num_elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    const uint64_t at = reader.offset();
    TANDEM_ASSIGN_OR_RETURN(const uint64_t dim, reader.Read<uint64_t>(tensor.name));
    // Signed 64-bit is the bound of the format's other readers; bytes are checked below.
    if (dim == 0 || dim > (uint64_t{1} << 62) / num_elements) {
      return FormatError(at, absl::StrFormat("tensor %s: dimension %d of %d is zero or overflows",
                                             tensor.name, i, dim));
    }
    num_elements *= dim;
    tensor.dims.push_back(dim);
  }
  return absl::OkStatus();
}

absl::Status ReadTensor(ByteReader& reader, uint64_t file_bytes, GgufTensor& tensor) {
  tensor.info_offset = reader.offset();
  TANDEM_ASSIGN_OR_RETURN(tensor.name,
                          reader.ReadSizedString(kMaxTensorNameBytes, "a tensor's name"));
  if (tensor.name.empty()) return FormatError(tensor.info_offset, "a tensor's name is empty");
  const uint64_t dims_at = reader.offset();
  uint64_t num_elements = 0;
  TANDEM_RETURN_IF_ERROR(ReadDims(reader, tensor, num_elements));
  const uint64_t type_at = reader.offset();
  TANDEM_ASSIGN_OR_RETURN(const uint32_t type, reader.Read<uint32_t>(tensor.name));
  const std::optional<DType> dtype = DTypeOfGgml(type);
  if (!dtype.has_value()) {
    return FormatError(
        type_at,
        absl::StrFormat("tensor %s has type %s; requantise the model to one that is supported: %s",
                        tensor.name, GgmlTypeName(type), SupportedGgmlTypes()));
  }
  tensor.dtype = *dtype;
  const DTypeTraits& traits = Traits(tensor.dtype);
  if (tensor.dims[0] % traits.block_elements != 0) {
    return FormatError(
        dims_at,
        absl::StrFormat("tensor %s: rows of %d are no multiple of %s's block of %d", tensor.name,
                        tensor.dims[0], std::string(traits.name), traits.block_elements));
  }
  const uint64_t num_blocks = num_elements / traits.block_elements;
  if (num_blocks > file_bytes / traits.block_bytes) {
    return FormatError(
        dims_at, absl::StrFormat("tensor %s: %d elements of %s do not fit a file of "
                                 "%d bytes",
                                 tensor.name, num_elements, std::string(traits.name), file_bytes));
  }
  tensor.num_bytes = num_blocks * traits.block_bytes;
  // Relative to the data's start until PlaceTensors adds that.
  TANDEM_ASSIGN_OR_RETURN(tensor.file_offset, reader.Read<uint64_t>(tensor.name));
  return absl::OkStatus();
}

// Turns offsets within the data into offsets in the file; checks bounds, alignment and overlaps.
absl::Status PlaceTensors(uint64_t header_end, uint64_t size, GgufHeader& header) {
  const uint64_t alignment = header.alignment;
  header.data_offset = (header_end + alignment - 1) / alignment * alignment;
  std::vector<const GgufTensor*> by_offset;
  for (GgufTensor& tensor : header.tensors) {
    const uint64_t relative = tensor.file_offset;
    if (relative % alignment != 0) {
      return FormatError(tensor.info_offset,
                         absl::StrFormat("tensor %s: offset %d is no multiple of the alignment %d",
                                         tensor.name, relative, alignment));
    }
    if (header.data_offset > size || relative > size - header.data_offset ||
        tensor.num_bytes > size - header.data_offset - relative) {
      return FormatError(
          tensor.info_offset,
          absl::StrFormat("tensor %s: %d bytes at offset %d of the data, which starts at %d, end "
                          "past the file's %d bytes",
                          tensor.name, tensor.num_bytes, relative, header.data_offset, size));
    }
    tensor.file_offset = header.data_offset + relative;
    by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->file_offset < b->file_offset;
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& before = *by_offset[i - 1];
    if (before.file_offset + before.num_bytes > by_offset[i]->file_offset) {
      return FormatError(by_offset[i]->info_offset,
                         absl::StrFormat("tensors %s and %s overlap in the data", before.name,
                                         by_offset[i]->name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadGgufTensors(ByteReader& reader, uint64_t file_bytes, uint64_t num_tensors,
                             GgufHeader& header) {
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < num_tensors; ++i) {
    GgufTensor tensor;
    TANDEM_RETURN_IF_ERROR(ReadTensor(reader, file_bytes, tensor));
    if (!seen.insert(tensor.name).second) {
      return FormatError(tensor.info_offset,
                         absl::StrFormat("tensor %s appears twice", tensor.name));
    }
    header.tensors.push_back(std::move(tensor));
  }
  return PlaceTensors(reader.offset(), file_bytes, header);
}

}  // namespace tandem::loader

// A GGUF file from its first byte to the model it describes.
#include <cstddef>
#include <cstdint>
#include <span>

#include "services/common/base/check.h"
#include "services/loader/formats/gguf.h"
#include "services/loader/formats/gguf_model.h"

namespace tandem::loader {
namespace {

void CheckHeader(const GgufHeader& header, uint64_t size) {
  for (const GgufTensor& tensor : header.tensors) {
    TANDEM_CHECK(tensor.file_offset >= header.data_offset);
    TANDEM_CHECK(tensor.num_bytes <= size && tensor.file_offset <= size - tensor.num_bytes);
  }
  for (const GgufKey& key : header.keys) PrintGgufValue(key.value, 100);
}

void CheckModel(const OpenedModel& model) {
  TANDEM_CHECK(model.config.Validate().ok());
  TANDEM_CHECK(model.vocabulary.pieces.size() == model.config.vocab_size);
  for (const SourceTensor& tensor : model.tensors) {
    TANDEM_CHECK(tensor.shape.rows * RowBytes(tensor.dtype, tensor.shape.cols) == tensor.num_bytes);
  }
}

}  // namespace
}  // namespace tandem::loader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::loader;
  const auto header = ParseGguf(SpanSource(std::as_bytes(std::span(data, size))));
  if (!header.ok()) return 0;
  CheckHeader(*header, size);
  const auto model = InterpretGguf(*header);
  if (model.ok()) CheckModel(*model);
  return 0;
}

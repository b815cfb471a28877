// mmproj files, from their first byte to the encoder they describe.
#include <cstddef>
#include <cstdint>
#include <span>

#include "services/common/base/check.h"
#include "services/loader/vision/vision_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const auto header = loader::ParseGguf(loader::SpanSource(std::as_bytes(std::span(data, size))));
  if (!header.ok()) return 0;
  const auto source = loader::InterpretVisionGguf(*header);
  if (!source.ok()) return 0;
  TANDEM_CHECK(source->config.Validate().ok());
  for (const loader::VisionTensor& tensor : source->tensors) {
    TANDEM_CHECK(tensor.shape.rows * RowBytes(tensor.dtype, tensor.shape.cols) == tensor.num_bytes);
    TANDEM_CHECK(tensor.file_offset <= size && tensor.num_bytes <= size - tensor.file_offset);
  }
  loader::DescribeVisionSource(*source);
  return 0;
}

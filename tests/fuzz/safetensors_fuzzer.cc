// The header of a safetensors file, and the choice of the decoder's tensors out of it.
#include <cstddef>
#include <cstdint>
#include <span>

#include "services/common/base/check.h"
#include "services/loader/formats/decoder_tensors.h"
#include "services/loader/formats/hf_config.h"
#include "services/loader/formats/safetensors.h"

namespace tandem::loader {
namespace {

ModelConfig SmallConfig() {
  const nlohmann::json config = {
      {"model_type", "gemma3_text"}, {"vocab_size", 10},       {"hidden_size", 8},
      {"intermediate_size", 8},      {"num_hidden_layers", 1}, {"num_attention_heads", 2},
      {"num_key_value_heads", 1},    {"head_dim", 8}};
  return ReadReleaseConfig(config, nlohmann::json())->model;
}

}  // namespace
}  // namespace tandem::loader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::loader;
  static const tandem::ModelConfig config = SmallConfig();
  const auto header = ParseSafetensors(SpanSource(std::as_bytes(std::span(data, size))));
  if (!header.ok()) return 0;
  uint64_t next = header->data_offset;
  for (const FileTensor& tensor : header->tensors) {
    TANDEM_CHECK(tensor.file_offset == next);
    next += tensor.num_bytes;
  }
  TANDEM_CHECK(next == size);
  for (const bool tied : {false, true}) {
    const auto decoder =
        SelectDecoderTensors(config, header->tensors, NameStyle::kSafetensors, tied);
    if (!decoder.ok()) continue;
    for (const SourceTensor& tensor : decoder->tensors) {
      TANDEM_CHECK(tensor.shape.rows * RowBytes(tensor.dtype, tensor.shape.cols) ==
                   tensor.num_bytes);
    }
  }
  return 0;
}

// SentencePiece's tokenizer.model, up to the vocabulary.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "services/common/base/check.h"
#include "services/loader/formats/tokenizer_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::loader;
  auto model = ParseTokenizerModel({reinterpret_cast<const char*>(data), size});
  if (!model.ok()) return 0;
  const uint64_t num_pieces = model->num_pieces;
  const auto vocabulary = std::move(model->vocabulary).Finish(num_pieces);
  TANDEM_CHECK(vocabulary.ok());
  TANDEM_CHECK(vocabulary->pieces.size() == num_pieces);
  TANDEM_CHECK(vocabulary->types.size() == num_pieces);
  TANDEM_CHECK(model->bos_id < static_cast<int64_t>(num_pieces));
  return 0;
}

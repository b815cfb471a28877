#include "services/gateway/tokenizer/testing/sentencepiece_oracle.h"

#include <sentencepiece_processor.h>

namespace tandem::gateway {

struct SentencePieceOracle::Library {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceOracle::SentencePieceOracle() : library_(std::make_unique<Library>()) {}
SentencePieceOracle::~SentencePieceOracle() = default;

std::unique_ptr<SentencePieceOracle> SentencePieceOracle::Create(std::string_view model) {
  std::unique_ptr<SentencePieceOracle> oracle(new SentencePieceOracle);
  if (!oracle->library_->processor.LoadFromSerializedProto(model).ok()) return nullptr;
  return oracle;
}

std::vector<int> SentencePieceOracle::Encode(std::string_view text) const {
  std::vector<int> ids;
  library_->processor.Encode(text, &ids).IgnoreError();
  return ids;
}

}  // namespace tandem::gateway

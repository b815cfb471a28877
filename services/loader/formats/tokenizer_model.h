// SentencePiece's tokenizer.model: a serialised ModelProto.  Its pieces are read and its settings
// checked.
//
//   ModelProto      pieces = 1 (repeated message), trainer_spec = 2, normalizer_spec = 3
//   SentencePiece   piece = 1 (string), score = 2 (float), type = 3 (enum)
//   TrainerSpec     model_type = 3 (enum, BPE is 2), byte_fallback = 35, bos_id = 41, eos_id = 42
//   NormalizerSpec  add_dummy_prefix = 3, remove_extra_whitespaces = 4
//
// Source: sentencepiece_model.proto.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/loader/formats/vocabulary_builder.h"

namespace tandem::loader {

struct TokenizerModel {
  VocabularyBuilder vocabulary;
  uint64_t num_pieces = 0;
  int32_t bos_id = 1;  // the proto's defaults; -1: none
  int32_t eos_id = 2;
};

// INVALID_ARGUMENT "at byte N: reason": bad wire format, bad pieces, no pieces, more than 2^22, or
// settings that Gemma's tokenizer does not have (anything but BPE, a dummy prefix).
absl::StatusOr<TokenizerModel> ParseTokenizerModel(std::string_view bytes);

}  // namespace tandem::loader

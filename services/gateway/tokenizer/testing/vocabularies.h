// Vocabularies for tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "services/common/model/vocabulary.h"

namespace tandem::gateway {

// Appends a piece.
void AddPiece(Vocabulary& vocabulary, std::string_view piece, TokenType type, float score = 0.0f);

// <pad> <eos> <bos> <unk> <start_of_turn> <end_of_turn>, "\n" and "\n\n" user-defined, the 256
// bytes from id 8 on, then `pieces` as normal ones with scores falling by one.
Vocabulary MakeVocabulary(const std::vector<std::string>& pieces);

// Pieces, scores and types from a SentencePiece model file, or from its bytes (field 1 of
// ModelProto); empty if it cannot be read.
Vocabulary ParseSentencePieceModel(std::string_view bytes);
Vocabulary ReadSentencePieceModel(const std::string& path);
// The bytes of a model: BPE, byte fallback, identity normaliser, nothing added or removed.
std::string SerializeSentencePieceModel(const Vocabulary& vocabulary);

}  // namespace tandem::gateway

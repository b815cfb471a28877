// Puts a Vocabulary together from a file's pieces, whatever the format, and checks it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/model/vocabulary.h"

namespace tandem::loader {

class VocabularyBuilder {
 public:
  // The next id's piece.  INVALID_ARGUMENT: an empty piece or one that is no UTF-8, a score that is
  // no number, a type outside [1, 6].
  absl::Status Append(std::string piece, float score, int64_t type);
  // A token that the tokenizer's side files add or rename.  Special ones become control tokens.
  // INVALID_ARGUMENT: a negative id, an empty piece, or another piece given to the same id before.
  absl::Status Add(int64_t id, const std::string& piece, bool special);
  // A vocabulary of exactly `vocab_size` pieces: ids that no file names become unused pieces
  // "[PADn]" (embedding matrices are longer than vocabularies in the image models).
  // INVALID_ARGUMENT: more pieces than `vocab_size`, an added id that is not below it (except
  // <image_soft_token>, which text-only releases list right after their last row), no pieces,
  // more than 65536 ids without one.
  absl::StatusOr<Vocabulary> Finish(uint64_t vocab_size) &&;

 private:
  struct Added {
    std::string piece;
    bool special = false;
  };
  Vocabulary vocabulary_;
  std::map<int64_t, Added> added_;
};

// Id of the piece spelt exactly so.
std::optional<int32_t> FindPiece(const Vocabulary& vocabulary, std::string_view piece);

// Stop tokens in the order in which they were found, each once.
class StopTokens {
 public:
  void Add(int32_t id);
  // <eos> and <end_of_turn>, as in the configuration of Gemma 3's releases.  Some files list only one
  // of them, and the model may generate either.
  void AddGemmas(const Vocabulary& vocabulary);
  const std::vector<int32_t>& ids() const { return ids_; }

 private:
  std::vector<int32_t> ids_;
};

}  // namespace tandem::loader

#include "services/loader/formats/vocabulary_builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/utf8.h"

namespace tandem::loader {
namespace {

// Rows past the last piece that a model may have (Gemma 3's image models: 64).
constexpr uint64_t kMaxPadding = 1 << 16;

}  // namespace

absl::Status VocabularyBuilder::Append(std::string piece, float score, int64_t type) {
  const size_t id = vocabulary_.pieces.size();
  if (piece.empty()) return absl::InvalidArgumentError(absl::StrFormat("piece %d is empty", id));
  if (const auto bad = FindInvalidUtf8(piece)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("piece %d is not UTF-8 at its byte %d", id, *bad));
  }
  if (!std::isfinite(score)) {
    return absl::InvalidArgumentError(absl::StrFormat("piece %d: score %g", id, score));
  }
  if (type < 1 || type > 6) {
    return absl::InvalidArgumentError(
        absl::StrFormat("piece %d: type %d, must be in [1, 6]", id, type));
  }
  vocabulary_.pieces.push_back(std::move(piece));
  vocabulary_.scores.push_back(score);
  vocabulary_.types.push_back(static_cast<TokenType>(type));
  return absl::OkStatus();
}

absl::Status VocabularyBuilder::Add(int64_t id, const std::string& piece, bool special) {
  if (id < 0 || piece.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("added token \"%s\" has id %d", piece.substr(0, 40), id));
  }
  const auto [entry, inserted] = added_.try_emplace(id, Added{piece, special});
  if (!inserted && entry->second.piece != piece) {
    return absl::InvalidArgumentError(
        absl::StrFormat("added tokens \"%s\" and \"%s\" have the same id %d",
                        entry->second.piece.substr(0, 40), piece.substr(0, 40), id));
  }
  entry->second.special |= special;
  return absl::OkStatus();
}

absl::StatusOr<Vocabulary> VocabularyBuilder::Finish(uint64_t vocab_size) && {
  const uint64_t num_pieces = vocabulary_.pieces.size();
  if (num_pieces == 0) return absl::InvalidArgumentError("the vocabulary has no pieces");
  if (num_pieces > vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the tokenizer has %d pieces, the model's vocab_size is %d: ids from %d on "
                        "are out of range",
                        num_pieces, vocab_size, vocab_size));
  }
  if (vocab_size - num_pieces > kMaxPadding) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the tokenizer has %d pieces, the model's vocab_size is %d: more than %d "
                        "ids have no piece",
                        num_pieces, vocab_size, kMaxPadding));
  }
  for (uint64_t id = num_pieces; id < vocab_size; ++id) {
    vocabulary_.pieces.push_back(absl::StrFormat("[PAD%d]", id));
    vocabulary_.scores.push_back(0.0f);
    vocabulary_.types.push_back(TokenType::kUnused);
  }
  for (auto& [id, added] : added_) {
    if (static_cast<uint64_t>(id) >= vocab_size) {
      if (added.piece == "<image_soft_token>") continue;
      return absl::InvalidArgumentError(
          absl::StrFormat("added token \"%s\" has id %d, out of range: the model's vocab_size is "
                          "%d",
                          added.piece.substr(0, 40), id, vocab_size));
    }
    if (vocabulary_.pieces[id] == added.piece) continue;
    vocabulary_.pieces[id] = std::move(added.piece);
    vocabulary_.types[id] = added.special ? TokenType::kControl : TokenType::kUserDefined;
  }
  return std::move(vocabulary_);
}

std::optional<int32_t> FindPiece(const Vocabulary& vocabulary, std::string_view piece) {
  const auto found = std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), piece);
  if (found == vocabulary.pieces.end()) return std::nullopt;
  return static_cast<int32_t>(found - vocabulary.pieces.begin());
}

void StopTokens::Add(int32_t id) {
  if (std::find(ids_.begin(), ids_.end(), id) == ids_.end()) ids_.push_back(id);
}

void StopTokens::AddGemmas(const Vocabulary& vocabulary) {
  for (const std::string_view piece : {"<eos>", "<end_of_turn>"}) {
    const std::optional<int32_t> id = FindPiece(vocabulary, piece);
    if (id.has_value()) Add(*id);
  }
}

}  // namespace tandem::loader

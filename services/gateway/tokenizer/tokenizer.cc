#include "services/gateway/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"
#include "services/gateway/tokenizer/bpe_encoder.h"

namespace tandem::gateway {
namespace {

constexpr size_t kMaxPieceBytes = 1024;
constexpr size_t kMaxVocabularyBytes = size_t{1} << 28;
constexpr size_t kMaxMatchBytes = size_t{1} << 24;  // of user-defined pieces together
constexpr uint32_t kNoId = 0xFFFFFFFFu;

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const size_t at = text.find(from);
    out.append(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    out.append(to);
    text.remove_prefix(at + from.size());
  }
}

// "<0x0A>" -> 10.
std::optional<uint8_t> ParseBytePiece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  unsigned byte = 0;
  for (const char digit : piece.substr(3, 2)) {
    static constexpr std::string_view kDigits = "0123456789ABCDEF";
    const size_t value = kDigits.find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    byte = byte * 16 + static_cast<unsigned>(value);
  }
  return static_cast<uint8_t>(byte);
}

absl::Status BadPiece(uint32_t id, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrFormat("vocabulary: piece %d %s", id, why));
}

// Checks a vocabulary that comes from a file.
absl::Status CheckPieces(const Vocabulary& vocabulary) {
  const size_t size = vocabulary.pieces.size();
  if (size == 0) return absl::InvalidArgumentError("vocabulary: it has no pieces");
  if (vocabulary.scores.size() != size || vocabulary.types.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("vocabulary: %d pieces, %d scores, %d types: expected equal numbers", size,
                        vocabulary.scores.size(), vocabulary.types.size()));
  }
  absl::flat_hash_map<std::string_view, uint32_t> seen;
  seen.reserve(size);
  size_t total_bytes = 0;
  size_t match_bytes = 0;
  for (uint32_t id = 0; id < size; ++id) {
    const std::string& piece = vocabulary.pieces[id];
    const TokenType type = vocabulary.types[id];
    if (piece.empty()) return BadPiece(id, "is empty");
    if (piece.size() > kMaxPieceBytes) {
      return BadPiece(
          id, absl::StrFormat("is %d bytes long, the limit is %d", piece.size(), kMaxPieceBytes));
    }
    if (const auto bad = FindInvalidUtf8(piece)) {
      return BadPiece(id, absl::StrFormat("is not UTF-8 at its byte %d", *bad));
    }
    if (const auto [first, added] = seen.try_emplace(piece, id); !added) {
      return BadPiece(id, absl::StrFormat("is spelt like piece %d", first->second));
    }
    if (type < TokenType::kNormal || type > TokenType::kByte) {
      return BadPiece(id, absl::StrFormat("has type %d, known are 1 to 6", static_cast<int>(type)));
    }
    total_bytes += piece.size();
    if (type == TokenType::kUserDefined) match_bytes += piece.size();
  }
  if (total_bytes > kMaxVocabularyBytes || match_bytes > kMaxMatchBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "vocabulary: pieces of %d bytes, %d of them user-defined; the limits are %d and %d",
        total_bytes, match_bytes, kMaxVocabularyBytes, kMaxMatchBytes));
  }
  return absl::OkStatus();
}

// Scores order the merges if each piece that a merge can make has a finite score of its own.
bool ScoresAreUsable(const Vocabulary& vocabulary) {
  absl::flat_hash_set<float> seen;
  seen.reserve(vocabulary.pieces.size());
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    const TokenType type = vocabulary.types[id];
    if (type != TokenType::kNormal && type != TokenType::kUnused) continue;
    const std::string& piece = vocabulary.pieces[id];
    const float score = vocabulary.scores[id];
    if (!std::isfinite(score)) return false;
    if (type == TokenType::kUnused) continue;
    // One character is never the result of a merge.
    if (Utf8Length(static_cast<uint8_t>(piece[0])) == piece.size()) continue;
    if (!seen.insert(score).second) return false;
  }
  return true;
}

class BpeTokenizer : public Tokenizer {
 public:
  absl::Status Init(const Vocabulary& vocabulary);

  using Tokenizer::Encode;
  absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text,
                                               size_t max_tokens) const override;
  size_t max_token_bytes() const override { return max_token_bytes_; }
  std::string_view TokenBytes(uint32_t id) const override {
    return id < tokens_.size() ? tokens_[id] : std::string_view();
  }
  std::string_view Piece(uint32_t id) const override {
    return id < pieces_.size() ? pieces_[id] : std::string_view();
  }
  uint32_t vocab_size() const override { return static_cast<uint32_t>(pieces_.size()); }
  std::optional<uint32_t> FindPiece(std::string_view piece) const override {
    const auto found = ids_.find(piece);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  std::string Decode(const std::vector<uint32_t>& ids) const override;

 private:
  absl::Status FindBytesAndUnknown(const Vocabulary& vocabulary);
  absl::Status BuildEncoder(const Vocabulary& vocabulary);

  std::vector<std::string> pieces_;  // as the vocabulary has them
  std::vector<std::string> texts_;   // as the encoder knows them: U+2581 for every space
  std::vector<std::string> tokens_;  // as running text
  absl::flat_hash_map<std::string_view, uint32_t> ids_;  // into pieces_
  std::array<uint32_t, 256> byte_ids_;
  std::unique_ptr<BpeEncoder> encoder_;
  size_t max_token_bytes_ = 1;
};

absl::Status BpeTokenizer::Init(const Vocabulary& vocabulary) {
  TANDEM_RETURN_IF_ERROR(CheckPieces(vocabulary));
  pieces_ = vocabulary.pieces;
  ids_.reserve(pieces_.size());
  for (uint32_t id = 0; id < pieces_.size(); ++id) ids_[pieces_[id]] = id;
  tokens_.resize(pieces_.size());
  texts_.resize(pieces_.size());
  TANDEM_RETURN_IF_ERROR(FindBytesAndUnknown(vocabulary));
  return BuildEncoder(vocabulary);
}

absl::Status BpeTokenizer::FindBytesAndUnknown(const Vocabulary& vocabulary) {
  byte_ids_.fill(kNoId);
  uint32_t unknown_id = kNoId;
  for (uint32_t id = 0; id < pieces_.size(); ++id) {
    if (vocabulary.types[id] == TokenType::kByte) {
      const std::optional<uint8_t> byte = ParseBytePiece(pieces_[id]);
      if (!byte) return BadPiece(id, "is a byte but not spelt <0x00> to <0xFF>");
      byte_ids_[*byte] = id;
      tokens_[id] = std::string(1, static_cast<char>(*byte));
    } else if (vocabulary.types[id] == TokenType::kUnknown) {
      if (unknown_id != kNoId) {
        return BadPiece(id, absl::StrFormat("is unknown, and so is piece %d", unknown_id));
      }
      unknown_id = id;
    }
  }
  // Files that were converted may call the unknown piece a control piece.
  if (unknown_id == kNoId && !FindPiece("<unk>")) {
    return absl::InvalidArgumentError(
        "vocabulary: no piece has the type unknown or the name <unk>");
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids_[byte] == kNoId) {
      return absl::InvalidArgumentError(
          absl::StrFormat("vocabulary: there is no byte piece <0x%02X>", byte));
    }
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::BuildEncoder(const Vocabulary& vocabulary) {
  const bool by_score = ScoresAreUsable(vocabulary);
  std::vector<BpePiece> pieces(pieces_.size());
  absl::flat_hash_map<std::string_view, uint32_t> texts;
  texts.reserve(pieces_.size());
  for (uint32_t id = 0; id < pieces_.size(); ++id) {
    PieceUse use = PieceUse::kNone;
    switch (vocabulary.types[id]) {
      case TokenType::kNormal:
        use = PieceUse::kMerge;
        break;
      case TokenType::kUserDefined:
        use = PieceUse::kMatch;
        break;
      case TokenType::kUnused:
        use = PieceUse::kSplit;
        break;
      case TokenType::kUnknown:
      case TokenType::kControl:
      case TokenType::kByte:
        break;
    }
    if (IsControlName(pieces_[id])) use = PieceUse::kNone;
    if (use == PieceUse::kNone) continue;
    // Some files spell user-defined runs of spaces with spaces.
    texts_[id] = ReplaceAll(pieces_[id], " ", kPieceSpace);
    tokens_[id] = ReplaceAll(pieces_[id], kPieceSpace, " ");
    if (const auto [first, added] = texts.try_emplace(texts_[id], id); !added) {
      return BadPiece(id, absl::StrFormat("is spelt like piece %d but for spaces", first->second));
    }
    max_token_bytes_ = std::max(max_token_bytes_, texts_[id].size());
    pieces[id] = {texts_[id], by_score ? vocabulary.scores[id] : -static_cast<float>(id), use};
  }
  encoder_ = std::make_unique<BpeEncoder>(pieces, byte_ids_);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> BpeTokenizer::Encode(std::string_view text,
                                                           size_t max_tokens) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("text of %d bytes: the limit is %d", text.size(), kMaxTextBytes));
  }
  if (text.size() / max_token_bytes_ > max_tokens) {
    return absl::OutOfRangeError(absl::StrFormat("the text has more than %d tokens", max_tokens));
  }
  if (const std::optional<size_t> bad = FindInvalidUtf8(text)) {
    return absl::InvalidArgumentError(absl::StrFormat("text is not UTF-8 at byte %d", *bad));
  }
  std::vector<uint32_t> ids;
  TANDEM_RETURN_IF_ERROR(encoder_->Encode(text, max_tokens, ids));
  return ids;
}

std::string BpeTokenizer::Decode(const std::vector<uint32_t>& ids) const {
  Utf8Stream stream;
  std::string text;
  for (const uint32_t id : ids) stream.Append(TokenBytes(id), text);
  stream.Finish(text);
  return text;
}

}  // namespace

bool IsControlName(std::string_view piece) {
  static constexpr std::string_view kNames[] = {
      "<pad>",
      "<eos>",
      "<bos>",
      "<unk>",
      "<start_of_turn>",
      "<end_of_turn>",
      "<start_of_image>",
      "<end_of_image>",
      "<image_soft_token>",
      "<start_function_declaration>",
      "<end_function_declaration>",
      "<start_function_call>",
      "<end_function_call>",
      "<start_function_response>",
      "<end_function_response>",
      "<escape>",
  };
  return std::find(std::begin(kNames), std::end(kNames), piece) != std::end(kNames);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(const Vocabulary& vocabulary) {
  auto tokenizer = std::make_unique<BpeTokenizer>();
  TANDEM_RETURN_IF_ERROR(tokenizer->Init(vocabulary));
  return tokenizer;
}

}  // namespace tandem::gateway

#include "services/gateway/tokenizer/testing/vocabularies.h"

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

namespace tandem::gateway {
namespace {

// Protocol buffers' wire format, as far as sentencepiece_model.proto goes.
enum Wire : uint32_t { kVarint = 0, kBytes = 2, kFixed32 = 5 };

void PutVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void PutNumber(std::string& out, uint32_t field, uint64_t value) {
  PutVarint(out, field << 3 | kVarint);
  PutVarint(out, value);
}

void PutBytes(std::string& out, uint32_t field, std::string_view bytes) {
  PutVarint(out, field << 3 | kBytes);
  PutVarint(out, bytes.size());
  out.append(bytes);
}

void PutFloat(std::string& out, uint32_t field, float value) {
  PutVarint(out, field << 3 | kFixed32);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  out.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
}

struct Field {
  uint32_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

bool TakeVarint(std::string_view& in, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(in.front());
    in.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool TakeField(std::string_view& in, Field& field) {
  uint64_t key = 0;
  if (in.empty() || !TakeVarint(in, key)) return false;
  field.number = static_cast<uint32_t>(key >> 3);
  uint64_t length = 4;
  switch (key & 7) {
    case kVarint:
      return TakeVarint(in, field.value);
    case kBytes:
      if (!TakeVarint(in, length)) return false;
      break;
    case kFixed32:
      break;
    default:
      return false;
  }
  if (length > in.size()) return false;
  field.bytes = in.substr(0, length);
  in.remove_prefix(length);
  return true;
}

}  // namespace

void AddPiece(Vocabulary& vocabulary, std::string_view piece, TokenType type, float score) {
  vocabulary.pieces.emplace_back(piece);
  vocabulary.scores.push_back(score);
  vocabulary.types.push_back(type);
}

Vocabulary MakeVocabulary(const std::vector<std::string>& pieces) {
  Vocabulary vocabulary;
  for (const char* control : {"<pad>", "<eos>", "<bos>"}) {
    AddPiece(vocabulary, control, TokenType::kControl);
  }
  AddPiece(vocabulary, "<unk>", TokenType::kUnknown);
  for (const char* defined : {"<start_of_turn>", "<end_of_turn>", "\n", "\n\n"}) {
    AddPiece(vocabulary, defined, TokenType::kUserDefined);
  }
  for (int byte = 0; byte < 256; ++byte) {
    char piece[8];
    std::snprintf(piece, sizeof(piece), "<0x%02X>", byte);
    AddPiece(vocabulary, piece, TokenType::kByte);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    AddPiece(vocabulary, pieces[i], TokenType::kNormal, -static_cast<float>(i));
  }
  return vocabulary;
}

Vocabulary ParseSentencePieceModel(std::string_view bytes) {
  Vocabulary vocabulary;
  Field field;
  while (TakeField(bytes, field)) {
    if (field.number != 1) continue;
    std::string_view piece;
    float score = 0.0f;
    TokenType type = TokenType::kNormal;
    std::string_view message = field.bytes;
    for (Field part; TakeField(message, part);) {
      if (part.number == 1) piece = part.bytes;
      if (part.number == 2) std::memcpy(&score, part.bytes.data(), sizeof(score));
      if (part.number == 3) type = static_cast<TokenType>(part.value);
    }
    AddPiece(vocabulary, piece, type, score);
  }
  return vocabulary;
}

Vocabulary ReadSentencePieceModel(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return ParseSentencePieceModel(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::string SerializeSentencePieceModel(const Vocabulary& vocabulary) {
  std::string model;
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    std::string piece;
    PutBytes(piece, 1, vocabulary.pieces[id]);
    PutFloat(piece, 2, vocabulary.scores[id]);
    PutNumber(piece, 3, static_cast<uint64_t>(vocabulary.types[id]));
    PutBytes(model, 1, piece);
  }
  std::string trainer;
  PutNumber(trainer, 3, 2);   // model_type: BPE
  PutNumber(trainer, 35, 1);  // byte_fallback
  PutBytes(model, 2, trainer);
  std::string normalizer;
  PutBytes(normalizer, 1, "identity");
  PutNumber(normalizer, 3, 0);  // add_dummy_prefix
  PutNumber(normalizer, 4, 0);  // remove_extra_whitespaces
  PutNumber(normalizer, 5, 1);  // escape_whitespaces
  PutBytes(model, 3, normalizer);
  return model;
}

}  // namespace tandem::gateway

// The tokenizer against SentencePiece's own library.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "services/common/testing/paths.h"
#include "services/gateway/tokenizer/testing/sentencepiece_oracle.h"
#include "services/gateway/tokenizer/testing/vocabularies.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::gateway {
namespace {

std::vector<int> Ids(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text);
  EXPECT_TRUE(ids.ok()) << ids.status();
  if (!ids.ok()) return {-1};
  return std::vector<int>(ids->begin(), ids->end());
}

std::string RandomText(const std::vector<std::string>& alphabet, size_t length,
                       std::mt19937_64& random) {
  std::string text;
  for (size_t i = 0; i < length; ++i) text += alphabet[random() % alphabet.size()];
  return text;
}

// Random vocabularies over a small alphabet.  Merges overlap, tie, start from characters that are
// not pieces, and pass through unused pieces; user-defined pieces are prefixes of one another.
Vocabulary RandomVocabulary(std::mt19937_64& random) {
  static const std::vector<std::string> kAlphabet = {"a", "b", "c", "\xE2\x96\x81", "\u6771"};
  Vocabulary vocabulary = MakeVocabulary({});
  std::set<std::string> known(vocabulary.pieces.begin(), vocabulary.pieces.end());
  const size_t num_pieces = 1 + random() % 60;
  const bool distinct_scores = random() % 2 == 0;
  for (size_t i = 0; i < num_pieces; ++i) {
    const std::string piece = RandomText(kAlphabet, 1 + random() % 5, random);
    if (!known.insert(piece).second) continue;
    const uint64_t dice = random() % 10;
    const TokenType type = dice == 0   ? TokenType::kUserDefined
                           : dice == 1 ? TokenType::kUnused
                                       : TokenType::kNormal;
    const float score = distinct_scores ? static_cast<float>(random() % 100'000) / 7.0f
                                        : -static_cast<float>(vocabulary.pieces.size());
    AddPiece(vocabulary, piece, type, score);
  }
  return vocabulary;
}

TEST(SentencePieceTest, GivesTheSameIdsForRandomVocabulariesAndTexts) {
  std::mt19937_64 random(1234);
  const std::vector<std::string> alphabet = {"a",      "b",  "c",    " ",          "\u6771",
                                             "\u00e9", "\n", "\n\n", "\U0001F431", "<unk>"};
  int num_compared = 0;
  for (int round = 0; round < 600; ++round) {
    Vocabulary vocabulary = RandomVocabulary(random);
    // SentencePiece takes turn markers in text as user-defined pieces; this tokenizer never does.
    for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
      if (IsControlName(vocabulary.pieces[id]) && vocabulary.types[id] != TokenType::kUnknown) {
        vocabulary.types[id] = TokenType::kControl;
      }
    }
    // Ids order pieces of equal score; SentencePiece needs an option for that.
    std::set<float> scores;
    bool tie = false;
    for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
      if (vocabulary.types[id] == TokenType::kNormal) {
        tie |= !scores.insert(vocabulary.scores[id]).second;
      }
    }
    if (tie) continue;
    const auto tokenizer = Tokenizer::Create(vocabulary);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto oracle = SentencePieceOracle::Create(SerializeSentencePieceModel(vocabulary));
    ASSERT_NE(oracle, nullptr);
    for (int i = 0; i < 30; ++i) {
      const std::string text = RandomText(alphabet, random() % 40, random);
      const std::vector<int> ids = oracle->Encode(text);
      ASSERT_EQ(Ids(**tokenizer, text), ids) << "round " << round << ": " << text;
      ASSERT_EQ((*tokenizer)->Encode(text, ids.size()).status(), absl::OkStatus()) << text;
      if (!ids.empty()) {
        ASSERT_TRUE(absl::IsOutOfRange((*tokenizer)->Encode(text, ids.size() - 1).status()));
      }
      ++num_compared;
    }
  }
  EXPECT_GT(num_compared, 10'000);
}

TEST(SentencePieceTest, GivesTheSameIdsForTheDemoVocabulary) {
  const std::string path = TestDataPath("demo/tokenizer.model");
  Vocabulary vocabulary = ReadSentencePieceModel(path);
  ASSERT_EQ(vocabulary.pieces.size(), 4096);
  const auto tokenizer = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::ifstream file(path, std::ios::binary);
  const auto oracle =
      SentencePieceOracle::Create(std::string(std::istreambuf_iterator<char>(file), {}));
  ASSERT_NE(oracle, nullptr);

  std::mt19937_64 random(77);
  std::vector<std::string> words;
  for (uint32_t id = 0; id < vocabulary.pieces.size(); ++id) {
    if (IsControlName(vocabulary.pieces[id])) continue;
    if (vocabulary.types[id] == TokenType::kByte) {
      words.push_back(vocabulary.pieces[id]);  // "<0x41>" spelt out is text
    } else {
      words.emplace_back((*tokenizer)->TokenBytes(id));
    }
  }
  words.insert(words.end(), {std::string(1, '\0'), "\u6771\u4eac", "\U0001F431", "  ", "\n\n\n"});
  for (int i = 0; i < 2000; ++i) {
    const std::string text = RandomText(words, random() % 60, random);
    ASSERT_EQ(Ids(**tokenizer, text), oracle->Encode(text)) << text;
  }
}

}  // namespace
}  // namespace tandem::gateway

#include "services/gateway/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "services/common/base/cancellation.h"
#include "services/common/testing/paths.h"
#include "services/gateway/tokenizer/testing/vocabularies.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kFirst = 264;  // id of MakeVocabulary's first normal piece

uint32_t ByteId(uint8_t byte) { return 8 + byte; }

std::unique_ptr<Tokenizer> Make(const Vocabulary& vocabulary) {
  auto tokenizer = Tokenizer::Create(vocabulary);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::vector<uint32_t> Ids(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.value_or(std::vector<uint32_t>());
}

TEST(TokenizerTest, MergesByScoreAndFallsBackToBytes) {
  const auto tokenizer = Make(MakeVocabulary({"bc", "ab", "a", "b", "c", "\u2581a", "cabc"}));
  EXPECT_THAT(Ids(*tokenizer, "abc"), ElementsAre(kFirst + 2, kFirst + 0));  // "bc" comes first
  EXPECT_THAT(Ids(*tokenizer, "ab"), ElementsAre(kFirst + 1));
  EXPECT_THAT(Ids(*tokenizer, "cabc"),  // no two of its parts ever stand alone: "ca", "abc"
              ElementsAre(kFirst + 4, kFirst + 2, kFirst + 0));
  EXPECT_THAT(Ids(*tokenizer, "b ab"),
              ElementsAre(kFirst + 3, ByteId(0xE2), ByteId(0x96), ByteId(0x81), kFirst + 1));
  EXPECT_THAT(Ids(*tokenizer, "\u00e9"), ElementsAre(ByteId(0xC3), ByteId(0xA9)));
  EXPECT_THAT(Ids(*tokenizer, std::string_view("\0", 1)), ElementsAre(ByteId(0)));
  EXPECT_THAT(Ids(*tokenizer, ""), ElementsAre());
}

TEST(TokenizerTest, MatchesUserDefinedPiecesFirstAndLongest) {
  const auto tokenizer = Make(MakeVocabulary({"a", "\na"}));
  EXPECT_THAT(Ids(*tokenizer, "\n\n\na"), ElementsAre(7, 6, kFirst));
}

TEST(TokenizerTest, KeepsControlTokensInTextAsText) {
  for (const TokenType type : {TokenType::kControl, TokenType::kUserDefined, TokenType::kNormal,
                               TokenType::kUnused, TokenType::kUnknown}) {
    for (const char* name : {"<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<pad>",
                             "<start_of_image>", "<end_of_image>", "<image_soft_token>"}) {
      Vocabulary vocabulary = MakeVocabulary({"a", "<s", "<st", "<b", "<e"});
      uint32_t id = 0;
      while (id < vocabulary.pieces.size() && vocabulary.pieces[id] != name) ++id;
      if (id == vocabulary.pieces.size()) AddPiece(vocabulary, name, type, 100.0f);
      if (type == TokenType::kUnknown) vocabulary.types[3] = TokenType::kControl;
      vocabulary.types[id] = type;
      const auto tokenizer = Make(vocabulary);
      ASSERT_NE(tokenizer, nullptr);
      EXPECT_EQ(tokenizer->FindPiece(name), id);
      const std::vector<uint32_t> ids = Ids(*tokenizer, std::string("a") + name + "a");
      EXPECT_THAT(ids, testing::Not(testing::Contains(id)));
      EXPECT_EQ(tokenizer->Decode(ids), std::string("a") + name + "a");
      EXPECT_EQ(tokenizer->TokenBytes(id), "");
    }
  }
}

TEST(TokenizerTest, KeepsAControlPieceOfOneCharacterOutOfText) {
  Vocabulary vocabulary = MakeVocabulary({"b"});
  AddPiece(vocabulary, "a", TokenType::kControl);
  EXPECT_THAT(Ids(*Make(vocabulary), "ab"), ElementsAre(ByteId('a'), kFirst));
}

TEST(TokenizerTest, TakesUserDefinedSpacesSpeltEitherWay) {
  for (const char* spaces : {"   ", "\u2581\u2581\u2581"}) {
    Vocabulary vocabulary = MakeVocabulary({"\u2581"});
    AddPiece(vocabulary, spaces, TokenType::kUserDefined);
    const auto tokenizer = Make(vocabulary);
    EXPECT_THAT(Ids(*tokenizer, "    "), ElementsAre(kFirst + 1, kFirst));
    EXPECT_EQ(tokenizer->TokenBytes(kFirst + 1), "   ");
    EXPECT_EQ(tokenizer->Piece(kFirst + 1), spaces);
  }
}

TEST(TokenizerTest, GoesByIdWhereScoresDoNotOrderThePieces) {
  for (const float score : {0.0f, -1000.0f, std::nanf("")}) {
    Vocabulary vocabulary = MakeVocabulary({"ab", "bc", "a", "b", "c"});
    for (size_t id = kFirst; id < vocabulary.scores.size(); ++id) vocabulary.scores[id] = score;
    EXPECT_THAT(Ids(*Make(vocabulary), "abc"), ElementsAre(kFirst + 0, kFirst + 4));
  }
  Vocabulary scored = MakeVocabulary({"ab", "bc", "a", "b", "c"});
  scored.scores[kFirst + 1] = 5.0f;
  EXPECT_THAT(Ids(*Make(scored), "abc"), ElementsAre(kFirst + 2, kFirst + 1));
}

TEST(TokenizerTest, DecodesWholeSequences) {
  const auto tokenizer = Make(MakeVocabulary({"\u2581to", "ky"}));
  EXPECT_EQ(tokenizer->Decode({2, kFirst, kFirst + 1, 5}), " toky");
  EXPECT_EQ(tokenizer->Decode({ByteId(0xE6), ByteId(0x9D), ByteId(0xB1)}), "\u6771");
  EXPECT_EQ(tokenizer->Decode({ByteId(0xE6), ByteId(0x9D), kFirst + 1}), "\uFFFDky");
  EXPECT_EQ(tokenizer->Decode({ByteId(0xE6)}), "\uFFFD");
  EXPECT_EQ(tokenizer->Decode({123456789}), "");
  EXPECT_EQ(tokenizer->Piece(123456789), "");
}

TEST(TokenizerTest, RefusesTextThatIsNotUtf8) {
  const auto tokenizer = Make(MakeVocabulary({"a"}));
  const auto ids = tokenizer->Encode("ab\xED\xA0\x80");
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("byte 2"));
}

TEST(TokenizerTest, TakesAMegabyteOfOneLetter) {
  // Doubling pieces make the longest chains of merges.
  std::vector<std::string> pieces;
  for (size_t length = 2; length <= 256; length *= 2) pieces.push_back(std::string(length, 'x'));
  const auto tokenizer = Make(MakeVocabulary(pieces));
  const std::string text(1 << 20, 'x');
  const std::vector<uint32_t> ids = Ids(*tokenizer, text);
  EXPECT_EQ(ids.size(), text.size() / 256);
  EXPECT_EQ(tokenizer->Decode(ids), text);
}

TEST(TokenizerTest, StopsOnceThereAreMoreTokensThanAskedFor) {
  const auto tokenizer = Make(MakeVocabulary({"ab", "a", "b", "\u2581ab", "xxxx", "xx", "x"}));
  const std::string words = "ab ab ab ab";
  EXPECT_EQ(tokenizer->Encode(words, 4)->size(), 4u);
  EXPECT_TRUE(absl::IsOutOfRange(tokenizer->Encode(words, 3).status()));
  // A single part: it cannot be cut.
  EXPECT_EQ(tokenizer->Encode("xxxxxxxx", 2)->size(), 2u);
  EXPECT_TRUE(absl::IsOutOfRange(tokenizer->Encode("xxxxxxxx", 1).status()));
  EXPECT_TRUE(absl::IsOutOfRange(tokenizer->Encode("xxxxxxxxx", 2).status()));
  EXPECT_EQ(tokenizer->Encode("", 0)->size(), 0u);
  EXPECT_TRUE(absl::IsOutOfRange(tokenizer->Encode("a", 0).status()));
}

// Counts the work by how often the encoder checks for cancellation.
TEST(TokenizerTest, DoesNoWorkForTextThatHasTooManyTokensAnyway) {
  std::vector<std::string> pieces = {"ab", "a", "b", "\u2581ab", std::string(1000, 'y')};
  for (size_t length = 1; length <= 16; length *= 2) pieces.push_back(std::string(length, 'x'));
  const auto tokenizer = Make(MakeVocabulary(pieces));
  std::string words;
  while (words.size() < 8 << 20) words += " ab";
  for (const std::string& text : {words, std::string(8 << 20, 'x')}) {
    int num_asked = 0;
    const CancellationScope scope([&num_asked] {
      ++num_asked;
      return false;
    });
    EXPECT_TRUE(absl::IsOutOfRange(tokenizer->Encode(text, 10'000).status()));
    EXPECT_LT(num_asked, 50);
  }
}

TEST(TokenizerTest, StopsWhenNobodyWaits) {
  const auto tokenizer = Make(MakeVocabulary({"xx", "x", "ab", "a", "b"}));
  std::string words;
  while (words.size() < 1 << 20) words += "ab ba b ";
  for (const std::string& text : {words, std::string(1 << 20, 'x')}) {
    const CancellationScope scope([] { return true; });
    EXPECT_TRUE(absl::IsCancelled(tokenizer->Encode(text).status()));
  }
}

TEST(TokenizerTest, RefusesVocabulariesItCannotTrust) {
  struct Case {
    const char* message;
    std::function<void(Vocabulary&)> spoil;
  };
  const Case cases[] = {
      {"no pieces", [](auto& v) { v = {}; }},
      {"265 pieces, 264 scores", [](auto& v) { v.scores.pop_back(); }},
      {"264 types", [](auto& v) { v.types.pop_back(); }},
      {"piece 264 is empty", [](auto& v) { v.pieces[264] = ""; }},
      {"piece 264 is 1025 bytes", [](auto& v) { v.pieces[264] = std::string(1025, 'a'); }},
      {"piece 264 is not UTF-8 at its byte 1", [](auto& v) { v.pieces[264] = "a\xFF"; }},
      {"piece 264 is spelt like piece 4", [](auto& v) { v.pieces[264] = v.pieces[4]; }},
      {"piece 264 has type 0", [](auto& v) { v.types[264] = static_cast<TokenType>(0); }},
      {"piece 264 has type 7", [](auto& v) { v.types[264] = static_cast<TokenType>(7); }},
      {"piece 264 is a byte but", [](auto& v) { v.types[264] = TokenType::kByte; }},
      {"piece 265 is a byte but", [](auto& v) { AddPiece(v, "<0xaa>", TokenType::kByte); }},
      {"no byte piece <0x41>", [](auto& v) { v.types[8 + 0x41] = TokenType::kNormal; }},
      {"piece 264 is unknown, and so is piece 3",
       [](auto& v) { v.types[264] = TokenType::kUnknown; }},
      {"no piece has the type unknown",
       [](auto& v) {
         v.types[3] = TokenType::kControl;
         v.pieces[3] = "<unknown>";
       }},
      {"piece 266 is spelt like piece 265 but for spaces",
       [](auto& v) {
         AddPiece(v, "x \u2581", TokenType::kNormal);
         AddPiece(v, "x\u2581 ", TokenType::kUserDefined);
       }},
  };
  for (const Case& c : cases) {
    Vocabulary vocabulary = MakeVocabulary({"a"});
    ASSERT_TRUE(Tokenizer::Create(vocabulary).ok());
    c.spoil(vocabulary);
    const absl::Status status = Tokenizer::Create(vocabulary).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(TokenizerTest, TakesAnUnknownPieceThatAFileCallsControl) {
  Vocabulary vocabulary = MakeVocabulary({"a"});
  vocabulary.types[3] = TokenType::kControl;
  EXPECT_THAT(Ids(*Make(vocabulary), "a<unk>"),
              ElementsAre(kFirst, ByteId('<'), ByteId('u'), ByteId('n'), ByteId('k'), ByteId('>')));
}

// More pieces that are prefixes of one another than SentencePiece's own search can hold.
TEST(TokenizerTest, MatchesAmongHundredsOfPrefixes) {
  Vocabulary vocabulary = MakeVocabulary({"y"});
  for (size_t length = 1; length <= 300; ++length) {
    AddPiece(vocabulary, std::string(length, 'x'), TokenType::kUserDefined);
  }
  const auto tokenizer = Make(vocabulary);
  EXPECT_THAT(Ids(*tokenizer, std::string(301, 'x') + "y"),
              ElementsAre(kFirst + 300, kFirst + 1, kFirst));
}

class CheckpointTest : public testing::TestWithParam<const char*> {};

TEST_P(CheckpointTest, GivesTheIdsOfTheReference) {
  const std::string folder = TestDataPath(GetParam());
  const auto tokenizer = Make(ReadSentencePieceModel(folder + "/tokenizer.model"));
  std::ifstream file(folder + "/reference.json");
  const auto reference = nlohmann::json::parse(file);
  int num_prompts = 0;
  for (const auto& prompt : reference.at("prompts")) {
    // The reference reads turn markers in its prompts: encode what lies between them.
    std::string_view text = prompt.at("prompt").get_ref<const std::string&>();
    std::vector<uint32_t> ids = {2};
    while (!text.empty()) {
      const size_t marker = std::min(text.find("<start_of_turn>"), text.find("<end_of_turn>"));
      const auto plain = Ids(*tokenizer, text.substr(0, marker));
      ids.insert(ids.end(), plain.begin(), plain.end());
      if (marker == std::string_view::npos) break;
      const size_t length = text.find('>', marker) + 1 - marker;
      ids.push_back(*tokenizer->FindPiece(text.substr(marker, length)));
      text.remove_prefix(marker + length);
    }
    EXPECT_EQ(ids, prompt.at("tokens").get<std::vector<uint32_t>>()) << prompt.at("prompt");

    std::string continuation = prompt.at("continuation_text");
    for (const std::string_view marker :
         {"<start_of_turn>", "<end_of_turn>", "<pad>", "<bos>", "<eos>", "<unk>"}) {
      for (size_t at; (at = continuation.find(marker)) != std::string::npos;) {
        continuation.erase(at, marker.size());
      }
    }
    EXPECT_EQ(tokenizer->Decode(prompt.at("continuation").get<std::vector<uint32_t>>()),
              continuation);
    ++num_prompts;
  }
  EXPECT_GT(num_prompts, 0);
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointTest,
                         testing::Values("demo", "random-1b-shape", "random-27b-shape"));

}  // namespace
}  // namespace tandem::gateway

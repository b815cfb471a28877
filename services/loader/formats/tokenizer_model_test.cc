#include "services/loader/formats/tokenizer_model.h"

#include <gtest/gtest.h>

#include "services/common/testing/status_matchers.h"
#include "services/loader/formats/testing/allocation_guard.h"
#include "services/loader/formats/testing/release_builder.h"

namespace tandem::loader {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace testing;  // the builders

void ExpectRefused(const std::string& bytes, const std::string& reason) {
  const AllocationGuard guard;
  const auto model = ParseTokenizerModel(bytes);
  EXPECT_LE(guard.largest(), size_t{4} << 10);
  EXPECT_THAT(model, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
}

TEST(TokenizerModelTest, ReadsPiecesAndIds) {
  const std::string bytes = TokenizerModelFile(SmallPieces());
  ASSERT_OK_AND_ASSIGN(TokenizerModel model, ParseTokenizerModel(bytes));
  EXPECT_EQ(model.bos_id, 2);
  EXPECT_EQ(model.eos_id, 1);
  ASSERT_OK_AND_ASSIGN(const Vocabulary vocabulary, std::move(model.vocabulary).Finish(10));
  const std::vector<SmallPiece> pieces = SmallPieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(vocabulary.pieces[i], pieces[i].piece);
    EXPECT_EQ(vocabulary.scores[i], pieces[i].score);
    EXPECT_EQ(static_cast<int>(vocabulary.types[i]), pieces[i].type);
  }
}

TEST(TokenizerModelTest, TypeAndScoreHaveTheProtosDefaults) {
  const std::string bytes =
      WireField(1, WireField(1, "x")) +
      WireField(2, WireField(3, uint64_t{2}) + WireField(41, ~uint64_t{0}) +  // -1: none
                       WireField(42, uint64_t{0})) +
      WireField(3, WireField(3, uint64_t{0}));
  ASSERT_OK_AND_ASSIGN(TokenizerModel model, ParseTokenizerModel(bytes));
  EXPECT_EQ(model.bos_id, -1);
  ASSERT_OK_AND_ASSIGN(const Vocabulary vocabulary, std::move(model.vocabulary).Finish(1));
  EXPECT_EQ(vocabulary.types[0], TokenType::kNormal);
  EXPECT_EQ(vocabulary.scores[0], 0.0f);
}

TEST(TokenizerModelTest, UnknownFieldsArePassedOver) {
  const std::string bytes = WireField(77, "unknown") + WireField(78, 1.0f) +
                            WireVarint(79 << 3 | 1) + Packed(2.0) + WireField(80, uint64_t{5}) +
                            TokenizerModelFile(SmallPieces());
  EXPECT_OK(ParseTokenizerModel(bytes));
}

TEST(TokenizerModelTest, EveryTruncationIsRefusedOrIsAShorterModel) {
  const std::string bytes = TokenizerModelFile(SmallPieces());
  // The settings end the file, so no shorter file has both pieces and settings; a cut right before
  // the normaliser's settings leaves a whole model.
  const size_t normalizer =
      bytes.size() - WireField(3, WireField(1, "identity") + WireField(3, uint64_t{0})).size();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(ParseTokenizerModel(bytes.substr(0, size)).ok(), size == normalizer) << size;
  }
}

TEST(TokenizerModelTest, RefusesBadWireFormat) {
  ExpectRefused(std::string(11, '\xff'), "at byte 0: number over 64 bits");
  ExpectRefused(WireVarint(0), "bad field number");
  ExpectRefused(WireVarint(1 << 3 | 3), "wire type 3");
  ExpectRefused(WireVarint(1 << 3 | 2) + WireVarint(~uint64_t{0}), "are left");
  ExpectRefused(WireVarint(1 << 3 | 2) + WireVarint(uint64_t{1} << 40) + "x", "1 bytes are left");
  ExpectRefused(WireVarint(9 << 3 | 5) + "abc", "value cut short");
  ExpectRefused(WireField(1, uint64_t{7}), "wire type 0");
  ExpectRefused(WireField(1, WireField(1, uint64_t{7})), "piece has wire type 0");
  ExpectRefused(WireField(1, WireField(1, "x") + WireField(3, 1.0f)), "type has wire type 5");
}

TEST(TokenizerModelTest, RefusesBadPieces) {
  const auto with = [](const SmallPiece& piece) {
    std::vector<SmallPiece> pieces = SmallPieces();
    pieces.push_back(piece);
    return TokenizerModelFile(pieces);
  };
  ExpectRefused(with({"", 0, 1}), "piece 10 is empty");
  ExpectRefused(with({"\xc3", 0, 1}), "piece 10 is not UTF-8");
  ExpectRefused(with({"x", std::numeric_limits<float>::infinity(), 1}), "piece 10: score inf");
  ExpectRefused(with({"x", 0, 0}), "piece 10: type 0");
  ExpectRefused(with({"x", 0, 7}), "piece 10: type 7");
  ExpectRefused(with({"x", 0, -1}), "piece 10: type -1");
  ExpectRefused(WireSettings(), "no pieces");
  ExpectRefused("", "no pieces");
  ExpectRefused(WirePiece({"x", 0, 1}), "no trainer settings");
}

TEST(TokenizerModelTest, RefusesIdsOutOfRange) {
  const auto with = [](uint32_t number, uint64_t id) {
    return WirePiece({"x", 0, 1}) +
           WireField(2, WireField(3, uint64_t{2}) + WireField(41, uint64_t{0}) +
                            WireField(42, uint64_t{0}) + WireField(number, id));
  };
  EXPECT_OK(ParseTokenizerModel(with(41, 0)));
  ExpectRefused(with(41, 1), "bos_id 1 is out of range: there are 1 pieces");
  ExpectRefused(with(42, 1), "eos_id 1 is out of range");
  ExpectRefused(with(41, uint64_t{1} << 31), "is out of range");
  ExpectRefused(with(42, ~uint64_t{0} - 1), "token id -2 is out of range");
}

TEST(TokenizerModelTest, RefusesSettingsThatGemmaDoesNotHave) {
  const std::string piece = WirePiece({"x", 0, 1});
  ExpectRefused(piece + WireField(2, WireField(3, uint64_t{1})), "model type 1");
  ExpectRefused(piece + WireField(2, ""), "model type 1");
  ExpectRefused(piece + WireSettings() + WireField(3, WireField(3, uint64_t{1})), "dummy prefix");
  ExpectRefused(piece + WireSettings() + WireField(3, ""), "dummy prefix");
}

TEST(VocabularyBuilderTest, RefusesMorePiecesThanTheModelHasRows) {
  ASSERT_OK_AND_ASSIGN(TokenizerModel model,
                       ParseTokenizerModel(TokenizerModelFile(SmallPieces())));
  EXPECT_THAT(std::move(model.vocabulary).Finish(9),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("10 pieces, the model's vocab_size is 9: ids from 9 on")));
}

TEST(VocabularyBuilderTest, DoesNotFillUpToAHugeClaimedSize) {
  ASSERT_OK_AND_ASSIGN(TokenizerModel model,
                       ParseTokenizerModel(TokenizerModelFile(SmallPieces())));
  const AllocationGuard guard;
  EXPECT_THAT(std::move(model.vocabulary).Finish(1 << 22),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 65536 ids")));
  EXPECT_LE(guard.largest(), size_t{4} << 10);
}

TEST(VocabularyBuilderTest, AddedTokensFillRenameAndMustBeInRange) {
  const auto builder = [] {
    return ParseTokenizerModel(TokenizerModelFile(SmallPieces()))->vocabulary;
  };
  VocabularyBuilder adding = builder();
  EXPECT_OK(adding.Add(4, "<start_of_turn>", true));  // as the tokenizer has it: keeps its type
  EXPECT_OK(adding.Add(9, "<think>", true));
  EXPECT_OK(adding.Add(11, "<tool>", false));
  EXPECT_OK(adding.Add(13, "<image_soft_token>", true));  // right past the last row
  ASSERT_OK_AND_ASSIGN(const Vocabulary vocabulary, std::move(adding).Finish(13));
  EXPECT_EQ(vocabulary.pieces.size(), 13u);
  EXPECT_EQ(vocabulary.types[4], TokenType::kUserDefined);
  EXPECT_EQ(vocabulary.pieces[9], "<think>");
  EXPECT_EQ(vocabulary.types[9], TokenType::kControl);
  EXPECT_EQ(vocabulary.pieces[10], "[PAD10]");
  EXPECT_EQ(vocabulary.types[10], TokenType::kUnused);
  EXPECT_EQ(vocabulary.types[11], TokenType::kUserDefined);
  EXPECT_EQ(FindPiece(vocabulary, "<tool>"), 11);

  VocabularyBuilder outside = builder();
  EXPECT_OK(outside.Add(int64_t{1} << 31, "<far>", true));
  EXPECT_THAT(std::move(outside).Finish(10),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("added token \"<far>\" has id 2147483648, out of range")));
  VocabularyBuilder wrong = builder();
  EXPECT_FALSE(wrong.Add(-1, "x", true).ok());
  EXPECT_FALSE(wrong.Add(3, "", true).ok());
  EXPECT_OK(wrong.Add(3, "x", true));
  EXPECT_FALSE(wrong.Add(3, "y", true).ok());
}

}  // namespace
}  // namespace tandem::loader

#include <gtest/gtest.h>

#include <random>

#include "services/gateway/tokenizer/testing/vocabularies.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::gateway {
namespace {

constexpr uint32_t kFirst = 264;

uint32_t ByteId(uint8_t byte) { return 8 + byte; }

class StreamDecoderTest : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ =
      *Tokenizer::Create(MakeVocabulary({"ab", "c", "END", "EN", "D", "\u2581a", "\u4eac"}));

  struct Outcome {
    std::string text;
    bool stopped = false;
  };
  // The whole text.  Each part must end at a whole character, and nothing may follow a stop.
  Outcome Run(const std::vector<uint32_t>& ids, std::vector<std::string> stops) {
    StreamDecoder decoder(*tokenizer_, std::move(stops));
    Outcome outcome;
    for (const uint32_t id : ids) {
      const StreamDecoder::Piece piece = decoder.Append(id);
      EXPECT_EQ(FindInvalidUtf8(piece.text), std::nullopt);
      if (outcome.stopped) {
        EXPECT_TRUE(piece.stopped);
        EXPECT_EQ(piece.text, "");
      }
      outcome.text += piece.text;
      outcome.stopped = piece.stopped;
    }
    const std::string rest = decoder.Finish();
    EXPECT_EQ(FindInvalidUtf8(rest), std::nullopt);
    EXPECT_TRUE(!outcome.stopped || rest.empty());
    outcome.text += rest;
    return outcome;
  }

  static std::vector<uint32_t> Bytes(std::string_view text) {
    std::vector<uint32_t> ids;
    for (const char c : text) ids.push_back(ByteId(static_cast<uint8_t>(c)));
    return ids;
  }
};

TEST_F(StreamDecoderTest, HandsOutJapaneseInWholeCharacters) {
  StreamDecoder decoder(*tokenizer_, {});
  EXPECT_EQ(decoder.Append(ByteId(0xE6)).text, "");
  EXPECT_EQ(decoder.Append(ByteId(0x9D)).text, "");
  EXPECT_EQ(decoder.Append(ByteId(0xB1)).text, "\u6771");
  EXPECT_EQ(decoder.Append(kFirst + 6).text, "\u4eac");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST_F(StreamDecoderTest, ReplacesWhatIsNoCharacter) {
  StreamDecoder decoder(*tokenizer_, {});
  EXPECT_EQ(decoder.Append(ByteId(0xE6)).text, "");
  EXPECT_EQ(decoder.Append(kFirst).text,
            "\uFFFD"
            "ab");  // cut short by another token
  EXPECT_EQ(decoder.Append(ByteId(0xFF)).text, "\uFFFD");
  EXPECT_EQ(decoder.Append(ByteId(0xF0)).text, "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
}

TEST_F(StreamDecoderTest, GivesNothingForControlTokens) {
  EXPECT_EQ(Run({2, 4, kFirst, 5, 1}, {}).text, "ab");
}

TEST_F(StreamDecoderTest, StopsAcrossTokens) {
  const Outcome outcome = Run({kFirst, kFirst + 3, kFirst + 4, kFirst}, {"END"});
  EXPECT_EQ(outcome.text, "ab");
  EXPECT_TRUE(outcome.stopped);
}

TEST_F(StreamDecoderTest, StopsWithinAToken) {
  const Outcome outcome = Run({kFirst + 2}, {"N"});
  EXPECT_EQ(outcome.text, "E");
  EXPECT_TRUE(outcome.stopped);
}

TEST_F(StreamDecoderTest, HandsOutWhatTurnsOutToBeNoStop) {
  StreamDecoder decoder(*tokenizer_, {"END"});
  EXPECT_EQ(decoder.Append(kFirst + 3).text, "");  // "EN"
  const auto piece = decoder.Append(kFirst + 3);   // "ENEN"
  EXPECT_EQ(piece.text, "EN");
  EXPECT_FALSE(piece.stopped);
  EXPECT_EQ(decoder.Finish(), "EN");
}

TEST_F(StreamDecoderTest, EndsAtTheStopThatIsCompleteFirst) {
  EXPECT_EQ(Run(Bytes("xabcd"), {"abcd", "bc"}).text, "xa");
  EXPECT_EQ(Run(Bytes("xabcd"), {"c", "abc"}).text, "x");  // both at one byte: the longer
}

TEST_F(StreamDecoderTest, StopsAtCharactersOfSeveralBytes) {
  const Outcome outcome = Run(Bytes("\u6771\u4eac\u3002x"), {"\u3002"});
  EXPECT_EQ(outcome.text, "\u6771\u4eac");
  EXPECT_TRUE(outcome.stopped);
  // A character that only begins like the stop.
  EXPECT_EQ(Run(Bytes("\u6771\u3001"), {"\u3002"}).text, "\u6771\u3001");
}

TEST_F(StreamDecoderTest, NeverMeetsAnEmptyOrBrokenStop) {
  EXPECT_EQ(Run(Bytes("ab\u6771"), {"", "\x9D"}).text, "ab\u6771");
}

// The text ends where a search byte by byte ends it, however it is cut into tokens.
TEST_F(StreamDecoderTest, FindsWhatAPlainSearchFinds) {
  std::mt19937 random(11);
  const std::string letters = "ab";
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) {
      for (size_t n = 1 + random() % 5; n-- > 0;) stop += letters[random() % 2];
    }
    std::string text;
    std::vector<uint32_t> ids;
    while (text.size() < 20) {
      if (random() % 2 == 0) {
        ids.push_back(kFirst);
        text += "ab";
      } else {
        text += letters[random() % 2];
        ids.push_back(ByteId(text.back()));
      }
    }
    std::string expected = text;
    bool stopped = false;
    for (size_t end = 1; end <= text.size() && !stopped; ++end) {
      size_t longest = 0;
      for (const std::string& stop : stops) {
        if (std::string_view(text).substr(0, end).ends_with(stop)) {
          longest = std::max(longest, stop.size());
        }
      }
      stopped = longest > 0;
      if (stopped) expected = text.substr(0, end - longest);
    }
    const Outcome outcome = Run(ids, stops);
    ASSERT_EQ(outcome.text, expected);
    ASSERT_EQ(outcome.stopped, stopped);
  }
}

TEST_F(StreamDecoderTest, ShowsTheControlTokensThatItIsAskedFor) {
  const uint32_t begin = *tokenizer_->FindPiece("<start_of_turn>");
  const uint32_t end = *tokenizer_->FindPiece("<end_of_turn>");
  StreamDecoder decoder(*tokenizer_, {"<end_of_turn>"}, {begin, end});
  EXPECT_EQ(decoder.Append(kFirst).text, "ab");
  EXPECT_EQ(decoder.Append(begin).text, "<start_of_turn>");
  const StreamDecoder::Piece last = decoder.Append(end);
  EXPECT_EQ(last.text, "");
  EXPECT_TRUE(last.stopped);
  StreamDecoder silent(*tokenizer_, {});
  EXPECT_EQ(silent.Append(begin).text + silent.Finish(), "");
}

}  // namespace
}  // namespace tandem::gateway

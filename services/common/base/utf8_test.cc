#include "services/common/base/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tandem {
namespace {

std::string StreamWhole(std::string_view bytes, size_t chunk) {
  Utf8Stream stream;
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += chunk) stream.Append(bytes.substr(i, chunk), out);
  stream.Finish(out);
  return out;
}

TEST(Utf8Test, FindsTheFirstIllFormedSequence) {
  const std::pair<std::string_view, std::optional<size_t>> cases[] = {
      {"", std::nullopt},
      {"plain", std::nullopt},
      {std::string_view("a\0b", 3), std::nullopt},
      {"\u00e9\u6771\U0001F431", std::nullopt},
      {"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF",
       std::nullopt},           // either side of surrogates, the last
      {"ab\x80", 2},            // a continuation byte alone
      {"ab\xC0\xAF", 2},        // overlong
      {"\xE0\x9F\xBF", 0},      // overlong
      {"\xF0\x8F\xBF\xBF", 0},  // overlong
      {"x\xED\xA0\x80", 1},     // surrogate
      {"\xF4\x90\x80\x80", 0},  // above U+10FFFF
      {"\xF5", 0},
      {"\u6771\xE6\x9D", 3},  // cut short
      {"\xE6\x9D"
       "a",
       0},
  };
  for (const auto& [text, offset] : cases) {
    EXPECT_EQ(FindInvalidUtf8(text), offset) << text;
  }
}

// The examples of The Unicode Standard, tables 3-8 to 3-11.
TEST(Utf8StreamTest, PutsOneReplacementForEachMaximalSubpart) {
  const std::string r = "\xEF\xBF\xBD";
  const std::pair<std::string, std::string> cases[] = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", r + r + r + r + r + "A" + r + r + "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", r + r + r + r + "A"},
      {"\xE6\x9D", r},
  };
  for (const auto& [bytes, text] : cases) {
    for (size_t chunk = 1; chunk <= bytes.size(); ++chunk)
      EXPECT_EQ(StreamWhole(bytes, chunk), text);
  }
}

TEST(Utf8StreamTest, HandsOutNothingBeforeACharacterIsWhole) {
  Utf8Stream stream;
  std::string out;
  stream.Append("\xF0\x9F\x90", out);
  EXPECT_EQ(out, "");
  stream.Append("\xB1", out);
  EXPECT_EQ(out, "\U0001F431");
  stream.Finish(out);
  EXPECT_EQ(out, "\U0001F431");
}

TEST(Utf8StreamTest, GivesWellFormedTextForAnyBytesAndAnyChunks) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 13, '\0');
    for (char& c : bytes) {
      // Mostly bytes that mean something.
      static constexpr char kBytes[] = "a\x80\x9F\xA0\xBF\xC2\xE0\xE6\xED\xF0\xF4\xFF";
      c = kBytes[random() % (sizeof(kBytes) - 1)];
    }
    const std::string whole = StreamWhole(bytes, bytes.size() + 1);
    EXPECT_EQ(FindInvalidUtf8(whole), std::nullopt);
    if (!FindInvalidUtf8(bytes)) {
      EXPECT_EQ(whole, bytes);
    }
    for (size_t chunk : {1, 2, 3, 5}) EXPECT_EQ(StreamWhole(bytes, chunk), whole);
  }
}

}  // namespace
}  // namespace tandem

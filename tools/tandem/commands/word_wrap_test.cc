#include "tools/tandem/commands/word_wrap.h"

#include <gtest/gtest.h>

#include <clocale>

namespace tandem {
namespace {

std::string Wrapped(int columns, std::string_view text, size_t piece = 1 << 20) {
  WordWrap wrap(columns);
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece) out += wrap.Add(text.substr(at, piece));
  return out + wrap.Finish();
}

TEST(WordWrapTest, KeepsWordsWholeHoweverTheTextArrives) {
  for (const size_t piece : {1, 2, 3, 100}) {
    EXPECT_EQ(Wrapped(10, "one two three four", piece), "one two\nthree four") << piece;
    EXPECT_EQ(Wrapped(10, "exactly te n", piece), "exactly te\nn") << piece;
    EXPECT_EQ(Wrapped(10, "a\n  indented text\n", piece), "a\n  indented\ntext\n") << piece;
  }
}

TEST(WordWrapTest, LeavesTheRestAlone) {
  EXPECT_EQ(Wrapped(0, "one two three four"), "one two three four");
  EXPECT_EQ(Wrapped(10, "one  two\n\nthree "), "one  two\n\nthree ");
  EXPECT_EQ(Wrapped(5, "overlongword x"), "overlongword x");
  const char code[] = "a\n```c\nint one = two + three;\n```\nb";
  EXPECT_EQ(Wrapped(10, code), code);
}

TEST(WordWrapTest, CountsColumnsAndNotBytes) {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  EXPECT_EQ(Wrapped(10, "\u00e9\u00e9\u00e9\u00e9 \u00e9\u00e9\u00e9\u00e9\u00e9"),
            "\u00e9\u00e9\u00e9\u00e9 \u00e9\u00e9\u00e9\u00e9\u00e9");
  EXPECT_EQ(Wrapped(4, "\u6771\u4eac\u6771\u4eac"), "\u6771\u4eac\n\u6771\u4eac");
}

}  // namespace
}  // namespace tandem

#include "services/common/base/client_text.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

TEST(ClientTextTest, PlainTextStaysAsItIs) {
  EXPECT_EQ(ClientText(""), "");
  EXPECT_EQ(ClientText("gemma-3-1b 'it' \"x\" 50%"), "gemma-3-1b 'it' \"x\" 50%");
}

TEST(ClientTextTest, ControlAndNonAsciiBytesAreEscaped) {
  EXPECT_EQ(ClientText("a\r\nb\x1b[31m\x7f"), "a\\x0d\\x0ab\\x1b[31m\\x7f");
  EXPECT_EQ(ClientText("\xC3\xA9\xFF"), "\\xc3\\xa9\\xff");
  EXPECT_EQ(ClientText(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(ClientText("\\x1b"), "\\\\x1b");
}

TEST(ClientTextTest, TheLengthIsBoundedWhateverWasSent) {
  EXPECT_EQ(ClientText("abcdef", 6), "abcdef");
  EXPECT_EQ(ClientText("abcdefg", 6), "abcdef...");
  EXPECT_EQ(ClientText("abcde\xFF", 6), "abcde...");
  for (const char c : {'x', '\\', '\n', '\xFF'}) {
    for (const size_t max_bytes : {size_t{0}, size_t{1}, size_t{7}, kShownBytes}) {
      EXPECT_LE(ClientText(std::string(1 << 20, c), max_bytes).size(), max_bytes + 3);
    }
  }
}

TEST(ClientTextTest, MessagesThatAreFitStayAsTheyAre) {
  const std::string message = "model: there is no \"a\\x0d\", only \"b\"";
  EXPECT_EQ(FitMessage(message), message);
  EXPECT_EQ(FitMessage("one\ntwo\x1b[0m\xC3\xA9"), "one two\\x1b[0m\\xc3\\xa9");
  const std::string bounded = FitMessage(std::string(8000, 'x'));
  EXPECT_EQ(bounded.size(), kMaxMessageBytesShown + 3);
  EXPECT_EQ(FitMessage("caf\xC3\xA9", 5), "caf...");
}

}  // namespace
}  // namespace tandem

#include "tools/tandem/commands/answer.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(ForTerminalTest, LeavesTextAndTakesEscapeSequencesAway) {
  EXPECT_EQ(ForTerminal("plain \u6771\u4eac\n\ttext \u00e9"), "plain \u6771\u4eac\n\ttext \u00e9");
  EXPECT_EQ(ForTerminal("\x1B[2J\r\x7F"), "\uFFFD[2J\uFFFD\uFFFD");
  EXPECT_EQ(ForTerminal("\u009B1m"),
            "\uFFFD"
            "1m");
  EXPECT_EQ(ForTerminal("\u00A0"), "\u00A0");
  EXPECT_EQ(ForTerminal("\xC2"), "\xC2");
}

TEST(DescribeAnswerTest, LeavesOutWhatIsNotKnown) {
  Answer answer;
  EXPECT_EQ(DescribeAnswer(answer), "0 tokens after 0, seed 0\n");
  answer.usage.set_completion_tokens(1);
  answer.usage.set_first_token_seconds(0.5);
  answer.usage.set_total_seconds(0.5);
  EXPECT_EQ(DescribeAnswer(answer), "1 token after 0, first token after 0.500 s, seed 0\n");
  answer.usage.set_prompt_tokens(40);
  answer.usage.set_cached_tokens(32);
  EXPECT_EQ(DescribeAnswer(answer),
            "1 token after 40 (32 cached), first token after 0.500 s, seed 0\n");
}

}  // namespace
}  // namespace tandem

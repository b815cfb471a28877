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

TEST(ForTerminalTest, EveryStringOfAMessageIsMadePrintable) {
  v1::GetStatusResponse status;
  status.set_state("ready\x1B]0;owned\x07");
  status.set_detail("two\nlines");
  status.add_workers()->set_name("gpu0\x1B[2J");
  MakePrintable(status);
  EXPECT_EQ(status.state(), "ready\uFFFD]0;owned\uFFFD");
  EXPECT_EQ(status.detail(), "two lines");
  EXPECT_EQ(status.workers(0).name(), "gpu0\uFFFD[2J");
  EXPECT_EQ(FromGateway({grpc::StatusCode::INTERNAL, "a\x1B[2J\nb"}).message(), "a\uFFFD[2J b");
}

}  // namespace
}  // namespace tandem

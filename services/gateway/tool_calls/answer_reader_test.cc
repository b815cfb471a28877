#include "services/gateway/tool_calls/answer_reader.h"

#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

TEST(AnswerReaderTest, GathersTextAndCalls) {
  AnswerReader reader({.names = {"roll"}});
  reader.Append("Wait. [{\"name\": \"roll\", \"parameters\": {\"n\":");
  reader.Append(" 1}}, {\"name\": \"roll\"}");
  reader.Finish();
  EXPECT_EQ(reader.text(), "Wait.");
  ASSERT_EQ(reader.calls().size(), 2u);
  EXPECT_EQ(reader.calls()[0].name(), "roll");
  EXPECT_EQ(reader.calls()[0].arguments_json(), "{\"n\": 1}");
  EXPECT_EQ(reader.calls()[1].arguments_json(), "{}");
  EXPECT_NE(reader.calls()[0].id(), reader.calls()[1].id());
  EXPECT_EQ(reader.ReasonOf(v1::FINISH_REASON_STOP), v1::FINISH_REASON_TOOL_CALLS);
  EXPECT_EQ(reader.ReasonOf(v1::FINISH_REASON_LENGTH), v1::FINISH_REASON_LENGTH);
}

TEST(AnswerReaderTest, TextEndsForTheReasonItEnds) {
  AnswerReader reader({.names = {"roll"}});
  reader.Append("{\"name\": ");
  EXPECT_EQ(reader.text(), "");
  reader.Finish();
  EXPECT_EQ(reader.text(), "{\"name\": ");
  EXPECT_EQ(reader.ReasonOf(v1::FINISH_REASON_STOP), v1::FINISH_REASON_STOP);
}

// As by a stop text within its arguments.
TEST(AnswerReaderTest, ACallThatBreaksOffKeepsTheReasonOfItsEnd) {
  for (const char* answer : {R"({"name": "f", "parameters": {"a":1)", R"({"name": "f")"}) {
    AnswerReader reader({.names = {"f"}});
    reader.Append(answer);
    reader.Finish();
    ASSERT_EQ(reader.calls().size(), 1u) << answer;
    EXPECT_EQ(reader.ReasonOf(v1::FINISH_REASON_STOP), v1::FINISH_REASON_STOP) << answer;
  }
  AnswerReader whole({.names = {"f"}});
  whole.Append(R"({"name": "f", "parameters": {"a":1}})");
  whole.Finish();
  EXPECT_EQ(whole.ReasonOf(v1::FINISH_REASON_STOP), v1::FINISH_REASON_TOOL_CALLS);
}

}  // namespace
}  // namespace tandem::gateway

#include "services/common/base/logging.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

using Fields = std::vector<LogField>;

TEST(LoggingTest, WritesKeysAndValuesAndQuotesWhatMayBeTakenForMore) {
  const Fields fields = {{"plain", "a.b/c"}, {"empty", ""},       {"blank", "a b"},
                         {"equals", "a=b"},  {"quote", "a\"\\b"}, {"line", "a\nb\r\tc"}};
  EXPECT_EQ(FormatLogFields(LogFormat::kText, "it happened", fields),
            R"(event="it happened" plain=a.b/c empty="" blank="a b" equals="a=b" quote="a\"\\b" )"
            R"(line="a\nb\u000d\u0009c")");
}

TEST(LoggingTest, WritesJson) {
  const Fields fields = {{"n", "7"}, {"text", "a\"\\\n\x01 \xc3\xa9"}, {"bytes", "\xff\xc3"}};
  EXPECT_EQ(FormatLogFields(LogFormat::kJson, "it happened", fields),
            "\"event\":\"it happened\",\"n\":\"7\",\"text\":\"a\\\"\\\\\\n\\u0001 \xc3\xa9\","
            "\"bytes\":\"\xef\xbf\xbd\xef\xbf\xbd\"");
}

// What one client sends can never look like a line of its own.
TEST(LoggingTest, NothingBreaksOutOfALine) {
  for (int c = 0; c < 256; ++c) {
    const Fields fields = {{"value", std::string(1, static_cast<char>(c))}};
    for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
      for (const char out : FormatLogFields(format, "event", fields)) {
        EXPECT_GE(static_cast<unsigned char>(out), 0x20) << c;
      }
    }
  }
}

}  // namespace
}  // namespace tandem

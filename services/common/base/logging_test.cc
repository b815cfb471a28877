#include "services/common/base/logging.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
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

TEST(LoggingTest, JsonHasNumbersAndBooleansWithoutQuotes) {
  const Fields fields = {{"count", uint64_t{18446744073709551615u}},
                         {"size", std::vector<int>(3).size()},
                         {"code", -7},
                         {"ms", LogValue(12.345, 1)},
                         {"ratio", LogValue(std::nan(""), 2)},
                         {"on", true},
                         {"off", false},
                         {"text", "7"},
                         {"truth", std::string("true")}};
  const std::string line = FormatLogFields(LogFormat::kJson, "e", fields);
  EXPECT_EQ(line,
            R"("event":"e","count":18446744073709551615,"size":3,"code":-7,"ms":12.3,"ratio":null,)"
            R"("on":true,"off":false,"text":"7","truth":"true")");
  EXPECT_EQ(FormatLogFields(LogFormat::kText, "e", fields),
            "event=e count=18446744073709551615 size=3 code=-7 ms=12.3 ratio=null on=true "
            "off=false text=7 truth=true");
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

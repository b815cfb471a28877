// Answers as models write them, cut everywhere.
#include "services/gateway/tool_calls/call_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace tandem::gateway {
namespace {

using Kind = AnswerEvent::Kind;

const CallOptions kTools = {.names = {"get_weather", "roll", "a.b:c/d-e"}};

// Feeds the pieces and writes down what came: text as it is, calls as NAME(ARGUMENTS), a call that
// never ended without its parenthesis.
std::string Read(const std::vector<std::string>& pieces, const CallOptions& options = kTools) {
  CallParser parser(options);
  std::vector<AnswerEvent> events;
  for (const std::string& piece : pieces) parser.Append(piece, events);
  parser.Finish(events);
  std::string out;
  size_t next = 0;
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case Kind::kText:
        EXPECT_FALSE(event.text.empty());
        out += event.text;
        break;
      case Kind::kCallBegin:
        EXPECT_EQ(event.call, next);
        out += "<" + event.name + "(";
        break;
      case Kind::kCallArguments:
        EXPECT_EQ(event.call, next);
        EXPECT_FALSE(event.text.empty());
        out += event.text;
        break;
      case Kind::kCallEnd:
        EXPECT_EQ(event.call, next++);
        out += ")>";
        break;
    }
  }
  return out;
}

struct Case {
  std::string answer;
  std::string read;
};

std::vector<Case> Cases() {
  return {
      // Text.
      {"", ""},
      {"Hello there.", "Hello there."},
      {"  two lines \n\n of text \n", "  two lines \n\n of text \n"},
      {"f(x) = {x | x > 0} and [1, 2]", "f(x) = {x | x > 0} and [1, 2]"},
      {"see [the page](url) {really}", "see [the page](url) {really}"},
      {"`code` and ``more``", "`code` and ``more``"},
      {"```python\nprint({\"a\": 1})\n```", "```python\nprint({\"a\": 1})\n```"},
      {"```json\n{\"city\": \"Paris\"}\n```\n", "```json\n{\"city\": \"Paris\"}\n```\n"},
      {R"({"name": "Anna", "age": 7})", R"({"name": "Anna", "age": 7})"},
      {R"({"name": "get_weather", "age": 7})", R"({"name": "get_weather", "age": 7})"},
      {R"({"name": 7})", R"({"name": 7})"},
      {R"({"parameters": "x", "name": "roll"})", R"({"parameters": "x", "name": "roll"})"},
      {"{}", "{}"},
      {"[]", "[]"},
      {R"({"na\"me": "}"} x)", R"({"na\"me": "}"} x)"},
      {R"({"name": "ro\u006cl"})", R"({"name": "ro\u006cl"})"},
      {R"({"name")", R"({"name")"},
      {R"({"name": "get_wea)", R"({"name": "get_wea)"},
      {R"([{"x": 1}, {"name": "roll", "parameters": {}}])",
       R"([{"x": 1}, {"name": "roll", "parameters": {}}])"},
      {R"({"steps": [{"name": "roll", "parameters": {}}]})",
       R"({"steps": [{"name": "roll", "parameters": {}}]})"},
      {R"(["{", {"name": "roll", "parameters": {}}])",
       R"(["{", {"name": "roll", "parameters": {}}])"},
      // Calls.
      {R"({"name": "get_weather", "parameters": {"city": "Paris"}})",
       R"(<get_weather({"city": "Paris"})>)"},
      {R"({"name":"get_weather","arguments":{"city":"Paris"}})",
       R"(<get_weather({"city":"Paris"})>)"},
      {" \n{ \"name\" : \"roll\" ,\n \"parameters\" : { } }\n", "<roll({ })>"},
      {R"({"name": "a.b:c/d-e", "parameters": {}})", "<a.b:c/d-e({})>"},
      {R"({"name": "roll"})", "<roll({})>"},
      {R"({"parameters": {"n": 2}, "name": "roll"})", R"(<roll({"n": 2})>)"},
      {R"({"id": "1", "type": "function", "name": "roll", "parameters": {"n": 2}, "id": {"}": 1}})",
       R"(<roll({"n": 2})>)"},
      {R"({"type": "function", "function": {"name": "roll", "arguments": {"n": 2}}})",
       R"(<roll({"n": 2})>)"},
      {R"({"name": "roll", "parameters": {"a": "}\"{", "b": [{"c": ["]"]}]}})",
       R"(<roll({"a": "}\"{", "b": [{"c": ["]"]}]})>)"},
      {"{\"name\": \"roll\", \"parameters\": {\"a\": \"1\n2\t3\x01\"}}",
       R"(<roll({"a": "1\n2\t3\u0001"})>)"},
      {"```json\n{\"name\": \"roll\", \"parameters\": {}}\n```", "<roll({})>"},
      {"```tool_code\n[{\"name\": \"roll\", \"parameters\": {}}]\n```\n", "<roll({})>"},
      {"```\n{\"name\": \"roll\", \"parameters\": {}}```", "<roll({})>"},
      {R"([{"name": "roll", "parameters": {"n": 1}}, {"name": "roll", "parameters": {"n": 2}}])",
       R"(<roll({"n": 1})><roll({"n": 2})>)"},
      {R"([{"name": "roll", "parameters": {}}, {"name": "other", "parameters": {}}])",
       "<roll({})><other({})>"},
      {"{\"name\": \"roll\", \"parameters\": {}}\n{\"name\": \"roll\"}", "<roll({})><roll({})>"},
      {"{\"name\": \"roll\"}, {\"name\": \"roll\"}", "<roll({})><roll({})>"},
      {"```json\n{\"name\": \"roll\"}\n```\n\n```json\n{\"name\": \"roll\"}\n```",
       "<roll({})><roll({})>"},
      {R"({"name": "roll", "parameters": {}}}})", "<roll({})>"},
      // Both.
      {"I will look.\n\n{\"name\": \"roll\", \"parameters\": {}}", "I will look.<roll({})>"},
      {"Sure: ```json\n{\"name\": \"roll\"}\n```\nDone.", "Sure:<roll({})>Done."},
      {R"([{"name": "roll"}, 5])", "<roll({})> 5]"},
      {R"([{"name": "roll"} and more)", "<roll({})>and more"},
      {R"({"name": "roll", "parameters": {}, oops)", "<roll({})>, oops"},
      {"\u00e9{\"name\": \"roll\", \"parameters\": {\"\u00e9\": \"\u20ac\"}}\u00e9",
       "\u00e9<roll({\"\u00e9\": \"\u20ac\"})>\u00e9"},
      // Broken off.
      {R"({"name": "roll")", "<roll()>"},
      {R"({"name": "roll", "param)", "<roll()>"},
      {R"({"name": "roll", "parameters": {"n": [1, "a)", R"(<roll({"n": [1, "a)>)"},
      {R"({"name": "roll", "parameters": {"n": 1}, )", R"(<roll({"n": 1})>)"},
      {R"([{"name": "roll"}, {"na)", "<roll({})>"},
      {R"([{"name": "roll"},)", "<roll({})>"},
      {"{\"name\": \"roll\"}\n```js", "<roll({})>"},
  };
}

TEST(CallParserTest, TellsCallsFromTextHoweverTheAnswerIsCut) {
  for (const auto& [answer, read] : Cases()) {
    EXPECT_EQ(Read({answer}), read) << answer;
    std::vector<std::string> bytes;
    for (const char c : answer) bytes.emplace_back(1, c);
    EXPECT_EQ(Read(bytes), read) << answer << " in bytes";
    for (size_t cut = 1; cut < answer.size(); ++cut) {
      ASSERT_EQ(Read({answer.substr(0, cut), answer.substr(cut)}), read)
          << answer << " cut at " << cut;
    }
  }
}

TEST(CallParserTest, LosesNoByteOfAnAnswerWithoutCalls) {
  const CallOptions other = {.names = {"other"}};
  for (const auto& [answer, read] : Cases()) {
    if (answer.find("\"other\"") != std::string::npos) continue;
    EXPECT_EQ(Read({answer}, other), answer);
  }
}

TEST(CallParserTest, WithoutToolsEverythingIsText) {
  for (const auto& [answer, read] : Cases()) EXPECT_EQ(Read({answer}, {}), answer);
}

TEST(CallParserTest, PassesArgumentsOnAsTheyCome) {
  CallParser parser(kTools);
  std::vector<AnswerEvent> events;
  parser.Append(R"({"name": "roll", "parameters": {"n)", events);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, Kind::kCallBegin);
  EXPECT_EQ(events[1].text, "{\"n");
  events.clear();
  parser.Append("\": 4", events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "\": 4");
}

TEST(CallParserTest, HoldsTextBackOnlyWhileItMayBecomeACall) {
  CallParser parser(kTools);
  std::vector<AnswerEvent> events;
  parser.Append("Hi", events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "Hi");
  events.clear();
  parser.Append(" {\"name\": \"", events);
  EXPECT_TRUE(events.empty());
  parser.Append("x\"", events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, " {\"name\": \"x\"");
}

TEST(CallParserTest, DropsFurtherCallsIfOneIsAllowed) {
  CallOptions one = kTools;
  one.parallel = false;
  EXPECT_EQ(Read({R"([{"name": "roll", "parameters": {"n": 1}}, {"name": "roll"}])"}, one),
            R"(<roll({"n": 1})>)");
}

TEST(CallParserTest, GivesEachCallAnIdOfItsOwn) {
  CallOptions options = kTools;
  options.id_prefix = "toolu_";
  CallParser parser(options);
  std::vector<AnswerEvent> events;
  parser.Append(R"([{"name": "roll"}, {"name": "roll"}])", events);
  std::set<std::string> ids;
  for (const AnswerEvent& event : events) {
    if (event.kind != Kind::kCallBegin) continue;
    EXPECT_THAT(event.id, ::testing::MatchesRegex("toolu_[0-9a-f]{24}"));
    ids.insert(event.id);
  }
  EXPECT_EQ(ids.size(), 2u);
}

TEST(CallParserTest, TakesDeepNestingInLinearTime) {
  const std::string deep(200000, '[');
  EXPECT_EQ(Read({"[" + deep}), "[" + deep);
  EXPECT_EQ(Read({R"({"name": "roll", "parameters": {"a": )" + deep}),
            R"(<roll({"a": )" + deep + ")>");
}

}  // namespace
}  // namespace tandem::gateway

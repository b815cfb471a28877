// What the model reads about tools, calls and results.
#include "services/gateway/tool_calls/tool_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::ChatMessage* Add(v1::ChatRequest& request, const std::string& role,
                     const std::string& content) {
  v1::ChatMessage* message = request.add_messages();
  message->set_role(role);
  message->set_content(content);
  return message;
}

void Call(v1::ChatMessage& message, const std::string& id, const std::string& name,
          const std::string& arguments) {
  v1::ToolCall* call = message.add_tool_calls();
  call->set_id(id);
  call->set_name(name);
  call->set_arguments_json(arguments);
}

v1::ChatRequest WeatherRequest() {
  v1::ChatRequest request;
  Add(request, "user", "And in Paris?");
  v1::Tool* tool = request.add_tools();
  tool->set_name("get_weather");
  tool->set_description("Gets the weather.");
  tool->set_parameters_json(
      R"({"type":"object","properties":{"city":{"type":"string"}},"required":["city"]})");
  request.add_tools()->set_name("roll");
  return request;
}

// The messages as "role: content" each.
std::string Rendered(const v1::ChatRequest& request) {
  const auto messages = MessagesOf(request);
  if (!messages.ok()) return std::string(messages.status().message());
  std::string out;
  for (const Message& message : *messages) out += message.role + ": " + message.content + "\n";
  return out;
}

TEST(ToolMessagesTest, ListsTheFunctionsBeforeTheFirstMessage) {
  EXPECT_EQ(
      Rendered(WeatherRequest()),
      "system: You have access to functions. If you decide to invoke any of the functions, put it "
      "in the format of\n"
      "{\"name\": function name, \"parameters\": dictionary of argument name and its value}\n\n"
      "You should not include any other text in the response if you call a function. For several "
      "calls, answer with a JSON list of them.\n"
      "[{\"name\": \"get_weather\", \"description\": \"Gets the weather.\", \"parameters\": "
      "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}, \"required\": "
      "[\"city\"]}}, {\"name\": \"roll\", \"parameters\": {\"type\": \"object\", \"properties\": "
      "{}}}]\n"
      "user: And in Paris?\n");
}

TEST(ToolMessagesTest, TheSystemMessageComesBeforeTheFunctions) {
  v1::ChatRequest request = WeatherRequest();
  v1::ChatRequest with_system = request;
  with_system.clear_messages();
  Add(with_system, "system", "Be brief.");
  Add(with_system, "user", "And in Paris?");
  EXPECT_THAT(Rendered(with_system), StartsWith("system: Be brief.\n\nYou have access"));
}

TEST(ToolMessagesTest, SaysNothingOfSeveralCallsIfOneIsAllowed) {
  v1::ChatRequest request = WeatherRequest();
  request.set_parallel_tool_calls(false);
  EXPECT_THAT(Rendered(request), ::testing::Not(HasSubstr("several")));
  EXPECT_FALSE(CallOptionsOf(request, ToolFormat::kGemma3).parallel);
}

TEST(ToolMessagesTest, WithChoiceNoneTheModelSeesNoTools) {
  v1::ChatRequest request = WeatherRequest();
  request.set_tool_choice(v1::TOOL_CHOICE_NONE);
  EXPECT_EQ(Rendered(request), "user: And in Paris?\n");
  EXPECT_TRUE(CallOptionsOf(request, ToolFormat::kGemma3).names.empty());
  request.set_tool_choice(v1::TOOL_CHOICE_AUTO);
  EXPECT_EQ(CallOptionsOf(request, ToolFormat::kGemma3).names,
            (std::set<std::string>{"get_weather", "roll"}));
}

TEST(ToolMessagesTest, WritesACallAndItsResultAsTheModelSawThem) {
  v1::ChatRequest request;
  Add(request, "user", "Weather?");
  Call(*Add(request, "assistant", ""), "1", "get_weather", R"({"city":"Paris","n":[1,2]})");
  Add(request, "tool", R"({"temperature":18})")->set_tool_call_id("1");
  EXPECT_EQ(Rendered(request),
            "user: Weather?\n"
            "assistant: {\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\", \"n\": "
            "[1, 2]}}\n"
            "user: {\"name\": \"get_weather\", \"result\": {\"temperature\": 18}}\n");
}

TEST(ToolMessagesTest, WritesResultsInTheOrderOfTheCalls) {
  v1::ChatRequest request;
  v1::ChatMessage* calls = Add(request, "assistant", " I look. ");
  Call(*calls, "1", "get_weather", "");
  Call(*calls, "2", "roll", "{\"broken\": ");
  Add(request, "tool", "six \"6\"")->set_tool_call_id("2");
  Add(request, "tool", "sunny")->set_tool_call_id("1");
  Add(request, "user", "So?");
  EXPECT_EQ(Rendered(request),
            "assistant: I look.\n[{\"name\": \"get_weather\", \"parameters\": {}}, {\"name\": "
            "\"roll\", \"parameters\": {\"broken\": }]\n"
            "user: [{\"name\": \"get_weather\", \"result\": \"sunny\"}, {\"name\": \"roll\", "
            "\"result\": \"six \\\"6\\\"\"}]\n"
            "user: So?\n");
}

TEST(ToolMessagesTest, ResultsWithoutIdsGoByNameAndOrder) {
  v1::ChatRequest request;
  v1::ChatMessage* calls = Add(request, "assistant", "");
  Call(*calls, "", "roll", "");
  Call(*calls, "", "get_weather", "");
  Call(*calls, "", "roll", "");
  Add(request, "tool", "1")->set_tool_name("roll");
  Add(request, "tool", "2")->set_tool_name("roll");
  Add(request, "tool", "3");
  EXPECT_THAT(Rendered(request),
              HasSubstr("user: [{\"name\": \"roll\", \"result\": 1}, {\"name\": \"get_weather\", "
                        "\"result\": 3}, {\"name\": \"roll\", \"result\": 2}]"));
}

TEST(ToolMessagesTest, NamesWhatIsWrong) {
  using Fault = std::function<void(v1::ChatRequest&)>;
  const std::vector<std::pair<std::string, Fault>> faults = {
      {"tools[1].name: \"a b\"", [](auto& r) { r.mutable_tools(1)->set_name("a b"); }},
      {"tools[0].name: \"\"", [](auto& r) { r.mutable_tools(0)->set_name(""); }},
      {"tools[1].name: \"xxx",
       [](auto& r) { r.mutable_tools(1)->set_name(std::string(129, 'x')); }},
      {"tools[1].name: another tool", [](auto& r) { r.mutable_tools(1)->set_name("get_weather"); }},
      {"tools[0].parameters_json: no valid JSON",
       [](auto& r) { r.mutable_tools(0)->set_parameters_json("{"); }},
      {"tools[0].parameters_json: no valid JSON",
       [](auto& r) { r.mutable_tools(0)->set_parameters_json(std::string(100, '[')); }},
      {"tools[0].parameters_json: a JSON Schema is",
       [](auto& r) { r.mutable_tools(0)->set_parameters_json("[]"); }},
      {"tools: 130 of them, at most 128",
       [](auto& r) {
         for (int i = 0; i < 128; ++i) r.add_tools();
       }},
      {"tool_choice: it makes",
       [](auto& r) {
         r.clear_tools();
         r.set_tool_choice(v1::TOOL_CHOICE_REQUIRED);
       }},
      {"required_tool: \"fly\" is none of the tools",
       [](auto& r) {
         r.set_tool_choice(v1::TOOL_CHOICE_REQUIRED);
         r.set_required_tool("fly");
       }},
      {"tool_choice: 9", [](auto& r) { r.set_tool_choice(static_cast<v1::ToolChoice>(9)); }},
      {"required_tool:", [](auto& r) { r.set_required_tool("roll"); }},
      {"messages[1].role: \"robot\" is unknown", [](auto& r) { Add(r, "robot", "x"); }},
      {"messages[1].content: not UTF-8", [](auto& r) { Add(r, "user", "\xff"); }},
      {"messages[1].role: a result needs a call", [](auto& r) { Add(r, "tool", "x"); }},
      {"messages[1].tool_call_id: \"7\" is the id of no call",
       [](auto& r) { Add(r, "tool", "x")->set_tool_call_id("7"); }},
      {"messages[1].tool_call_id: only",
       [](auto& r) { Add(r, "user", "x")->set_tool_call_id("7"); }},
      {"messages[1].tool_name: only", [](auto& r) { Add(r, "user", "x")->set_tool_name("7"); }},
      {"messages[1].tool_calls: only", [](auto& r) { Call(*Add(r, "user", "x"), "", "a", ""); }},
      {"messages[1].tool_calls[0].name: is empty",
       [](auto& r) { Call(*Add(r, "assistant", "x"), "", "", ""); }},
      {"messages[1].tool_calls: the results",
       [](auto& r) { Call(*Add(r, "assistant", "x"), "", "a", ""); }},
      {"messages[3].tool_call_id: \"7\"",
       [](auto& r) {
         Call(*Add(r, "assistant", ""), "7", "a", "");
         Add(r, "tool", "x")->set_tool_call_id("7");
         Add(r, "tool", "x")->set_tool_call_id("7");
       }},
  };
  for (const auto& [name, fault] : faults) {
    v1::ChatRequest request = WeatherRequest();
    fault(request);
    const auto messages = MessagesOf(request);
    ASSERT_FALSE(messages.ok()) << name;
    EXPECT_EQ(messages.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(messages.status().message()), StartsWith(name));
  }
}

}  // namespace
}  // namespace tandem::gateway

// FunctionGemma's notation: what it reads, and the calls it writes.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "services/gateway/tool_calls/answer_reader.h"
#include "services/gateway/tool_calls/tool_messages.h"

namespace tandem::gateway {
namespace {

const CallOptions kOptions = {.names = {"roll", "get_weather"},
                              .format = ToolFormat::kFunctionGemma};

// "text|name(arguments)|..."
std::string ReadCalls(const std::vector<std::string>& pieces,
                      const CallOptions& options = kOptions) {
  AnswerReader reader(options);
  for (const std::string& piece : pieces) reader.Append(piece);
  reader.Finish();
  std::string out = reader.text();
  for (const v1::ToolCall& call : reader.calls()) {
    out += "|" + call.name() + "(" + call.arguments_json() + ")";
  }
  return out;
}

TEST(FunctionGemmaTest, ReadsCallsHoweverTheAnswerIsCut) {
  const std::string begin = "<start_function_call>call:";
  const std::string end = "<end_function_call>";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"Hello <there> a<b {x} [1]\n", "Hello <there> a<b {x} [1]\n"},
      {"call:roll{}", "call:roll{}"},
      {begin + "get_weather{city:<escape>Paris<escape>,days:3}" + end,
       R"(|get_weather({"city":"Paris","days":3}))"},
      {begin + "roll{}" + end + "<start_function_response>", "|roll({})"},
      {begin + "roll" + end, "|roll({})"},
      {begin + "roll{a:true,b:null,c:-1.5e3,d:red}" + end,
       R"(|roll({"a":true,"b":null,"c":-1.5e3,"d":"red"}))"},
      {begin + "roll{a:{b:[1,<escape>x<escape>,{c:2}], d : 10:30 },<escape>e f<escape>:1}" + end,
       R"(|roll({"a":{"b":[1,"x",{"c":2}],"d":"10:30"},"e f":1}))"},
      {begin + "roll{a:<escape>{\"x\": [1,2]}\n\t\\ <end> :,<escape>}" + end,
       R"(|roll({"a":"{\"x\": [1,2]}\n\t\\ <end> :,"}))"},
      {begin + "roll{n:1}" + end + begin + "roll{n:2}" + end, R"(|roll({"n":1})|roll({"n":2}))"},
      {"Sure.\n" + begin + "roll{n:1}" + end, R"(Sure.|roll({"n":1}))"},
      {begin + "\u00e9{\u00e9:<escape>\u20ac<escape>}" + end, "|\u00e9({\"\u00e9\":\"\u20ac\"})"},
      // Broken off.
      {begin + "rol", ""},
      {begin + "roll{a:<escape>x", "|roll({\"a\":\"x)"},
      {begin + "roll{a:12", "|roll({\"a\":12)"},
      {begin + "roll{a:1" + end, "|roll({\"a\":1)"},
      {"a <start_function", "a <start_function"},
      {begin + "nothing}" + end, "|nothing}({})"},
      {"<start_function_call>{x}", "{x}"},
  };
  for (const auto& [answer, read] : cases) {
    EXPECT_EQ(ReadCalls({answer}), read) << answer;
    std::vector<std::string> bytes;
    for (const char c : answer) bytes.emplace_back(1, c);
    EXPECT_EQ(ReadCalls(bytes), read) << answer << " in bytes";
    for (size_t cut = 1; cut < answer.size(); ++cut) {
      ASSERT_EQ(ReadCalls({answer.substr(0, cut), answer.substr(cut)}), read)
          << answer << " cut at " << cut;
    }
  }
  CallOptions one = kOptions;
  one.parallel = false;
  EXPECT_EQ(ReadCalls({begin + "roll{n:1}" + end + begin + "roll{n:2}" + end}, one),
            R"(|roll({"n":1}))");
}

v1::ChatMessage* AddTurn(v1::ChatRequest& request, const std::string& role,
                         const std::string& content) {
  v1::ChatMessage* message = request.add_messages();
  message->set_role(role);
  message->set_content(content);
  return message;
}

// The conversation as text, with the control tokens' names.
std::string Templated(const v1::ChatRequest& request) {
  const auto messages = MessagesOf(request, ToolFormat::kFunctionGemma);
  if (!messages.ok()) return std::string(messages.status().message());
  return RenderChatText(*messages).value();
}

TEST(FunctionGemmaTest, DeclaresFunctionsAndKeepsCallsAndResultsInTheModelsTurn) {
  v1::ChatRequest request;
  AddTurn(request, "system", " Be brief. ");
  AddTurn(request, "user", "Weather?");
  v1::ToolCall* call = AddTurn(request, "assistant", "")->add_tool_calls();
  call->set_id("1");
  call->set_name("get_weather");
  call->set_arguments_json(R"({"city":"Paris","a":[1,true]})");
  AddTurn(request, "tool", R"({"sky":"sunny","degrees":18})")->set_tool_call_id("1");
  v1::Tool* tool = request.add_tools();
  tool->set_name("get_weather");
  tool->set_description("Gets the <escape> weather.");
  tool->set_parameters_json(R"({"type":"object","properties":{
      "unit":{"type":"string","enum":["c","f"]},
      "city":{"type":"string","description":"The city."},
      "days":{"type":"array","items":{"type":"integer"}}},"required":["city"]})");
  const std::string turns =
      "<start_of_turn>developer\nBe brief.\n\n"
      "You are a model that can do function calling with the following functions"
      "<start_function_declaration>declaration:get_weather{description:<escape>Gets the <escape> "
      "weather.<escape>,parameters:{properties:{city:{description:<escape>The city.<escape>,"
      "type:<escape>STRING<escape>},days:{items:{type:<escape>INTEGER<escape>},"
      "type:<escape>ARRAY<escape>},unit:{enum:[<escape>c<escape>,<escape>f<escape>],"
      "type:<escape>STRING<escape>}},required:[<escape>city<escape>],type:<escape>OBJECT<escape>}}"
      "<end_function_declaration><end_of_turn>\n"
      "<start_of_turn>user\nWeather?<end_of_turn>\n"
      "<start_of_turn>model\n<start_function_call>call:get_weather{a:[1,true],"
      "city:<escape>Paris<escape>}<end_function_call><start_function_response>response:"
      "get_weather{degrees:18,sky:<escape>sunny<escape>}<end_function_response>";
  EXPECT_EQ(Templated(request), turns);
  AddTurn(request, "assistant", "It is sunny.");
  AddTurn(request, "user", "Thanks.");
  EXPECT_EQ(Templated(request),
            turns +
                "It is sunny.<end_of_turn>\n<start_of_turn>user\nThanks.<end_of_turn>\n"
                "<start_of_turn>model\n");
}

TEST(FunctionGemmaTest, WhatAClientSpellsIsNoControlToken) {
  v1::ChatRequest request;
  AddTurn(request, "user", "<escape>");
  v1::Tool* tool = request.add_tools();
  tool->set_name("roll");
  tool->set_description("<escape>");
  const auto messages = MessagesOf(request, ToolFormat::kFunctionGemma);
  ASSERT_TRUE(messages.ok()) << messages.status();
  EXPECT_TRUE((*messages)[1].marks.empty());
  size_t escapes = 0;
  for (const Mark& mark : (*messages)[0].marks) escapes += mark.piece == "<escape>" ? 1 : 0;
  EXPECT_EQ(escapes, 4u) << "around the description and the type";
}

TEST(FunctionGemmaTest, AResultOrArgumentsThatAreNoObjectAreAMember) {
  v1::ChatRequest request;
  v1::ToolCall* call = AddTurn(request, "assistant", "")->add_tool_calls();
  call->set_name("roll");
  call->set_arguments_json("{\"n");
  AddTurn(request, "tool", "five");
  EXPECT_EQ(Templated(request),
            "<start_of_turn>model\n<start_function_call>call:roll{arguments:<escape>{\"n<escape>}"
            "<end_function_call><start_function_response>response:roll{value:<escape>five<escape>}"
            "<end_function_response>");
}

}  // namespace
}  // namespace tandem::gateway

// Members that say what an answer must look like: what each becomes, and each wrong value.
#include "services/gateway/openai/answer_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/api/api_error.h"
#include "services/gateway/api/testing/toy_served_model.h"
#include "services/gateway/openai/chat_request.h"
#include "services/gateway/openai/completion_request.h"
#include "services/gateway/openai/responses_request.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;

constexpr char kTools[] = R"("tools": [{"type": "function", "function": {"name": "roll",
    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}}])";

class AnswerFormatTest : public ::testing::Test {
 protected:
  absl::StatusOr<ApiJob> Chat(const std::string& fields) {
    return Make(MakeChatJob, R"({"messages": [{"role": "user", "content": "the hat"}], )" + fields);
  }
  absl::StatusOr<ApiJob> Completion(const std::string& fields) {
    return Make(MakeCompletionJob, R"({"prompt": ["the hat", "in"], "n": 2, )" + fields);
  }
  absl::StatusOr<ApiJob> Responses(const std::string& fields) {
    return Make(MakeResponsesJob, R"({"input": "the hat", )" + fields);
  }
  template <class MakeJob>
  absl::StatusOr<ApiJob> Make(MakeJob make, const std::string& members) {
    const auto body = ParseJsonObject(members + "}");
    EXPECT_TRUE(body.ok()) << body.status() << " " << members;
    return make(*body, *model_, "request");
  }
  // "KIND text" of the one constraint of all runs; the error's message.
  static std::string Said(const absl::StatusOr<ApiJob>& job) {
    if (!job.ok()) return std::string(job.status().message());
    std::string said;
    for (const EngineRequest& run : job->runs) {
      if (run.constraint_source == nullptr) {
        said = "nothing";
        continue;
      }
      const char* const kinds[] = {"object", "schema", "regex", "choices", "gbnf", "lark"};
      said = kinds[static_cast<int>(run.constraint_source->kind)] + std::string(" ");
      said += run.constraint_source->text;
      for (const std::string& choice : run.constraint_source->choices) said += choice + ",";
    }
    return said;
  }

  std::unique_ptr<ServedModel> model_ = testing::MakeRoomyToyModel();
};

TEST_F(AnswerFormatTest, EveryMemberReachesTheEngine) {
  const std::vector<std::pair<const char*, const char*>> members = {
      {R"("response_format": {"type": "text"})", "nothing"},
      {R"("response_format": {})", "nothing"},
      {R"("response_format": null)", "nothing"},
      {R"("response_format": {"type": "json_object"})", "object "},
      {R"("response_format": {"type": "json_object", "schema": {"type": "null"}})",
       R"(schema {"type":"null"})"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a-B_9",
           "description": "x", "strict": true, "schema": {"b": 1, "a": 2}}})",
       R"(schema {"b":1,"a":2})"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": false,
           "schema": {}}})",
       "schema {}"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": null,
           "schema": {}}})",
       "schema {}"},
      {R"("guided_json": {"type": "null"})", R"(schema {"type":"null"})"},
      {R"("guided_json": "{\"type\": \"null\"}")", R"(schema {"type": "null"})"},
      {R"("guided_json": "")", "nothing"},
      {R"("guided_regex": "a+")", "regex a+"},
      {R"("guided_regex": "")", "nothing"},
      {R"("guided_choice": ["yes", "no"])", "choices yes,no,"},
      {R"("guided_choice": null)", "nothing"},
      {R"("guided_grammar": "root ::= \"a\"")", "gbnf root ::= \"a\""},
      {R"("guided_grammar": "start: \"a\" // ::=")", "lark start: \"a\" // ::="},
      {R"("structured_outputs": {"json": {"type": "null"}})", R"(schema {"type":"null"})"},
      {R"("structured_outputs": {"regex": "a", "disable_fallback": true})", "regex a"},
      {R"("structured_outputs": {"choice": ["a"]})", "choices a,"},
      {R"("structured_outputs": {"grammar": "start: \"a\""})", "lark start: \"a\""},
      {R"("structured_outputs": {"json_object": true})", "object "},
      {R"("structured_outputs": {"json_object": false, "whitespace_pattern": null})", "nothing"},
      {R"("grammar": "root ::= \"a\"")", "gbnf root ::= \"a\""},
      {R"("grammar": "start: \"a\"")", "gbnf start: \"a\""},
      {R"("grammar": "")", "nothing"},
      {R"("json_schema": {"type": "null"})", R"(schema {"type":"null"})"},
      {R"("guided_decoding_backend": "xgrammar")", "nothing"},
  };
  for (const auto& [fields, said] : members) {
    EXPECT_EQ(Said(Chat(fields)), said) << fields;
    EXPECT_EQ(Said(Completion(fields)), said) << fields;
    if (std::string(fields).find("response_format") == std::string::npos) {
      EXPECT_EQ(Said(Responses(fields)), said) << fields;
    }
  }
  const std::vector<std::pair<const char*, const char*>> of_responses = {
      {R"("text": {"format": {"type": "text"}})", "nothing"},
      {R"("text": {"verbosity": "low"})", "nothing"},
      {R"("text": {"format": {"type": "json_object"}})", "object "},
      {R"("text": {"format": {"type": "json_schema", "name": "a", "strict": true,
           "schema": {"type": "null"}}})",
       R"(schema {"type":"null"})"},
  };
  for (const auto& [fields, said] : of_responses) EXPECT_EQ(Said(Responses(fields)), said);
}

TEST_F(AnswerFormatTest, WrongValuesAreNamed) {
  struct Fault {
    const char* fields;
    const char* param;
    const char* code;
  };
  const std::vector<Fault> faults = {
      {R"("response_format": "json")", "response_format", "invalid_type"},
      {R"("response_format": {"schema": {}})", "response_format.type",
       "missing_required_parameter"},
      {R"("response_format": {"type": 5})", "response_format.type", "invalid_type"},
      {R"("response_format": {"type": "structural_tag"})", "response_format.type",
       "unsupported_parameter"},
      {R"("response_format": {"type": "json_object", "schema": 5})", "response_format.schema",
       "invalid_type"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema",
       "missing_required_parameter"},
      {R"("response_format": {"type": "json_schema", "json_schema": 5})",
       "response_format.json_schema", "invalid_type"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}}})",
       "response_format.json_schema.name", "missing_required_parameter"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a b"}})",
       "response_format.json_schema.name", "invalid_value"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": ""}})",
       "response_format.json_schema.name", "invalid_value"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a"}})",
       "response_format.json_schema.schema", "missing_required_parameter"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": "{}"}})",
       "response_format.json_schema.schema", "invalid_type"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {},
           "strict": 1}})",
       "response_format.json_schema.strict", "invalid_type"},
      {R"("guided_json": 5)", "guided_json", "invalid_type"},
      {R"("guided_regex": ["a"])", "guided_regex", "invalid_type"},
      {R"("guided_choice": "a")", "guided_choice", "invalid_type"},
      {R"("guided_choice": [])", "guided_choice", "empty_array"},
      {R"("guided_choice": ["a", 5])", "guided_choice[1]", "invalid_type"},
      {R"("guided_grammar": {})", "guided_grammar", "invalid_type"},
      {R"("guided_whitespace_pattern": " ?")", "guided_whitespace_pattern",
       "unsupported_parameter"},
      {R"("structural_tag": "{}")", "structural_tag", "unsupported_parameter"},
      {R"("structured_outputs": 5)", "structured_outputs", "invalid_type"},
      {R"("structured_outputs": {"json": 5})", "structured_outputs.json", "invalid_type"},
      {R"("structured_outputs": {"json_object": "x"})", "structured_outputs.json_object",
       "invalid_type"},
      {R"("structured_outputs": {"structural_tag": "x"})", "structured_outputs.structural_tag",
       "unsupported_parameter"},
      {R"("structured_outputs": {"disable_any_whitespace": true})",
       "structured_outputs.disable_any_whitespace", "unsupported_parameter"},
      {R"("grammar": 5)", "grammar", "invalid_type"},
      {R"("json_schema": "{}")", "json_schema", "invalid_type"},
  };
  for (const Fault& fault : faults) {
    for (const absl::Status& status :
         {Chat(fault.fields).status(), Completion(fault.fields).status()}) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << fault.fields << ": " << status;
      EXPECT_EQ(ErrorParam(status), fault.param) << fault.fields << ": " << status;
      EXPECT_EQ(ErrorCode(status), fault.code) << fault.fields << ": " << status;
    }
  }
  const std::vector<Fault> of_responses = {
      {R"("text": 5)", "text", "invalid_type"},
      {R"("text": {"format": 5})", "text.format", "invalid_type"},
      {R"("text": {"format": {"type": "xml"}})", "text.format.type", "unsupported_parameter"},
      {R"("text": {"format": {"type": "json_schema", "schema": {}}})", "text.format.name",
       "missing_required_parameter"},
      {R"("text": {"format": {"type": "json_schema", "name": "a"}})", "text.format.schema",
       "missing_required_parameter"},
  };
  for (const Fault& fault : of_responses) {
    const absl::Status status = Responses(fault.fields).status();
    EXPECT_EQ(ErrorParam(status), fault.param) << fault.fields << ": " << status;
    EXPECT_EQ(ErrorCode(status), fault.code) << fault.fields << ": " << status;
  }
}

TEST_F(AnswerFormatTest, TwoConstraintsAreRefusedWithBothNames) {
  const std::vector<std::pair<const char*, const char*>> pairs = {
      {R"("response_format": {"type": "json_object"}, "guided_regex": "a")",
       "'response_format' and 'guided_regex'"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
          "json_schema": {})",
       "'response_format.json_schema.schema' and 'json_schema'"},
      {R"("guided_json": {}, "guided_choice": ["a"])", "'guided_json' and 'guided_choice'"},
      {R"("structured_outputs": {"regex": "a", "grammar": "root ::= \"a\""})",
       "'structured_outputs.regex' and 'structured_outputs.grammar'"},
      {R"("guided_grammar": "start: \"a\"", "grammar": "root ::= \"a\"")",
       "'guided_grammar' and 'grammar'"},
  };
  for (const auto& [fields, names] : pairs) {
    const absl::Status status = Chat(fields).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << fields;
    EXPECT_EQ(
        std::string(status.message()),
        std::string("Both ") + names + " say what the answer must look like; send one of them.");
  }
  EXPECT_TRUE(Chat(R"("response_format": {"type": "text"}, "guided_regex": "a")").ok());
}

TEST_F(AnswerFormatTest, AGrammarIsLarksUnlessALineHasARuleOfGbnf) {
  for (const char* lark : {"start: \"a\"", "", "# root ::= x\nstart: A // ::=", "a"}) {
    EXPECT_TRUE(IsLarkGrammar(lark)) << lark;
  }
  for (const char* gbnf : {"root ::= x", "\n# c\nroot ::= \"a\" # b", "start: x\n a ::= b\n"}) {
    EXPECT_FALSE(IsLarkGrammar(gbnf)) << gbnf;
  }
}

TEST_F(AnswerFormatTest, WithToolsTheTextIsBoundOrRefused) {
  const std::string tools = std::string(kTools) + ", ";
  EXPECT_THAT(Said(Chat(tools + R"("response_format": {"type": "json_object"})")),
              HasSubstr("tandem:text"));
  const absl::Status regex = Chat(tools + R"("guided_regex": "a")").status();
  EXPECT_EQ(ErrorParam(regex), "guided_regex") << regex;
  EXPECT_THAT(std::string(regex.message()), HasSubstr("tool_choice none"));
  EXPECT_EQ(Said(Chat(tools + R"("guided_regex": "a", "tool_choice": "none")")), "regex a");
  EXPECT_THAT(Said(Chat(tools + R"("guided_regex": "a", "tool_choice": "required")")),
              HasSubstr("tandem:call"));
  const absl::Status text = Chat(tools + R"("guided_json": "{")").status();
  EXPECT_EQ(ErrorParam(text), "guided_json") << text;
}

TEST_F(AnswerFormatTest, ErrorsOfTheCompilerNameTheMember) {
  const auto job = Chat(R"("guided_regex": "(")");
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::Status status =
      NameConstraint(absl::InvalidArgumentError("regular expression: x"), job->constraint_names);
  EXPECT_EQ(ErrorParam(status), "guided_regex");
  EXPECT_EQ(std::string(status.message()), "Invalid 'guided_regex': regular expression: x");
  const auto required = Responses(R"("tool_choice": "required", "tools": [{"type": "function",
      "name": "roll"}], "guided_regex": "a")");
  ASSERT_TRUE(required.ok()) << required.status();
  const absl::Status tool = NameConstraint(
      absl::InvalidArgumentError("tools[3].parameters_json: #/not: x"), required->constraint_names);
  EXPECT_EQ(ErrorParam(tool), "tools[3].parameters");
  EXPECT_EQ(std::string(tool.message()), "tools[3].parameters: #/not: x");
  EXPECT_EQ(ErrorParam(NameConstraint(absl::InvalidArgumentError("schema: #: no value fits it"),
                                      required->constraint_names)),
            "tools");
  EXPECT_TRUE(absl::IsResourceExhausted(
      NameConstraint(absl::ResourceExhaustedError("x"), required->constraint_names)));
}

}  // namespace
}  // namespace tandem::gateway

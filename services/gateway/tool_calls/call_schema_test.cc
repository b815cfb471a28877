// The schema of an answer that calls functions, and how its errors are named.
#include "services/gateway/tool_calls/call_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr char kCity[] = R"({"type":"object","properties":{"city":{"type":"string"}}})";

v1::ChatRequest TwoTools(const std::string& parameters = kCity) {
  v1::ChatRequest request;
  request.add_tools()->set_name("get_weather");
  request.mutable_tools(0)->set_parameters_json(parameters);
  request.add_tools()->set_name("roll");
  return request;
}

Json SchemaOf(const v1::ChatRequest& request) {
  const auto schema = CallSchema(request);
  EXPECT_TRUE(schema.ok()) << schema.status();
  return schema.ok() ? Json::parse(*schema) : Json();
}

// What the schema says of the first tool's arguments.
Json ArgumentsOf(const std::string& parameters) {
  return SchemaOf(TwoTools(parameters))["$defs"]["tandem:tool:0"];
}

TEST(CallSchemaTest, ACallIsANameAndItsArgumentsAndAListHasOneOrMore) {
  const Json schema = SchemaOf(TwoTools());
  const Json call = {{"$ref", "#/$defs/tandem:call"}};
  EXPECT_EQ(schema["anyOf"],
            Json::array({call, {{"type", "array"}, {"items", call}, {"minItems", 1}}}));
  const Json& calls = schema["$defs"]["tandem:call"]["anyOf"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[1], Json::parse(R"({"type": "object", "properties": {"name": {"const": "roll"},
      "parameters": {"$ref": "#/$defs/tandem:tool:1"}}, "required": ["name", "parameters"],
      "additionalProperties": false})"));
}

TEST(CallSchemaTest, ANamedToolIsTheOnlyOneAndOneCallIsNoList) {
  v1::ChatRequest request = TwoTools();
  request.set_required_tool("roll");
  request.set_parallel_tool_calls(false);
  const Json schema = SchemaOf(request);
  EXPECT_EQ(schema["anyOf"].size(), 1u);
  const Json& calls = schema["$defs"]["tandem:call"]["anyOf"];
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0]["properties"]["name"]["const"], "roll");
}

TEST(CallSchemaTest, ArgumentsAreAnObjectOfTheirOwnDocument) {
  EXPECT_EQ(ArgumentsOf(R"({"$ref": "#/$defs/a", "$defs": {"a": {}}})"),
            Json::parse(R"({"$ref": "#/$defs/a", "$defs": {"a": {}}, "type": "object",
                            "$id": "tandem:tool:0"})"));
  EXPECT_EQ(ArgumentsOf(R"({"type": ["null", "object"], "$id": "x"})"),
            Json::parse(R"({"type": "object", "$id": "x"})"));
  EXPECT_EQ(ArgumentsOf(R"({"id": "http://x/y"})")["$id"], "http://x/y");
  EXPECT_EQ(ArgumentsOf(R"({"id": "#y"})")["$id"], "tandem:tool:0");
  for (const char* wrong : {R"({"type": "string"})", R"({"type": ["null"]})", R"({"type": 5})"}) {
    const absl::Status status = CallSchema(TwoTools(wrong)).status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("tools[0].parameters_json: its type must be \"object\", not "));
  }
}

TEST(CallSchemaTest, NoArgumentsComeThatTheSchemaDoesNotList) {
  EXPECT_EQ(ArgumentsOf(kCity)["additionalProperties"], false);
  EXPECT_EQ(ArgumentsOf("")["additionalProperties"], false) << "it takes none";
  EXPECT_EQ(ArgumentsOf(R"({"properties": {"a": {}}, "required": ["a"]})")["additionalProperties"],
            false);
  EXPECT_EQ(
      ArgumentsOf(R"({"properties": {}, "additionalProperties": true})")["additionalProperties"],
      true);
  for (const char* open :
       {"{}", R"({"properties": {"a": {}}, "required": ["b"]})",
        R"({"properties": {}, "patternProperties": {"x": {}}})",
        R"({"properties": {}, "anyOf": [{}]})", R"({"properties": {}, "$ref": "#/x"})"}) {
    EXPECT_FALSE(ArgumentsOf(open).contains("additionalProperties")) << open;
  }
}

TEST(CallSchemaTest, TextKeepsItsGuidanceAndItsReferences) {
  const auto schema = CallOrTextSchema(
      TwoTools(),
      R"({"x-guidance": {"key_order": "any"}, "$ref": "#/$defs/a", "$defs": {"a": {}}})");
  ASSERT_TRUE(schema.ok()) << schema.status();
  const Json json = Json::parse(*schema);
  EXPECT_EQ(json["x-guidance"]["key_order"], "any");
  EXPECT_EQ(json["anyOf"].size(), 3u);
  EXPECT_EQ(json["anyOf"][0]["$ref"], "#/$defs/tandem:text");
  EXPECT_EQ(json["$defs"]["tandem:text"],
            Json::parse(R"({"$ref": "#/$defs/a", "$defs": {"a": {}}, "$id": "tandem:text"})"));
  EXPECT_THAT(std::string(CallOrTextSchema(TwoTools(), "{").status().message()),
              HasSubstr("schema: "));
  EXPECT_TRUE(CallOrTextSchema(TwoTools(), "true").ok());
}

TEST(CallSchemaTest, ErrorsNameThePartAsTheRequestDoes) {
  const auto named = [](const char* message) {
    return std::string(NameSchemaPart(absl::InvalidArgumentError(message)).message());
  };
  EXPECT_EQ(named("schema: #/$defs/tandem:tool:12/properties/a/not: is not supported"),
            "tools[12].parameters_json: #/properties/a/not: is not supported");
  EXPECT_EQ(named("schema: #/$defs/tandem:tool:0: must be a schema"),
            "tools[0].parameters_json: #: must be a schema");
  EXPECT_EQ(named("schema: #/$defs/tandem:text/not: is not supported"),
            "schema: #/not: is not supported");
  for (const char* other : {"schema: #/$defs/tool/not: x", "schema: #: no value fits it", ""}) {
    EXPECT_EQ(named(other), other);
  }
  EXPECT_TRUE(NameSchemaPart(absl::OkStatus()).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(
      NameSchemaPart(absl::ResourceExhaustedError("schema: #/$defs/tandem:text: x"))));
}

}  // namespace
}  // namespace tandem::gateway

#include "services/gateway/rest/openapi.h"

#include <gtest/gtest.h>

#include "services/gateway/rest/rest_binding.h"
#include "services/gateway/rest/testing/library.pb.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {
namespace {

using Json = nlohmann::ordered_json;

// Every reference in `at` leads somewhere in `document`.
void CheckReferences(const Json& document, const Json& at) {
  if (at.is_object() && at.contains("$ref")) {
    const std::string target = at["$ref"].get<std::string>().substr(1);
    EXPECT_TRUE(document.contains(Json::json_pointer(target))) << target;
  }
  for (const Json& child : at) {
    if (child.is_structured()) CheckReferences(document, child);
  }
}

TEST(OpenApiTest, DescribesEveryBindingOfThePublicApi) {
  const auto& service = *v1::GenerateRequest::descriptor()->file()->service(0);
  const auto document = BuildOpenApi(service, "1.2.3");
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ((*document)["openapi"], "3.1.0");
  EXPECT_EQ((*document)["info"]["version"], "1.2.3");
  CheckReferences(*document, *document);
  size_t num_operations = 0;
  std::set<std::string> ids;
  for (const auto& [path, item] : (*document)["paths"].items()) {
    for (const auto& [method, operation] : item.items()) {
      ++num_operations;
      EXPECT_TRUE(ids.insert(operation["operationId"]).second) << operation["operationId"];
      // Each variable of the path is a parameter.
      const bool has_variable = path.find('{') != std::string::npos;
      EXPECT_EQ(has_variable,
                operation.contains("parameters") && operation["parameters"][0]["in"] == "path")
          << path;
    }
  }
  size_t num_bindings = 0;
  for (int i = 0; i < service.method_count(); ++i) {
    num_bindings += ReadBindings(*service.method(i)).value().size();
  }
  EXPECT_EQ(num_operations, num_bindings);
  const Json& generate = (*document)["paths"]["/tandem/v1/models/{model}:generate"]["post"];
  EXPECT_EQ(generate["requestBody"]["content"]["application/json"]["schema"]["$ref"],
            "#/components/schemas/tandem.v1.GenerateRequest");
  EXPECT_TRUE(generate["responses"]["200"]["content"].contains("text/event-stream"));
}

TEST(OpenApiTest, TypesAreThoseOfProto3sJson) {
  const auto& service = *tandem::testing::v1::Fields::descriptor()->file()->service(0);
  const auto document = BuildOpenApi(service, "1");
  ASSERT_TRUE(document.ok()) << document.status();
  CheckReferences(*document, *document);
  const Json& fields =
      (*document)["components"]["schemas"]["tandem.testing.v1.Fields"]["properties"];
  EXPECT_EQ(fields["int64"], Json({{"type", "string"}, {"format", "int64"}}));
  EXPECT_EQ(fields["bytes"]["contentEncoding"], "base64");
  EXPECT_EQ(fields["colour"]["enum"], Json({"COLOUR_UNSPECIFIED", "COLOUR_RED"}));
  EXPECT_EQ(fields["map"]["additionalProperties"]["type"], "string");
  EXPECT_EQ(fields["time"]["format"], "date-time");
  EXPECT_EQ(fields["wrappedBool"]["type"], "boolean");
  EXPECT_EQ(fields["fields"]["items"]["$ref"], "#/components/schemas/tandem.testing.v1.Fields");
  const Json& put = (*document)["paths"]["/v1/nested/{text}"]["patch"];
  EXPECT_EQ(put["requestBody"]["content"]["application/json"]["schema"]["$ref"],
            "#/components/schemas/tandem.testing.v1.Fields");
  for (const Json& parameter : put["parameters"]) {
    EXPECT_NE(parameter["name"].get<std::string>().substr(0, 6), "nested") << "the body gives it";
    if (parameter["in"] != "query") continue;
    EXPECT_NE(parameter["name"], "text") << "the path gives it";
  }
  EXPECT_FALSE(
      BuildOpenApi(*tandem::testing::v1::Fields::descriptor()->file()->service(1), "1").ok());
}

}  // namespace
}  // namespace tandem::gateway

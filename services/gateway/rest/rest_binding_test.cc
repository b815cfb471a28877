// Path, query and body to message, case by case.
#include "services/gateway/rest/rest_binding.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "services/gateway/http/http_router.h"
#include "services/gateway/rest/field_binder.h"
#include "services/gateway/rest/testing/library.pb.h"

namespace tandem::gateway {
namespace {

using tandem::testing::v1::Fields;
using ::testing::HasSubstr;

const google::protobuf::ServiceDescriptor& Service(int index) {
  return *Fields::descriptor()->file()->service(index);
}

std::vector<RestBinding> Bindings(const char* method) {
  auto bindings = ReadBindings(*Service(0).FindMethodByName(method));
  EXPECT_TRUE(bindings.ok()) << bindings.status();
  return *std::move(bindings);
}

// The message that the binding of `method` whose HTTP method and path match makes of the request.
absl::StatusOr<Fields> Build(const char* method, const char* http_method, const std::string& target,
                             const std::string& body = "") {
  HttpRequest request;
  request.method = http_method;
  request.path = target.substr(0, target.find('?'));
  if (target.find('?') != std::string::npos) request.query = target.substr(target.find('?') + 1);
  request.body = body;
  for (const RestBinding& binding : Bindings(method)) {
    auto variables = binding.path.Match(request.path);
    if (binding.http_method != http_method || !variables.has_value()) continue;
    request.variables = *variables;
    auto message = BuildRequest(binding, request);
    if (!message.ok()) return message.status();
    return dynamic_cast<const Fields&>(**message);
  }
  return absl::NotFoundError("no binding");
}

std::string Print(const RestBinding& binding, const Fields& response) {
  std::string json;
  const absl::Status status = AppendResponse(binding, response, json);
  EXPECT_TRUE(status.ok()) << status;
  return json;
}

struct QueryCase {
  const char* query;
  const char* expected;  // text format; nullptr: INVALID_ARGUMENT
};

const QueryCase kQueries[] = {
    {"", ""},
    {"&&", ""},
    {"int32=-5", "int32: -5"},
    {"int64=-9223372036854775808", "int64: -9223372036854775808"},
    {"uint32=4294967295", "uint32: 4294967295"},
    {"uint64=18446744073709551615", "uint64: 18446744073709551615"},
    {"sint32=-1&fixed64=1", "sint32: -1 fixed64: 1"},
    {"double=1.5e3", "double: 1500"},
    {"double=NaN", "double: nan"},
    {"double=-Infinity", "double: -inf"},
    {"float=0.25", "float: 0.25"},
    {"bool=true", "bool: true"},
    {"bool=false", ""},
    {"text=a+b%20c%2B", "text: 'a b c+'"},
    {"text=", ""},
    {"text", ""},
    {"text=a=b", "text: 'a=b'"},
    {"text=%E2%82%AC", "text: '\xE2\x82\xAC'"},
    {"%74ext=x", "text: 'x'"},
    {"bytes=AQI%2B", "bytes: '\\001\\002>'"},
    {"bytes=AQI-", "bytes: '\\001\\002>'"},
    {"colour=COLOUR_RED", "colour: COLOUR_RED"},
    {"colour=1", "colour: COLOUR_RED"},
    {"texts=a&texts=b&texts=a", "texts: 'a' texts: 'b' texts: 'a'"},
    {"numbers=1&text=x&numbers=2", "numbers: 1 numbers: 2 text: 'x'"},
    {"nested.nested.text=x&nested.int32=1", "nested { int32: 1 nested { text: 'x' } }"},
    {"nested.texts=a&nested.texts=b", "nested { texts: 'a' texts: 'b' }"},
    {"time=2024-01-02T03:04:05Z", "time { seconds: 1704164645 }"},
    {"duration=1.5s", "duration { seconds: 1 nanos: 500000000 }"},
    {"wrapped=7", "wrapped { value: 7 }"},
    {"wrappedBool=true&maybeNumber=3", "wrapped_bool { value: true } maybe_number: 3"},
    {"wrapped_bool=false&maybe_number=0", "wrapped_bool { } maybe_number: 0"},
    {"left=a", "left: 'a'"},
    {"int32=", nullptr},
    {"int32=x", nullptr},
    {"int32=1.0", nullptr},
    {"int32=+1", nullptr},
    {"int32=%201", nullptr},
    {"int32=2147483648", nullptr},
    {"int32=1&int32=1", nullptr},
    {"uint32=-1", nullptr},
    {"uint64=18446744073709551616", nullptr},
    {"double=x", nullptr},
    {"double=1e999", nullptr},
    {"double=inf", nullptr},
    {"float=1e39", nullptr},
    {"bool=1", nullptr},
    {"bool=", nullptr},
    {"bytes=*", nullptr},
    {"colour=RED", nullptr},
    {"nothing=1", nullptr},
    {"nested.nothing=1", nullptr},
    {"nested=x", nullptr},
    {"fields.text=x", nullptr},
    {"text.x=1", nullptr},
    {".=1", nullptr},
    {"=1", nullptr},
    {"map=x", nullptr},
    {"map.key=x", nullptr},
    {"time=yesterday", nullptr},
    {"time=%22", nullptr},
    {"duration=1", nullptr},
    {"wrapped=x", nullptr},
    {"left=a&right=1", nullptr},
    {"text=%4", nullptr},
    {"text=%zz", nullptr},
    {"text=%FF", nullptr},
    {"%FF=x", nullptr},
};

TEST(RestBindingTest, QueryParametersSetFields) {
  for (const QueryCase& c : kQueries) {
    const auto built = Build("Get", "GET", std::string("/v1/all?") + c.query);
    if (c.expected == nullptr) {
      EXPECT_EQ(built.status().code(), absl::StatusCode::kInvalidArgument) << c.query;
      continue;
    }
    ASSERT_TRUE(built.ok()) << c.query << ": " << built.status();
    Fields expected;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(c.expected, &expected)) << c.expected;
    EXPECT_EQ(built->SerializeAsString(), expected.SerializeAsString())
        << c.query << ": " << built->ShortDebugString();
  }
}

struct RequestCase {
  const char* http_method;
  const char* target;
  const char* body;
  const char* expected;  // text format; nullptr: INVALID_ARGUMENT
};

void CheckRequests(const char* method, std::initializer_list<RequestCase> cases) {
  for (const RequestCase& c : cases) {
    const auto built = Build(method, c.http_method, c.target, c.body);
    SCOPED_TRACE(std::string(c.http_method) + " " + c.target + " " + c.body);
    if (c.expected == nullptr) {
      EXPECT_EQ(built.status().code(), absl::StatusCode::kInvalidArgument) << built.status();
      continue;
    }
    ASSERT_TRUE(built.ok()) << built.status();
    Fields expected;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(c.expected, &expected));
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*built, expected))
        << built->ShortDebugString();
  }
}

TEST(RestBindingTest, PathsSetFieldsAndTheQuerySetsTheRest) {
  CheckRequests(
      "Get",
      {{"GET", "/v1/shelves/a?int32=1", "", "text: 'shelves/a' int32: 1"},
       {"GET", "/v1/shelves/a?text=b", "", nullptr},
       {"GET", "/v1/nested/a%2Fb/7?text=c", "", "nested { text: 'a/b' } int32: 7 text: 'c'"},
       {"GET", "/v1/nested/a/7?nested.int32=1", "", "nested { text: 'a' int32: 1 } int32: 7"},
       {"GET", "/v1/nested/a/x", "", nullptr},
       {"GET", "/v1/nested/%FF/1", "", nullptr},
       {"DELETE", "/v1/all?text=a", "", "text: 'a'"},
       {"LINK", "/v1/all?text=a", "", "text: 'a'"},
       {"GET", "/v1/all", "{}", nullptr}});
}

TEST(RestBindingTest, BodiesAreTheMessageOrAFieldOfIt) {
  CheckRequests("Put",
                {{"PUT", "/v1/whole/3", R"({"text": "a", "nested": {"int64": "5"}})",
                  "int32: 3 text: 'a' nested { int64: 5 }"},
                 {"PUT", "/v1/whole/3", R"({"int32": 4})", "int32: 3"},
                 {"PUT", "/v1/whole/3", "", "int32: 3"},
                 {"PUT", "/v1/whole/3?text=a", "{}", nullptr},
                 {"PUT", "/v1/whole/3", R"({"nothing": 1})", nullptr},
                 {"PUT", "/v1/whole/3", "{", nullptr},
                 {"PUT", "/v1/whole/3", "{} {}", nullptr},
                 {"PUT", "/v1/whole/3", "[]", nullptr},
                 {"PUT", "/v1/whole/3", "text", nullptr},
                 {"PUT", "/v1/whole/3", R"({"left": "a", "right": 1})", nullptr},
                 {"PUT", "/v1/whole/3", "{\"text\": \"\xFF\"}", nullptr},
                 {"PUT", "/v1/whole/3", R"({"text": "\ud800"})", nullptr},
                 {"PATCH", "/v1/nested/a", R"({"text": "b"})", "text: 'a' nested { text: 'b' }"},
                 {"PATCH", "/v1/nested/a?int32=1", "{}", "text: 'a' int32: 1 nested { }"},
                 {"PATCH", "/v1/nested/a?nested.int32=1", "{}", nullptr},
                 {"PUT", "/v1/texts?text=x", R"(["a", "b"])", "texts: 'a' texts: 'b' text: 'x'"},
                 {"PUT", "/v1/texts", R"(["a"], "text": "x")", nullptr},
                 {"PUT", "/v1/text", R"("a\nb")", "text: 'a\\nb'"},
                 {"PUT", "/v1/text", R"({"text": 1})", nullptr}});
}

TEST(RestBindingTest, DeepJsonIsRefusedBeforeItIsParsed) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"nested\":";
  const auto built = Build("Put", "PUT", "/v1/whole/1", deep);
  EXPECT_EQ(built.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(built.status().message(), HasSubstr("nested deeper than 64"));
}

TEST(RestBindingTest, ResponsesAreTheMessageOrAFieldOfIt) {
  Fields response;
  response.set_text("a\"b");
  response.set_uint64(18446744073709551615u);
  response.add_texts("x");
  response.mutable_nested()->set_int32(5);
  const auto put = Bindings("Put");
  EXPECT_EQ(
      Print(put[0], response),
      R"({"uint64":"18446744073709551615","text":"a\"b","nested":{"int32":5},"texts":["x"]})");
  EXPECT_EQ(Print(put[1], response), R"({"int32":5})");
  EXPECT_EQ(Print(put[2], response), R"(["x"])");
  EXPECT_EQ(Print(put[3], response), R"("a\"b")");
  EXPECT_EQ(Print(put[1], Fields()), "{}");
  EXPECT_EQ(Print(put[2], Fields()), "[]");
}

TEST(RestBindingTest, AnnotationsThatAreWrongAreRefusedByName) {
  for (int i = 0; i < Service(1).method_count(); ++i) {
    const auto* method = Service(1).method(i);
    const auto bindings = ReadBindings(*method);
    EXPECT_EQ(bindings.status().code(), absl::StatusCode::kInvalidArgument) << method->name();
    EXPECT_THAT(bindings.status().message(), HasSubstr(method->full_name()));
  }
  EXPECT_THAT(Bindings("Plain"), ::testing::IsEmpty());
  EXPECT_EQ(Bindings("Get").size(), 5u);
}

}  // namespace
}  // namespace tandem::gateway

// Bodies of /v1/embeddings: which are read, which are refused, the answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "services/common/base/json_floats.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/testing/toy_served_model.h"
#include "services/gateway/openai/embedding_request.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class OpenAiEmbeddingsTest : public ::testing::Test {
 protected:
  absl::StatusOr<EmbedJob> Make(const std::string& body) {
    const auto parsed = ParseJsonObject(body);
    EXPECT_TRUE(parsed.ok()) << parsed.status() << " " << body;
    return MakeEmbeddingJob(*parsed, *model_, "request");
  }
  static EmbedResult Result() {
    EmbedResult result{.embeddings = {{0.25f, -1e-5f, 0.1f}, {1.0f, 0.0f, -0.0f}}};
    result.usage.set_prompt_tokens(7);
    return result;
  }

  std::unique_ptr<ServedModel> model_ = testing::MakeToyModel();
};

TEST_F(OpenAiEmbeddingsTest, ReadsOneInputOrManyTextsOrTokens) {
  const uint32_t h = 261 + 'h' - 'a';
  const auto text = Make(R"({"model": "toy", "input": "h", "user": "me", "dimensions": 32})");
  ASSERT_TRUE(text.ok()) << text.status();
  ASSERT_THAT(text->runs, SizeIs(1));
  EXPECT_THAT(text->runs[0].prompt, ElementsAre(testing::kToyBos, h));
  EXPECT_TRUE(text->runs[0].embedding);
  EXPECT_EQ(text->runs[0].request_id, "request");
  EXPECT_THAT(Make(R"({"input": ["h", "h h"]})")->runs, SizeIs(2));
  EXPECT_THAT(Make(R"({"input": [5, 9]})")->runs[0].prompt, ElementsAre(5u, 9u));
  const auto lists = Make(R"({"input": [[5, 9], [6]]})");
  ASSERT_THAT(lists->runs, SizeIs(2));
  EXPECT_THAT(lists->runs[1].prompt, ElementsAre(6u));
}

TEST_F(OpenAiEmbeddingsTest, WhatIsWrongOrNotDoneIsNamed) {
  std::string many = R"({"input": [)";
  for (int i = 0; i < 2048; ++i) many += "\"h\",";
  struct Fault {
    std::string body;
    const char* param;
    const char* code;
  };
  const Fault faults[] = {
      {"{}", "input", "missing_required_parameter"},
      {R"({"input": 5})", "input", "invalid_type"},
      {R"({"input": []})", "input", "invalid_type"},
      {R"({"input": ""})", "input", "invalid_value"},
      {R"({"input": ["h", ""]})", "input", "invalid_value"},
      {R"({"input": ["h", 5]})", "input", "invalid_type"},
      {R"({"input": [5, "h"]})", "input", "invalid_type"},
      {R"({"input": [[5], [-1]]})", "input[1]", "invalid_type"},
      {R"({"input": [[5], [9999]]})", "input", "invalid_value"},
      {many + R"("h"]})", "input", "array_above_max_length"},
      {R"({"input": ")" + std::string(3000, 'h') + R"("})", "input", "context_length_exceeded"},
      {R"({"input": "h", "encoding_format": "int8"})", "encoding_format", "invalid_value"},
      {R"({"input": "h", "encoding_format": 8})", "encoding_format", "invalid_type"},
      {R"({"input": "h", "dimensions": 16})", "dimensions", "unsupported_parameter"},
      {R"({"input": "h", "user": 5})", "user", "invalid_type"},
  };
  for (const Fault& fault : faults) {
    const absl::Status status = Make(fault.body).status();
    const std::string body = fault.body.substr(0, 60);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << body << ": " << status;
    EXPECT_EQ(ErrorParam(status), fault.param) << body << ": " << status;
    EXPECT_EQ(ErrorCode(status), fault.code) << body << ": " << status;
  }
  EXPECT_TRUE(absl::IsNotFound(Make(R"({"input": "h", "model": "other"})").status()));
}

TEST_F(OpenAiEmbeddingsTest, AnswersAsOpenAiInNumbersAndInBase64) {
  const Json numbers = Json::parse(Make(R"({"input": ["h", "hh"]})")->to_body(Result()).value());
  EXPECT_EQ(numbers["object"], "list");
  EXPECT_EQ(numbers["model"], "toy");
  EXPECT_EQ(numbers["usage"], Json({{"prompt_tokens", 7}, {"total_tokens", 7}}));
  ASSERT_EQ(numbers["data"].size(), 2u);
  EXPECT_EQ(numbers["data"][1]["object"], "embedding");
  EXPECT_EQ(numbers["data"][1]["index"], 1);
  EXPECT_EQ(numbers["data"][0]["embedding"].get<std::vector<float>>(), Result().embeddings[0]);
  const Json base64 = Json::parse(
      Make(R"({"input": "h", "encoding_format": "base64"})")->to_body(Result()).value());
  std::string bytes;
  const auto text = base64["data"][0]["embedding"].get<std::string>();
  ASSERT_TRUE(absl::Base64Unescape({text.data(), text.size()}, &bytes));
  EXPECT_EQ(bytes, std::string("\x00\x00\x80\x3E\xAC\xC5\x27\xB7\xCD\xCC\xCC\x3D", 12));
}

TEST_F(OpenAiEmbeddingsTest, NumbersComeBackAsTheyWere) {
  const std::vector<float> values = {0.1f,
                                     -1.0f / 3,
                                     std::numeric_limits<float>::min(),
                                     std::numeric_limits<float>::denorm_min(),
                                     std::numeric_limits<float>::max(),
                                     std::nextafterf(1.0f, 2.0f)};
  EXPECT_EQ(Json::parse(FloatsToJson(values)).get<std::vector<float>>(), values);
  EXPECT_EQ(FloatsToJson({}), "[]");
  EXPECT_EQ(FloatsToBase64({}), "");
}

TEST_F(OpenAiEmbeddingsTest, ErrorsNameTheInputAsTheClientSentIt) {
  const std::pair<const char*, const char*> faults[] = {
      {R"({"input": ["h", ""]})", "input[1]: is empty"},
      {R"({"input": ""})", "input: is empty"},
      {R"({"input": [[1], [99999]]})", "input[1][0]: 99999"},
      {R"({"input": [99999]})", "input[0]: 99999"},
  };
  for (const auto& [body, text] : faults) {
    const absl::Status status = Make(body).status();
    EXPECT_TRUE(std::string(status.message()).starts_with(text)) << status;
    EXPECT_EQ(ErrorParam(status), "input") << status;
  }
}

}  // namespace
}  // namespace tandem::gateway

// Pictures in bodies of the OpenAI API: by URL, as data, or refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/testing/toy_pictures.h"
#include "services/gateway/api/testing/toy_served_model.h"
#include "services/gateway/openai/chat_request.h"
#include "services/gateway/openai/responses_request.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OpenAiPicturesTest, AModelThatReadsNoPicturesSaysSo) {
  const auto model = testing::MakeToyModel();
  const auto body = ParseJsonObject(R"({"messages": [{"role": "user", "content": [
      {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}]}]})");
  const absl::Status status = MakeChatJob(*body, *model, "request").status();
  EXPECT_EQ(ErrorParam(status), "messages[0].images");
  EXPECT_THAT(std::string(status.message()), HasSubstr("toy reads no pictures"));
}

TEST(OpenAiPicturesTest, PicturesComeAsUrlsOfNamedHosts) {
  const auto seeing = testing::MakeSeeingToyModel({"*.example.org"});
  const auto of = [](const std::string& url) {
    return std::pair(
        ParseJsonObject(R"({"messages": [{"role": "user", "content": [{"type": "image_url",
            "image_url": {"url": ")" +
                        url + R"("}}, {"type": "text", "text": "hat"}]}]})"),
        ParseJsonObject(R"({"input": [{"role": "user", "content": [{"type": "input_image",
            "image_url": ")" +
                        url + R"("}, {"type": "input_text", "text": "hat"}]}]})"));
  };
  const auto [chat, responses] = of("HTTPS://a.example.org/b.png#c");
  for (const auto& job :
       {MakeChatJob(*chat, *seeing, "r"), MakeResponsesJob(*responses, *seeing, "r")}) {
    ASSERT_TRUE(job.ok()) << job.status();
    const EngineRequest& run = job->runs[0];
    EXPECT_THAT(*run.picture_urls, ElementsAre("https://a.example.org/b.png"));
    EXPECT_THAT(*run.picture_files, ElementsAre(""));
    ASSERT_EQ(run.pictures.size(), 1u);
    EXPECT_EQ(run.pictures[0].num_rows, testing::kToyPictureRows);
  }
  const auto [other_chat, other_responses] = of("https://example.org/b.png");
  const std::pair<absl::Status, const char*> refused[] = {
      {MakeChatJob(*other_chat, *seeing, "r").status(), "messages[0].content[0].image_url.url"},
      {MakeResponsesJob(*other_responses, *seeing, "r").status(), "input[0].content[0].image_url"}};
  for (const auto& [status, param] : refused) {
    EXPECT_EQ(ErrorParam(status), param);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("no pictures from example.org: --fetch-images"),
                      HasSubstr("data:image/png;base64")));
  }
}

TEST(OpenAiPicturesTest, OutputsOfCallsHavePictures) {
  const auto seeing = testing::MakeSeeingToyModel({"a.example"});
  const auto body = ParseJsonObject(R"({"input": [
      {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "1", "output": [
          {"type": "input_text", "text": "seen"},
          {"type": "input_image", "image_url": "https://a.example/b.png"}]}]})");
  const auto job = MakeResponsesJob(*body, *seeing, "r");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(*job->runs[0].picture_urls, ElementsAre("https://a.example/b.png"));
  ASSERT_EQ(job->runs[0].pictures.size(), 1u);
  EXPECT_THAT(seeing->tokenizer().Decode(job->runs[0].prompt), HasSubstr("\"result\": \"seen\""));
}

TEST(OpenAiPicturesTest, PicturesComeAsDataUrls) {
  const auto seeing = testing::MakeSeeingToyModel();
  std::string base64;
  absl::Base64Escape(testing::ToyBmp(10), &base64);
  const std::string url = "data:image/bmp;base64," + base64;
  const auto make = [&](auto job, const std::string& text) {
    const auto body = ParseJsonObject(text);
    EXPECT_TRUE(body.ok()) << body.status();
    auto made = job(*body, *seeing, "r");
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->runs[0] : EngineRequest();
  };
  const std::string parts =
      R"({"type": "$text", "text": "the"}, {"type": "$image", "image_url": $url},
         {"type": "$text", "text": "hat"})";
  const auto with = [&](std::string text, const std::string& of, const std::string& image,
                        const std::string& as) {
    return absl::StrReplaceAll(text, {{"$text", of}, {"$image", image}, {"$url", as}});
  };
  const EngineRequest chat =
      make(MakeChatJob,
           R"({"messages": [{"role": "user", "content": [)" +
               with(parts, "text", "image_url", R"({"detail": "high", "url": ")" + url + R"("})") +
               "]}]}");
  const EngineRequest responses = make(
      MakeResponsesJob, R"({"input": [{"role": "user", "content": [)" +
                            with(parts, "input_text", "input_image", '"' + url + '"') + "]}]}");
  for (const EngineRequest& request : {chat, responses}) {
    ASSERT_EQ(request.pictures.size(), 1u);
    EXPECT_EQ(request.pictures[0].num_rows, testing::kToyPictureRows);
    ASSERT_NE(request.picture_files, nullptr);
    EXPECT_EQ(request.picture_files->at(0), testing::ToyBmp(10));
    EXPECT_EQ(request.prompt, chat.prompt);
    const auto hat = *seeing->tokenizer().Encode("\n\nhat");
    const auto after = request.prompt.begin() + request.pictures[0].end() + 1;
    EXPECT_TRUE(std::equal(hat.begin(), hat.end(), after)) << "the text behind the picture";
  }
}

}  // namespace
}  // namespace tandem::gateway

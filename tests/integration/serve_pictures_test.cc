// Pictures through every API of `tandem serve`, from the file to the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_format.h"
#include "services/common/pull/testing/fake_hub.h"
#include "services/common/testing/paths.h"
#include "services/loader/formats/testing/vision_builder.h"
#include "tests/integration/picture_client.h"
#include "tests/integration/picture_server.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr uint32_t kRows = 36;  // of a picture of the toy encoder

// A BMP file of 8 x 8 pixels of one colour.
std::string Bmp(unsigned char red, unsigned char green, unsigned char blue) {
  std::string file("BM\xF6\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x08\0\0\0\x08\0\0\0\x01\0\x18\0", 30);
  file.resize(54);
  for (int pixel = 0; pixel < 64; ++pixel) {
    for (const unsigned char value : {blue, green, red}) file += static_cast<char>(value);
  }
  return file;
}

// The bundled model with markers around pictures in the place of pieces that nobody needs, and an
// encoder that has learnt nothing, in another folder.
class ToyPicturesTest : public PictureServer {
 protected:
  void SetUp() override {
    std::ifstream file(SourcePath("models/demo/demo.Q8_0.gguf"), std::ios::binary);
    std::string model{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto replace = [&model](const std::string& piece, const std::string& by) {
      const size_t at = model.find(Counted(piece));
      ASSERT_NE(at, std::string::npos) << piece;
      model.replace(at, Counted(piece).size(), Counted(by));
    };
    replace("\u2581Tegucigalpa", "<start_of_image>");
    replace("\u2581Ulaanbaatar", "<end_of_image>");
    replace("\u2581BOLINGBROKE", "two less, so");  // so that tensors keep their place
    std::ofstream(Path("demo.gguf"), std::ios::binary) << model;
    VisionConfig vision = loader::testing::SmallVisionConfig();
    vision.image_size = 24;
    vision.patch_size = 4;
    vision.tokens_per_image = kRows;  // more than a KV block
    vision.text_hidden_dim = 256;
    fs::create_directory(Path("elsewhere"));
    std::ofstream(Path("elsewhere/eyes.gguf"), std::ios::binary)
        << loader::testing::Mmproj(vision).Build();
  }
  // A string as GGUF has it.
  static std::string Counted(const std::string& text) {
    std::string counted(8, '\0');
    counted[0] = static_cast<char>(text.size());
    return counted + text;
  }
  void ServeSeeing(const std::vector<std::string>& flags = {}) {
    std::vector<std::string> all = {"--mmproj", Path("elsewhere/eyes.gguf")};
    all.insert(all.end(), flags.begin(), flags.end());
    Serve(Path("demo.gguf"), all);
  }
};

TEST_F(ToyPicturesTest, EveryApiTakesPictures) {
  ServeSeeing();
  const PictureClient client = Client();
  const PictureQuestion red = {{{"What is in the picture?", {Bmp(255, 0, 0)}, ""}}};
  const PictureReply expected = client.Ask("gRPC", red);
  EXPECT_EQ(expected.image_tokens, kRows);
  for (const std::string& api : PictureClient::Apis()) {
    const PictureReply reply = client.Ask(api, red);
    EXPECT_EQ(reply.text, expected.text) << api;
    EXPECT_EQ(reply.prompt_tokens, expected.prompt_tokens) << api;
    EXPECT_EQ(reply.image_tokens.value_or(kRows), kRows) << api;
  }
  const PictureQuestion blue = {{{"What is in the picture?", {Bmp(0, 0, 255)}, ""}}};
  const PictureQuestion none = {{{"What is in the picture?", {}, ""}}};
  const PictureReply of_none = client.Ask("gRPC", none);
  EXPECT_NE(client.Ask("gRPC", blue).logprob, expected.logprob) << "another picture";
  EXPECT_NE(of_none.text, expected.text);
  EXPECT_EQ(of_none.image_tokens, 0u);
  const std::string page = client.Get("/metrics");
  EXPECT_THAT(page, AllOf(HasSubstr("tandem_pictures_total{outcome=\"encoded\"} 2\n"),
                          HasSubstr("tandem_picture_cache_pictures 2\n"),
                          HasSubstr("tandem_picture_seconds_count{stage=\"encode\"} 2\n")));
  const Json status = Json::parse(client.Get("/tandem/v1/status"));
  ASSERT_TRUE(status.contains("pictures")) << status;
  EXPECT_EQ(status["pictures"]["encoded"], "2");
  EXPECT_EQ(status["pictures"]["cached"], "7") << "by each API";
  for (const char* time : {"decodeSeconds", "prepareSeconds", "encodeSeconds"}) {
    EXPECT_GT(status["pictures"][time].get<double>(), 0) << time;
  }
  EXPECT_THAT(client.Get("/api/show"), HasSubstr("\"vision\""));
  EXPECT_THAT(client.Get("/tandem/v1/models"), HasSubstr("\"imageTokens\":36"));
}

// Nothing is encoded again.  A conversation that goes on starts behind its picture, another
// question at most a block before its end, unless a salt keeps them apart.
TEST_F(ToyPicturesTest, WhatFollowsAPictureIsComputedAlone) {
  ServeSeeing();
  const PictureClient client = Client();
  const auto user = [](const std::string& file, const std::string& text) {
    const Json image = {{"type", "image_url"},
                        {"image_url", {{"url", "data:image/bmp;base64," + Base64(file)}}}};
    return Json{{"role", "user"},
                {"content", Json::array({image, {{"type", "text"}, {"text", text}}})}};
  };
  const auto cached = [&](const Json& messages, const char* salt) {
    const Json body = {
        {"messages", messages}, {"cache_salt", salt}, {"max_tokens", 12}, {"temperature", 0}};
    const auto response = client.Post("/v1/chat/completions", body.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  const Json first = user(Bmp(1, 2, 3), "What is in the picture on the left?");
  const Json answer = {{"role", "assistant"}, {"content", "A small square."}};
  const Json more = {{"role", "user"}, {"content", "And on the right?"}};
  EXPECT_EQ(cached(Json::array({first}), "one"), 0);
  EXPECT_GE(cached(Json::array({first, answer, more}), "one"), static_cast<int>(kRows) + 8);
  EXPECT_GT(cached(Json::array({user(Bmp(1, 2, 3), "Which colour is it?")}), "one"),
            static_cast<int>(kRows) - 16);
  EXPECT_EQ(cached(Json::array({user(Bmp(3, 2, 1), "What is in the picture on the left?")}), "one"),
            0)
      << "another picture";
  EXPECT_EQ(cached(Json::array({first, answer, more}), "other"), 0) << "another salt";
  EXPECT_THAT(client.Get("/metrics"),
              AllOf(HasSubstr("tandem_pictures_total{outcome=\"encoded\"} 3\n"),
                    HasSubstr("tandem_pictures_total{outcome=\"cached\"} 2\n")));
}

TEST_F(ToyPicturesTest, WrongPicturesAndUrlsAreTheClientsMistake) {
  ServeSeeing();
  const PictureClient client = Client();
  const auto refusal = [&](const std::string& url) {
    const std::string body = absl::StrFormat(
        R"({"messages": [{"role": "user", "content": [{"type": "image_url",
            "image_url": {"url": "%s"}}]}]})",
        url);
    const auto response = client.Post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, 400) << response.body;
    return response.body;
  };
  EXPECT_THAT(refusal("https://example.org/a.png"), HasSubstr("this server fetches no images"));
  EXPECT_THAT(refusal("http://127.0.0.1/a.png"), HasSubstr("this server fetches no images"));
  EXPECT_THAT(refusal("file:///etc/passwd"), HasSubstr("this server fetches no images"));
  EXPECT_THAT(refusal("data:image/png,abc"), HasSubstr("expected data:image/png;base64"));
  EXPECT_THAT(refusal("data:image/png;base64,AAAA"), HasSubstr("images[0]: "));
  const std::string whole = Bmp(1, 2, 3);
  EXPECT_THAT(refusal("data:image/bmp;base64," + Base64(whole.substr(0, 100))),
              HasSubstr("images[0]: "));
}

TEST_F(ToyPicturesTest, PicturesAreFetchedFromTheHostsOfTheFlagAlone) {
  using pull::testing::TestReply;
  using pull::testing::TestRequest;
  const std::string file = Bmp(255, 0, 0);
  pull::testing::TestServer pictures([&](const TestRequest& request) -> TestReply {
    if (request.target == "/away")
      return {.status = 302, .fields = {{"Location", "http://[::1]/"}}};
    if (request.target == "/missing") return {.status = 404, .body = "a secret"};
    return {.body = file};
  });
  ServeSeeing({"--fetch-images", absl::StrFormat("*.example.org,127.0.0.1:%d", pictures.port())});
  const PictureClient client = Client();
  const auto ask = [&](const std::string& path, const std::string& url) {
    const Json part = path == "/v1/messages"
                          ? Json{{"type", "image"}, {"source", {{"type", "url"}, {"url", url}}}}
                      : path == "/v1/responses"
                          ? Json{{"type", "input_image"}, {"image_url", url}}
                          : Json{{"type", "image_url"}, {"image_url", {{"url", url}}}};
    const Json message = {{"role", "user"}, {"content", Json::array({part})}};
    const char* of = path == "/v1/responses" ? "input" : "messages";
    const char* tokens = path == "/v1/responses" ? "max_output_tokens" : "max_tokens";
    return client.Post(path,
                       Json{{of, Json::array({message})}, {tokens, 4}, {"temperature", 0}}.dump());
  };
  const std::vector<std::string> apis = {"/v1/chat/completions", "/v1/responses", "/v1/messages"};
  for (const std::string& api : apis) {
    EXPECT_EQ(ask(api, pictures.url() + "/a.bmp").status, 200) << api;
    const auto other = ask(api, "http://127.0.0.1:1/a.bmp");
    EXPECT_EQ(other.status, 400) << api;
    EXPECT_THAT(other.body, HasSubstr("--fetch-images")) << api;
  }
  EXPECT_EQ(pictures.requests().size(), apis.size());
  // The same picture as a data: URL is in the cache, and has the same answer.
  const auto answer = [&](const std::string& url) {
    const auto response = ask(apis[0], url);
    return Json::parse(response.body)["choices"][0]["message"]["content"].get<std::string>();
  };
  EXPECT_EQ(answer(pictures.url() + "/b.bmp"), answer("data:image/bmp;base64," + Base64(file)));
  const auto missing = ask(apis[0], pictures.url() + "/missing");
  EXPECT_EQ(missing.status, 400);
  EXPECT_THAT(missing.body,
              AllOf(HasSubstr("images[0]: "), HasSubstr("status 404"), Not(HasSubstr("secret"))));
  const auto away = ask(apis[2], pictures.url() + "/away");
  EXPECT_EQ(away.status, 400);
  EXPECT_THAT(away.body, AllOf(HasSubstr("redirects to where"), Not(HasSubstr("::1"))));
  EXPECT_THAT(client.Get("/metrics"),
              AllOf(HasSubstr("tandem_pictures_total{outcome=\"encoded\"} 1\n"),
                    HasSubstr("tandem_pictures_total{outcome=\"refused\"} 2\n"),
                    HasSubstr("tandem_picture_seconds_count{stage=\"fetch\"} 6\n")));
}

TEST_F(ToyPicturesTest, AModelWithoutAnEncoderSaysSo) {
  fs::copy_file(Path("elsewhere/eyes.gguf"), Path("demo.mmproj.gguf"));
  Serve(Path("demo.gguf"), {"--mmproj", "none"});
  const PictureClient client = Client();
  const auto response = client.Post(
      "/v1/chat/completions",
      absl::StrFormat(R"({"messages": [{"role": "user", "content": [{"type": "image_url",
                          "image_url": {"url": "data:image/bmp;base64,%s"}}]}]})",
                      Base64(Bmp(1, 2, 3))));
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("it has no vision encoder"));
  EXPECT_THAT(client.Get("/tandem/v1/models"), HasSubstr("it has no vision encoder"));
  EXPECT_FALSE(Json::parse(client.Get("/tandem/v1/status")).contains("pictures"));
  EXPECT_FALSE(client.Ask("gRPC", {{{"Hello.", {}, ""}}}).text.empty()) << "text is served";
}

// Decoders are killed while an answer streams and before the next picture.
TEST_F(ToyPicturesTest, DeadDecodersCostNoStream) {
  ServeSeeing();
  const PictureClient client = Client();
  const PictureQuestion question = {{{"Go on.", {Bmp(10, 20, 30)}, ""}}};
  const std::string expected = client.Stream(question, 40, [](int) {});
  int num_killed = 0;
  const std::string text = client.Stream(question, 40, [&](int message) {
    if (message != 3) return;
    for (const pid_t pid : Decoders()) num_killed += ::kill(pid, SIGKILL) == 0 ? 1 : 0;
    EXPECT_FALSE(client.Ask("gRPC", {{{"What?", {Bmp(99, 20, 30)}, ""}}}).text.empty());
  });
  EXPECT_GT(num_killed, 0);
  EXPECT_EQ(text, expected);
}

// The trained model that sees, against transformers' conversations.  It is too large for the
// repository: without ../shared/models/demo2 (or $TANDEM_PICTURE_MODEL) the test is skipped.
class TrainedPicturesTest : public PictureServer {
 protected:
  void SetUp() override {
    const char* named = std::getenv("TANDEM_PICTURE_MODEL");
    folder_ = fs::weakly_canonical(named != nullptr ? named : SourcePath("../shared/models/demo2"));
    if (!fs::exists(folder_ / "reference.json")) {
      GTEST_SKIP() << "no model that sees at " << folder_ << " (set TANDEM_PICTURE_MODEL)";
    }
    std::ifstream file(folder_ / "reference.json");
    conversations_ = Json::parse(file).at("conversations");
  }
  std::string Image(const std::string& name) const {
    std::ifstream file(folder_ / "images" / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  PictureQuestion Question(const Json& conversation) const {
    const std::string marker = "<start_of_image>";
    PictureQuestion question;
    size_t next = 0;
    for (const Json& turn : conversation.at("turns")) {
      PictureTurn& added = question.turns.emplace_back();
      added.text = turn[0];
      for (; added.text.starts_with(marker); added.text.erase(0, marker.size())) {
        added.images.push_back(Image(conversation.at("images")[next++]));
      }
      if (!turn[1].is_null()) added.answer = turn[1];
    }
    return question;
  }
  void ExpectReference(const PictureClient& client, const std::string& api, size_t i) const {
    const Json& conversation = conversations_.at(i);
    const PictureReply reply = client.Ask(api, Question(conversation));
    EXPECT_EQ(reply.text, conversation.at("continuation_text")) << api << ", conversation " << i;
    EXPECT_EQ(reply.prompt_tokens, conversation.at("tokens").size()) << api;
    const size_t num_rows = 16 * conversation.at("images").size();
    EXPECT_EQ(reply.image_tokens.value_or(num_rows), num_rows) << api;
  }

  fs::path folder_;
  Json conversations_;
};

TEST_F(TrainedPicturesTest, EveryApiGivesTheReferencesAnswers) {
  Serve(folder_.string(), {});
  const PictureClient client = Client();
  for (const std::string& api : PictureClient::Apis()) ExpectReference(client, api, 0);
  // A JPEG, a WebP, a question later on, two pictures.
  for (const size_t i : {4, 7, 11, 12}) ExpectReference(client, "chat", i);
  for (const char* api : {"responses", "messages", "ollama", "gRPC"}) {
    ExpectReference(client, api, 11);
    ExpectReference(client, api, 12);
  }
  EXPECT_THAT(client.Get("/metrics"), HasSubstr("tandem_pictures_total{outcome=\"encoded\"} 6\n"));
}

// Another question came before, so each begins within its picture.
TEST_F(TrainedPicturesTest, SecondQuestionsGetTheReferencesAnswers) {
  Serve(folder_.string(), {});
  const PictureClient client = Client();
  for (const size_t i : {0, 2, 4, 7, 12}) {
    PictureQuestion other = Question(conversations_.at(i));
    other.turns.back().text = "Go on.";
    client.Ask("chat", other);
    ExpectReference(client, "chat", i);
  }
  EXPECT_THAT(client.Get("/metrics"), HasSubstr("tandem_pictures_total{outcome=\"encoded\"} 6\n"));
}

// By the kernels, whose last bits differ: the answers are the same.
TEST_F(TrainedPicturesTest, TheGpuGivesTheReferencesAnswers) {
  UseDevices("off");
  Serve(folder_.string(), {});
  const PictureClient client = Client();
  for (size_t i = 0; i < conversations_.size(); ++i) ExpectReference(client, "chat", i);
}

TEST_F(TrainedPicturesTest, TheNpuAttendsToPictures) {
  UseDevices("emulate");
  Serve(folder_.string(), {});
  const PictureClient client = Client();
  for (const size_t i : {0, 4, 7, 11, 12}) ExpectReference(client, "chat", i);
  // The question of conversation 12 about pictures that are cached.
  ExpectReference(client, "chat", 12);
}

// The GGUF model with the mmproj file beside it, which is found by itself.
TEST_F(TrainedPicturesTest, TheGgufModelFindsItsEncoder) {
  const fs::path model = folder_.parent_path() / "demo2.Q8_0.gguf";
  if (!fs::exists(model)) GTEST_SKIP() << "no " << model;
  Serve(model.string(), {});
  const PictureClient client = Client();
  for (const size_t i : {0, 2, 12}) ExpectReference(client, "chat", i);
}

}  // namespace
}  // namespace tandem::testing

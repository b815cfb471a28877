#include "tests/integration/picture_client.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>

#include "absl/strings/escaping.h"
#include "services/common/rpc/channel.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::testing {
namespace {

using gateway::testing::HttpTestClient;
using gateway::testing::HttpTestResponse;

constexpr uint32_t kMaxTokens = 64;

std::string DataUrl(const std::string& file) { return "data:image/png;base64," + Base64(file); }

// Messages whose content is a list of what `image` and `text` make.
template <class Image, class Text>
Json Messages(const PictureQuestion& question, const Image& image, const Text& text) {
  Json messages = Json::array();
  for (const PictureTurn& turn : question.turns) {
    Json content = Json::array();
    for (const std::string& file : turn.images) content.push_back(image(file));
    content.push_back(text(turn.text));
    messages.push_back({{"role", "user"}, {"content", std::move(content)}});
    if (turn.answer.empty()) continue;
    messages.push_back({{"role", "assistant"}, {"content", turn.answer}});
  }
  return messages;
}

Json TextPart(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

Json ChatBody(const PictureQuestion& question) {
  const auto image = [](const std::string& file) {
    return Json{{"type", "image_url"}, {"image_url", {{"url", DataUrl(file)}, {"detail", "high"}}}};
  };
  return {{"messages", Messages(question, image, TextPart)},
          {"temperature", 0},
          {"max_completion_tokens", kMaxTokens}};
}

Json ResponsesBody(const PictureQuestion& question) {
  const auto image = [](const std::string& file) {
    return Json{{"type", "input_image"}, {"image_url", DataUrl(file)}, {"detail", "auto"}};
  };
  const auto text = [](const std::string& of) {
    return Json{{"type", "input_text"}, {"text", of}};
  };
  return {{"input", Messages(question, image, text)},
          {"temperature", 0},
          {"max_output_tokens", kMaxTokens}};
}

Json MessagesBody(const PictureQuestion& question, const std::string& model) {
  const auto image = [](const std::string& file) {
    return Json{
        {"type", "image"},
        {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", Base64(file)}}}};
  };
  return {{"model", model},
          {"messages", Messages(question, image, TextPart)},
          {"temperature", 0},
          {"max_tokens", kMaxTokens}};
}

Json EncodedImages(const PictureTurn& turn) {
  Json images = Json::array();
  for (const std::string& file : turn.images) images.push_back(Base64(file));
  return images;
}

Json OllamaBody(const PictureQuestion& question, const std::string& model) {
  Json body = {{"model", model},
               {"stream", false},
               {"options", {{"temperature", 0}, {"num_predict", kMaxTokens}}},
               {"messages", Json::array()}};
  for (const PictureTurn& turn : question.turns) {
    body["messages"].push_back(
        {{"role", "user"}, {"content", turn.text}, {"images", EncodedImages(turn)}});
    if (turn.answer.empty()) continue;
    body["messages"].push_back({{"role", "assistant"}, {"content", turn.answer}});
  }
  return body;
}

v1::ChatRequest GrpcRequest(const PictureQuestion& question, uint32_t num_tokens) {
  v1::ChatRequest request;
  for (const PictureTurn& turn : question.turns) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role("user");
    message->set_content(turn.text);
    for (const std::string& file : turn.images) message->add_images()->set_data(file);
    if (turn.answer.empty()) continue;
    message = request.add_messages();
    message->set_role("assistant");
    message->set_content(turn.answer);
  }
  request.mutable_sampling()->set_temperature(0);
  request.mutable_limits()->set_max_tokens(num_tokens);
  request.set_logprobs(1);
  return request;
}

PictureReply GrpcReply(const std::string& target, const v1::ChatRequest& request,
                       const std::function<void(int message)>& on_message) {
  const auto stub = v1::Generation::NewStub(CreateChannel(target));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(3));
  const auto reader = stub->Chat(&context, request);
  PictureReply reply;
  v1::ChatResponse response;
  for (int message = 0; reader->Read(&response); ++message) {
    reply.text += response.text();
    if (reply.logprob == 0 && response.tokens_size() > 0) {
      reply.logprob = response.tokens(0).logprob();
    }
    if (response.has_usage()) {
      reply.prompt_tokens = response.usage().prompt_tokens();
      reply.image_tokens = response.usage().image_tokens();
    }
    on_message(message);
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return reply;
}

}  // namespace

std::string Base64(const std::string& bytes) {
  std::string text;
  absl::Base64Escape(bytes, &text);
  return text;
}

const std::vector<std::string>& PictureClient::Apis() {
  static const std::vector<std::string> kApis = {"chat",     "responses", "messages", "ollama",
                                                 "generate", "gRPC",      "REST"};
  return kApis;
}

HttpTestResponse PictureClient::Post(const std::string& path, const std::string& body) const {
  return HttpTestClient(port_, absl::Minutes(3)).Call("POST", path, body);
}

std::string PictureClient::Get(const std::string& path) const {
  if (path == "/api/show") return Post(path, Json{{"model", model_}}.dump()).body;
  return HttpTestClient(port_, absl::Minutes(3)).Call("GET", path).body;
}

PictureReply PictureClient::Ask(const std::string& api, const PictureQuestion& question) const {
  if (api != "gRPC") return AskHttp(api, question);
  return GrpcReply(target_, GrpcRequest(question, kMaxTokens), [](int) {});
}

std::string PictureClient::Stream(const PictureQuestion& question, uint32_t num_tokens,
                                  const std::function<void(int message)>& on_message) const {
  v1::ChatRequest request = GrpcRequest(question, num_tokens);
  request.mutable_limits()->set_ignore_eos(true);
  return GrpcReply(target_, request, on_message).text;
}

PictureReply PictureClient::AskHttp(const std::string& api, const PictureQuestion& question) const {
  const auto call = [this, &api](const std::string& path, const Json& body) {
    const HttpTestResponse response = Post(path, body.dump());
    EXPECT_EQ(response.status, 200) << api << ": " << response.body;
    return response.status == 200 ? response.body : "";
  };
  const auto ask = [&call](const std::string& path, const Json& body) {
    return Json::parse(call(path, body), nullptr, /*allow_exceptions=*/false);
  };
  try {
    if (api == "chat") {
      const Json answer = ask("/v1/chat/completions", ChatBody(question));
      const Json& usage = answer.at("usage");
      return {answer.at("choices")[0].at("message").at("content"), usage.at("prompt_tokens"),
              usage.at("prompt_tokens_details").value("image_tokens", uint64_t{0}), 0};
    }
    if (api == "responses") {
      const Json answer = ask("/v1/responses", ResponsesBody(question));
      const Json& usage = answer.at("usage");
      return {answer.at("output")[0].at("content")[0].at("text"), usage.at("input_tokens"),
              usage.at("input_tokens_details").value("image_tokens", uint64_t{0}), 0};
    }
    if (api == "messages") {
      const Json answer = ask("/v1/messages", MessagesBody(question, model_));
      const Json& usage = answer.at("usage");
      return {answer.at("content")[0].at("text"),
              usage.at("input_tokens").get<uint64_t>() +
                  usage.value("cache_read_input_tokens", uint64_t{0}),
              std::nullopt, 0};
    }
    if (api == "ollama") {
      const Json answer = ask("/api/chat", OllamaBody(question, model_));
      return {answer.at("message").at("content"), answer.at("prompt_eval_count"), std::nullopt, 0};
    }
    if (api == "generate") {
      Json body = OllamaBody(question, model_);
      body.erase("messages");
      body["prompt"] = question.turns[0].text;
      body["images"] = EncodedImages(question.turns[0]);
      const Json answer = ask("/api/generate", body);
      return {answer.at("response"), answer.at("prompt_eval_count"), std::nullopt, 0};
    }
    // Our own, lines of JSON.
    Json body = {{"messages", Json::array()},
                 {"sampling", {{"temperature", 0}}},
                 {"limits", {{"maxTokens", kMaxTokens}}}};
    for (const PictureTurn& turn : question.turns) {
      Json images = Json::array();
      for (const std::string& file : turn.images) images.push_back({{"data", Base64(file)}});
      body["messages"].push_back(
          {{"role", "user"}, {"content", turn.text}, {"images", std::move(images)}});
    }
    PictureReply reply;
    std::istringstream lines(call("/tandem/v1/chat", body));
    for (std::string line; std::getline(lines, line);) {
      if (line.empty()) continue;
      const Json message = Json::parse(line);
      reply.text += message.value("text", "");
      if (!message.contains("usage")) continue;
      reply.prompt_tokens = message["usage"].at("promptTokens");
      reply.image_tokens = message["usage"].value("imageTokens", uint64_t{0});
    }
    return reply;
  } catch (const Json::exception& error) {
    ADD_FAILURE() << api << ": " << error.what();
    return {};
  }
}

}  // namespace tandem::testing

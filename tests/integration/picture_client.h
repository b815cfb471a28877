// Asks about pictures through each API.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "services/gateway/http/testing/http_test_client.h"

namespace tandem::testing {

using Json = nlohmann::json;

struct PictureTurn {
  std::string text;
  std::vector<std::string> images;  // files, before the text
  std::string answer;               // empty: it is asked for
};
struct PictureQuestion {
  std::vector<PictureTurn> turns;
};

struct PictureReply {
  std::string text;
  uint64_t prompt_tokens = 0;
  std::optional<uint64_t> image_tokens;  // nullopt: the API has no place for them
  float logprob = 0;                     // of the first token; over gRPC alone
};

std::string Base64(const std::string& bytes);

// Greedy answers of at most 64 tokens.  Errors fail the test.
class PictureClient {
 public:
  // Of the gateway's unix socket and its HTTP port.
  PictureClient(std::string target, uint16_t port, std::string model)
      : target_(std::move(target)), port_(port), model_(std::move(model)) {}

  // "chat", "responses", "messages", "ollama", "generate" (of one turn), "gRPC", "REST".
  static const std::vector<std::string>& Apis();
  PictureReply Ask(const std::string& api, const PictureQuestion& question) const;

  // The answer over gRPC, `num_tokens` whatever they are; `on_message` gets the messages' numbers.
  std::string Stream(const PictureQuestion& question, uint32_t num_tokens,
                     const std::function<void(int message)>& on_message) const;
  gateway::testing::HttpTestResponse Post(const std::string& path, const std::string& body) const;
  // A body; /api/show is asked about the model.
  std::string Get(const std::string& path) const;

 private:
  PictureReply AskHttp(const std::string& api, const PictureQuestion& question) const;

  const std::string target_;
  const uint16_t port_;
  const std::string model_;
};

}  // namespace tandem::testing

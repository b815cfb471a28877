#include "tools/tandem/commands/transcript.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_format.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Refuse(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrFormat("%s: %s", path, why));
}

}  // namespace

absl::Status SaveTranscript(const std::string& path, const std::vector<v1::ChatMessage>& messages) {
  Json json = {{"messages", Json::array()}};
  for (const v1::ChatMessage& message : messages) {
    json["messages"].push_back({{"role", message.role()}, {"content", message.content()}});
  }
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::trunc);
  file << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::remove(part.c_str());
    return Refuse(path, reason);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::ChatMessage>> LoadTranscript(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Refuse(path, std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  const Json json = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("messages") || !json["messages"].is_array()) {
    return Refuse(path, "no JSON object with a list of messages");
  }
  std::vector<v1::ChatMessage> messages;
  for (const Json& entry : json["messages"]) {
    const auto text_of = [&entry](const char* key) -> const std::string* {
      if (!entry.is_object() || !entry.contains(key)) return nullptr;
      return entry[key].get_ptr<const std::string*>();
    };
    const std::string* role = text_of("role");
    const std::string* content = text_of("content");
    if (role == nullptr || content == nullptr ||
        (*role != "system" && *role != "user" && *role != "assistant")) {
      return Refuse(path, absl::StrFormat("message %d needs a role (system, user or assistant) and "
                                          "a content, both texts",
                                          messages.size() + 1));
    }
    v1::ChatMessage& message = messages.emplace_back();
    message.set_role(*role);
    message.set_content(*content);
  }
  return messages;
}

}  // namespace tandem

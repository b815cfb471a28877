#include "tools/tandem/commands/transcript.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// By the first bytes of a file.
std::string DataUrl(const std::string& file) {
  const std::string_view bytes = file;
  const char* type = "png";
  if (bytes.starts_with("\xFF\xD8")) type = "jpeg";
  if (bytes.starts_with("GIF8")) type = "gif";
  if (bytes.starts_with("BM")) type = "bmp";
  if (bytes.starts_with("RIFF")) type = "webp";
  std::string base64;
  absl::Base64Escape(file, &base64);
  return absl::StrFormat("data:image/%s;base64,%s", type, base64);
}

absl::Status Refuse(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrFormat("%s: %s", path, why));
}

// A text, or parts if there are pictures.
Json ContentOf(const v1::ChatMessage& message) {
  if (message.images_size() == 0) return message.content();
  Json parts = Json::array();
  size_t from = 0;
  const auto add_text = [&](size_t end) {
    if (end > from) {
      parts.push_back({{"type", "text"}, {"text", message.content().substr(from, end - from)}});
    }
    from = end;
  };
  for (const v1::Image& image : message.images()) {
    add_text(std::clamp<size_t>(image.content_offset(), from, message.content().size()));
    parts.push_back({{"type", "image_url"}, {"image_url", {{"url", DataUrl(image.data())}}}});
  }
  add_text(message.content().size());
  return parts;
}

// The contrary; false: something else.
bool ReadContent(const Json& content, v1::ChatMessage& message) {
  if (content.is_string()) {
    message.set_content(content.get<std::string>());
    return true;
  }
  if (!content.is_array()) return false;
  for (const Json& part : content) {
    if (!part.is_object()) return false;
    if (part.value("type", Json()) == "text" && part.value("text", Json()).is_string()) {
      message.mutable_content()->append(part["text"].get<std::string>());
      continue;
    }
    const auto image_url = part.find("image_url");
    if (image_url == part.end() || !image_url->is_object()) return false;
    const Json url = image_url->value("url", Json());
    const std::string text = url.is_string() ? url.get<std::string>() : "";
    const size_t comma = text.find(',');
    if (!text.starts_with("data:") || comma == std::string::npos) return false;
    v1::Image* image = message.add_images();
    image->set_content_offset(static_cast<uint32_t>(message.content().size()));
    if (!absl::Base64Unescape(text.substr(comma + 1), image->mutable_data())) return false;
  }
  return true;
}

}  // namespace

absl::Status SaveTranscript(const std::string& path, const std::vector<v1::ChatMessage>& messages) {
  Json json = {{"messages", Json::array()}};
  for (const v1::ChatMessage& message : messages) {
    json["messages"].push_back({{"role", message.role()}, {"content", ContentOf(message)}});
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
    v1::ChatMessage message;
    const bool whole = entry.is_object() && entry.contains("role") && entry.contains("content");
    const Json role = whole ? entry["role"] : Json();
    if ((role != "system" && role != "user" && role != "assistant") ||
        !ReadContent(entry["content"], message)) {
      return Refuse(path,
                    absl::StrFormat("message %d needs a role (system, user or assistant) and a "
                                    "content: a text, or parts of text and images",
                                    messages.size() + 1));
    }
    message.set_role(role.get<std::string>());
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace tandem

#include "services/gateway/openai/chat_messages.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/gateway/api/image_members.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/tool_fields.h"

namespace tandem::gateway {
namespace {

std::string ReadRole(JsonFields& message) {
  const auto role = message.String("role");
  if (!role.has_value()) {
    message.Missing("role");
    return "";
  }
  if (*role == "developer") return "system";
  for (const char* known : {"system", "user", "assistant", "tool"}) {
    if (*role == known) return *role;
  }
  message.Fail("role", "invalid_value",
               absl::StrFormat("Invalid value for '%s': \"%s\". Supported values are: "
                               "'system', 'developer', 'user', 'assistant' and 'tool'.",
                               message.PathOf("role"), ClientText(*role, 40)));
  return "";
}

// The picture of a part "image_url" or "input_image".
void ReadImage(JsonFields& part, size_t content_offset, const ImageParts& images) {
  part.RefuseIfSet("file_id", "this server keeps no files; send the picture in 'image_url'.");
  const Json* url = part.Find("image_url");
  if (url == nullptr) return part.Missing("image_url");
  if (url->is_string()) {
    part.String("detail");  // one size whatever it says
    return AddImageUrl(part, "image_url", url->get_ref<const std::string&>(), content_offset,
                       *images.urls, *images.message);
  }
  if (!url->is_object()) return part.WrongType("image_url", "a string or an object");
  JsonFields object(*url, part.error(), part.PathOf("image_url."));
  object.String("detail");
  const Json* text = object.Find("url");
  if (text == nullptr) return object.Missing("url");
  if (!text->is_string()) return object.WrongType("url", "a string");
  AddImageUrl(object, "url", text->get_ref<const std::string&>(), content_offset, *images.urls,
              *images.message);
}

}  // namespace

const Json* ObjectAt(JsonFields& fields, const std::string& at, const Json& element) {
  if (element.is_object()) return &element;
  fields.Fail(at, "invalid_type",
              absl::StrFormat("Invalid type for '%s': expected an object, but got %s instead.",
                              fields.PathOf(at), std::string(JsonTypeName(element))));
  return nullptr;
}

std::string ReadContent(JsonFields& message, std::initializer_list<std::string_view> part_types,
                        const std::string& name, ImageParts images) {
  const Json* content = message.Find(name);
  if (content == nullptr) {
    message.Missing(name);
    return "";
  }
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    message.WrongType(name, "a string or an array of parts");
    return "";
  }
  std::string text;
  for (size_t i = 0; i < content->size() && message.ok(); ++i) {
    const std::string at = absl::StrFormat("%s[%d]", name, i);
    const Json* element = ObjectAt(message, at, (*content)[i]);
    if (element == nullptr) return "";
    JsonFields part(*element, message.error(), message.PathOf(at) + ".");
    const std::string type = part.String("type").value_or("");
    const bool is_image = type == "image_url" || type == "input_image";
    if (is_image && images.message == nullptr) {
      part.Unsupported("type", "this server takes images in messages of the user alone.");
      return "";
    }
    if (is_image) {
      ReadImage(part, text.size(), images);
      continue;
    }
    if (std::find(part_types.begin(), part_types.end(), type) == part_types.end()) {
      part.Unsupported("type", absl::StrFormat("\"%s\": %s", ClientText(type, 40), kTextOnly));
      return "";
    }
    const auto part_text = part.String("text");
    if (!part_text.has_value()) part.Missing("text");
    text += part_text.value_or("");
  }
  return text;
}

void ReadMessage(JsonFields& fields, const std::string& at, const Json& element, PictureUrls& urls,
                 v1::ChatRequest& request) {
  const Json* object = ObjectAt(fields, at, element);
  if (object == nullptr) return;
  JsonFields message(*object, fields.error(), fields.PathOf(at) + ".");
  v1::ChatMessage* added = request.add_messages();
  added->set_role(ReadRole(message));
  message.RefuseIfSet("function_call", "it is of an older API; send 'tool_calls'.");
  message.RefuseIfSet("audio", kTextOnly);
  ReadToolCalls(message, *added);
  if (added->role() == "tool") {
    const auto id = message.String("tool_call_id");
    if (!id.has_value()) message.Missing("tool_call_id");
    added->set_tool_call_id(id.value_or(""));
  }
  // Content is null in messages that called a tool; clients keep such messages in their history.
  if (added->role() == "assistant" && message.Find("content") == nullptr) return;
  added->set_content(
      ReadContent(message, {"text", "input_text", "output_text"}, "content",
                  added->role() == "user" ? ImageParts{added, &urls} : ImageParts{}));
}

void ReadMessages(JsonFields& fields, const std::string& name, PictureUrls& urls,
                  v1::ChatRequest& request) {
  const Json* messages = fields.Array(name);
  if (messages == nullptr) return fields.Missing(name);
  if (messages->empty()) {
    return fields.Fail(name, "empty_array",
                       absl::StrFormat("Invalid '%s': empty array. Expected at least one element.",
                                       fields.PathOf(name)));
  }
  for (size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    ReadMessage(fields, absl::StrFormat("%s[%d]", name, i), (*messages)[i], urls, request);
  }
}

}  // namespace tandem::gateway

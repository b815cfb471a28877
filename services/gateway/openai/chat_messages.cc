#include "services/gateway/openai/chat_messages.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/gateway/openai/openai_options.h"

namespace tandem::gateway {
namespace {

std::string ReadRole(JsonFields& message) {
  const auto role = message.String("role");
  if (!role.has_value()) {
    message.Missing("role");
    return "";
  }
  if (*role == "developer") return "system";
  if (*role == "system" || *role == "user" || *role == "assistant") return *role;
  if (*role == "tool" || *role == "function") {
    message.Unsupported("role", kNoTools);
  } else {
    message.Fail("role", "invalid_value",
                 absl::StrFormat("Invalid value for '%s': \"%s\". Supported values are: "
                                 "'system', 'developer', 'user' and 'assistant'.",
                                 message.PathOf("role"), ClientText(*role, 40)));
  }
  return "";
}

}  // namespace

std::string ReadContent(JsonFields& message, std::initializer_list<std::string_view> part_types) {
  const Json* content = message.Find("content");
  if (content == nullptr) {
    message.Missing("content");
    return "";
  }
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    message.WrongType("content", "a string or an array of parts");
    return "";
  }
  std::string text;
  for (size_t i = 0; i < content->size() && message.ok(); ++i) {
    const std::string name = absl::StrFormat("content[%d]", i);
    const Json& element = (*content)[i];
    if (!element.is_object()) {
      message.Fail(name, "invalid_type",
                   absl::StrFormat("Invalid type for '%s': expected an object, but got %s instead.",
                                   message.PathOf(name), std::string(JsonTypeName(element))));
      return "";
    }
    JsonFields part(element, message.error(), message.PathOf(name) + ".");
    const std::string type = part.String("type").value_or("");
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

void ReadMessages(JsonFields& fields, const std::string& name, v1::ChatRequest& request) {
  const Json* messages = fields.Array(name);
  if (messages == nullptr) return fields.Missing(name);
  if (messages->empty()) {
    return fields.Fail(name, "empty_array",
                       absl::StrFormat("Invalid '%s': empty array. Expected at least one element.",
                                       fields.PathOf(name)));
  }
  for (size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    const std::string at = absl::StrFormat("%s[%d]", name, i);
    if (!(*messages)[i].is_object()) {
      return fields.Fail(
          at, "invalid_type",
          absl::StrFormat("Invalid type for '%s': expected an object, but got %s instead.",
                          fields.PathOf(at), std::string(JsonTypeName((*messages)[i]))));
    }
    JsonFields message((*messages)[i], fields.error(), fields.PathOf(at) + ".");
    v1::ChatMessage* added = request.add_messages();
    added->set_role(ReadRole(message));
    message.RefuseIfSet("tool_calls", kNoTools);
    message.RefuseIfSet("function_call", kNoTools);
    message.RefuseIfSet("audio", kTextOnly);
    // null where the assistant called a tool; clients keep it in their history.
    if (added->role() == "assistant" && message.Find("content") == nullptr) continue;
    added->set_content(ReadContent(message, {"text", "input_text", "output_text"}));
  }
}

}  // namespace tandem::gateway

#include "services/gateway/anthropic/anthropic_messages.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/gateway/api/image_members.h"
#include "services/gateway/openai/chat_messages.h"
#include "services/gateway/tool_calls/tool_messages.h"

namespace tandem::gateway {
namespace {

void AppendBlock(const std::string& text, std::string& out) {
  if (!out.empty() && !text.empty()) out += "\n\n";
  out += text;
}

// Adds the picture of a block behind `content_offset` bytes of the message's content.
void ReadPicture(JsonFields& block, size_t content_offset, PictureUrls& urls,
                 v1::ChatMessage& message) {
  const Json* object = block.Object("source");
  if (object == nullptr) return block.Missing("source");
  JsonFields source(*object, block.error(), block.PathOf("source."));
  const std::string type = source.String("type").value_or("");
  if (type == "base64") {
    const Json* data = source.Find("data");
    if (data == nullptr || !data->is_string()) return source.Missing("data");
    AddImageData(source, "data", data->get_ref<const std::string&>(), content_offset, message);
  } else if (type == "url") {
    AddImageUrl(source, "url", source.String("url").value_or(""), content_offset, urls, message);
  } else {
    source.Unsupported(
        "type", absl::StrFormat("\"%s\": this server takes base64 and url.", ClientText(type, 40)));
  }
}

// A text, or the texts of a list of blocks, with blank lines between.  Pictures go to `message`; null:
// they are refused.
std::string ReadTexts(JsonFields& fields, const std::string& name, PictureUrls* urls = nullptr,
                      v1::ChatMessage* message = nullptr) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) {
    fields.WrongType(name, "a string or an array of blocks");
    return "";
  }
  std::string text;
  for (size_t i = 0; i < value->size() && fields.ok(); ++i) {
    const std::string at = absl::StrFormat("%s[%d]", name, i);
    const Json* element = ObjectAt(fields, at, (*value)[i]);
    if (element == nullptr) return "";
    JsonFields block(*element, fields.error(), fields.PathOf(at) + ".");
    if (message != nullptr && block.String("type") == "image") {
      ReadPicture(block, text.size(), *urls, *message);
      continue;
    }
    block.RefuseUnless("type", "text", "this server does not take such blocks there.");
    const auto part = block.String("text");
    if (!part.has_value()) block.Missing("text");
    AppendBlock(part.value_or(""), text);
  }
  return text;
}

// The blocks of one message.
struct Blocks {
  std::string text;
  std::vector<v1::ToolCall> calls;
  std::vector<v1::ChatMessage> results;
  v1::ChatMessage images;  // its pictures alone
};

void ReadUse(JsonFields& block, Blocks& blocks) {
  const auto id = block.String("id");
  const auto name = block.String("name");
  if (!id.has_value()) block.Missing("id");
  if (!name.has_value()) block.Missing("name");
  v1::ToolCall& call = blocks.calls.emplace_back();
  call.set_id(id.value_or(""));
  call.set_name(name.value_or(""));
  const Json* input = block.Find("input");
  // A call that broke off comes back as it was answered: as a text.
  if (input != nullptr && input->is_string()) {
    call.set_arguments_json(input->get<std::string>());
  } else if (const Json* object = block.Object("input")) {
    call.set_arguments_json(DumpJson(*object));
  }
}

void ReadResult(JsonFields& block, PictureUrls& urls, Blocks& blocks) {
  const auto id = block.String("tool_use_id");
  if (!id.has_value()) block.Missing("tool_use_id");
  const bool failed = block.Bool("is_error").value_or(false);
  v1::ChatMessage& result = blocks.results.emplace_back();
  std::string content = ReadTexts(block, "content", &urls, &result);
  result.set_role("tool");
  result.set_tool_call_id(id.value_or(""));
  result.set_content(failed ? DumpJson({{"error", content}}) : std::move(content));
}

Blocks ReadBlocks(JsonFields& message, bool assistant, PictureUrls& urls) {
  Blocks blocks;
  const Json* content = message.Find("content");
  if (content == nullptr) {
    message.Missing("content");
    return blocks;
  }
  if (content->is_string()) {
    blocks.text = content->get<std::string>();
    return blocks;
  }
  if (!content->is_array()) {
    message.WrongType("content", "a string or an array of blocks");
    return blocks;
  }
  for (size_t i = 0; i < content->size() && message.ok(); ++i) {
    const std::string at = absl::StrFormat("content[%d]", i);
    const Json* element = ObjectAt(message, at, (*content)[i]);
    if (element == nullptr) break;
    JsonFields block(*element, message.error(), message.PathOf(at) + ".");
    const std::string type = block.String("type").value_or("");
    if (type == "text") {
      const auto text = block.String("text");
      if (!text.has_value()) block.Missing("text");
      AppendBlock(text.value_or(""), blocks.text);
    } else if (type == "image" && !assistant) {
      ReadPicture(block, blocks.text.size(), urls, blocks.images);
    } else if (type == "tool_use" && assistant) {
      ReadUse(block, blocks);
    } else if (type == "tool_result" && !assistant) {
      ReadResult(block, urls, blocks);
    } else {
      block.Unsupported("type",
                        absl::StrFormat("\"%s\": this server does not take such blocks in "
                                        "a message of the %s.",
                                        ClientText(type, 40), assistant ? "assistant" : "user"));
    }
  }
  return blocks;
}

void ReadMessages(JsonFields& fields, PictureUrls& urls, v1::ChatRequest& request,
                  std::vector<size_t>& places) {
  const Json* messages = fields.Array("messages");
  if (messages == nullptr) return fields.Missing("messages");
  if (messages->empty()) {
    return fields.Fail("messages", "empty_array", "messages: at least one message is required");
  }
  for (size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    const std::string at = absl::StrFormat("messages[%d]", i);
    const Json* element = ObjectAt(fields, at, (*messages)[i]);
    if (element == nullptr) return;
    JsonFields message(*element, fields.error(), at + ".");
    const std::string role = message.String("role").value_or("");
    if (role != "user" && role != "assistant") {
      return message.Fail("role", "invalid_value",
                          absl::StrFormat("%s: \"%s\" is unknown; use user or assistant",
                                          message.PathOf("role"), ClientText(role, 40)));
    }
    Blocks blocks = ReadBlocks(message, role == "assistant", urls);
    for (v1::ChatMessage& result : blocks.results) *request.add_messages() = std::move(result);
    if (blocks.results.empty() || !blocks.text.empty() || blocks.images.images_size() > 0) {
      v1::ChatMessage* added = request.add_messages();
      added->mutable_images()->Swap(blocks.images.mutable_images());
      added->set_role(role);
      added->set_content(std::move(blocks.text));
      for (v1::ToolCall& call : blocks.calls) *added->add_tool_calls() = std::move(call);
    }
    places.resize(request.messages_size(), i);
  }
}

void ReadTools(JsonFields& fields, v1::ChatRequest& request) {
  const Json* tools = fields.Array("tools");
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size() && fields.ok(); ++i) {
    const std::string at = absl::StrFormat("tools[%d]", i);
    const Json* element = ObjectAt(fields, at, (*tools)[i]);
    if (element == nullptr) return;
    JsonFields tool(*element, fields.error(), at + ".");
    tool.RefuseUnless("type", "custom", "this server does not run tools itself; the client does.");
    const auto name = tool.String("name");
    if (!name.has_value()) tool.Missing("name");
    const Json* schema = tool.Object("input_schema");
    if (schema == nullptr) tool.Missing("input_schema");
    v1::Tool* added = request.add_tools();
    added->set_name(name.value_or(""));
    added->set_description(tool.String("description").value_or(""));
    if (schema != nullptr) added->set_parameters_json(DumpJson(*schema));
  }
}

void ReadToolChoice(JsonFields& fields, v1::ChatRequest& request) {
  const Json* object = fields.Object("tool_choice");
  if (object == nullptr) return;
  JsonFields choice(*object, fields.error(), "tool_choice.");
  const std::string type = choice.String("type").value_or("");
  if (type == "none") {
    request.set_tool_choice(v1::TOOL_CHOICE_NONE);
  } else if (type == "any" || type == "tool") {
    request.set_tool_choice(v1::TOOL_CHOICE_REQUIRED);
    if (request.tools_size() == 0) {
      choice.Fail("type", "invalid_value",
                  absl::StrFormat("tool_choice.type: \"%s\" needs tools", type));
    }
  } else if (type != "auto") {
    choice.Fail("type", "invalid_value",
                absl::StrFormat("tool_choice.type: \"%s\" is unknown; use auto, any, tool or none",
                                ClientText(type, 40)));
  }
  if (type == "tool") {
    const auto name = choice.String("name");
    if (!name.has_value()) return choice.Missing("name");
    if (!HasTool(request, *name)) {
      return choice.Fail("name", "invalid_value",
                         absl::StrFormat("tool_choice.name: \"%s\" is none of the tools",
                                         ClientText(*name, kMaxToolNameBytes)));
    }
    request.set_required_tool(*name);
  }
  if (const auto single = choice.Bool("disable_parallel_tool_use")) {
    request.set_parallel_tool_calls(!*single);
  }
}

}  // namespace

void ReadConversation(JsonFields& fields, PictureUrls& urls, v1::ChatRequest& request,
                      std::vector<size_t>& places) {
  const std::string system = ReadTexts(fields, "system");
  if (!system.empty()) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role("system");
    message->set_content(system);
    places.push_back(0);
  }
  ReadMessages(fields, urls, request, places);
  ReadTools(fields, request);
  ReadToolChoice(fields, request);
}

}  // namespace tandem::gateway

#include "services/gateway/openai/tool_fields.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/gateway/openai/chat_messages.h"
#include "services/gateway/tool_calls/tool_messages.h"

namespace tandem::gateway {
namespace {

// The function of a call or a tool: its member `within`, or itself.
const Json* FunctionOf(JsonFields& outer, const Json& element, std::string_view within) {
  if (within.empty()) return &element;
  const Json* inner = outer.Object(within);
  if (inner == nullptr) outer.Missing(within);
  return inner;
}

void ReadTool(JsonFields& outer, const Json& element, std::string_view within, bool required,
              v1::Tool& tool, IgnoredMembers& ignored) {
  const std::string type = outer.String("type").value_or("function");
  if (type != "function") {
    return outer.Unsupported("type", absl::StrFormat("\"%s\": this server calls functions alone.",
                                                     ClientText(type, 40)));
  }
  const Json* function = FunctionOf(outer, element, within);
  if (function == nullptr) return;
  JsonFields inner(*function, outer.error(), outer.PathOf(within) + (within.empty() ? "" : "."));
  const auto name = inner.String("name");
  if (!name.has_value()) return inner.Missing("name");
  if (!IsToolName(*name)) {
    return inner.Fail("name", "invalid_value",
                      absl::StrFormat("Invalid '%s': \"%s\". Expected 1 to %d letters, digits and "
                                      "\"_-.:/\".",
                                      inner.PathOf("name"), ClientText(*name), kMaxToolNameBytes));
  }
  tool.set_name(*name);
  tool.set_description(inner.String("description").value_or(""));
  if (const Json* parameters = inner.Object("parameters")) {
    tool.set_parameters_json(DumpJson(*parameters));
  }
  inner.Bool("strict");
  // Calls that must come fit their schemas anyway.
  if (!required) ignored.Note(inner, "strict");
}

// "allowed_tools": how, and names of those that the model sees.
void ReadAllowedTools(JsonFields& choice, std::string_view within, v1::ChatRequest& request,
                      std::vector<std::string>& allowed) {
  // With functions in objects of their own, the choice is in one too.
  const Json* object = within.empty() ? nullptr : choice.Object("allowed_tools");
  if (!within.empty() && object == nullptr) return choice.Missing("allowed_tools");
  std::optional<JsonFields> inner;
  if (object != nullptr) inner.emplace(*object, choice.error(), choice.PathOf("allowed_tools."));
  JsonFields& fields = inner.has_value() ? *inner : choice;
  const std::string mode = fields.String("mode").value_or("");
  if (mode != "auto" && mode != "required") {
    return fields.Fail("mode", "invalid_value",
                       absl::StrFormat("Invalid value for '%s': \"%s\". Supported values are: "
                                       "'auto' and 'required'.",
                                       fields.PathOf("mode"), ClientText(mode, 40)));
  }
  if (mode == "required") request.set_tool_choice(v1::TOOL_CHOICE_REQUIRED);
  const Json* tools = fields.Array("tools");
  if (tools == nullptr || tools->empty()) return fields.Missing("tools");
  for (size_t i = 0; i < tools->size() && fields.ok(); ++i) {
    const std::string at = absl::StrFormat("tools[%d]", i);
    const Json* element = ObjectAt(fields, at, (*tools)[i]);
    if (element == nullptr) return;
    JsonFields tool(*element, fields.error(), fields.PathOf(at) + ".");
    tool.RefuseUnless("type", "function", "this server calls functions alone.");
    const Json* function = FunctionOf(tool, *element, within);
    if (function == nullptr) return;
    JsonFields named(*function, fields.error(), tool.PathOf(within) + (within.empty() ? "" : "."));
    const auto name = named.String("name");
    if (!name.has_value()) return named.Missing("name");
    allowed.push_back(*name);
  }
}

// Leaves the tools whose names are allowed.
void KeepAllowed(JsonFields& fields, const std::vector<std::string>& allowed,
                 v1::ChatRequest& request) {
  for (const std::string& name : allowed) {
    if (HasTool(request, name)) continue;
    return fields.Fail(
        "tool_choice", "invalid_value",
        absl::StrFormat("Invalid 'tool_choice': the function \"%s\" is not in 'tools'.",
                        ClientText(name, kMaxToolNameBytes)));
  }
  google::protobuf::RepeatedPtrField<v1::Tool> kept;
  for (v1::Tool& tool : *request.mutable_tools()) {
    if (std::ranges::find(allowed, tool.name()) != allowed.end()) *kept.Add() = std::move(tool);
  }
  request.mutable_tools()->Swap(&kept);
}

// "none", "auto", "required", a function or, into `allowed`, several.
void ReadToolChoice(JsonFields& fields, std::string_view within, v1::ChatRequest& request,
                    std::vector<std::string>& allowed) {
  const Json* choice = fields.Find("tool_choice");
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") return request.set_tool_choice(v1::TOOL_CHOICE_NONE);
  if (choice->is_object() && choice->value("type", Json()) == "allowed_tools") {
    JsonFields several(*choice, fields.error(), "tool_choice.");
    several.String("type");
    return ReadAllowedTools(several, within, request, allowed);
  }
  request.set_tool_choice(v1::TOOL_CHOICE_REQUIRED);
  if (*choice == "required") return;
  if (choice->is_string()) {
    return fields.Fail(
        "tool_choice", "invalid_value",
        absl::StrFormat("Invalid value for 'tool_choice': \"%s\". Supported values are: "
                        "'none', 'auto', 'required' and a function.",
                        ClientText(choice->get<std::string>(), 40)));
  }
  if (!choice->is_object()) return fields.WrongType("tool_choice", "a string or an object");
  JsonFields outer(*choice, fields.error(), "tool_choice.");
  const std::string type = outer.String("type").value_or("function");
  if (type != "function") {
    return outer.Unsupported("type", absl::StrFormat("\"%s\": this server lets the model choose "
                                                     "functions alone.",
                                                     ClientText(type, 40)));
  }
  const Json* function = FunctionOf(outer, *choice, within);
  if (function == nullptr) return;
  JsonFields inner(*function, outer.error(), outer.PathOf(within) + (within.empty() ? "" : "."));
  const auto name = inner.String("name");
  if (!name.has_value()) return inner.Missing("name");
  if (name->empty()) {
    return inner.Fail("name", "invalid_value",
                      absl::StrFormat("Invalid '%s': it is empty.", inner.PathOf("name")));
  }
  request.set_required_tool(*name);
}

// A choice that the tools allow.
void CheckToolChoice(JsonFields& fields, const v1::ChatRequest& request) {
  if (request.tool_choice() != v1::TOOL_CHOICE_REQUIRED) return;
  if (request.tools_size() == 0) {
    return fields.Fail("tool_choice", "invalid_value",
                       "Invalid 'tool_choice': the model cannot call a tool, 'tools' has none.");
  }
  if (request.required_tool().empty() || HasTool(request, request.required_tool())) return;
  fields.Fail("tool_choice", "invalid_value",
              absl::StrFormat("Invalid 'tool_choice': the function \"%s\" is not in 'tools'.",
                              ClientText(request.required_tool(), kMaxToolNameBytes)));
}

}  // namespace

void ReadTools(JsonFields& fields, std::string_view within, v1::ChatRequest& request,
               IgnoredMembers& ignored) {
  std::vector<std::string> allowed;
  ReadToolChoice(fields, within, request, allowed);
  const bool required = request.tool_choice() == v1::TOOL_CHOICE_REQUIRED;
  if (const Json* tools = fields.Array("tools")) {
    for (size_t i = 0; i < tools->size() && fields.ok(); ++i) {
      const std::string at = absl::StrFormat("tools[%d]", i);
      const Json* element = ObjectAt(fields, at, (*tools)[i]);
      if (element == nullptr) return;
      JsonFields tool(*element, fields.error(), fields.PathOf(at) + ".");
      ReadTool(tool, *element, within, required, *request.add_tools(), ignored);
    }
  }
  if (!allowed.empty() && fields.ok()) KeepAllowed(fields, allowed, request);
  CheckToolChoice(fields, request);
  if (const auto parallel = fields.Bool("parallel_tool_calls")) {
    request.set_parallel_tool_calls(*parallel);
  }
}

void ReadToolCalls(JsonFields& message, v1::ChatMessage& added) {
  const Json* calls = message.Array("tool_calls");
  if (calls == nullptr) return;
  for (size_t i = 0; i < calls->size() && message.ok(); ++i) {
    const std::string at = absl::StrFormat("tool_calls[%d]", i);
    const Json* element = ObjectAt(message, at, (*calls)[i]);
    if (element == nullptr) return;
    JsonFields call(*element, message.error(), message.PathOf(at) + ".");
    call.RefuseUnless("type", "function", "this server calls functions alone.");
    const auto id = call.String("id");
    if (!id.has_value()) call.Missing("id");
    const Json* object = FunctionOf(call, *element, "function");
    if (object == nullptr) return;
    JsonFields function(*object, message.error(), call.PathOf("function."));
    const auto name = function.String("name");
    if (!name.has_value()) function.Missing("name");
    v1::ToolCall* to = added.add_tool_calls();
    to->set_id(id.value_or(""));
    to->set_name(name.value_or(""));
    to->set_arguments_json(function.String("arguments").value_or(""));
  }
}

}  // namespace tandem::gateway

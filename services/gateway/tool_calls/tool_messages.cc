#include "services/gateway/tool_calls/tool_messages.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"
#include "services/common/json/guarded_json.h"
#include "services/gateway/tool_calls/functiongemma_notation.h"
#include "services/gateway/tool_calls/spaced_json.h"

namespace tandem::gateway {
namespace {

using OrderedJson = nlohmann::ordered_json;

bool OffersTools(const v1::ChatRequest& request) {
  return request.tools_size() > 0 && request.tool_choice() != v1::TOOL_CHOICE_NONE;
}

absl::StatusOr<OrderedJson> FunctionJson(const v1::Tool& tool, int i) {
  if (!IsToolName(tool.name())) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tools[%d].name: \"%s\" is no name of a tool; use 1 to %d letters, digits and \"_-.:/\"", i,
        ClientText(tool.name()), kMaxToolNameBytes));
  }
  OrderedJson function = {{"name", tool.name()}};
  if (!tool.description().empty()) function["description"] = tool.description();
  if (tool.parameters_json().empty()) {
    function["parameters"] = {{"type", "object"}, {"properties", OrderedJson::object()}};
    return function;
  }
  auto parameters = ParseGuardedJson(tool.parameters_json());
  if (absl::IsCancelled(parameters.status())) return parameters.status();
  if (!parameters.ok() || !parameters->is_object()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tools[%d].parameters_json: %s", i,
        parameters.ok() ? "a JSON Schema is a JSON object, this is another value"
                        : "no valid JSON: " + std::string(parameters.status().message())));
  }
  function["parameters"] = *std::move(parameters);
  return function;
}

// What Gemma 3 reads about the tools.
std::string Instructions(const v1::ChatRequest& request, const OrderedJson& functions) {
  const bool several = !request.has_parallel_tool_calls() || request.parallel_tool_calls();
  return absl::StrFormat(
      "You have access to functions. If you decide to invoke any of the functions, put it in the "
      "format of\n"
      "{\"name\": function name, \"parameters\": dictionary of argument name and its value}\n\n"
      "You should not include any other text in the response if you call a function.%s\n%s",
      several ? " For several calls, answer with a JSON list of them." : "", SpacedJson(functions));
}

// A call that an earlier message made, until its result is read.
struct OpenCall {
  std::string id;
  std::string name;
  std::optional<std::string> result;  // as the client sent it
};

// A conversation, message by message.
class MessageBuilder {
 public:
  explicit MessageBuilder(ToolFormat format) : format_(format) {}

  absl::Status Add(const v1::ChatMessage& message, int i) {
    if (const auto bad = FindInvalidUtf8(message.content())) {
      return Fault(i, "content", absl::StrFormat("not UTF-8 at byte %d", *bad));
    }
    const bool assistant = message.role() == "assistant" || message.role() == "model";
    if (message.tool_calls_size() > 0 && !assistant) {
      return Fault(i, "tool_calls", "only an assistant's message has calls");
    }
    if (message.role() == "tool") {
      if (message.images_size() > 0 && format_ == ToolFormat::kFunctionGemma) {
        return Fault(i, "images", "a result of this model's tools has no pictures");
      }
      TANDEM_RETURN_IF_ERROR(CheckImages(message, i));
      result_pictures_ += static_cast<size_t>(message.images_size());
      return AddResult(message, i);
    }
    if (!assistant && message.role() != "system" && message.role() != "user") {
      return Fault(i, "role",
                   absl::StrFormat("\"%s\" is unknown; use system, user, assistant or tool",
                                   ClientText(message.role())));
    }
    if (!message.tool_call_id().empty() || !message.tool_name().empty()) {
      return Fault(i, message.tool_name().empty() ? "tool_call_id" : "tool_name",
                   "only a message of role \"tool\" has it");
    }
    CloseResults();
    if (message.images_size() > 0) return AddWithImages(message, i);
    if (message.tool_calls_size() == 0) {
      messages_.push_back({message.role(), message.content(), {}});
      return absl::OkStatus();
    }
    for (int k = 0; k < message.tool_calls_size(); ++k) {
      const v1::ToolCall& call = message.tool_calls(k);
      if (call.name().empty()) {
        return Fault(i, absl::StrFormat("tool_calls[%d].name", k), "is empty");
      }
      calls_.push_back({.id = call.id(), .name = call.name()});
    }
    messages_.push_back(CallsOf(message));
    return absl::OkStatus();
  }

  std::vector<Message> Finish() {
    CloseResults();
    return std::move(messages_);
  }

 private:
  static absl::Status Fault(int i, std::string_view field, std::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrFormat("messages[%d].%s: %s", i, std::string(field), std::string(why)));
  }

  static absl::Status CheckImages(const v1::ChatMessage& message, int i) {
    for (int k = 0; k < message.images_size(); ++k) {
      if (!message.images(k).data().empty()) continue;
      return Fault(i, absl::StrFormat("images[%d].data", k), "is empty");
    }
    return absl::OkStatus();
  }

  absl::Status AddWithImages(const v1::ChatMessage& message, int i) {
    if (message.role() != "user") return Fault(i, "images", "only a user's message has pictures");
    TANDEM_RETURN_IF_ERROR(CheckImages(message, i));
    Message added = {message.role(), message.content(), {}};
    for (int k = 0; k < message.images_size(); ++k) {
      const v1::Image& image = message.images(k);
      const size_t at = image.content_offset();
      const bool in_order = added.pictures.empty() || at >= added.pictures.back();
      const bool at_character = at <= added.content.size() &&
                                (at == added.content.size() ||
                                 (static_cast<unsigned char>(added.content[at]) & 0xC0) != 0x80);
      if (!in_order || !at_character) {
        return Fault(i, absl::StrFormat("images[%d].content_offset", k),
                     absl::StrFormat("%d: must be the start of a character of the %d bytes of "
                                     "content, and not before the picture before",
                                     at, added.content.size()));
      }
      added.pictures.push_back(at);
    }
    messages_.push_back(std::move(added));
    return absl::OkStatus();
  }

  // An assistant's message with its calls.
  Message CallsOf(const v1::ChatMessage& message) const {
    Message out = {message.role(), std::string(absl::StripAsciiWhitespace(message.content())), {}};
    if (format_ == ToolFormat::kFunctionGemma) {
      for (const v1::ToolCall& call : message.tool_calls()) {
        AppendCall(call.name(), call.arguments_json(), out);
      }
      return out;
    }
    if (!out.content.empty()) out.content += '\n';
    const bool list = message.tool_calls_size() > 1;
    if (list) out.content += '[';
    for (int k = 0; k < message.tool_calls_size(); ++k) {
      if (k > 0) out.content += ", ";
      out.content += CallText(message.tool_calls(k));
    }
    if (list) out.content += ']';
    return out;
  }

  // Arguments that are no JSON, as those of a call that broke off, stay as they are.
  static std::string CallText(const v1::ToolCall& call) {
    const std::string& arguments = call.arguments_json();
    const std::string written =
        arguments.empty() ? "{}" : AsSpacedJson(arguments).value_or(arguments);
    return absl::StrFormat("{\"name\": %s, \"parameters\": %s}",
                           SpacedJson(OrderedJson(call.name())), written);
  }

  absl::Status AddResult(const v1::ChatMessage& message, int i) {
    const auto open = std::find_if(calls_.begin(), calls_.end(), [&](const OpenCall& call) {
      if (call.result.has_value()) return false;
      if (!message.tool_call_id().empty()) return call.id == message.tool_call_id();
      return message.tool_name().empty() || call.name == message.tool_name();
    });
    if (open == calls_.end()) {
      const bool by_id = !message.tool_call_id().empty();
      return Fault(i, by_id ? "tool_call_id" : "role",
                   by_id ? absl::StrFormat("\"%s\" is the id of no call without a result in the "
                                           "assistant's message before",
                                           ClientText(message.tool_call_id()))
                         : "a result needs a call before it, in the assistant's message");
    }
    open->result = message.content();
    return absl::OkStatus();
  }

  // The results of one turn, in the order of the calls, then their pictures, in the order they came.
  void CloseResults() {
    std::vector<OpenCall> answered;
    for (OpenCall& call : calls_) {
      if (call.result.has_value()) answered.push_back(std::move(call));
    }
    calls_.clear();
    if (answered.empty()) return;
    if (format_ == ToolFormat::kFunctionGemma) {
      // In the model's turn, which goes on after them.
      Message& responses = messages_.emplace_back(Message{"assistant", "", {}});
      for (const OpenCall& call : answered) AppendResponse(call.name, *call.result, responses);
      return;
    }
    std::vector<std::string> results;
    for (const OpenCall& call : answered) {
      results.push_back(
          absl::StrFormat("{\"name\": %s, \"result\": %s}", SpacedJson(OrderedJson(call.name)),
                          AsSpacedJson(*call.result).value_or(SpacedJson(*call.result))));
    }
    std::string text = results.size() > 1 ? "[" : "";
    for (size_t i = 0; i < results.size(); ++i) text += (i > 0 ? ", " : "") + results[i];
    if (results.size() > 1) text += ']';
    messages_.push_back({"user", std::move(text), {}});
    if (result_pictures_ == 0) return;
    messages_.push_back({"user", "", {}, std::vector<size_t>(result_pictures_, 0)});
    result_pictures_ = 0;
  }

  const ToolFormat format_;
  std::vector<Message> messages_;
  std::vector<OpenCall> calls_;  // of the last message with calls
  size_t result_pictures_ = 0;   // of the results so far
};

// FunctionGemma's first turn: what the developer says, and the tools.
void Declare(const OrderedJson& functions, std::vector<Message>& messages) {
  Message developer = {"developer", "", {}};
  if (messages[0].role == "system") {
    developer.content = std::string(absl::StripAsciiWhitespace(messages[0].content));
    if (!developer.content.empty()) developer.content += "\n\n";
    messages.erase(messages.begin());
  }
  developer.content += "You are a model that can do function calling with the following functions";
  for (const OrderedJson& function : functions) AppendDeclaration(function, developer);
  messages.insert(messages.begin(), std::move(developer));
}

}  // namespace

bool IsToolName(std::string_view name) {
  if (name.empty() || name.size() > kMaxToolNameBytes) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  });
}

bool HasTool(const v1::ChatRequest& request, std::string_view name) {
  return std::any_of(request.tools().begin(), request.tools().end(),
                     [&](const v1::Tool& tool) { return tool.name() == name; });
}

absl::StatusOr<nlohmann::ordered_json> FunctionsJson(const v1::ChatRequest& request) {
  if (request.tools_size() > kMaxTools) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tools: %d of them, at most %d", request.tools_size(), kMaxTools));
  }
  OrderedJson functions = OrderedJson::array();
  std::set<std::string_view> names;
  for (int i = 0; i < request.tools_size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(OrderedJson function, FunctionJson(request.tools(i), i));
    if (!names.insert(request.tools(i).name()).second) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tools[%d].name: another tool is called \"%s\" too", i, request.tools(i).name()));
    }
    functions.push_back(std::move(function));
  }
  return functions;
}

absl::StatusOr<std::vector<Message>> MessagesOf(const v1::ChatRequest& request, ToolFormat format) {
  if (request.tool_choice() < v1::TOOL_CHOICE_UNSPECIFIED ||
      request.tool_choice() > v1::TOOL_CHOICE_REQUIRED) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tool_choice: %d is unknown", static_cast<int>(request.tool_choice())));
  }
  const bool required = request.tool_choice() == v1::TOOL_CHOICE_REQUIRED;
  if (required && request.tools_size() == 0) {
    return absl::InvalidArgumentError(
        "tool_choice: it makes the model call a tool, and the request has no tools");
  }
  if (!request.required_tool().empty() && !required) {
    return absl::InvalidArgumentError("required_tool: it needs TOOL_CHOICE_REQUIRED");
  }
  if (!request.required_tool().empty() && !HasTool(request, request.required_tool())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("required_tool: \"%s\" is none of the tools",
                        ClientText(request.required_tool(), kMaxToolNameBytes)));
  }
  MessageBuilder builder(format);
  for (int i = 0; i < request.messages_size(); ++i) {
    TANDEM_RETURN_IF_ERROR(builder.Add(request.messages(i), i));
  }
  if (request.messages_size() > 0) {
    const int last = request.messages_size() - 1;
    if (request.messages(last).tool_calls_size() > 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "messages[%d].tool_calls: the results of the calls must follow, as messages of role "
          "\"tool\"",
          last));
    }
  }
  std::vector<Message> messages = builder.Finish();
  if (!OffersTools(request) || messages.empty()) return messages;
  TANDEM_ASSIGN_OR_RETURN(const OrderedJson functions, FunctionsJson(request));
  if (format == ToolFormat::kFunctionGemma) {
    Declare(functions, messages);
    return messages;
  }
  std::string instructions = Instructions(request, functions);
  if (messages[0].role == "system" && !messages[0].content.empty()) {
    messages[0].content += "\n\n" + instructions;
  } else if (messages[0].role == "system") {
    messages[0].content = std::move(instructions);
  } else {
    messages.insert(messages.begin(), {"system", std::move(instructions), {}});
  }
  return messages;
}

CallOptions CallOptionsOf(const v1::ChatRequest& request, ToolFormat format) {
  CallOptions options;
  options.format = format;
  if (!OffersTools(request)) return options;
  for (const v1::Tool& tool : request.tools()) options.names.insert(tool.name());
  options.parallel = !request.has_parallel_tool_calls() || request.parallel_tool_calls();
  return options;
}

}  // namespace tandem::gateway

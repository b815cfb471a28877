#include "services/gateway/tool_calls/functiongemma_notation.h"

#include <map>
#include <string>

#include "absl/strings/ascii.h"
#include "services/common/json/guarded_json.h"
#include "services/gateway/tool_calls/functiongemma_parser.h"

namespace tandem::gateway {
namespace {

using OrderedJson = nlohmann::ordered_json;

void AddToken(std::string_view piece, Message& message) {
  message.marks.push_back({message.content.size(), std::string(piece)});
}

void AddString(std::string_view text, Message& message) {
  AddToken(kEscape, message);
  message.content += text;
  AddToken(kEscape, message);
}

void AddValue(const OrderedJson& value, Message& message);

// The members of an object by their names, without the brackets.
void AddMembers(const OrderedJson& object, Message& message) {
  std::map<std::string, const OrderedJson*> sorted;
  for (const auto& [key, value] : object.items()) sorted[key] = &value;
  const char* before = "";
  for (const auto& [key, value] : sorted) {
    message.content += before + key + ":";
    before = ",";
    AddValue(*value, message);
  }
}

void AddValue(const OrderedJson& value, Message& message) {
  if (value.is_string()) return AddString(value.get_ref<const std::string&>(), message);
  if (value.is_object()) {
    message.content += '{';
    AddMembers(value, message);
    message.content += '}';
  } else if (value.is_array()) {
    message.content += '[';
    const char* before = "";
    for (const OrderedJson& element : value) {
      message.content += before;
      before = ",";
      AddValue(element, message);
    }
    message.content += ']';
  } else {
    message.content += value.dump();
  }
}

// A schema's members, in the order of FunctionGemma's template.
void AddSchema(const OrderedJson& schema, Message& message) {
  const char* before = "";
  const auto begin = [&](std::string_view name) {
    message.content += before;
    before = ",";
    message.content += name;
    message.content += ':';
  };
  const auto member = [&](const char* name) -> const OrderedJson* {
    if (!schema.is_object()) return nullptr;
    const auto found = schema.find(name);
    return found == schema.end() || found->is_null() ? nullptr : &*found;
  };
  message.content += '{';
  for (const char* name : {"description", "enum"}) {
    if (const OrderedJson* value = member(name)) {
      begin(name);
      AddValue(*value, message);
    }
  }
  if (const OrderedJson* items = member("items")) {
    begin("items");
    AddSchema(*items, message);
  }
  if (const OrderedJson* properties = member("properties"); properties && properties->is_object()) {
    begin("properties");
    message.content += '{';
    std::map<std::string, const OrderedJson*> sorted;
    for (const auto& [key, value] : properties->items()) sorted[key] = &value;
    const char* comma = "";
    for (const auto& [key, value] : sorted) {
      message.content += comma + key + ":";
      comma = ",";
      AddSchema(*value, message);
    }
    message.content += '}';
  }
  if (const OrderedJson* required = member("required")) {
    begin("required");
    AddValue(*required, message);
  }
  if (const OrderedJson* type = member("type"); type && type->is_string()) {
    begin("type");
    AddString(absl::AsciiStrToUpper(type->get<std::string>()), message);
  }
  message.content += '}';
}

void AddObject(std::string_view json, const char* otherwise, Message& message) {
  const auto value = ParseGuardedJson(json);
  message.content += '{';
  if (value.ok() && value->is_object()) {
    AddMembers(*value, message);
  } else if (!json.empty()) {
    message.content += std::string(otherwise) + ":";
    AddValue(value.ok() ? *value : OrderedJson(std::string(json)), message);
  }
  message.content += '}';
}

}  // namespace

void AppendDeclaration(const OrderedJson& function, Message& message) {
  AddToken(kStartDeclaration, message);
  message.content += "declaration:" + function["name"].get<std::string>() + "{description:";
  AddString(function.value("description", ""), message);
  message.content += ",parameters:";
  AddSchema(function["parameters"], message);
  message.content += '}';
  AddToken(kEndDeclaration, message);
}

void AppendCall(std::string_view name, std::string_view arguments_json, Message& message) {
  AddToken(kStartCall, message);
  message.content += "call:" + std::string(name);
  AddObject(arguments_json, "arguments", message);
  AddToken(kEndCall, message);
}

void AppendResponse(std::string_view name, std::string_view result, Message& message) {
  AddToken(kStartResponse, message);
  message.content += "response:" + std::string(name);
  AddObject(result, "value", message);
  AddToken(kEndResponse, message);
}

}  // namespace tandem::gateway

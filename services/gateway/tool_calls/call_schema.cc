#include "services/gateway/tool_calls/call_schema.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/json/guarded_json.h"
#include "services/gateway/tool_calls/tool_messages.h"

namespace tandem::gateway {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Names in $defs.  No client's schema has them by chance.
constexpr char kToolPart[] = "tandem:tool:";
constexpr char kTextPart[] = "tandem:text";
constexpr char kCallPart[] = "tandem:call";

OrderedJson RefTo(const std::string& part) {
  OrderedJson ref = OrderedJson::object();
  ref["$ref"] = "#/$defs/" + part;
  return ref;
}

// Gives `schema` an identifier, so that "#/..." within it means its own parts.
void Identify(const std::string& id, OrderedJson& schema) {
  if (!schema.is_object() || schema.contains("$id")) return;
  std::string own = id;
  const auto older = schema.find("id");  // draft 4's keyword
  if (older != schema.end() && older->is_string()) {
    const auto& name = older->get_ref<const std::string&>();
    if (!name.starts_with("#")) own = name;
  }
  schema["$id"] = std::move(own);
}

// Whether `schema` says all that it has to say about its members in `properties`.
bool ListsItsProperties(const OrderedJson& schema) {
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return false;
  for (const char* other : {"additionalProperties", "patternProperties", "unevaluatedProperties",
                            "minProperties", "allOf", "anyOf", "oneOf", "$ref"}) {
    if (schema.contains(other)) return false;
  }
  const auto required = schema.find("required");
  if (required == schema.end()) return true;
  return required->is_array() &&
         std::all_of(required->begin(), required->end(), [&](const OrderedJson& name) {
           return name.is_string() && properties->contains(name.get_ref<const std::string&>());
         });
}

// The schema of a function's arguments, which are an object.
absl::StatusOr<OrderedJson> ArgumentsSchema(OrderedJson schema, size_t tool) {
  const auto type = schema.find("type");
  if (type != schema.end()) {
    const bool object =
        *type == "object" ||
        (type->is_array() && std::find(type->begin(), type->end(), "object") != type->end());
    if (!object) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tools[%d].parameters_json: its type must be \"object\", not %s", tool,
                          ClientText(type->dump())));
    }
  }
  const bool closed = ListsItsProperties(schema);
  schema["type"] = "object";
  if (closed) schema["additionalProperties"] = false;
  Identify(absl::StrFormat("%s%d", kToolPart, tool), schema);
  return schema;
}

// Adds the parts of calls to `defs`, and what an answer that calls is to `branches`.
absl::Status AddCalls(const v1::ChatRequest& request, OrderedJson& defs, OrderedJson& branches) {
  TANDEM_ASSIGN_OR_RETURN(OrderedJson functions, FunctionsJson(request));
  OrderedJson calls = OrderedJson::array();
  for (size_t i = 0; i < functions.size(); ++i) {
    OrderedJson& function = functions[i];
    const std::string& name = request.tools(static_cast<int>(i)).name();
    if (!request.required_tool().empty() && name != request.required_tool()) continue;
    const std::string part = absl::StrFormat("%s%d", kToolPart, i);
    TANDEM_ASSIGN_OR_RETURN(defs[part], ArgumentsSchema(std::move(function["parameters"]), i));
    OrderedJson properties = OrderedJson::object();
    properties["name"]["const"] = name;
    properties["parameters"] = RefTo(part);
    OrderedJson call = OrderedJson::object();
    call["type"] = "object";
    call["properties"] = std::move(properties);
    call["required"] = OrderedJson::array({"name", "parameters"});
    call["additionalProperties"] = false;
    calls.push_back(std::move(call));
  }
  defs[kCallPart]["anyOf"] = std::move(calls);
  branches.push_back(RefTo(kCallPart));
  if (request.has_parallel_tool_calls() && !request.parallel_tool_calls()) return absl::OkStatus();
  OrderedJson list = OrderedJson::object();
  list["type"] = "array";
  list["items"] = RefTo(kCallPart);
  list["minItems"] = 1;
  branches.push_back(std::move(list));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> CallSchema(const v1::ChatRequest& request) {
  OrderedJson defs = OrderedJson::object();
  OrderedJson branches = OrderedJson::array();
  TANDEM_RETURN_IF_ERROR(AddCalls(request, defs, branches));
  OrderedJson schema = OrderedJson::object();
  schema["$defs"] = std::move(defs);
  schema["anyOf"] = std::move(branches);
  return schema.dump();
}

absl::StatusOr<std::string> CallOrTextSchema(const v1::ChatRequest& request,
                                             std::string_view text_schema) {
  // A body's limits are stricter: what it holds is not too large for this.
  auto text = ParseGuardedJson(text_schema, {.max_depth = 128, .max_members = size_t{1} << 14});
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrFormat("schema: %s", std::string(text.status().message())));
  }
  OrderedJson schema = OrderedJson::object();
  if (text->is_object() && text->contains("x-guidance")) {
    schema["x-guidance"] = (*text)["x-guidance"];
    text->erase(std::string("x-guidance"));
  }
  Identify(kTextPart, *text);
  OrderedJson defs = OrderedJson::object();
  defs[kTextPart] = *std::move(text);
  OrderedJson branches = OrderedJson::array();
  branches.push_back(RefTo(kTextPart));
  TANDEM_RETURN_IF_ERROR(AddCalls(request, defs, branches));
  schema["$defs"] = std::move(defs);
  schema["anyOf"] = std::move(branches);
  return schema.dump();
}

absl::Status NameSchemaPart(const absl::Status& status) {
  constexpr std::string_view kBefore = "schema: #/$defs/";
  const std::string message(status.message());
  if (!message.starts_with(kBefore)) return status;
  std::string_view rest = std::string_view(message).substr(kBefore.size());
  const auto renamed = [&](const std::string& name) {
    return absl::Status(status.code(), name + ": #" + std::string(rest));
  };
  if (rest.starts_with(kTextPart)) {
    rest.remove_prefix(std::string_view(kTextPart).size());
    return renamed("schema");
  }
  if (!rest.starts_with(kToolPart)) return status;
  rest.remove_prefix(std::string_view(kToolPart).size());
  const std::string tool(rest.substr(0, rest.find_first_not_of("0123456789")));
  rest.remove_prefix(tool.size());
  return renamed("tools[" + tool + "].parameters_json");
}

}  // namespace tandem::gateway

#include "services/gateway/rest/rest_binding.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "google/api/annotations.pb.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/json/guarded_json.h"
#include "services/gateway/rest/field_binder.h"
#include "services/gateway/rest/message_json.h"

namespace tandem::gateway {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

struct MethodAndPath {
  std::string method, path;
};

MethodAndPath PatternOf(const google::api::HttpRule& rule) {
  switch (rule.pattern_case()) {
    case google::api::HttpRule::kGet:
      return {"GET", rule.get()};
    case google::api::HttpRule::kPut:
      return {"PUT", rule.put()};
    case google::api::HttpRule::kPost:
      return {"POST", rule.post()};
    case google::api::HttpRule::kDelete:
      return {"DELETE", rule.delete_()};
    case google::api::HttpRule::kPatch:
      return {"PATCH", rule.patch()};
    case google::api::HttpRule::kCustom:
      return {rule.custom().kind(), rule.custom().path()};
    case google::api::HttpRule::PATTERN_NOT_SET:
      break;
  }
  return {};
}

absl::Status CheckFields(const RestBinding& binding) {
  const auto& request = *binding.method->input_type();
  for (const PathTemplate::Variable& variable : binding.path.variables()) {
    TANDEM_ASSIGN_OR_RETURN(const auto fields, FindFieldPath(request, variable.field_path));
    if (fields.back()->is_repeated() || fields.back()->message_type() != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrFormat("{%s}: a path variable must be a scalar field", variable.field_path));
    }
  }
  if (!binding.body.empty() && binding.body != "*" &&
      request.FindFieldByName(binding.body) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("body: %s has no field '%s'", request.full_name(), binding.body));
  }
  const auto& response = *binding.method->output_type();
  if (!binding.response_body.empty() &&
      response.FindFieldByName(binding.response_body) == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat("response_body: %s has no field '%s'",
                                                      response.full_name(), binding.response_body));
  }
  return absl::OkStatus();
}

absl::StatusOr<RestBinding> ReadRule(const MethodDescriptor& method,
                                     const google::api::HttpRule& rule) {
  RestBinding binding;
  binding.method = &method;
  const MethodAndPath pattern = PatternOf(rule);
  binding.http_method = pattern.method;
  binding.path_template = pattern.path;
  binding.body = rule.body();
  binding.response_body = rule.response_body();
  if (binding.http_method.empty()) return absl::InvalidArgumentError("no HTTP method");
  if (method.client_streaming()) {
    return absl::InvalidArgumentError("a method with a stream of requests has no REST form");
  }
  TANDEM_ASSIGN_OR_RETURN(binding.path, PathTemplate::Parse(binding.path_template));
  TANDEM_RETURN_IF_ERROR(CheckFields(binding));
  return binding;
}

absl::Status ParseJson(const std::string& json, Message& message) {
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "body: %s", FitMessage({status.message().data(), status.message().size()}, 256)));
}

absl::Status ReadBody(const RestBinding& binding, const std::string& body, Message& message) {
  if (body.empty()) return absl::OkStatus();
  if (binding.body.empty()) return absl::InvalidArgumentError("body: this route takes no body");
  if (const absl::Status status = CheckJson(body); !status.ok()) {
    return absl::Status(status.code(), absl::StrFormat("body: %s", std::string(status.message())));
  }
  if (binding.body == "*") return ParseJson(body, message);
  const FieldDescriptor& field = *message.GetDescriptor()->FindFieldByName(binding.body);
  if (field.message_type() != nullptr && !field.is_repeated()) {
    return ParseJson(body, *message.GetReflection()->MutableMessage(&message, &field));
  }
  // Checked first: the body must be exactly one value, since it is put between braces.
  if (!nlohmann::json::accept(body)) return absl::InvalidArgumentError("body: malformed JSON");
  return ParseJson(absl::StrFormat("{\"%s\":%s}", field.json_name(), body), message);
}

}  // namespace

absl::StatusOr<std::vector<RestBinding>> ReadBindings(const MethodDescriptor& method) {
  std::vector<RestBinding> bindings;
  if (!method.options().HasExtension(google::api::http)) return bindings;
  const google::api::HttpRule& first = method.options().GetExtension(google::api::http);
  std::vector<const google::api::HttpRule*> rules = {&first};
  for (const auto& rule : first.additional_bindings()) rules.push_back(&rule);
  for (const google::api::HttpRule* rule : rules) {
    auto binding = ReadRule(method, *rule);
    if (!binding.ok()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: google.api.http: %s", method.full_name(), binding.status().message()));
    }
    bindings.push_back(*std::move(binding));
  }
  return bindings;
}

absl::StatusOr<std::unique_ptr<Message>> BuildRequest(const RestBinding& binding,
                                                      const HttpRequest& request) {
  const Message* prototype = google::protobuf::MessageFactory::generated_factory()->GetPrototype(
      binding.method->input_type());
  if (prototype == nullptr) {
    return absl::InternalError(
        absl::StrFormat("%s is not linked in", binding.method->input_type()->full_name()));
  }
  std::unique_ptr<Message> message(prototype->New());
  TANDEM_RETURN_IF_ERROR(ReadBody(binding, request.body, *message));
  FieldBinder path_binder(*message);
  FieldBinder query_binder(*message);
  for (const auto& [name, value] : request.variables) {
    TANDEM_RETURN_IF_ERROR(path_binder.Set(name, value));
    TANDEM_RETURN_IF_ERROR(query_binder.Forbid(name));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto parameters, ParseQuery(request.query));
  if (binding.body == "*" && !parameters.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: this method takes no query parameters, only a body", ClientText(parameters[0].first)));
  }
  if (!binding.body.empty() && binding.body != "*") {
    TANDEM_RETURN_IF_ERROR(query_binder.Forbid(binding.body));
  }
  for (const auto& [name, value] : parameters) {
    TANDEM_RETURN_IF_ERROR(query_binder.Set(name, value));
  }
  return message;
}

absl::Status AppendResponse(const RestBinding& binding, const Message& response, std::string& out) {
  if (binding.response_body.empty()) return AppendMessageJson(response, out);
  const FieldDescriptor& field = *response.GetDescriptor()->FindFieldByName(binding.response_body);
  if (field.message_type() != nullptr && !field.is_repeated()) {
    return AppendMessageJson(response.GetReflection()->GetMessage(response, &field), out);
  }
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  const auto status = google::protobuf::util::MessageToJsonString(response, &json, options);
  if (!status.ok()) {
    return absl::InternalError(absl::StrFormat(
        "response: %s", std::string(status.message().data(), status.message().size())));
  }
  out += nlohmann::json::parse(json)[field.json_name()].dump();
  return absl::OkStatus();
}

}  // namespace tandem::gateway

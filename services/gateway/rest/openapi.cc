#include "services/gateway/rest/openapi.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "google/rpc/status.pb.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/rest/rest_binding.h"

namespace tandem::gateway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::MethodDescriptor;
using Json = nlohmann::ordered_json;

Json Ref(const Descriptor& type) { return {{"$ref", "#/components/schemas/" + type.full_name()}}; }

// The schema of a google.protobuf type with its own JSON form; null for other types.
Json WellKnownSchema(const Descriptor& type) {
  const std::string& name = type.full_name();
  if (name == "google.protobuf.Timestamp") return {{"type", "string"}, {"format", "date-time"}};
  if (name == "google.protobuf.Duration") return {{"type", "string"}, {"pattern", "^-?[0-9.]+s$"}};
  if (name == "google.protobuf.FieldMask") return {{"type", "string"}};
  if (name == "google.protobuf.Any") {
    return {{"type", "object"}, {"properties", {{"@type", {{"type", "string"}}}}}};
  }
  return nullptr;
}

Json EnumSchema(const google::protobuf::EnumDescriptor& type) {
  Json names = Json::array();
  for (int i = 0; i < type.value_count(); ++i) names.push_back(type.value(i)->name());
  return {{"type", "string"}, {"enum", std::move(names)}};
}

// Collects the schemas that a document refers to.
class Schemas {
 public:
  Json OfMessage(const Descriptor& type) {
    if (Json known = WellKnownSchema(type); !known.is_null()) return known;
    if (type.file()->name() == "google/protobuf/wrappers.proto") return OfField(*type.field(0));
    if (seen_.insert(&type).second) {
      Json properties = Json::object();
      for (int i = 0; i < type.field_count(); ++i) {
        properties[type.field(i)->json_name()] = OfField(*type.field(i));
      }
      schemas_[type.full_name()] = {{"type", "object"}, {"properties", std::move(properties)}};
    }
    return Ref(type);
  }

  Json OfField(const FieldDescriptor& field) {
    if (field.is_map()) {
      return {{"type", "object"},
              {"additionalProperties", OfValue(*field.message_type()->map_value())}};
    }
    if (field.is_repeated()) return {{"type", "array"}, {"items", OfValue(field)}};
    return OfValue(field);
  }

  Json Take() { return std::move(schemas_); }

 private:
  Json OfValue(const FieldDescriptor& field) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return {{"type", "integer"}, {"format", "int32"}};
      case FieldDescriptor::CPPTYPE_UINT32:
        return {{"type", "integer"}, {"format", "uint32"}, {"minimum", 0}};
      case FieldDescriptor::CPPTYPE_INT64:  // proto3's JSON writes these as strings
        return {{"type", "string"}, {"format", "int64"}};
      case FieldDescriptor::CPPTYPE_UINT64:
        return {{"type", "string"}, {"format", "uint64"}};
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return {{"type", "number"}, {"format", "double"}};
      case FieldDescriptor::CPPTYPE_FLOAT:
        return {{"type", "number"}, {"format", "float"}};
      case FieldDescriptor::CPPTYPE_BOOL:
        return {{"type", "boolean"}};
      case FieldDescriptor::CPPTYPE_ENUM:
        return EnumSchema(*field.enum_type());
      case FieldDescriptor::CPPTYPE_STRING:
        return field.type() == FieldDescriptor::TYPE_BYTES
                   ? Json{{"type", "string"}, {"contentEncoding", "base64"}}
                   : Json{{"type", "string"}};
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return OfMessage(*field.message_type());
    }
    return Json::object();
  }

  std::set<const Descriptor*> seen_;
  Json schemas_ = Json::object();
};

// "/v1/{name=shelves/*}:go" as "/v1/{name}:go".
std::string OpenApiPath(std::string path) {
  for (size_t at = path.find('='); at != std::string::npos; at = path.find('=')) {
    path.erase(at, path.find('}', at) - at);
  }
  return path;
}

// Query parameters: every scalar field that neither path nor body sets, also in nested messages.
// Stops at a message that contains itself.
void AddQueryParameters(const Descriptor& type, const std::string& prefix,
                        const std::set<std::string>& bound, std::set<const Descriptor*> within,
                        Schemas& schemas, Json& parameters) {
  if (!within.insert(&type).second) return;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_map() || bound.contains(prefix + field.name())) continue;
    const Descriptor* message = field.message_type();
    const bool leaf = message == nullptr || !WellKnownSchema(*message).is_null() ||
                      message->file()->name() == "google/protobuf/wrappers.proto";
    if (leaf) {
      parameters.push_back({{"name", prefix + field.json_name()},
                            {"in", "query"},
                            {"schema", schemas.OfField(field)}});
    } else if (!field.is_repeated()) {
      AddQueryParameters(*message, prefix + field.name() + ".", bound, within, schemas, parameters);
    }
  }
}

Json FieldOrMessage(const Descriptor& type, const std::string& field, Schemas& schemas) {
  return field.empty() || field == "*" ? schemas.OfMessage(type)
                                       : schemas.OfField(*type.FindFieldByName(field));
}

Json Responses(const RestBinding& binding, Schemas& schemas) {
  const Json schema =
      FieldOrMessage(*binding.method->output_type(), binding.response_body, schemas);
  Json content;
  if (binding.method->server_streaming()) {
    content["application/x-ndjson"] = {{"schema", schema}};
    content["text/event-stream"] = {{"schema", schema}};
  } else {
    content["application/json"] = {{"schema", schema}};
  }
  return {{"200", {{"description", "OK"}, {"content", std::move(content)}}},
          {"default",
           {{"description", "An error"},
            {"content",
             {{"application/json",
               {{"schema", schemas.OfMessage(*google::rpc::Status::descriptor())}}}}}}}};
}

Json Operation(const RestBinding& binding, int index, Schemas& schemas) {
  const MethodDescriptor& method = *binding.method;
  Json operation;
  operation["operationId"] =
      index == 0 ? method.name() : method.name() + "_" + std::to_string(index + 1);
  operation["tags"] = {method.service()->name()};
  Json parameters = Json::array();
  std::set<std::string> bound;
  for (const PathTemplate::Variable& variable : binding.path.variables()) {
    bound.insert(variable.field_path);
    parameters.push_back({{"name", variable.field_path},
                          {"in", "path"},
                          {"required", true},
                          {"schema", {{"type", "string"}}}});
  }
  if (binding.body != "*") {
    if (!binding.body.empty()) bound.insert(binding.body);
    AddQueryParameters(*method.input_type(), "", bound, {}, schemas, parameters);
  }
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  if (!binding.body.empty()) {
    operation["requestBody"]["content"]["application/json"]["schema"] =
        FieldOrMessage(*method.input_type(), binding.body, schemas);
  }
  operation["responses"] = Responses(binding, schemas);
  return operation;
}

}  // namespace

absl::StatusOr<Json> BuildOpenApi(const google::protobuf::ServiceDescriptor& service,
                                  const std::string& version) {
  Schemas schemas;
  Json paths = Json::object();
  for (int i = 0; i < service.method_count(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(const auto bindings, ReadBindings(*service.method(i)));
    for (size_t b = 0; b < bindings.size(); ++b) {
      const std::string method = absl::AsciiStrToLower(bindings[b].http_method);
      // OpenAPI has no other methods.
      if (method != "get" && method != "put" && method != "post" && method != "delete" &&
          method != "patch" && method != "head") {
        continue;
      }
      paths[OpenApiPath(bindings[b].path_template)][method] =
          Operation(bindings[b], static_cast<int>(b), schemas);
    }
  }
  Json document;
  document["openapi"] = "3.1.0";
  document["info"] = {{"title", service.full_name()}, {"version", version}};
  document["paths"] = std::move(paths);
  document["components"] = {
      {"schemas", schemas.Take()},
      {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}};
  // A key is optional: servers without keys take none.
  document["security"] = {{{"key", Json::array()}}, Json::object()};
  return document;
}

absl::Status AddOpenApiRoute(HttpRouter& router, const google::protobuf::ServiceDescriptor& service,
                             const std::string& version) {
  TANDEM_ASSIGN_OR_RETURN(const Json document, BuildOpenApi(service, version));
  return router.Add(
      {.method = "GET",
       .path_template = "/openapi.json",
       .handler = [text = document.dump()](const HttpRequest&, const auto& responder) {
         responder->Send({.body = text});
       }});
}

}  // namespace tandem::gateway

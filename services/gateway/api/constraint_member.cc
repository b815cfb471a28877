#include "services/gateway/api/constraint_member.h"

#include "absl/strings/str_format.h"
#include "services/gateway/api/api_error.h"

namespace tandem::gateway {

v1::Constraint* ConstraintMember::Set(JsonFields& fields, std::string_view name) {
  if (!fields.ok()) return nullptr;
  if (given()) {
    fields.Fail(name, "invalid_value",
                absl::StrFormat("Both '%s' and '%s' say what the answer must look like; send one "
                                "of them.",
                                name_, fields.PathOf(name)));
    return nullptr;
  }
  name_ = fields.PathOf(name);
  return &constraint_;
}

ConstraintNames ConstraintMember::NamesIn(const v1::ChatRequest& request,
                                          std::string_view tool_schema) const {
  const bool of_tools = request.tool_choice() == v1::TOOL_CHOICE_REQUIRED;
  return {of_tools ? "tools" : name_, std::string(tool_schema)};
}

void ReadSchema(JsonFields& fields, std::string_view name, bool or_text, ConstraintMember& member) {
  const Json* schema = fields.Find(name);
  if (schema == nullptr || (or_text && *schema == "")) return;
  const bool text = or_text && schema->is_string();
  if (!text && !schema->is_object()) {
    return fields.WrongType(name, or_text ? "an object or a string" : "an object");
  }
  if (v1::Constraint* constraint = member.Set(fields, name)) {
    constraint->set_json_schema(text ? schema->get<std::string>() : DumpJson(*schema));
  }
}

absl::Status NameConstraint(const absl::Status& status, const ConstraintNames& names) {
  if (!absl::IsInvalidArgument(status)) return status;
  constexpr std::string_view kToolSchema = ".parameters_json:";
  const std::string message(status.message());
  if (message.starts_with("tools[")) {
    const size_t at = message.find(kToolSchema);
    if (at == std::string::npos) return status;
    const std::string path = message.substr(0, at + 1) + names.tool_schema;
    return ParamError(path, "invalid_value", path + message.substr(at + kToolSchema.size() - 1));
  }
  if (names.member.empty() || message.starts_with("images[")) return status;
  return ParamError(names.member, "invalid_value",
                    absl::StrFormat("Invalid '%s': %s", names.member, message));
}

absl::Status NameParsedConstraint(const absl::Status& status, const ConstraintNames& names) {
  const std::string message(status.message());
  for (const char* about : {"constraint", "schema:", "tools["}) {
    if (message.starts_with(about)) return NameConstraint(status, names);
  }
  return status;
}

}  // namespace tandem::gateway

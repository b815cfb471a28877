// What a request of a JSON API says its answer must look like, and which member says so.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/gateway/api/json_fields.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// How errors name the parts of a request that say what its answer must look like.
struct ConstraintNames {
  // The path of the member; empty: none says it.
  std::string member = "";
  // The path of a tool's schema, within the tool.
  std::string tool_schema = "function.parameters";
};

// The one constraint of a request.
class ConstraintMember {
 public:
  // The place for the constraint that `fields`' member `name` gives.  Null, with an error that
  // names both members, if another member gave one before.
  v1::Constraint* Set(JsonFields& fields, std::string_view name);

  bool given() const { return !name_.empty(); }
  // The path of the member; empty without one.
  const std::string& name() const { return name_; }
  // The names for `request`, whose constraint comes from its tools if it must call one.
  ConstraintNames NamesIn(const v1::ChatRequest& request,
                          std::string_view tool_schema = "function.parameters") const;
  // Copies the constraint, if there is one, to a GenerateRequest or a ChatRequest.
  template <class Request>
  void CopyTo(Request& request) const {
    if (given()) *request.mutable_constraint() = constraint_;
  }

 private:
  std::string name_;
  v1::Constraint constraint_;
};

// `fields`' member `name`, a JSON Schema: an object, or with `or_text` also its JSON text.  An
// empty text counts as absent.
void ReadSchema(JsonFields& fields, std::string_view name, bool or_text, ConstraintMember& member);

// An error about a request's constraint, by the name of the wrong member.  Errors other than
// INVALID_ARGUMENT stay as they are.
absl::Status NameConstraint(const absl::Status& status, const ConstraintNames& names);

// The same for the error of ParseGenerate or ParseChat, which may be about something else.
absl::Status NameParsedConstraint(const absl::Status& status, const ConstraintNames& names);

}  // namespace tandem::gateway

#include "services/gateway/model/constrain_calls.h"

#include <memory>
#include <string>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/gateway/constraint/constraint_source.h"
#include "services/gateway/tool_calls/call_schema.h"
#include "services/gateway/tool_calls/tool_messages.h"

namespace tandem::gateway {

absl::Status ConstrainCalls(const v1::ChatRequest& request, ToolFormat format,
                            EngineRequest& parsed) {
  using constraint::ConstraintSource;
  using constraint::SourceKind;
  const bool required = request.tool_choice() == v1::TOOL_CHOICE_REQUIRED;
  const bool offered = !CallOptionsOf(request, format).names.empty();
  if (!offered || (!required && parsed.constraint_source == nullptr)) return absl::OkStatus();
  if (format == ToolFormat::kFunctionGemma) {
    return absl::InvalidArgumentError(
        required ? "tool_choice: this model writes calls with control tokens, which no constraint "
                   "can hold: it cannot be made to call a tool; use tool_choice auto"
                 : "constraint: this model writes calls with control tokens, which no constraint "
                   "can hold; leave out the tools, or use tool_choice none");
  }
  auto source = std::make_shared<ConstraintSource>();
  source->kind = SourceKind::kJsonSchema;
  if (required) {
    parsed.constraint_field = "tools";
    TANDEM_ASSIGN_OR_RETURN(source->text, CallSchema(request));
    // As SpacedJson shows calls to the model.
    source->layout.whitespace = constraint::JsonWhitespace::kCompact;
    source->layout.item_separator = ", ";
    source->layout.key_separator = ": ";
  } else {
    const ConstraintSource& text = *parsed.constraint_source;
    if (text.kind != SourceKind::kJsonObject && text.kind != SourceKind::kJsonSchema) {
      return absl::InvalidArgumentError(
          "constraint: a regular expression, choices or a grammar leave no place for calls of "
          "tools; use a JSON Schema, or tool_choice none or required");
    }
    source->layout = text.layout;
    source->coerce_one_of = text.coerce_one_of;
    const std::string schema =
        text.kind == SourceKind::kJsonObject ? R"({"type": "object"})" : text.text;
    TANDEM_ASSIGN_OR_RETURN(source->text, CallOrTextSchema(request, schema));
  }
  parsed.constraint_source = std::move(source);
  return absl::OkStatus();
}

}  // namespace tandem::gateway

// The JSON Schema of answers that call functions in Gemma 3's convention (call_parser.h).
//
//   {"name": "get_weather", "parameters": {"city": "Paris"}}     a call
//   [{"name": ..., "parameters": ...}, ...]                      a list of calls
//
// Each function's own schema is a part of it, with references of its own.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Of answers that are a call, or a list of calls unless parallel_tool_calls is false: of
// required_tool, or of any tool if that is empty.  Where a function's schema lists properties and
// says nothing about others, no others come.
// INVALID_ARGUMENT names the tool: as FunctionsJson, or its schema's type is no object.
// REQUIRES tools, required_tool among them or empty.
absl::StatusOr<std::string> CallSchema(const v1::ChatRequest& request);

// Of answers that are such calls or fit `text_schema`, whose x-guidance holds for both.
// INVALID_ARGUMENT as CallSchema, or `text_schema` is not JSON.
absl::StatusOr<std::string> CallOrTextSchema(const v1::ChatRequest& request,
                                             std::string_view text_schema);

// An error about a schema made here, by the part that is wrong: "tools[1].parameters_json: #/not:
// is not supported", or "schema: #/not: ..." of the text.  Other errors stay as they are.
absl::Status NameSchemaPart(const absl::Status& status);

}  // namespace tandem::gateway

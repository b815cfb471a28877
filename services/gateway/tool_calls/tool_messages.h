// Conversations with tools to the messages that a chat template takes.
//
// Gemma 3's convention: the functions are listed as JSON before the first user message, with the
// form of a call.  The model's turn holds its calls as JSON; the user's next turn holds their
// results.
//
// FunctionGemma's: a developer's turn declares the functions.  Calls and their results stand in the
// model's turn, between control tokens (functiongemma_notation.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/tokenizer/chat_template.h"
#include "services/gateway/tool_calls/call_parser.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

inline constexpr int kMaxTools = 128;
inline constexpr size_t kMaxToolNameBytes = 128;

// Whether a tool may be called so.
bool IsToolName(std::string_view name);

// Whether `request` has a tool of this name.
bool HasTool(const v1::ChatRequest& request, std::string_view name);

// The tools of `request` as a list of {"name", "description", "parameters"}.  INVALID_ARGUMENT
// names the tool: without a proper name, a name given twice, a schema that is no JSON object.
absl::StatusOr<nlohmann::ordered_json> FunctionsJson(const v1::ChatRequest& request);

// The messages of `request`, its tools before the first.  INVALID_ARGUMENT names the parameter: as
// FunctionsJson, a result that is to no call before it, calls or results in a message of another
// role, a last message that calls tools, TOOL_CHOICE_REQUIRED without tools, an unknown
// required_tool.
absl::StatusOr<std::vector<Message>> MessagesOf(const v1::ChatRequest& request,
                                                ToolFormat format = ToolFormat::kGemma3);

// How the answer to `request` is read.
CallOptions CallOptionsOf(const v1::ChatRequest& request, ToolFormat format);

}  // namespace tandem::gateway

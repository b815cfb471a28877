// OpenAI's tools and calls to those of a conversation.
#pragma once

#include <string_view>

#include "services/gateway/api/json_fields.h"
#include "services/gateway/openai/openai_options.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// tools, tool_choice and parallel_tool_calls.  Tools other than functions are refused.  `within`:
// the member of a tool, and of a choice of one, that has its name and parameters; empty: they are
// its own members.  A tool's "strict" is noted as ignored unless the model must call a tool.
void ReadTools(JsonFields& fields, std::string_view within, v1::ChatRequest& request,
               IgnoredMembers& ignored);

// An assistant message's "tool_calls".
void ReadToolCalls(JsonFields& message, v1::ChatMessage& added);

}  // namespace tandem::gateway

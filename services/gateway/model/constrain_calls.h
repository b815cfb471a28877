// What an answer that may call tools must look like.
#pragma once

#include "absl/status/status.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/tool_calls/call_parser.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Sets `parsed`'s constraint by `request`'s tools, which are shown in `format`.
//
//   tool_choice   no constraint    JSON mode or a schema     another constraint
//   none          unchanged        unchanged                 unchanged
//   auto          unchanged        it or calls               INVALID_ARGUMENT
//   required      calls            calls: there is no text   calls
//
// INVALID_ARGUMENT also: calls of FunctionGemma's format, whose control tokens no constraint can
// hold; as CallSchema.
absl::Status ConstrainCalls(const v1::ChatRequest& request, ToolFormat format,
                            EngineRequest& parsed);

}  // namespace tandem::gateway

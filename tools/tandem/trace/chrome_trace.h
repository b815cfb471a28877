// A request's trace as Chrome's trace event format, which Perfetto and chrome://tracing show.
//
//   gateway   request   |================ chat gemma-3 ================|
//                       |queue|   prompt   |           decode          |
//             steps           |  step 7    |step 8|step 9| ...
//             calls           |gpu0 Qkv|npu0 Attend|gpu0 Out+Ffn+Qkv| ...
//   devices   gpu0            |  Qkv |             |Out| Ffn |Qkv|
//             npu0                    |  Attend  |
//
// Source: "Trace Event Format" (Google, 2016), complete events and metadata.
#pragma once

#include <string>

#include "tandem/v1/generation.pb.h"

namespace tandem {

// Times are microseconds from the first request's arrival on.  In a device's lane no two calls
// overlap: where a step was queued behind another the place of its time is an estimate, and moved
// to before the next one's.
std::string ChromeTrace(const v1::GetTraceResponse& trace);

}  // namespace tandem

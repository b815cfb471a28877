// The form of a stream: a line for each message, or an event for each.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tandem::gateway {

// `events`: server-sent events, else newline-delimited JSON.
const char* RestStreamType(bool events);
// Keeps a quiet connection open; clients skip it.
const char* RestKeepAlive(bool events);
// Before and after the JSON of each message.
const char* RestMessageBegin(bool events);
const char* RestMessageEnd(bool events);
// The last line or event of a stream that fails.
void AppendRestError(const absl::Status& status, bool events, std::string& out);

}  // namespace tandem::gateway

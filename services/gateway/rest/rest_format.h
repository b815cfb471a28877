// How messages of a stream are separated: a line each, or an event each.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tandem::gateway {

// `events`: server-sent events, else newline-delimited JSON.
const char* RestStreamType(bool events);
// What clients skip, sent while there is nothing to say.
const char* RestKeepAlive(bool events);
void AppendRestMessage(const std::string& json, bool events, std::string& out);
// The last of a stream that breaks off.
void AppendRestError(const absl::Status& status, bool events, std::string& out);

}  // namespace tandem::gateway

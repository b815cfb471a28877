#include "services/gateway/rest/rest_format.h"

#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

const char* RestStreamType(bool events) {
  return events ? "text/event-stream" : "application/x-ndjson";
}

const char* RestKeepAlive(bool events) { return events ? ": keep-alive\n\n" : "\n"; }

const char* RestMessageBegin(bool events) { return events ? "data: " : ""; }

const char* RestMessageEnd(bool events) { return events ? "\n\n" : "\n"; }

void AppendRestError(const absl::Status& status, bool events, std::string& out) {
  const std::string json = StatusResponse(FailureOf(status)).body;
  out += events ? "event: error\ndata: " : "{\"error\":";
  out += json;
  out += events ? "\n\n" : "}\n";
}

}  // namespace tandem::gateway

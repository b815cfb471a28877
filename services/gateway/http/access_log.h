// The log line of an HTTP request.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "services/common/base/logging.h"
#include "services/gateway/http/http_answer.h"

namespace tandem::gateway {

struct AccessEntry {
  int status = 0;  // 499: the client disconnected
  uint64_t sent_bytes = 0;
  absl::Duration taken;
  std::string peer;    // address
  std::string client;  // holder of the key
  LogLevel level = LogLevel::kInfo;
};

// Never the query or the body: prompts are there.
void LogAccess(const HttpAnswerContext& context, const AccessEntry& entry);

}  // namespace tandem::gateway

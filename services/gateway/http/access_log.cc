#include "services/gateway/http/access_log.h"

#include <vector>

#include "absl/strings/ascii.h"

namespace tandem::gateway {

void LogAccess(const HttpAnswerContext& context, const AccessEntry& entry) {
  std::string path = context.path.substr(0, 256);
  for (char& c : path) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) c = '?';
  }
  std::vector<LogField> fields = {{"method", context.method},
                                  {"path", path},
                                  {"status", entry.status},
                                  {"bytes", entry.sent_bytes},
                                  {"ms", LogValue(absl::ToDoubleMilliseconds(entry.taken), 1)},
                                  {"peer", entry.peer},
                                  {"client", entry.client},
                                  {"request_id", context.id}};
  if (context.trace.own.sampled) {
    fields.emplace_back("trace_id", FormatTraceId(context.trace.own.trace_id));
  }
  Log(entry.level, "http", fields);
}

}  // namespace tandem::gateway

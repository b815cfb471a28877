// REST's parsers: a path template, a path to match it with, and a query, each a line; then the JSON
// guard and framing over all of it.
#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "services/common/base/check.h"
#include "services/common/json/guarded_json.h"
#include "services/gateway/http/path_template.h"
#include "services/gateway/http/request_reader.h"
#include "services/gateway/rest/field_binder.h"
#include "tandem/v1/generation.pb.h"

namespace {

using namespace tandem::gateway;

std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text = end == std::string_view::npos ? "" : text.substr(end + 1);
  return line;
}

void FuzzPath(std::string_view text, std::string_view path) {
  const auto parsed = PathTemplate::Parse(text);
  if (!parsed.ok()) return;
  // What it says of itself is a template of the same paths.
  const auto again = PathTemplate::Parse(parsed->Shape());
  TANDEM_CHECK(again.ok());
  TANDEM_CHECK(*again == *parsed);
  if (!IsValidPath(path)) return;
  const auto bindings = parsed->Match(path);
  TANDEM_CHECK(bindings.has_value() == again->Match(path).has_value());
  if (bindings.has_value()) TANDEM_CHECK(bindings->size() == parsed->variables().size());
}

void FuzzQuery(std::string_view query) {
  const auto parameters = ParseQuery(query);
  if (!parameters.ok()) return;
  tandem::v1::GenerateRequest request;
  FieldBinder binder(request);
  for (const auto& [name, value] : *parameters) {
    if (!binder.Set(name, value).ok()) return;
  }
  // Only what can be sent may have been set.
  tandem::v1::GenerateRequest copy;
  TANDEM_CHECK(copy.ParseFromString(request.SerializeAsString()));
}

// Reads requests in pieces, to the end or to the first that is refused, and says what came of it.
std::string Frame(std::string_view bytes, size_t piece) {
  HttpRequestReader reader({.max_header_bytes = 1024, .max_body_bytes = 1024});
  std::string outcome;
  while (!bytes.empty()) {
    std::string_view in = bytes.substr(0, piece);
    bytes.remove_prefix(in.size());
    while (!in.empty()) {
      const size_t used = reader.Feed(in);
      TANDEM_CHECK(used > 0 && used <= in.size());
      in.remove_prefix(used);
      TANDEM_CHECK(reader.body_bytes() <= 1024);
      if (reader.state() == HttpRequestReader::State::kFailed) {
        TANDEM_CHECK(reader.failure().http_status >= 400);
        return outcome + std::string(reader.failure().status.message());
      }
      if (reader.state() != HttpRequestReader::State::kDone) continue;
      const HttpRequest request = reader.Take();
      TANDEM_CHECK(IsValidPath(request.path));
      outcome += request.method + " " + request.path + "?" + request.query + "\n";
      for (const auto& [name, value] : request.headers) outcome += name + ": " + value + "\n";
      outcome += request.body + "\n";
    }
  }
  return outcome + std::to_string(static_cast<int>(reader.state()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  std::string_view text = all;
  const std::string_view path_template = TakeLine(text);
  const std::string_view path = TakeLine(text);
  FuzzPath(path_template, path);
  FuzzQuery(TakeLine(text));
  (void)tandem::CheckJson(text);
  const std::string outcome = Frame(all, size);
  if (size > 4096) return 0;
  // Pieces make no difference.
  TANDEM_CHECK(Frame(all, 1) == outcome);
  TANDEM_CHECK(Frame(all, 7) == outcome);
  return 0;
}

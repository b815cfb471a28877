// Requests for traces and for metrics, from their bytes on: the head, the host and the origin, the
// route, the query's fields, the search among traces that are kept.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/common/base/check.h"
#include "services/common/metrics/metrics_server.h"
#include "services/gateway/http/http_admission.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/http/request_reader.h"
#include "services/gateway/rest/rest_binding.h"
#include "services/gateway/trace/trace_records.h"
#include "services/gateway/trace/trace_response.h"
#include "services/gateway/trace/trace_ring.h"
#include "tandem/v1/generation.pb.h"

namespace {

using namespace tandem;
using namespace tandem::gateway;

// Three requests of two tenants.
const TraceRing& Ring() {
  static TraceRing* const ring = [] {
    auto* made = new TraceRing(8, 1 << 20);
    for (const auto& [id, tenant] : {std::pair{"one", "a"}, {"two", "b"}, {"one", "b"}}) {
      auto request = std::make_shared<TracedRequest>();
      request->request_id = id;
      request->tenant = tenant;
      made->Add({std::move(request), {}});
    }
    return made;
  }();
  return *ring;
}

void FindTrace(const RestBinding& binding, const HttpRequest& request) {
  const auto message = BuildRequest(binding, request);
  if (!message.ok()) return;
  const auto& wanted = dynamic_cast<const v1::GetTraceRequest&>(**message);
  for (const char* tenant : {"a", "b", "nobody"}) {
    const auto found = Ring().Find(wanted.id(), tenant);
    for (const KeptTrace& trace : found) {
      TANDEM_CHECK(trace.request->tenant == tenant);
      TANDEM_CHECK(wanted.id().empty() || trace.request->request_id == wanted.id());
    }
    v1::GetTraceResponse response;
    if (!found.empty()) FillTrace(found, response);
    std::string json;
    TANDEM_CHECK(AppendResponse(binding, response, json).ok());
  }
}

void Answer(const HttpRequest& request) {
  static const auto* const bindings = new std::vector<RestBinding>(
      ReadBindings(
          *v1::GenerateRequest::descriptor()->file()->service(0)->FindMethodByName("GetTrace"))
          .value());
  TANDEM_CHECK(!bindings->empty());
  const auto refused = RefuseHost(request, {"gateway.example"});
  if (refused.has_value()) TANDEM_CHECK(refused->http_status == 403);
  (void)AdmitOrigin(request, {"https://chat.example"});
  (void)IsLocal(request, "127.0.0.1");
  if (const auto host = request.Header("host")) {
    // The two servers agree on foreign names, except for names that the gateway was given.
    if (IsNameOfThisMachine(*host)) TANDEM_CHECK(!RefuseHost(request, {}).has_value());
  }
  for (const RestBinding& binding : *bindings) FindTrace(binding, request);
  HttpRouter router;
  TANDEM_CHECK(router.Add({.method = "GET", .path_template = "/metrics"}).ok());
  const HttpRouter::Match match = router.Find(request.method, request.path);
  if (match.route != nullptr) TANDEM_CHECK(match.variables.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  HttpRequestReader reader({.max_header_bytes = 16 << 10, .max_body_bytes = 1024});
  while (!bytes.empty()) {
    bytes.remove_prefix(reader.Feed(bytes));
    if (reader.state() == HttpRequestReader::State::kFailed) return 0;
    if (reader.state() == HttpRequestReader::State::kDone) Answer(reader.Take());
  }
  return 0;
}

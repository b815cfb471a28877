#include "services/gateway/rest/rest_routes.h"

#include <grpcpp/generic/generic_stub.h>

#include <utility>

#include "services/common/base/status_macros.h"
#include "services/gateway/rest/rest_binding.h"
#include "services/gateway/rest/rest_call.h"

namespace tandem::gateway {

absl::Status AddRestRoutes(HttpRouter& router, const google::protobuf::ServiceDescriptor& service,
                           std::shared_ptr<grpc::Channel> channel, RestRefused on_refused,
                           const RestStreams& streams) {
  const auto stub = std::make_shared<grpc::GenericStub>(std::move(channel));
  for (int i = 0; i < service.method_count(); ++i) {
    const auto found = streams.find(service.method(i)->full_name());
    const auto answer = found == streams.end() ? nullptr : found->second;
    TANDEM_ASSIGN_OR_RETURN(auto bindings, ReadBindings(*service.method(i)));
    for (RestBinding& read : bindings) {
      const auto binding = std::make_shared<const RestBinding>(std::move(read));
      // The route, which outlives its calls, shares both.
      TANDEM_RETURN_IF_ERROR(router.Add(
          {.method = binding->http_method,
           .path_template = binding->path_template,
           .handler = [stub, binding, on_refused, answer](
                          HttpRequest request, std::shared_ptr<HttpResponder> responder) {
             const absl::Status status =
                 answer != nullptr
                     ? answer(*binding, request, std::move(responder))
                     : RestCall::Start(*stub, *binding, std::move(request), std::move(responder));
             if (!status.ok() && on_refused) on_refused(*binding->method, status);
           }}));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway

#include "services/gateway/rest/rest_routes.h"

#include <algorithm>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/gateway/rest/rest_binding.h"
#include "services/gateway/rest/rest_call.h"

namespace tandem::gateway {

absl::Status AddRestRoutes(HttpRouter& router, const google::protobuf::ServiceDescriptor& service,
                           std::shared_ptr<grpc::Channel> channel, RestRefused on_refused,
                           const RestStreams& streams) {
  const auto calls = std::make_shared<RestCalls>(std::move(channel));
  for (int i = 0; i < service.method_count(); ++i) {
    const auto found = streams.find(service.method(i)->full_name());
    const auto answer = found == streams.end() ? nullptr : found->second;
    TANDEM_ASSIGN_OR_RETURN(auto bindings, ReadBindings(*service.method(i)));
    // What may also be posted is work, however it is asked for.
    const bool counts = std::any_of(bindings.begin(), bindings.end(), [](const RestBinding& read) {
      return read.http_method != "GET";
    });
    for (RestBinding& read : bindings) {
      const auto binding = std::make_shared<const RestBinding>(std::move(read));
      TANDEM_RETURN_IF_ERROR(router.Add(
          {.method = binding->http_method,
           .path_template = binding->path_template,
           .handler =
               [binding, calls, on_refused, answer](HttpRequest request,
                                                    std::shared_ptr<HttpResponder> responder) {
                 const absl::Status status =
                     answer != nullptr
                         ? answer(*binding, request, std::move(responder))
                         : calls->Start(binding, std::move(request), std::move(responder));
                 if (!status.ok() && on_refused) on_refused(*binding->method, status);
               },
           .counts = counts}));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway

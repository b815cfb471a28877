#include "services/gateway/rest/rest_routes.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/model/client_status.h"
#include "services/gateway/rest/rest_binding.h"
#include "services/gateway/rest/rest_call.h"
#include "services/gateway/rest/rest_input.h"

namespace tandem::gateway {
namespace {

HttpHandler Handles(std::shared_ptr<const RestBinding> binding, const RpcMethod& method) {
  return [binding = std::move(binding), method](const HttpRequest& request,
                                                std::shared_ptr<HttpResponder> responder) {
    auto input = ReadRestInput(*binding, request);
    if (!input.ok()) {
      if (method.refused) method.refused(Api::kRest, input.status());
      responder->SendStatus(ToClientError(input.status()));
      return;
    }
    method.answer(
        std::make_shared<RestCall>(binding, *std::move(input), request, std::move(responder)));
  };
}

}  // namespace

absl::Status AddRestRoutes(HttpRouter& router, const google::protobuf::ServiceDescriptor& service,
                           const RpcMethods& methods) {
  for (int i = 0; i < service.method_count(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(auto bindings, ReadBindings(*service.method(i)));
    // A method with a POST route is work: its GETs count against a key's limits too.
    const bool counts = std::any_of(bindings.begin(), bindings.end(), [](const RestBinding& read) {
      return read.http_method != "GET";
    });
    const auto method = methods.find(service.method(i)->full_name());
    if (method == methods.end() && !bindings.empty()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s has routes, but nothing answers it", service.method(i)->full_name()));
    }
    for (RestBinding& read : bindings) {
      const auto binding = std::make_shared<const RestBinding>(std::move(read));
      TANDEM_RETURN_IF_ERROR(router.Add({.method = binding->http_method,
                                         .path_template = binding->path_template,
                                         .handler = Handles(binding, method->second),
                                         .counts = counts,
                                         .pooled = true}));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway

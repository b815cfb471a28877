// Generate, Chat and Embed over REST, straight from the engine: a token does not take the way through
// a gRPC call of our own, which costs it more than all the rest of its way, and the limits of a key
// hold before a request runs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/rest/rest_binding.h"
#include "services/gateway/service/launcher.h"

namespace tandem::gateway {

// What answers requests of methods in place of a call of them, by their full names.
// Returns why a request was refused, which is answered already.
using RestStreams =
    std::map<std::string,
             std::function<absl::Status(const RestBinding& binding, const HttpRequest& request,
                                        std::shared_ptr<HttpResponder> responder)>>;

// `launcher`: Borrowed; must outlive the requests.
RestStreams EngineStreams(const Launcher& launcher);

}  // namespace tandem::gateway

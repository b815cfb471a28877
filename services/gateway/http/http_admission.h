// Admission of requests by their head: the server's name, the page's origin, the sender.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/http/http_router.h"

namespace tandem::gateway {

// The failure for a request with this Host; nullopt (allowed) for an address, for localhost, for
// one of `names`, and without a Host.
std::optional<HttpFailure> RefuseHost(const HttpRequest& head,
                                      const std::vector<std::string>& names);

// The CORS headers of the answer to a page of another origin, none for other requests; or the
// failure if that page may not call.  `allowed`: origins, or "*".
std::variant<HttpHeaders, HttpFailure> AdmitOrigin(const HttpRequest& head,
                                                   const std::vector<std::string>& allowed);

// GET or HEAD.
bool IsGet(const HttpRequest& head);

// Whether the request comes from this machine and not through a proxy.  `peer`: the peer's address.
bool IsLocal(const HttpRequest& head, const std::string& peer);

// The lease for the request's key, none if the route needs no key; or the failure.  GET and HEAD
// only read, so they count against no limit of a key unless the route says so.  `keys`: null if no
// keys are required.
std::variant<std::optional<KeyLease>, HttpFailure> AdmitSender(const HttpRequest& head,
                                                               const HttpRoute& route,
                                                               const std::string& peer,
                                                               ApiKeys* keys, absl::Time now);

}  // namespace tandem::gateway

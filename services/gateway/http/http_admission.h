// Whether a request may come in, by what its head says: of the server's name, of the page it comes
// from, of its sender.
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

// Why a request for this Host is refused; nothing for an address, for localhost, for one of `names`
// and without a Host.
std::optional<HttpFailure> RefuseHost(const HttpRequest& head,
                                      const std::vector<std::string>& names);

// What goes with the answer to a page of another origin, nothing to others; or why such a page may
// not call.  `allowed`: origins, or "*".
std::variant<HttpHeaders, HttpFailure> AdmitOrigin(const HttpRequest& head,
                                                   const std::vector<std::string>& allowed);

// GET or HEAD.
bool IsGet(const HttpRequest& head);

// Whether the request comes from this machine itself and no proxy speaks for another.  `peer`: the
// address it came from.
bool IsLocal(const HttpRequest& head, const std::string& peer);

// The lease of the holder of the request's key, nothing where the route asks for none; or why not.
// GET and HEAD, which look at things and make none, count against no limit of a key unless the route
// says so.
// `keys` is null where everybody is served.
std::variant<std::optional<KeyLease>, HttpFailure> AdmitSender(const HttpRequest& head,
                                                               const HttpRoute& route,
                                                               const std::string& peer,
                                                               ApiKeys* keys, absl::Time now);

}  // namespace tandem::gateway

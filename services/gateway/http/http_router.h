// Routes: finds the handler of a request.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/http/path_template.h"

namespace tandem::gateway {

struct HttpRoute {
  std::string method;         // "POST"
  std::string path_template;  // google.api.http's syntax: "/v1/models/{model=**}"
  HttpHandler handler;
  // Whether it needs no API key (health and the like).
  bool open = false;
  // Whether it is for this machine: peers on loopback, without a proxy between, need no key.
  // Others need a key, and are refused if the gateway has none.
  bool local = false;
  // Whether a GET counts against the limits of a key, as other methods do, because it is work.
  bool counts = false;
  // Whether requests without a body are handled on the threads that handle bodies too: their work
  // may take longer than a thread that serves connections can wait.
  bool pooled = false;
};

// Filled before the server starts, then constant.
class HttpRouter {
 public:
  // INVALID_ARGUMENT: the template; ALREADY_EXISTS: another route matches just the same paths.
  // A GET route answers HEAD too.
  absl::Status Add(HttpRoute route);
  // `format` writes the errors of paths with `prefix` ("/v1/" has the prefixes "/v1/" and "/v1").
  // The longest prefix wins.  Without a format: google.rpc.Status as JSON.
  void SetErrorFormat(std::string prefix, HttpErrorFormat format);

  struct Match {
    const HttpRoute* route = nullptr;  // null: no such method there, or no such path
    PathTemplate::Bindings variables;
    std::string allow;  // methods the path has, "GET, HEAD"; empty: no such path
  };
  // `path`: as sent, percent-encoded.  Literal segments win over `*`, and `*` over `**`.  A slash
  // at the end is ignored if no route matches it.
  Match Find(std::string_view method, std::string_view path) const;
  HttpResponse Format(std::string_view path, const HttpFailure& failure) const;

 private:
  Match FindAsIs(std::string_view method, std::string_view path) const;

  struct Entry {
    HttpRoute route;
    PathTemplate path;
  };
  std::vector<Entry> entries_;                                    // most specific first
  std::vector<std::pair<std::string, HttpErrorFormat>> formats_;  // longest prefix first
};

}  // namespace tandem::gateway

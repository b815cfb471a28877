#include "services/gateway/page/page_routes.h"
#include "services/common/base/client_text.h"

#include <xxhash.h>

#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

constexpr char kContentSecurityPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src "
    "'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

const char* ContentType(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".woff2")) return "font/woff2";
  if (name.ends_with(".txt")) return "text/plain; charset=utf-8";
  return "image/svg+xml";
}

void SendFile(const PageFile& file, const HttpRequest& request, HttpResponder& responder) {
  const bool gzip = !file.gzip.empty() && request.AcceptsEncoding("gzip");
  // The two forms are two things to a cache.
  const std::string tag = absl::StrFormat(
      "\"%016x%s\"", XXH3_64bits(file.bytes.data(), file.bytes.size()), gzip ? "-gzip" : "");
  HttpResponse response;
  response.content_type = ContentType(file.name);
  response.headers = {{"Cache-Control", "no-cache"},
                      {"ETag", tag},
                      {"Content-Security-Policy", kContentSecurityPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Vary", "Accept-Encoding"}};
  if (request.Header("if-none-match") == tag) {
    response.status = 304;
  } else {
    if (gzip) response.headers.emplace_back("Content-Encoding", "gzip");
    response.body = std::string(gzip ? file.gzip : file.bytes);
  }
  responder.Send(std::move(response));
}

void SendNamed(std::string_view name, const HttpRequest& request, HttpResponder& responder) {
  for (const PageFile& file : PageFiles()) {
    if (file.name == name) return SendFile(file, request, responder);
  }
  responder.SendStatus(
      absl::NotFoundError(absl::StrFormat("the page has no file \"%s\"", ClientText(name))));
}

}  // namespace

absl::Status AddPageRoutes(HttpRouter& router) {
  TANDEM_RETURN_IF_ERROR(router.Add(
      {.method = "GET",
       .path_template = "/",
       .handler =
           [](const HttpRequest& request, const std::shared_ptr<HttpResponder>& responder) {
             SendNamed("index.html", request, *responder);
           },
       .open = true}));
  return router.Add(
      {.method = "GET",
       .path_template = "/page/{file}",
       .handler =
           [](const HttpRequest& request, const std::shared_ptr<HttpResponder>& responder) {
             SendNamed(request.Variable("file"), request, *responder);
           },
       .open = true});
}

}  // namespace tandem::gateway

// The chat page: `/` and what it loads, from files that are part of this program.
//
// The Content-Security-Policy allows scripts, styles, fonts, images and requests of this server
// alone, no inline code, and no text parsed as HTML.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "services/gateway/http/http_router.h"

namespace tandem::gateway {

struct PageFile {
  std::string_view name;  // "app.js"
  std::string_view bytes;
  std::string_view gzip;  // the same bytes compressed; empty where that is not smaller
};

// The files of site/ and of vendor/dist/, generated at build.
std::span<const PageFile> PageFiles();

// Adds `/` and `/page/{file}`; they need no API key.
absl::Status AddPageRoutes(HttpRouter& router);

}  // namespace tandem::gateway

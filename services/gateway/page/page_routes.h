// The chat page: `/` and what it loads, from files that are part of this program.
//
// Nothing is loaded from elsewhere, and the Content-Security-Policy sees to it: scripts, styles,
// images and requests from this server alone, no inline code, no text parsed as HTML.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "services/gateway/http/http_router.h"

namespace tandem::gateway {

struct PageFile {
  std::string_view name;  // "app.js"
  std::string_view bytes;
};

// The files of site/, generated at build.
std::span<const PageFile> PageFiles();

// Adds `/` and `/page/{file}`; they need no API key.
absl::Status AddPageRoutes(HttpRouter& router);

}  // namespace tandem::gateway

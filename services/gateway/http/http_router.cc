#include "services/gateway/http/http_router.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {

absl::Status HttpRouter::Add(HttpRoute route) {
  TANDEM_ASSIGN_OR_RETURN(PathTemplate path, PathTemplate::Parse(route.path_template));
  for (const Entry& entry : entries_) {
    if (entry.route.method == route.method && entry.path == path) {
      return absl::AlreadyExistsError(
          absl::StrFormat("route %s %s: %s is there already and matches the same paths",
                          route.method, route.path_template, entry.route.path_template));
    }
  }
  const auto before = std::upper_bound(
      entries_.begin(), entries_.end(), path,
      [](const PathTemplate& added, const Entry& entry) { return added < entry.path; });
  entries_.insert(before, {std::move(route), std::move(path)});
  return absl::OkStatus();
}

void HttpRouter::SetErrorFormat(std::string prefix, HttpErrorFormat format) {
  std::erase_if(formats_, [&](const auto& entry) { return entry.first == prefix; });
  formats_.emplace_back(std::move(prefix), std::move(format));
  std::sort(formats_.begin(), formats_.end(), [](const auto& a, const auto& b) {
    return a.first.size() != b.first.size() ? a.first.size() > b.first.size() : a.first < b.first;
  });
}

HttpRouter::Match HttpRouter::Find(std::string_view method, std::string_view path) const {
  Match match = FindAsIs(method, path);
  if (match.route != nullptr || !match.allow.empty() || !path.ends_with('/')) return match;
  return FindAsIs(method, path.substr(0, path.size() - 1));
}

HttpRouter::Match HttpRouter::FindAsIs(std::string_view method, std::string_view path) const {
  Match match;
  std::set<std::string> allowed;
  for (const Entry& entry : entries_) {
    auto bindings = entry.path.Match(path);
    if (!bindings.has_value()) continue;
    const bool answers = entry.route.method == method || entry.route.method == "*" ||
                         (method == "HEAD" && entry.route.method == "GET");
    if (answers) return {&entry.route, *std::move(bindings), ""};
    allowed.insert(entry.route.method);
    if (entry.route.method == "GET") allowed.insert("HEAD");
  }
  if (!allowed.empty()) allowed.insert("OPTIONS");
  match.allow = absl::StrJoin(allowed, ", ");
  return match;
}

HttpResponse HttpRouter::Format(std::string_view path, const HttpFailure& failure) const {
  for (const auto& [prefix, format] : formats_) {
    // "/v1" itself is of "/v1/" too.
    if (path.starts_with(prefix) || path == std::string_view(prefix).substr(0, prefix.size() - 1)) {
      return format(failure);
    }
  }
  return StatusResponse(failure);
}

}  // namespace tandem::gateway

// Ollama's /api/pull and /api/delete: models come to this machine and go.
//
// Off unless the operator gives a folder: a stranger must not make a machine download gigabytes.
// Even then they are for this machine and for holders of API keys alone, and for no page of another
// origin that --http-cors does not name.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/pull/pull.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {

struct PullRouteOptions {
  pull::PullOptions how;  // an empty folder: every request is refused, with the flag's name
  pull::ModelTable table;
};

// Of --http-pull's value: a folder, or "default" for the user's; empty: off.  Errors as for
// pull::PullOptionsFromEnvironment and pull::ModelTable::FromEnvironment.
absl::StatusOr<PullRouteOptions> MakePullRouteOptions(const std::string& folder);

// Adds POST /api/pull and DELETE /api/delete.  A name of the model that is being served is success
// at once, whatever `options` allow.  `launcher`: Borrowed; must outlive the server.
absl::Status AddPullRoutes(HttpRouter& router, const Launcher& launcher, PullRouteOptions options);

}  // namespace tandem::gateway

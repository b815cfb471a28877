// Flags of a worker's service, the same for every kind of device.
#pragma once

#include <CLI/CLI.hpp>

#include "services/common/rpc/tls_flags.h"
#include "services/worker_host/run_worker_service.h"

namespace tandem {

// Flags for gateways on other hosts (docs/hosts.md).  `options`: Borrowed; must outlive parsing.
inline void AddHostFlags(CLI::App& app, RunWorkerOptions& options) {
  app.add_option("--execution-port", options.service.execution_port,
                 "Port for segment calls, where --listen is a port; 0: a free one")
      ->check(CLI::Range(0u, 65535u))
      ->capture_default_str();
  app.add_option("--loader", options.own_loader.target,
                 "unix:PATH of the loader on this host, for gateways on other hosts");
  app.add_option("--model", options.own_loader.model_name,
                 "The model as that loader lists it; empty: by the gateway's name for it");
  AddTlsFlags(app, options.server.tls);
  app.add_option("--tls-allow", options.server.tls.allow,
                 "Name in the certificate of a gateway that may call; repeat for each; none: all "
                 "that --tls-ca has signed");
  app.add_flag("--allow-remote", options.server.allow_remote,
               "Listen beyond loopback without TLS: neither encrypted nor authenticated");
}

}  // namespace tandem

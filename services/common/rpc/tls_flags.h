// --tls-cert, --tls-key, --tls-ca: the same for every service.
#pragma once

#include <CLI/CLI.hpp>

#include "services/common/rpc/tls.h"

namespace tandem {

// `files`: Borrowed; must outlive parsing.  CheckTlsFiles is the caller's.
inline void AddTlsFlags(CLI::App& app, TlsFiles& files) {
  app.add_option("--tls-cert", files.certificate,
                 "PEM file: the certificate shown to other hosts, and those it is signed with");
  app.add_option("--tls-key", files.key, "PEM file: the certificate's key");
  app.add_option("--tls-ca", files.ca, "PEM file: who signs the other hosts' certificates");
}

}  // namespace tandem

// --tls-cert, --tls-key, --tls-ca: the same for every service.
#pragma once

#include <CLI/CLI.hpp>

#include "services/common/flags/flag_checks.h"
#include "services/common/rpc/tls.h"

namespace tandem {

// `files`: Borrowed; must outlive parsing.  CheckTlsFiles is the caller's.
inline void AddTlsFlags(CLI::App& app, TlsFiles& files) {
  app.add_option("--tls-cert", files.certificate,
                 "PEM file: the certificate shown to other hosts, and those it is signed with")
      ->check(CheckedBy(CheckReadable));
  app.add_option("--tls-key", files.key, "PEM file: the certificate's key")
      ->check(CheckedBy(CheckReadable));
  app.add_option("--tls-ca", files.ca, "PEM file: who signs the other hosts' certificates")
      ->check(CheckedBy(CheckReadable));
}

}  // namespace tandem

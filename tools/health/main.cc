// tandem-health: a probe for containers and supervisors.  0: TARGET serves; 1: it does not, and
// why.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "services/common/flags/manual_page.h"
#include "services/common/flags/parse_flags.h"
#include "services/common/rpc/health_client.h"
#include "services/common/version/version.h"

int main(int argc, char** argv) {
  std::string target;
  std::string service;
  double timeout_seconds = 2;
  CLI::App app("Asks a gRPC server how it is, by grpc.health.v1.", "tandem-health");
  app.add_option("target", target, "unix:PATH or HOST:PORT")->required();
  app.add_option("--service", service, "Name of a service; empty: the server as a whole");
  app.add_option("--timeout", timeout_seconds, "Seconds to wait for the answer")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.set_version_flag("--version", tandem::VersionText("tandem-health"));
  tandem::AddManualFlag(
      app, {.version = tandem::Version(),
            .description = "A probe for containers and supervisors.\n",
            .more_sections = ".SH EXIT STATUS\n0: it serves; 1: it does not, and "
                             "standard error says why; 2: the command line is wrong.\n"});
  if (const auto ended = tandem::ParseFlags(app, argc, argv)) return *ended;
  const absl::Status status = tandem::CheckHealth(target, service, absl::Seconds(timeout_seconds));
  if (status.ok()) return 0;
  std::fprintf(stderr, "tandem-health: %s\n", status.ToString().c_str());
  return 1;
}

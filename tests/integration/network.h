// Hosts for tests: network namespaces on this machine, joined by a cable that can be pulled.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/integration/cluster.h"

namespace tandem::testing {

// Two hosts, a at 10.77.0.1 and b at 10.77.0.2.  Everything goes with this.  Needs root and
// iproute2's `ip`.
class TwoHosts {
 public:
  static constexpr char kAddressA[] = "10.77.0.1";
  static constexpr char kAddressB[] = "10.77.0.2";

  // FAILED_PRECONDITION: namespaces may not be made here.
  static absl::StatusOr<std::unique_ptr<TwoHosts>> Make();
  ~TwoHosts();

  // A program of build/<preset>/bin on host 'a' or 'b'.
  std::unique_ptr<ChildProcess> Start(char host, const std::string& program,
                                      const std::vector<std::string>& arguments) const;
  // Drops all packets between the hosts, without an error for either; lets them through again.
  void Cut() const;
  void Restore() const;

 private:
  TwoHosts();
  std::string Name(char host) const { return prefix_ + host; }
  const std::string prefix_;
};

}  // namespace tandem::testing

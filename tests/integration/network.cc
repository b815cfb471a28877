#include "tests/integration/network.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/check.h"
#include "services/common/testing/paths.h"

namespace tandem::testing {
namespace {

absl::Status Ip(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "ip");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  int status = -1;
  if (::posix_spawnp(&pid, "ip", nullptr, nullptr, argv.data(), environ) != 0) {
    return absl::FailedPreconditionError("`ip` (Debian: iproute2) is not installed");
  }
  TANDEM_CHECK(::waitpid(pid, &status, 0) == pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("`%s` failed; it needs root", absl::StrJoin(arguments, " ")));
}

}  // namespace

TwoHosts::TwoHosts() : prefix_(absl::StrFormat("tandem%d", ::getpid())) {}

absl::StatusOr<std::unique_ptr<TwoHosts>> TwoHosts::Make() {
  std::unique_ptr<TwoHosts> hosts(new TwoHosts);
  const std::string a = hosts->Name('a'), b = hosts->Name('b');
  const std::vector<std::vector<std::string>> commands = {
      {"netns", "add", a},
      {"netns", "add", b},
      {"-n", a, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", b},
      {"-n", a, "addr", "add", absl::StrFormat("%s/24", kAddressA), "dev", "cable"},
      {"-n", b, "addr", "add", absl::StrFormat("%s/24", kAddressB), "dev", "cable"},
      {"-n", a, "link", "set", "lo", "up"},
      {"-n", b, "link", "set", "lo", "up"},
      {"-n", a, "link", "set", "cable", "up"},
      {"-n", b, "link", "set", "cable", "up"}};
  for (const auto& command : commands) {
    if (absl::Status status = Ip(command); !status.ok()) return status;
  }
  return hosts;
}

TwoHosts::~TwoHosts() {
  for (const char host : {'a', 'b'}) Ip({"netns", "del", Name(host)}).IgnoreError();
}

std::unique_ptr<ChildProcess> TwoHosts::Start(char host, const std::string& program,
                                              const std::vector<std::string>& arguments) const {
  std::vector<std::string> all = {"netns", "exec", Name(host), BuildPath("bin/" + program)};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return std::make_unique<ChildProcess>("ip", all);  // `ip` becomes the program
}

// At b's end: a's end stays up, and what a sends is dropped without an error.
void TwoHosts::Cut() const {
  TANDEM_CHECK(Ip({"-n", Name('b'), "link", "set", "cable", "down"}).ok());
}
void TwoHosts::Restore() const {
  TANDEM_CHECK(Ip({"-n", Name('b'), "link", "set", "cable", "up"}).ok());
}

}  // namespace tandem::testing

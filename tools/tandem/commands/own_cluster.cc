#include "tools/tandem/commands/own_cluster.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/supervisor/process.h"

namespace tandem {

namespace {

// Without the name of the program, which the caller's line begins with too.
std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string last = "it ended without a word";
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  for (const std::string_view program : {"tandem: ", "tandem serve: "}) {
    if (last.starts_with(program)) return last.substr(program.size());
  }
  return last;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OwnCluster>> OwnCluster::Start(const ClusterFlags& flags) {
  std::string folder = (std::filesystem::temp_directory_path() / "tandem-own.XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    return absl::InternalError("no temporary directory at " + folder);
  }
  std::unique_ptr<OwnCluster> cluster(new OwnCluster(folder));
  ProcessSpec spec;
  spec.name = "serve";
  spec.argv = {ExecutableDirectory() + "/tandem",
               "serve",
               "--port",
               "0",
               "--http",
               "off",
               "--runtime-dir",
               folder,
               "--owner",
               absl::StrFormat("%d", ::getpid())};
  const std::vector<std::string> arguments = ClusterArguments(flags);
  spec.argv.insert(spec.argv.end(), arguments.begin(), arguments.end());
  spec.log_path = folder + "/serve.log";
  TANDEM_ASSIGN_OR_RETURN(cluster->pid_, StartProcess(spec));
  return cluster;
}

bool OwnCluster::Ended() {
  if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
  return pid_ == 0;
}

absl::StatusOr<v1::GetStatusResponse> OwnCluster::AwaitReady(
    GenerationStub& stub, absl::Duration timeout,
    const std::function<void(const std::string&)>& progress) {
  const absl::Time deadline = absl::Now() + timeout;
  std::string said;
  while (true) {
    auto status = WaitReady(stub, absl::Milliseconds(500));
    if (status.ok() || absl::IsFailedPrecondition(status.status())) return status;
    if (Ended()) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the cluster did not start: %s", LastLine(folder_ + "/serve.log")));
    }
    if (absl::Now() >= deadline) return status;
    const auto now = FetchStatus(stub, absl::Milliseconds(200));
    if (!now.ok() || now->detail().empty() || now->detail() == said) continue;
    said = now->detail();
    if (progress) progress(said);
  }
}

OwnCluster::~OwnCluster() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string OwnCluster::address() const { return absl::StrFormat("unix:%s/gateway.sock", folder_); }

}  // namespace tandem

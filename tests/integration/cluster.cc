#include "tests/integration/cluster.h"

#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "services/common/base/check.h"

namespace tandem::testing {

InProcessLoader::InProcessLoader(const std::string& socket_path, const std::string& root)
    : target_("unix:" + socket_path) {
  auto store = loader::ModelStore::Create({.roots = {root}});
  TANDEM_CHECK(store.ok());
  store_ = *std::move(store);
  RegionServer::Options options;
  options.socket_path = RegionSocketPath(target_).value();
  auto regions = RegionServer::Start(options, [this](const RegionRequest& request) {
    return store_->leases().GetRegion(request);
  });
  TANDEM_CHECK(regions.ok());
  regions_ = *std::move(regions);
  service_ = std::make_unique<loader::LoaderService>(store_.get());
  auto server = Server::Start({.listen = {target_}},
                              {{loader::v1::Loader::service_full_name(), service_.get()}});
  TANDEM_CHECK(server.ok());
  server_ = *std::move(server);
  server_->SetServing(true);
}

InProcessLoader::~InProcessLoader() {
  service_->Drain();
  server_->Shutdown(absl::Seconds(2));
  server_.reset();
}

ChildProcess::ChildProcess(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  TANDEM_CHECK(::posix_spawnp(&pid_, program.c_str(), nullptr, nullptr, argv.data(), environ) == 0);
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Wait();
}

void ChildProcess::Signal(int signal) const { TANDEM_CHECK(::kill(pid_, signal) == 0); }

int ChildProcess::Wait() {
  int status = 0;
  TANDEM_CHECK(::waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  return status;
}

DescriptorCount CountDescriptors() {
  DescriptorCount count;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    ++(target == "anon_inode:[eventfd]" ? count.eventfds : count.others);
  }
  return count;
}

}  // namespace tandem::testing

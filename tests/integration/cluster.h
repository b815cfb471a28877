// A cluster for tests: the loader in this process, workers in processes of their own.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "services/common/rpc/region_channel.h"
#include "services/common/rpc/server.h"
#include "services/common/testing/temporary_directory.h"
#include "services/loader/service/loader_service.h"
#include "services/loader/store/model_store.h"

namespace tandem::testing {

// tandem-loader without its main.
class InProcessLoader {
 public:
  InProcessLoader(const std::string& socket_path, const std::string& root);
  ~InProcessLoader();
  const std::string& target() const { return target_; }
  const loader::ModelStore& store() const { return *store_; }

 private:
  std::string target_;
  std::unique_ptr<loader::ModelStore> store_;
  std::unique_ptr<RegionServer> regions_;
  std::unique_ptr<loader::LoaderService> service_;
  std::unique_ptr<Server> server_;
};

// A program, by its path or found in PATH, killed and reaped at the end.
class ChildProcess {
 public:
  ChildProcess(const std::string& program, const std::vector<std::string>& arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Waits for its end; returns its exit status as of waitpid.
  int Wait();

 private:
  pid_t pid_ = -1;
};

// Open descriptors of this process.  gRPC keeps some eventfds in reserve.
struct DescriptorCount {
  size_t eventfds = 0;
  size_t others = 0;
};
DescriptorCount CountDescriptors();

}  // namespace tandem::testing

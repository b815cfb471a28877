// Services under a service manager: it gets their state, and keeps the descriptors that they store.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "services/common/rpc/loader_client.h"
#include "services/common/systemd/testing/fake_service_manager.h"
#include "services/common/testing/eventually.h"
#include "services/common/testing/paths.h"
#include "tests/integration/cluster.h"

namespace tandem::testing {
namespace {

using ::testing::SizeIs;

// A service of the manager's, started as systemd starts one.
class ManagedService {
 public:
  ManagedService(FakeServiceManager& manager, const std::string& program,
                 std::vector<std::string> arguments) {
    const std::vector<int> fds = manager.StoredDescriptors();
    std::string names = "LISTEN_FDNAMES=";
    for (const std::string& name : manager.StoredNames()) {
      names += (names.back() == '=' ? "" : ":") + name;
    }
    const std::string path = BuildPath("bin/" + program);
    std::vector<char*> argv = {const_cast<char*>(path.c_str())};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::string notify = "NOTIFY_SOCKET=" + manager.socket(), watchdog = "WATCHDOG_USEC=10000000";
    std::string count = "LISTEN_FDS=" + std::to_string(fds.size());
    char listen_pid[32];
    char* const environment[] = {notify.data(), watchdog.data(), count.data(),
                                 names.data(),  listen_pid,      nullptr};
    pid_ = ::fork();
    if (pid_ != 0) return;
    // The child: only system calls.  Descriptors to their numbers by way of higher ones.
    std::snprintf(listen_pid, sizeof(listen_pid), "LISTEN_PID=%d", ::getpid());
    for (size_t i = 0; i < fds.size(); ++i) {
      ::dup2(fds[i], kHigh + static_cast<int>(i));
    }
    for (size_t i = 0; i < fds.size(); ++i) {
      ::dup2(kHigh + static_cast<int>(i), 3 + static_cast<int>(i));
      ::close(kHigh + static_cast<int>(i));
    }
    ::execve(path.c_str(), argv.data(), environment);
    ::_exit(127);
  }
  ~ManagedService() {
    if (pid_ > 0) End(SIGKILL);
  }
  ManagedService(const ManagedService&) = delete;
  ManagedService& operator=(const ManagedService&) = delete;

  // Returns its status as of waitpid.
  int End(int signal) {
    EXPECT_EQ(::kill(pid_, signal), 0);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return status;
  }

 private:
  static constexpr int kHigh = 500;
  pid_t pid_ = -1;
};

class ServiceManagerTest : public ::testing::Test {
 protected:
  std::unique_ptr<ManagedService> StartLoader() {
    return std::make_unique<ManagedService>(
        manager_, "tandem-loader",
        std::vector<std::string>{"--listen", target_, "--root", SourcePath("models/demo"),
                                 "--no-packed-cache"});
  }
  // The memory of a region, as a worker gets it.
  static ino_t InodeOfWeights(LoaderClient& client, const std::string& model_id,
                              const std::string& socket) {
    const auto lease = client.AcquireLease(model_id, "test");
    EXPECT_TRUE(lease.ok()) << lease.status();
    if (!lease.ok()) return 0;
    const auto region = FetchRegion(socket, {(*lease)->token(), RegionKind::kWeights, 0});
    EXPECT_TRUE(region.ok()) << region.status();
    struct stat info {};
    EXPECT_EQ(::fstat(region->fd.get(), &info), 0);
    return info.st_ino;
  }

  FakeServiceManager manager_;
  TemporaryDirectory directory_;
  const std::string target_ = "unix:" + directory_.path() + "/loader.sock";
  const std::string regions_ = RegionSocketPath(target_).value();
};

TEST_F(ServiceManagerTest, WeightsStayWhereTheyAreWhenTheLoaderIsKilled) {
  auto loader = StartLoader();
  ASSERT_TRUE(manager_.WaitForLine("READY=1"));
  auto client = LoaderClient::Create(target_).value();
  const auto model = client->LoadModel("demo.Q8_0");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto lease = client->AcquireLease(model->model_id(), "a worker").value();
  const auto mapped = client->FetchWeights(*lease);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const ino_t before = InodeOfWeights(*client, model->model_id(), regions_);
  ASSERT_TRUE(WIFSIGNALED(loader->End(SIGKILL)));
  const size_t num_kept = static_cast<size_t>(model->region_bytes_size()) + 1;  // and a manifest
  ASSERT_TRUE(Eventually([&] { return manager_.StoredNames().size() >= num_kept; }));

  loader = StartLoader();
  ASSERT_TRUE(manager_.WaitForLine([](const std::string& line) {
    return line.starts_with("STATUS=1 models resident");
  })) << "before anybody asks for the model";
  client = LoaderClient::Create(target_).value();
  EXPECT_EQ(InodeOfWeights(*client, model->model_id(), regions_), before);
  bool packed = false;
  const auto again = client->LoadModel("demo.Q8_0", [&packed](const auto& progress) {
    packed |= progress.phase().starts_with("pack");
    return true;
  });
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(packed);

  // Nor does an orderly end take them along.
  EXPECT_EQ(loader->End(SIGTERM), 0);
  EXPECT_TRUE(manager_.WaitForLine("STOPPING=1"));
  EXPECT_THAT(manager_.StoredNames(), SizeIs(num_kept));
}

TEST_F(ServiceManagerTest, AWorkerSaysWhenItsDeviceIsTestedAndWhenItEnds) {
  ManagedService worker(manager_, "reference_worker",
                        {"--listen", "unix:" + directory_.path() + "/worker.sock"});
  ASSERT_TRUE(manager_.WaitForLine("READY=1"));
  EXPECT_TRUE(manager_.WaitForLine("STATUS=waiting for a plan"));
  EXPECT_TRUE(manager_.WaitForLine("WATCHDOG=1"));
  EXPECT_EQ(worker.End(SIGTERM), 0);
  EXPECT_TRUE(manager_.WaitForLine("STOPPING=1"));
}

}  // namespace
}  // namespace tandem::testing

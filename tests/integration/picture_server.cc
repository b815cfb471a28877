#include "tests/integration/picture_server.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "services/common/testing/eventually.h"
#include "services/common/testing/paths.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// Keeps the flags that the reference worker knows.
std::string WorkerScript() {
  return R"(#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --listen) listen=$2 ;; --name) name=$2 ;; esac
  shift
done
exec )" + BuildPath("bin/reference_worker") +
         R"( --listen "$listen" --name "$name" --kind gpu
)";
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> all;
  std::error_code gone;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) all.push_back(child);
  }
  return all;
}

std::string NameOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");  // 15 bytes of it
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

// `tandem` finds the services beside itself, so it is copied beside links to them.
PictureServer::PictureServer() {
  const std::string bin = BuildPath("bin/");
  fs::create_directory(Path("bin"));
  fs::copy_file(bin + "tandem", Path("bin/tandem"));
  for (const char* program : {"tandem-gateway", "tandem-loader"}) {
    fs::create_symlink(bin + program, Path("bin/") + program);
  }
  std::ofstream(Path("bin/tandem-gpu-worker")) << WorkerScript();
  fs::permissions(Path("bin/tandem-gpu-worker"), fs::perms::owner_all);
}

void PictureServer::UseDevices(const std::string& npu) {
  program_ = BuildPath("bin/tandem");
  npu_ = npu;
}

void PictureServer::TearDown() {
  if (serve_ == nullptr) return;
  serve_->Signal(SIGTERM);
  serve_->Wait();
  serve_.reset();
}

void PictureServer::Serve(const std::string& model, const std::vector<std::string>& more) {
  model_ = fs::path(model).filename().string();
  std::vector<std::string> arguments = {
      "serve",     "--model",   model, "--npu",           npu_,          "--max-rows",
      "64",        "--context", "512", "--max-sequences", "4",           "--runtime-dir",
      Path("run"), "--port",    "0",   "--http",          "127.0.0.1:0", "--no-packed-cache"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  serve_ = std::make_unique<ChildProcess>(program_, arguments);
  const auto ready = [this] {
    absl::SleepFor(absl::Milliseconds(50));
    if (Port() == 0) return false;
    gateway::testing::HttpTestClient client(Port());
    return client.Call("GET", "/ready").status == 200;
  };
  ASSERT_TRUE(Eventually(ready, absl::Minutes(2))) << GatewayLog();
}

uint16_t PictureServer::Port() const {
  const std::string log = GatewayLog();
  const std::string before = "http://127.0.0.1:";
  const size_t at = log.find(before);
  if (at == std::string::npos) return 0;
  return static_cast<uint16_t>(std::stoi(log.substr(at + before.size())));
}

std::string PictureServer::GatewayLog() const {
  std::ifstream file(Path("run/logs/gateway.log"));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

PictureClient PictureServer::Client() const {
  return {"unix:" + Path("run/gateway.sock"), Port(), model_};
}

std::vector<pid_t> PictureServer::Decoders() const {
  std::vector<pid_t> decoders;
  for (const pid_t service : ChildrenOf(serve_->pid())) {
    for (const pid_t child : ChildrenOf(service)) {
      if (NameOf(child) == "tandem-image-de") decoders.push_back(child);
    }
  }
  return decoders;
}

}  // namespace tandem::testing

// The four services as processes of their own on the demo model, and a client of them.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/common/testing/paths.h"
#include "tandem/loader/v1/loader.grpc.pb.h"
#include "tandem/v1/generation.grpc.pb.h"
#include "tests/integration/cluster.h"

namespace tandem::testing {

struct ClusterSetup {
  bool second_gpu = false;  // "gpu1": for --replicas 2
  bool npu = true;          // Attend on the emulated NPU; else everything on the GPU
  bool serve = false;       // started and kept running by `tandem serve`, which logs to files
  uint32_t context_len = 512;
  std::string http = "off";
  std::vector<std::string> gateway_flags;  // or those of `tandem serve`
  // What the file of --replica-file says of "gpu" and "gpu1"; empty: without that flag.
  std::vector<std::string> replica_words;
  std::string policy = "";  // --npu of `tandem serve`; empty: as `npu` says
  std::string model_folder = SourcePath("models/demo");
  std::string model_file = "demo.Q8_0.gguf";  // there
  std::string state = "ready";                // of the gateway, which StartCluster waits for
  std::string program_folder = BuildPath("bin");
  bool by_name = false;    // --replica-names: "gpu1", and "gpu2"... if they are started
  bool draft_npu = false;  // without `npu`: an emulated NPU that a draft model alone may use
};

// What a call brought.
struct Answer {
  grpc::Status status;
  std::string text;
  std::vector<uint32_t> tokens;
  std::string placement;
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  v1::Usage usage;
};

class ClusterFixture : public ::testing::Test {
 protected:
  // Starts the services and waits until requests are answered.
  void StartCluster(const ClusterSetup& setup = {});
  void StopCluster();
  void TearDown() override { StopCluster(); }

  // "loader", "gpu", "gpu1", "gpu2"..., "npu" or "gateway"; or "serve", which starts those.
  void StartService(const std::string& name);
  // kill -9, and waits for its end.
  void KillService(const std::string& name);
  // Under `tandem serve` -1 while the service is not there.
  pid_t Pid(const std::string& name) const;
  // Waits for a service to end by itself; its exit status as of waitpid.
  int EndOf(const std::string& name) { return services_.at(name)->Wait(); }
  size_t NumDescriptors(const std::string& name) const;

  v1::GetStatusResponse Status();
  uint32_t NumRegions();
  // Waits until `done` holds for the gateway's status; fails the test after a minute.
  void WaitForStatus(const std::string& what,
                     const std::function<bool(const v1::GetStatusResponse&)>& done);

  // A call with a deadline of two minutes: a hang is a failure, not a wait.  `on_message` sees
  // every message as it comes.
  Answer Generate(const v1::GenerateRequest& request,
                  const std::function<void()>& on_message = nullptr);
  Answer Chat(const v1::ChatRequest& request);
  Answer Chat(const std::string& question);
  // Of the gateway's socket; of what a service under `tandem serve` has logged.
  std::string GatewayTarget() const { return Target("gateway"); }
  std::string LogOf(const std::string& name) const;
  // What a service that was killed leaves.
  void RemoveSocket(const std::string& name) const;

  v1::Generation::Stub& gateway() { return *gateway_; }

 private:
  std::string Target(const std::string& name) const {
    return "unix:" + directory_->path() + "/" + name + ".sock";
  }
  std::vector<std::string> Arguments(const std::string& name) const;
  static std::string Program(const std::string& name);

  ClusterSetup setup_;
  std::unique_ptr<TemporaryDirectory> directory_;
  std::map<std::string, std::unique_ptr<ChildProcess>> services_;
  std::unique_ptr<v1::Generation::Stub> gateway_;
  std::unique_ptr<loader::v1::Loader::Stub> loader_;
};

// Greedy, `num_tokens` whatever they are.
v1::GenerateRequest GreedyRequest(const std::string& prompt, uint32_t num_tokens);

}  // namespace tandem::testing

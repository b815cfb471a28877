// Replicas as the gateway's flags make them, over worker processes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/common/testing/eventually.h"
#include "services/gateway/engine/testing/stream_reader.h"
#include "services/gateway/make_replicas.h"
#include "services/gateway/model/launcher.h"
#include "tests/integration/executor_fixture.h"

namespace tandem::gateway {

using tandem::testing::Eventually;

class ReplicasFixture : public ExecutorTest {
 protected:
  // Those of a gateway with these workers, before FinishGatewayFlags.
  GatewayFlags Flags(const std::vector<std::string>& workers, NpuPolicy npu) {
    GatewayFlags flags;
    flags.server.listen = {"unix:" + Socket("gateway")};
    flags.http.server.listen = kHttpOff;
    flags.npu = std::string(NpuPolicyName(npu));
    flags.engine.max_sequences = 4;
    flags.engine.max_rows = 32;
    flags.executor = Options(workers, npu);
    return flags;
  }
  // Serves by the replicas of the flags; the first is ready then.
  void Serve(GatewayFlags& flags) {
    ASSERT_OK(FinishGatewayFlags(flags));
    ASSERT_OK_AND_ASSIGN(ReplicaStarts all, MakeReplicas(flags));
    ASSERT_OK_AND_ASSIGN(std::unique_ptr<Executor> first, all.all[0].start(nullptr));
    ASSERT_OK_AND_ASSIGN(tokenizer_, Tokenizer::Create(first->vocabulary()));
    ASSERT_OK_AND_ASSIGN(replicas_, Replicas::Create({0, std::move(first)}, *tokenizer_,
                                                     flags.engine, std::move(all)));
  }
  // The same as the gateway does it, which lets the flags' measurements change the replicas.
  void Launch(GatewayFlags& flags) {
    ASSERT_OK(FinishGatewayFlags(flags));
    // Not launcher_, which is null while the launcher ends.
    const auto launched = std::make_shared<Launcher*>();
    const auto set_extra = [launched](std::optional<ReplicaStart> extra) {
      (*launched)->SetExtra(std::move(extra));
    };
    ASSERT_OK_AND_ASSIGN(ReplicaStarts starts, MakeReplicas(flags, set_extra));
    launcher_ = std::make_unique<Launcher>(std::move(starts), flags.engine);
    *launched = launcher_.get();
    launcher_->Begin([](bool) {});
    const auto has_model = [this] { return launcher_->model().ok(); };
    ASSERT_TRUE(Eventually(has_model, absl::Seconds(60))) << launcher_->model().status();
  }
  // As at SIGHUP: the replica file is another.  REQUIRES flags after FinishGatewayFlags.
  void Reload(const GatewayFlags& flags) {
    ASSERT_OK_AND_ASSIGN(ReplicaStarts starts, MakeReplicas(flags));
    replicas_->Update(std::move(starts.all));
  }
  void StopServing() {
    replicas_ = nullptr;
    launcher_ = nullptr;
  }
  v1::GetStatusResponse Status() const {
    v1::GetStatusResponse status;
    replicas().FillStatus(status);
    return status;
  }
  void AwaitReady(int replica) {
    EXPECT_TRUE(Eventually([&] { return Status().replicas(replica).state() == "ready"; }))
        << Status().replicas(replica).detail();
  }
  // Six prompts of 90 to 190 tokens at once, greedy and sampled, 30 tokens each; no KV of other calls
  // is found for them.  `meanwhile` runs beside them.
  std::vector<std::vector<uint32_t>> Answers(const std::function<void()>& meanwhile = [] {}) {
    const std::string scope = "call " + std::to_string(++num_calls_);
    std::vector<testing::StreamReader> readers(6);
    for (uint32_t i = 0; i < readers.size(); ++i) {
      EngineRequest request;
      for (uint32_t t = 0; t < 90 + 20 * i; ++t) {
        request.prompt.push_back(2 + (t * 37 + 11 * i) % 300);
      }
      request.cache_scope = scope;
      request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
      request.sampling.seed = i;
      request.max_tokens = 30;
      request.ignore_eos = true;
      EXPECT_OK(replicas().Submit(std::move(request), readers[i].stream()));
    }
    meanwhile();
    std::vector<std::vector<uint32_t>> answers;
    for (testing::StreamReader& reader : readers) {
      EXPECT_OK(reader.ReadToEnd().status);
      answers.push_back(reader.tokens());
    }
    return answers;
  }

 private:
  Replicas& replicas() const {
    return launcher_ == nullptr ? *replicas_ : (*launcher_->model())->replicas();
  }

  int num_calls_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Replicas> replicas_;
  std::unique_ptr<Launcher> launcher_;  // in its place
};

}  // namespace tandem::gateway

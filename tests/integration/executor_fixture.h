// An executor over a loader in this process and worker processes, on the demo model.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/common/rpc/polling.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/step_builder.h"
#include "services/gateway/executor/executor.h"
#include "tests/integration/cluster.h"

namespace tandem::gateway {

using testing::ChildProcess;
using testing::InProcessLoader;

class ExecutorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { PollForLatency(); }  // as the gateway does

  std::string Socket(const std::string& name) const {
    return directory_.path() + "/" + name + ".sock";
  }
  void StartLoader() {
    loader_ = std::make_unique<InProcessLoader>(Socket("loader"), TANDEM_SOURCE_DIR "/models/demo");
  }
  void StartWorker(const std::string& name) {
    workers_[name] = std::make_unique<ChildProcess>(
        TANDEM_BINARY_DIR "/bin/reference_worker",
        std::vector<std::string>{"--listen", "unix:" + Socket(name), "--name", name, "--kind",
                                 name.substr(0, 3)});
  }
  ExecutorOptions Options(const std::vector<std::string>& workers, NpuPolicy npu) {
    ExecutorOptions options;
    options.loader_target = "unix:" + Socket("loader");
    for (const std::string& worker : workers) {
      options.worker_targets.push_back("unix:" + Socket(worker));
    }
    options.model_name = "demo.Q8_0.gguf";
    options.policy.npu = npu;
    options.max_rows = 32;
    options.max_sequences = 4;
    options.context_len = 256;
    options.worker_grace = absl::Milliseconds(300);
    return options;
  }
  std::unique_ptr<Executor> MustStart(const ExecutorOptions& options) {
    auto executor = Executor::Start(options, nullptr);
    EXPECT_TRUE(executor.ok()) << executor.status();
    return executor.ok() ? *std::move(executor) : nullptr;
  }

  // Feeds `prompt` and then `num_tokens` greedy ones; returns those, or what went wrong.
  static absl::StatusOr<std::vector<uint32_t>> Greedy(Executor& executor,
                                                      std::vector<uint32_t> prompt,
                                                      size_t num_tokens) {
    static uint64_t step_id = 0;
    testing::StepBuilder builder(executor.limits());
    const uint32_t sequence = builder.AddSequence();
    std::vector<uint32_t> answer;
    while (answer.size() < num_tokens) {
      builder.Begin();
      const uint32_t first = builder.AddRows(sequence, prompt);
      builder.AddOutput(first + static_cast<uint32_t>(prompt.size()) - 1);
      StepBatch batch = builder.batch();
      batch.header.step_id = ++step_id;
      WriteStep(batch, executor.StepArea(0));
      TANDEM_ASSIGN_OR_RETURN(const auto timings, executor.RunStep(0, step_id));
      EXPECT_EQ(timings.size(), executor.plan().segments.size());
      answer.push_back(executor.Output(0, 0).candidates[0].token);
      prompt = {answer.back()};
    }
    return answer;
  }

  testing::TemporaryDirectory directory_;
  std::unique_ptr<InProcessLoader> loader_;
  std::map<std::string, std::unique_ptr<ChildProcess>> workers_;
  const std::vector<uint32_t> prompt_ = {2, 105, 17, 300, 4, 52, 9};
};

}  // namespace tandem::gateway

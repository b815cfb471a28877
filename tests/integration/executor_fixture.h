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
#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/step_builder.h"
#include "services/gateway/executor/executor.h"
#include "tests/integration/cluster.h"

namespace tandem::gateway {

using tandem::testing::ChildProcess;
using tandem::testing::InProcessLoader;

class ExecutorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { PollForLatency(); }  // as the gateway does

  std::string Socket(const std::string& name) const {
    return directory_.path() + "/" + name + ".sock";
  }
  void StartLoader(const std::string& root = SourcePath("models/demo")) {
    loader_ = std::make_unique<InProcessLoader>(Socket("loader"), root);
  }
  void StartWorker(const std::string& name) { StartWorker(name, "unix:" + Socket(name), {}); }
  void StartWorker(const std::string& name, const std::string& listen,
                   const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"--listen", listen,   "--name",
                                          name,       "--kind", name.substr(0, 3)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    workers_[name] = std::make_unique<ChildProcess>(BuildPath("bin/reference_worker"), arguments);
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

  // A lone step: submitted and waited for.
  static absl::StatusOr<std::vector<SegmentTiming>> RunStep(Executor& executor, uint64_t step_id) {
    executor.Submit({.lane = 0, .step_id = step_id});
    return executor.Wait();
  }

  // Feeds `prompt` and then `num_tokens` greedy ones; returns those, or what went wrong.
  static absl::StatusOr<std::vector<uint32_t>> Greedy(Executor& executor,
                                                      std::vector<uint32_t> prompt,
                                                      size_t num_tokens) {
    static uint64_t step_id = 0;
    tandem::testing::StepBuilder builder(executor.limits());
    const uint32_t sequence = builder.AddSequence();
    std::vector<uint32_t> answer;
    while (answer.size() < num_tokens) {
      builder.Begin();
      const uint32_t first = builder.AddRows(sequence, prompt);
      builder.AddOutput(first + static_cast<uint32_t>(prompt.size()) - 1);
      StepBatch batch = builder.batch();
      batch.header.step_id = ++step_id;
      WriteStep(batch, executor.StepArea(0));
      TANDEM_ASSIGN_OR_RETURN(const auto timings, RunStep(executor, step_id));
      EXPECT_EQ(timings.size(), executor.plan().segments.size());
      answer.push_back(executor.Output(0, 0).candidates[0].token);
      prompt = {answer.back()};
    }
    return answer;
  }

  // The sum of the hidden states of `tokens`, in one step without an output.
  static absl::StatusOr<std::vector<float>> Pool(Executor& executor,
                                                 const std::vector<uint32_t>& tokens) {
    static uint64_t step_id = 2'000'000;
    tandem::testing::StepBuilder builder(executor.limits());
    builder.Begin();
    builder.AddRows(builder.AddSequence(), tokens);
    builder.PoolLastRows();
    StepBatch batch = builder.batch();
    batch.header.step_id = ++step_id;
    WriteStep(batch, executor.StepArea(0));
    TANDEM_RETURN_IF_ERROR(RunStep(executor, step_id).status());
    const std::span<const float> sum = executor.Pooled(0, 0);
    EXPECT_EQ(sum.size(), executor.config().hidden_dim);
    return std::vector<float>(sum.begin(), sum.end());
  }

  // The same with two steps under way at a time, all but the first fed; the results of step n in
  // lane n % 2.
  static absl::StatusOr<std::vector<uint32_t>> QueuedGreedy(Executor& executor,
                                                            const std::vector<uint32_t>& prompt,
                                                            uint32_t num_tokens) {
    static uint64_t step_id = 1'000'000;
    tandem::testing::StepBuilder builder(executor.limits());
    const uint32_t sequence = builder.AddSequence();
    std::vector<uint32_t> answer;
    const auto take = [&](uint32_t step) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const auto timings, executor.Wait());
      EXPECT_EQ(timings.size(), 1u);
      answer.push_back(executor.Guess(step % 2, 0));
      EXPECT_EQ(answer.back(), executor.Output(step % 2, 0).candidates[0].token);
      return absl::OkStatus();
    };
    for (uint32_t step = 0; step < num_tokens; ++step) {
      builder.Begin();
      const uint32_t first =
          builder.AddRows(sequence, step == 0 ? prompt : std::vector<uint32_t>{0});
      if (step > 0) builder.FeedRow(first, 0);
      builder.AddOutput(builder.num_rows() - 1);
      StepBatch batch = builder.batch();
      batch.header.step_id = ++step_id;
      if (step > 0) batch.header.after_step = step_id - 1;
      WriteStep(batch, executor.StepArea(step % 2));
      executor.Submit(
          {.lane = step % 2, .step_id = step_id, .another_follows = step + 1 < num_tokens});
      if (step > 0) TANDEM_RETURN_IF_ERROR(take(step - 1));
    }
    TANDEM_RETURN_IF_ERROR(take(num_tokens - 1));
    return answer;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<InProcessLoader> loader_;
  std::map<std::string, std::unique_ptr<ChildProcess>> workers_;
  const std::vector<uint32_t> prompt_ = {2, 105, 17, 300, 4, 52, 9};
};

}  // namespace tandem::gateway

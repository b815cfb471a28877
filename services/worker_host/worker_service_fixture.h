// A worker service over a fake worker, and a client of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/common/rpc/polling.h"
#include "services/common/rpc/worker_client.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/step_builder.h"
#include "services/common/testing/temporary_directory.h"
#include "services/worker_host/in_process_worker.h"

namespace tandem {

inline constexpr absl::Duration kLong = absl::Seconds(30);

class WorkerServiceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { PollForLatency(); }  // as workers do

  void SetUp() override {
    limits_ = testing::MakeStepLimits(weights_->config(), {.max_rows = 16, .max_sequences = 2});
    limits_.max_outputs = limits_.max_logit_outputs = 16;
    exchange_ = testing::MakeLocalExchange(weights_->config(), limits_, 2);
  }
  void TearDown() override {
    client_.reset();
    worker_.reset();
  }

  void Start(testing::FakeWorker::Hooks hooks, WorkerServiceOptions options = {}) {
    StartWorker(std::make_unique<testing::FakeWorker>(testing::DescribeFakeWorker("fake0"),
                                                      std::move(hooks)),
                options);
  }
  void StartWorker(std::unique_ptr<Worker> worker, WorkerServiceOptions options = {}) {
    worker_ = std::make_unique<testing::InProcessWorker>(std::move(worker), source_,
                                                         directory_ + "/w.sock", options);
    client_ = std::make_unique<WorkerClient>(worker_->target());
  }

  worker::v1::LoadPlanRequest LoadRequest(uint64_t epoch) {
    return testing::MakeLoadRequest(epoch, *weights_, testing::WholeModel(weights_->config()),
                                    limits_, *exchange_, source_);
  }
  absl::Status Load(uint64_t epoch) {
    return client_->LoadPlan(LoadRequest(epoch), nullptr, kLong).status();
  }

  // Writes a step of `num_rows` rows of one sequence from position 0; returns its id.
  uint64_t WriteStep(uint32_t num_rows, uint32_t lane = 0) {
    testing::StepBuilder builder(limits_);
    builder.Begin();
    builder.AddRows(builder.AddSequence(), std::vector<uint32_t>(num_rows, 7));
    return Write(builder.batch(), lane);
  }
  // Numbers the step and writes it.
  uint64_t Write(StepBatch batch, uint32_t lane) {
    batch.header.step_id = ++step_id_;
    tandem::WriteStep(batch, exchange_->Area(lane, exchange_->layout.step));
    return step_id_;
  }

  static worker::v1::ExecuteRequest Call(uint64_t epoch, uint64_t step_id, uint32_t segment = 0,
                                         uint32_t lane = 0) {
    worker::v1::ExecuteRequest request;
    request.set_epoch(epoch);
    request.set_step_id(step_id);
    request.set_segment_index(segment);
    request.set_lane(lane);
    return request;
  }
  // A lone call: submitted and waited for.
  static absl::StatusOr<const worker::v1::ExecuteResponse*> Run(
      WorkerClient& client, const worker::v1::ExecuteRequest& request,
      absl::Duration timeout = kLong) {
    TANDEM_RETURN_IF_ERROR(client.Submit(request, timeout));
    return client.Wait(timeout);
  }
  absl::Status Execute(const worker::v1::ExecuteRequest& request, absl::Duration timeout = kLong) {
    return Run(*client_, request, timeout).status();
  }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
  std::shared_ptr<const WeightSet> weights_ =
      testing::RandomWeightSet(testing::MakeConfig({.num_layers = 2}));
  testing::LocalWeightSource source_{weights_};
  StepLimits limits_;
  std::shared_ptr<const Exchange> exchange_;
  uint64_t step_id_ = 0;
  std::unique_ptr<testing::InProcessWorker> worker_;
  std::unique_ptr<WorkerClient> client_;
};

}  // namespace tandem

// The metric tandem_device_busy_seconds_total against the host's clock.
//
// Steps are submitted back to back: if the worker queues steps, the device has the next step before
// the last one ends.  So the host's time from the first step to the last equals the device's busy
// time, except for the host's time between steps.  Neither device nor worker reads that clock.
#include <prometheus/metric_family.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/worker_host/device_host.h"
#include "services/worker_host/in_process_worker.h"
#include "services/worker_host/worker_metrics.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

// The suite's worker, for tests that need one of their own.
class Borrowed final : public Worker {
 public:
  explicit Borrowed(Worker& worker) : worker_(worker) {}
  const WorkerDescription& description() const override { return worker_.description(); }
  absl::StatusOr<LoadReport> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) override {
    return worker_.Load(std::move(load), progress);
  }
  void Unload(uint32_t plan) override { worker_.Unload(plan); }
  absl::Status Submit(const SegmentRun& run) override { return worker_.Submit(run); }
  absl::StatusOr<SegmentResult> Wait(uint32_t plan) override { return worker_.Wait(plan); }
  absl::Status CheckHealth() override { return worker_.CheckHealth(); }

 private:
  Worker& worker_;  // Borrowed.
};

// Sum of the metric over stages, as a page would show it.
double BusySeconds(const DeviceHost& host, const WorkerDescription& description) {
  MetricSamples samples;
  AddWorkerMetrics(description, true, host.GetStatus(), samples);
  double sum = 0;
  for (const auto& family : std::move(samples).Take()) {
    if (family.name != WorkerMetrics::kBusySeconds.name) continue;
    for (const auto& metric : family.metric) sum += metric.counter.value;
  }
  return sum;
}

// A prompt as long as the model's context, in chunks of kRows, one step each, on a model of some layers.
class PromptRun {
 public:
  static constexpr uint32_t kRows = 64, kLanes = 2;

  PromptRun(Worker& worker, const ModelConfig& config, const std::vector<Segment>& segments)
      : config_(config),
        weights_(testing::RandomWeightSet(config)),
        limits_(testing::MakeStepLimits(config, {.max_rows = kRows, .max_sequences = 1})),
        exchange_(testing::MakeLocalExchange(config, limits_, kLanes)),
        source_(weights_),
        host_(std::make_unique<Borrowed>(worker), source_, absl::Minutes(1),
              /*measure_ceilings=*/false, nullptr) {
    loaded_ =
        host_
            .Load(testing::MakeLoadRequest(1, *weights_, segments, limits_, *exchange_, source_),
                  [](double, std::string_view) {})
            .status();
  }
  ~PromptRun() {
    worker::v1::UnloadPlanRequest unload;
    unload.set_epoch(1);
    EXPECT_OK(host_.Unload(unload));
  }
  const absl::Status& loaded() const { return loaded_; }
  const DeviceHost& host() const { return host_; }

  absl::Status Run() {
    testing::StepBuilder steps(limits_);
    const uint32_t sequence = steps.AddSequence();
    worker::v1::ExecuteResponse response;
    uint64_t under_way = 0;  // 0: none
    const auto wait = [&] {
      if (under_way != 0) host_.Wait(under_way, response);
      return absl::Status(static_cast<absl::StatusCode>(response.code()), response.message());
    };
    for (uint32_t s = 0; s < config_.context_len / kRows; ++s) {
      steps.Begin();
      steps.AddOutput(steps.AddRows(sequence, MakeTokens(config_, kRows, s)) + kRows - 1);
      StepBatch batch = steps.batch();
      batch.header.step_id = ++last_step_;
      WriteStep(batch, exchange_->Area(s % kLanes, exchange_->layout.step));
      worker::v1::ExecuteRequest request;
      request.set_epoch(1);
      request.set_step_id(batch.header.step_id);
      request.set_lane(s % kLanes);
      const uint64_t call = host_.Submit(request);
      TANDEM_RETURN_IF_ERROR(wait());
      under_way = call;
    }
    return wait();
  }

 private:
  ModelConfig config_;
  std::shared_ptr<const WeightSet> weights_;
  StepLimits limits_;
  std::shared_ptr<const Exchange> exchange_;
  testing::LocalWeightSource source_;
  DeviceHost host_;
  absl::Status loaded_;
  uint64_t last_step_ = 0;
};

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST_F(WorkerSuite, TheBusyTimesOfItsStagesAddUpToWhatTheHostsClockSees) {
  // The host needs some microseconds per step, and some tens before the first and after the last.
  // A run is long enough if they are less than half of the bound; a fast device needs more layers
  // for that.  A worker of one stage has no layers to add: it sees more positions, since an NPU's host
  // converts each row, which takes a time of its own.
  constexpr double kBound = 0.03, kLongEnough = 0.02;
  constexpr uint32_t kMostLayers = 128;
  constexpr int kTries = 5;
  const uint32_t num_steps = OffersEverything() ? 8 : 24;
  double off = 1;
  for (uint32_t layers = 2; layers <= kMostLayers; layers *= 4) {
    const ModelConfig config = testing::MakeConfig({.num_layers = layers,
                                                    .hidden_dim = 256,
                                                    .ffn_dim = 1024,
                                                    .num_heads = 8,
                                                    .num_kv_heads = 4,
                                                    .vocab_size = 512,
                                                    .context_len = PromptRun::kRows * num_steps,
                                                    .global_every = 1});
    if (!Takes(config, DType::kF16)) GTEST_SKIP() << "it does not take such a model";
    const std::vector<Segment> segments =
        OffersEverything()
            ? testing::WholeModel(config)
            : std::vector<Segment>{testing::SingleStage({StageKind::kAttend, 0}, config)};
    PromptRun prompt(worker(), config, segments);
    ASSERT_OK(prompt.loaded());
    ASSERT_OK(prompt.Run());  // the first use of buffers and code is another matter

    // A busy machine may interrupt the run between two steps.  Such a run is repeated; a wrong busy
    // time is wrong in every run.
    off = 1;
    double shortest = 1e9;
    for (int i = 1; i <= kTries && off > kBound; ++i) {
      const double before = BusySeconds(prompt.host(), worker().description());
      const auto begin = std::chrono::steady_clock::now();
      ASSERT_OK(prompt.Run());
      const double seconds = SecondsSince(begin);
      const double busy = BusySeconds(prompt.host(), worker().description()) - before;
      EXPECT_LE(busy, seconds * 1.001) << "busier than there was time";
      off = 1 - busy / seconds;
      shortest = std::min(shortest, seconds);
      RecordProperty("busy_ms", std::to_string(1e3 * busy));
      RecordProperty("host_ms", std::to_string(1e3 * seconds));
      std::printf("%u layers: busy %.3f ms, by the host's clock %.3f ms: %.2f%% less\n", layers,
                  1e3 * busy, 1e3 * seconds, 100 * off);
    }
    if (shortest >= kLongEnough || !OffersEverything()) break;
  }
  EXPECT_LE(off, kBound);
}

}  // namespace
}  // namespace tandem::conformance

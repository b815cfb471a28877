// The metric tandem_device_busy_seconds_total against the host's clock.
//
// Steps are handed over back to back: where the worker queues them the device has the next one
// before it is done with the last.  The time from the first to the last, by a clock that neither
// the device nor the worker reads for it, is then what the device was busy, but for what the host
// needs in between.
#include <prometheus/metric_family.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/common/worker/service/device_host.h"
#include "services/common/worker/service/in_process_worker.h"
#include "services/common/worker/service/worker_metrics.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

// The suite's worker, for a host that wants one of its own.
class Borrowed final : public Worker {
 public:
  explicit Borrowed(Worker& worker) : worker_(worker) {}
  const WorkerDescription& description() const override { return worker_.description(); }
  absl::StatusOr<LoadReport> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) override {
    return worker_.Load(std::move(load), progress);
  }
  void Unload() override { worker_.Unload(); }
  absl::StatusOr<SegmentResult> Run(const SegmentRun& run) override { return worker_.Run(run); }
  absl::Status Queue(const SegmentRun& run) override { return worker_.Queue(run); }
  absl::StatusOr<SegmentResult> Finish() override { return worker_.Finish(); }
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

TEST_F(WorkerSuite, TheBusyTimesOfItsStagesAddUpToWhatTheHostsClockSees) {
  constexpr uint32_t kRows = 64, kSteps = 8, kLanes = 2;
  const ModelConfig config = testing::MakeConfig({.num_layers = 2,
                                                  .hidden_dim = 256,
                                                  .ffn_dim = 1024,
                                                  .num_heads = 8,
                                                  .num_kv_heads = 4,
                                                  .vocab_size = 512,
                                                  .context_len = kRows * kSteps,
                                                  .global_every = 1});
  if (!Takes(config, DType::kF16)) GTEST_SKIP() << "it does not take such a model";
  const auto weights = testing::RandomWeightSet(config);
  const StepLimits limits =
      testing::MakeStepLimits(config, {.max_rows = kRows, .max_sequences = 1});
  const auto exchange = testing::MakeLocalExchange(config, limits, kLanes);
  testing::LocalWeightSource source(weights);
  const std::vector<Segment> segments =
      OffersEverything()
          ? testing::WholeModel(config)
          : std::vector<Segment>{testing::SingleStage({StageKind::kAttend, 0}, config)};
  DeviceHost host(std::make_unique<Borrowed>(worker()), source, absl::Minutes(1),
                  /*measure_ceilings=*/false, nullptr);
  ASSERT_OK(host.Load(testing::MakeLoadRequest(1, *weights, segments, limits, *exchange, source),
                      [](double, std::string_view) {})
                .status());

  // The prompt of one sequence, a chunk a step.
  const auto run_prompt = [&](uint64_t first_step) -> absl::Status {
    testing::StepBuilder steps(limits);
    const uint32_t sequence = steps.AddSequence();
    worker::v1::ExecuteResponse response;
    uint64_t under_way = 0;  // 0: none
    const auto finish = [&] {
      if (under_way != 0) host.Finish(under_way, response);
      return absl::Status(static_cast<absl::StatusCode>(response.code()), response.message());
    };
    for (uint32_t s = 0; s < kSteps; ++s) {
      steps.Begin();
      steps.AddOutput(steps.AddRows(sequence, MakeTokens(config, kRows, s)) + kRows - 1);
      StepBatch batch = steps.batch();
      batch.header.step_id = first_step + s;
      WriteStep(batch, exchange->Area(s % kLanes, exchange->layout.step));
      worker::v1::ExecuteRequest request;
      request.set_epoch(1);
      request.set_step_id(batch.header.step_id);
      request.set_lane(s % kLanes);
      const uint64_t call = host.Begin(request);
      TANDEM_RETURN_IF_ERROR(finish());
      under_way = call;
    }
    return finish();
  };
  ASSERT_OK(run_prompt(1));  // the first use of buffers and code is another matter

  // A machine that has other things to do interrupts between one step and the next: such a run says
  // nothing, and there is another.  A busy time that is wrong is wrong in all of them.
  constexpr int kTries = 5;
  constexpr double kBound = 0.03;
  double off = 1;
  for (int i = 1; i <= kTries && off > kBound; ++i) {
    const double before = BusySeconds(host, worker().description());
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_OK(run_prompt(1 + i * kSteps));
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double busy = BusySeconds(host, worker().description()) - before;
    EXPECT_LE(busy, seconds * 1.001) << "busier than there was time";
    off = 1 - busy / seconds;
    RecordProperty("busy_ms", std::to_string(1e3 * busy));
    RecordProperty("host_ms", std::to_string(1e3 * seconds));
    std::printf("busy %.3f ms, by the host's clock %.3f ms: %.2f%% less\n", 1e3 * busy,
                1e3 * seconds, 100 * off);
  }
  EXPECT_LE(off, kBound);
  worker::v1::UnloadPlanRequest unload;
  unload.set_epoch(1);
  ASSERT_OK(host.Unload(unload));
}

}  // namespace
}  // namespace tandem::conformance

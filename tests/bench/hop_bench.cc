// Measures the cost of a segment call without the worker's own time: round trips between two
// processes over a unix socket, to a worker that does nothing (or sleeps, in place of a device).
//
//   hop_bench [calls] [device_us]
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/clock.h"
#include "services/common/rpc/polling.h"
#include "services/common/rpc/worker_client.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/step_builder.h"
#include "services/common/testing/temporary_directory.h"
#include "services/worker_host/in_process_worker.h"

namespace tandem {
namespace {

uint64_t Now() { return static_cast<uint64_t>(NowNanos()); }

struct Fixture {
  std::shared_ptr<const WeightSet> weights = testing::RandomWeightSet(testing::MakeConfig({}));
  StepLimits limits = testing::MakeStepLimits(weights->config(), {});
  std::shared_ptr<const Exchange> exchange =
      testing::MakeLocalExchange(weights->config(), limits, 1);
};

// The worker's process: serves until it is killed.
[[noreturn]] void Serve(testing::LocalWeightSource& source, const std::string& socket,
                        absl::Duration device_time) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  testing::FakeWorker::Hooks hooks;
  hooks.run = [device_time](const SegmentRun&) {
    const uint64_t begin_ns = Now();
    if (device_time > absl::ZeroDuration()) absl::SleepFor(device_time);
    // Both processes read the same clock, so the times show how long each direction takes.
    return SegmentResult{.device_ns = begin_ns, .stage_times = {{StageKind::kFfn, Now()}}};
  };
  testing::InProcessWorker worker(
      std::make_unique<testing::FakeWorker>(testing::DescribeFakeWorker("null"), hooks), source,
      socket);
  while (true) ::pause();
}

double Quantile(std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(static_cast<double>(sorted.size() - 1) * q)];
}

void Measure(const std::string& target, Fixture& fixture, const worker::v1::LoadPlanRequest& load,
             int num_calls) {
  WorkerClient client(target);
  const auto remote = client.Describe(absl::Seconds(10));
  TANDEM_CHECK(remote.ok());
  TANDEM_CHECK(client.LoadPlan(load, nullptr, absl::Seconds(10)).ok());
  testing::StepBuilder builder(fixture.limits);
  const uint32_t sequence = builder.AddSequence();
  builder.Begin();
  builder.AddRows(sequence, {5});
  const StepBatch batch = builder.batch();
  WriteStep(batch, fixture.exchange->Area(0, fixture.exchange->layout.step));
  worker::v1::ExecuteRequest request;
  request.set_epoch(load.epoch());
  request.set_step_id(batch.header.step_id);
  client.Open(remote->execution_target);
  std::vector<double> round_trips, hops, requests, answers;
  for (int i = -num_calls / 10; i < num_calls; ++i) {
    const uint64_t start_ns = Now();
    TANDEM_CHECK(client.Submit(request, absl::Seconds(10)).ok());
    const auto response = client.Wait(absl::Seconds(10));
    const uint64_t end_ns = Now();
    TANDEM_CHECK(response.ok());
    if (i < 0) continue;  // warm-up
    const auto us = [](uint64_t ns) { return static_cast<double>(ns) * 1e-3; };
    round_trips.push_back(us(end_ns - start_ns));
    hops.push_back(us(end_ns - start_ns - (*response)->worker_ns()));
    requests.push_back(us((*response)->device_ns() - start_ns));
    answers.push_back(us(end_ns - (*response)->stage_times(0).device_ns()));
  }
  std::printf("%-12s %8s %8s %8s %8s\n", "us", "p50", "p90", "p99", "p99.9");
  const auto print = [](const char* name, std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    std::printf("%-12s %8.1f %8.1f %8.1f %8.1f\n", name, Quantile(values, 0.5),
                Quantile(values, 0.9), Quantile(values, 0.99), Quantile(values, 0.999));
  };
  print("round trip", round_trips);
  print("hop", hops);
  print("request way", requests);
  print("answer way", answers);
}

int Main(int argc, char** argv) {
  PollForLatency();
  const int num_calls = argc > 1 ? std::atoi(argv[1]) : 20000;
  const absl::Duration device_time = absl::Microseconds(argc > 2 ? std::atoi(argv[2]) : 0);
  const TemporaryDirectory temporary;
  const std::string& directory = temporary.path();
  Fixture fixture;
  testing::LocalWeightSource source(fixture.weights);
  const worker::v1::LoadPlanRequest load =
      testing::MakeLoadRequest(1, *fixture.weights, testing::WholeModel(fixture.weights->config()),
                               fixture.limits, *fixture.exchange, source);
  // Before gRPC has started any thread.
  const pid_t child = ::fork();
  TANDEM_CHECK(child >= 0);
  if (child == 0) Serve(source, directory + "/w.sock", device_time);
  Measure("unix:" + directory + "/w.sock", fixture, load, num_calls);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::Main(argc, argv); }

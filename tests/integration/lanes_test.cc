// Several steps at once over a plan of several workers: one on the GPU while the other is on the NPU.
#include <cstdio>
#include <fstream>
#include <functional>

#include "absl/time/clock.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/stream_reader.h"
#include "tests/integration/executor_fixture.h"

namespace tandem::gateway {
namespace {

constexpr uint32_t kChunk = 32;

class LanesTest : public ExecutorTest {
 protected:
  // Each Ffn of the GPU and each Attend of the NPU takes so much longer.
  void StartWorkers(int microseconds) {
    const std::string delay = directory_.path() + "/delay";
    std::ofstream(delay) << microseconds;
    StartLoader();
    StartWorker("gpu0", "unix:" + Socket("gpu0"), {"--ffn-delay", delay});
    StartWorker("npu0", "unix:" + Socket("npu0"), {"--attend-delay", delay});
  }
  std::unique_ptr<Executor> Start(bool lanes) {
    ExecutorOptions options = Options({"gpu0", "npu0"}, NpuPolicy::kRequire);
    options.queue_steps = lanes;
    auto executor = MustStart(options);
    if (executor != nullptr) {
      num_layers_ = executor->config().num_layers;
      EXPECT_EQ(executor->depth(), lanes ? 3u : 1u);
      EXPECT_FALSE(executor->feeds());
    }
    return executor;
  }

  uint32_t num_layers_ = 0;
};

EngineRequest Request(uint32_t seed, uint32_t prompt_len, uint32_t max_tokens) {
  EngineRequest request;
  for (uint32_t i = 0; i < prompt_len; ++i) {
    request.prompt.push_back(2 + (i * 37 + 11 * seed) % 300);
  }
  request.sampling.temperature = seed % 2 == 0 ? 0.0f : 1.0f;
  request.sampling.seed = seed;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

// What the devices take: an answer that waits to be taken does not count.
class DeviceSeconds : public EngineObserver {
 public:
  void StepEnded(const StepReport& report) override {
    for (const SegmentTiming& timing : report.segments) seconds += 1e-9 * timing.device_ns;
  }
  double seconds = 0.0;
};

struct Outcome {
  std::vector<std::vector<uint32_t>> tokens;
  double seconds = 0.0;
  double at_once = 0.0;  // busy devices, on average: however slow the machine is
  v1::SchedulerStatus scheduler;
  uint64_t recoveries = 0;
};

// The requests, all at once; `meanwhile` runs beside them.
Outcome Serve(std::unique_ptr<Executor> executor, const std::vector<EngineRequest>& requests,
              const std::function<void()>& meanwhile = nullptr) {
  Outcome outcome;
  const auto tokenizer = Tokenizer::Create(executor->vocabulary());
  EXPECT_OK(tokenizer.status());
  DeviceSeconds devices;
  EngineOptions options{.max_sequences = 4, .max_rows = kChunk, .chunk_rows = kChunk};
  options.observers = {&devices};
  auto engine = Engine::Create(std::move(executor), **tokenizer, options);
  EXPECT_OK(engine.status());
  const absl::Time begin = absl::Now();
  std::vector<testing::StreamReader> readers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_OK((*engine)->Submit(requests[i], readers[i].stream()));
  }
  if (meanwhile) meanwhile();
  for (testing::StreamReader& reader : readers) {
    EXPECT_OK(reader.ReadToEnd().status);
    outcome.tokens.push_back(reader.tokens());
  }
  outcome.seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  v1::GetStatusResponse status;
  (*engine)->FillStatus(status);
  outcome.scheduler = status.scheduler();
  outcome.recoveries = status.recoveries();
  engine->reset();  // the last report is there
  outcome.at_once = devices.seconds / outcome.seconds;
  return outcome;
}

// With lanes both devices sleep at once: 1 unit a pair of segments instead of 2.
TEST_F(LanesTest, PromptsOfSeveralRequestsUseBothDevicesAtOnce) {
  constexpr int kSleepUs = 50'000;  // long beside the reference arithmetic
  StartWorkers(kSleepUs);
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 4; ++i) requests.push_back(Request(i, 2 * kChunk, 1));
  const Outcome one = Serve(Start(false), requests);
  const Outcome two = Serve(Start(true), requests);
  EXPECT_EQ(one.tokens, two.tokens);
  EXPECT_EQ(one.scheduler.steps_queued(), 0u);
  EXPECT_GE(two.scheduler.steps_queued(), 6u);
  EXPECT_LE(one.at_once, 1.0);
  EXPECT_GT(two.at_once, 1.6);
  const double pairs = 8.0 * num_layers_;  // of 8 parts of prompts
  std::printf("%.2f s one step after another, %.2f s two at once: %.2f sleeps a pair of segments\n",
              one.seconds, two.seconds, two.seconds / pairs / (1e-6 * kSleepUs));
}

// Layers over three devices: three steps are under way, each on another.
TEST_F(LanesTest, ThreeDevicesComputeThreeStepsAtOnce) {
  constexpr int kSleepUs = 30'000;
  std::ofstream(directory_.path() + "/delay") << kSleepUs;
  StartLoader();
  const std::vector<std::string> workers = {"gpu0", "gpu1", "gpu2"};
  for (const std::string& worker : workers) {
    StartWorker(worker, "unix:" + Socket(worker), {"--ffn-delay", directory_.path() + "/delay"});
  }
  ExecutorOptions options = Options(workers, NpuPolicy::kOff);
  options.policy.layers = {{"gpu0", 0, 3}, {"gpu1", 4, 7}, {"gpu2", 8, 11}};
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 4; ++i) requests.push_back(Request(i, 3 * kChunk, 1));
  options.queue_steps = false;
  const Outcome one = Serve(MustStart(options), requests);
  options.queue_steps = true;
  auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  EXPECT_EQ(executor->prompt_depth(), 3u);
  const Outcome three = Serve(std::move(executor), requests);
  EXPECT_EQ(one.tokens, three.tokens);
  // 12 parts of prompts: 36 turns of a device, or 14.
  EXPECT_LE(one.at_once, 1.0);
  EXPECT_GT(three.at_once, 2.2);
  std::printf("%.2f s one step after another, %.2f s three at once, %.2f devices busy\n",
              one.seconds, three.seconds, three.at_once);
}

TEST_F(LanesTest, OnePromptUsesBothDevicesAtOnce) {
  StartWorkers(15'000);
  const Outcome one = Serve(Start(false), {Request(0, 7 * kChunk, 1)});
  const Outcome two = Serve(Start(true), {Request(0, 7 * kChunk, 1)});
  EXPECT_EQ(one.tokens, two.tokens);
  EXPECT_LE(one.at_once, 1.0);
  EXPECT_GT(two.at_once, 1.4);
}

TEST_F(LanesTest, StreamsThatDecodeStayInOneStep) {
  StartWorkers(0);
  const std::vector<EngineRequest> requests = {Request(0, 5, 40), Request(1, 6, 40)};
  const Outcome outcome = Serve(Start(true), requests);
  // 5 + 6 rows of prompts, then 39 steps with a row of each.
  EXPECT_LE(outcome.scheduler.steps(), 45u);
  EXPECT_LE(outcome.scheduler.steps_queued(), 2u);
}

// Where a step takes as long as it has rows, half of the streams are on each device.
TEST_F(LanesTest, StreamsThatDecodeAreHalvedWhereThatIsMeasuredToBeFaster) {
  std::ofstream(directory_.path() + "/delay") << 2'000;
  std::ofstream(directory_.path() + "/slow") << 6'000;
  StartLoader();
  StartWorker("gpu0", "unix:" + Socket("gpu0"),
              {"--delay-by-row", "--ffn-delay", directory_.path() + "/delay", "--attend-delay",
               directory_.path() + "/slow"});
  StartWorker("npu0", "unix:" + Socket("npu0"),
              {"--delay-by-row", "--attend-delay", directory_.path() + "/delay"});
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 4; ++i) requests.push_back(Request(i, 4, 24));
  const Outcome one = Serve(Start(false), requests);
  ExecutorOptions options = Options({"gpu0", "npu0"}, NpuPolicy::kAuto);
  auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  ASSERT_THAT(executor->placement(), ::testing::HasSubstr("on npu0"));
  EXPECT_EQ(executor->DecodeRows(4), 2u);
  EXPECT_EQ(executor->DecodeRows(1), 1u);
  const Outcome two = Serve(std::move(executor), requests);
  EXPECT_EQ(one.tokens, two.tokens);
  EXPECT_GE(two.scheduler.steps(), 44u);
  EXPECT_LE(one.at_once, 1.0);
  EXPECT_GT(two.at_once, 1.3);
  std::printf("%.2f s with all in one step, %.2f s in halves\n", one.seconds, two.seconds);
}

TEST_F(LanesTest, AnswersAreTheSame) {
  StartWorkers(0);
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 10; ++i) requests.push_back(Request(i, 3 + 23 * i, 5 + 3 * (i % 4)));
  const Outcome one = Serve(Start(false), requests);
  const Outcome two = Serve(Start(true), requests);
  EXPECT_EQ(one.tokens, two.tokens);
  EXPECT_GT(two.scheduler.steps_queued(), 10u);
}

TEST_F(LanesTest, AKilledWorkerCostsNoStream) {
  StartWorkers(2'000);
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 4; ++i) requests.push_back(Request(i, 100 + i, 20));
  const Outcome expected = Serve(Start(false), requests);
  const Outcome outcome = Serve(Start(true), requests, [this] {
    for (const char* worker : {"npu0", "gpu0"}) {
      absl::SleepFor(absl::Milliseconds(200));
      workers_.erase(worker);
      const std::string flag = worker[0] == 'n' ? "--attend-delay" : "--ffn-delay";
      StartWorker(worker, "unix:" + Socket(worker), {flag, directory_.path() + "/delay"});
    }
  });
  EXPECT_EQ(outcome.tokens, expected.tokens);
  EXPECT_GE(outcome.recoveries, 1u);
}

}  // namespace
}  // namespace tandem::gateway

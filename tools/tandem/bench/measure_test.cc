#include "tools/tandem/bench/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/energy/energy.h"
#include "services/common/rpc/server.h"
#include "services/common/testing/eventually.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/status_matchers.h"
#include "services/worker_host/in_process_worker.h"
#include "tools/tandem/bench/bench_streams.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// A gateway of one model with two layers' worth of segments; every token is one step.
class FakeGateway final : public v1::Generation::Service {
 public:
  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    if (fail) return {grpc::StatusCode::UNAVAILABLE, "worker gpu0 is lost"};
    longest_prompt = std::max<int>(longest_prompt, request->tokens().ids_size());
    ++running;
    for (uint32_t i = 0; i < request->limits().max_tokens(); ++i) {
      // A first token that is held up comes with the second, whose step seems to take no time.
      const int num_steps = !hold_up ? 1 : i == 0 ? 2 : i == 1 ? 0 : 1;
      for (int step = 0; step < num_steps; ++step) {
        const absl::Time begin = absl::Now();
        absl::SleepFor(absl::Milliseconds(2));
        const std::lock_guard lock(mutex);
        busy_seconds += absl::ToDoubleSeconds(absl::Now() - begin);
        ++steps;
      }
      v1::GenerateResponse response;
      response.add_tokens()->set_id(i);
      if (!writer->Write(response)) break;
    }
    --running;
    return grpc::Status::OK;
  }
  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    auto* model = response->add_models();
    model->set_name("fake");
    model->set_context_len(1000);
    model->set_vocab_size(64);
    model->mutable_work()->set_step_weight_bytes(1000000);
    model->mutable_work()->set_row_multiply_adds(500000);
    return grpc::Status::OK;
  }
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    response->set_state("ready");
    response->set_placement("everything on gpu0");
    const std::lock_guard lock(mutex);
    const uint64_t n = steps;
    // Half of the steps that begin are queued, without a remainder at any time.
    response->mutable_scheduler()->set_steps(2 * n);
    response->mutable_scheduler()->set_steps_queued(n);
    response->mutable_scheduler()->set_step_bytes(n * 200);
    response->mutable_scheduler()->set_max_sequences(4);
    response->mutable_scheduler()->set_max_rows(64);
    response->mutable_scheduler()->set_running(running);
    const char* stages[] = {"Embed+Qkv(0)", "Attend(0)", "Out(0)+Ffn(0)+Qkv(1)", "Attend(1)..Head"};
    for (uint32_t i = 0; i < 4; ++i) {
      auto* segment = response->add_segments();
      segment->set_index(i);
      segment->set_worker(i % 2 == 0 ? "gpu0" : "npu0");
      segment->set_stages(stages[i]);
      segment->set_calls(n);
      segment->set_device_seconds(always_busy ? busy_seconds / 4 : static_cast<double>(n) * 10e-6);
      segment->set_round_trip_seconds(static_cast<double>(n) * 40e-6);
    }
    auto* worker = response->add_workers();
    worker->set_name("gpu0");
    worker->set_hop_p50_us(29);
    worker->set_target(worker_target);
    auto* absent = response->add_workers();
    absent->set_name("npu1");
    absent->set_state("absent");
    return grpc::Status::OK;
  }

  std::mutex mutex;  // steps and their time change together
  std::atomic<uint64_t> steps = 0;
  double busy_seconds = 0;
  std::atomic<int> longest_prompt = 0;
  std::atomic<uint32_t> running = 0;
  std::atomic<bool> fail = false;
  std::atomic<bool> hold_up = false;
  std::atomic<bool> always_busy = false;  // devices work all of a step's time
  std::string worker_target;
};

// Counts `step` joules more at every reading.
class FakeSensor final : public EnergySensor {
 public:
  FakeSensor(std::string name, double step) : name_(std::move(name)), step_(step) {}
  const std::string& name() const override { return name_; }
  absl::StatusOr<double> Read() override { return joules_ += step_; }
  bool counts_joules() const override { return true; }
  bool of_gpu() const override { return true; }

 private:
  std::string name_;
  double step_;
  double joules_ = 0;
};

class MeasureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string socket = absl::StrFormat("unix:/tmp/tandem-measure-test-%d.sock", ::getpid());
    auto server =
        Server::Start({.listen = {socket}}, {{v1::Generation::service_full_name(), &gateway_}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = MakeGenerationStub(server_->targets()[0]);
    options_ = {
        .prompts = {10}, .tokens = {8}, .batches = {1, 3}, .depths = {0, 20}, .repetitions = 3};
  }
  void TearDown() override { server_->Shutdown(absl::Seconds(5)); }

  FakeGateway gateway_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<GenerationStub> stub_;
  BenchOptions options_;
};

TEST_F(MeasureTest, CountsStepsCallsAndTimeOfTheMeasuredTokensAlone) {
  const auto report = Measure(*stub_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(gateway_.longest_prompt, 20) << "a depth is a prompt";
  std::vector<std::string> names;
  for (const BenchResult& result : report->results) names.push_back(result.test.Name());
  EXPECT_EQ(names, (std::vector<std::string>{"pp10", "tg8", "tg8@d20", "pp10 b3", "tg8 b3",
                                             "tg8@d20 b3"}));
  EXPECT_EQ(report->results[0].steps, 3u) << "a prompt is one token; the warm-up is not counted";
  EXPECT_EQ(report->results[0].tokens, 30);
  for (const BenchResult& result : report->results) {
    EXPECT_EQ(result.rates.size(), 3u);
    EXPECT_GT(result.rate().mean, 0);
    EXPECT_GT(result.first_token_seconds[0], 0);
    ASSERT_EQ(result.workers.size(), 2u);
    EXPECT_EQ(result.workers[0].worker, "gpu0");
    if (result.test.is_prompt) continue;
    EXPECT_GE(result.tokens, 3 * 8 * result.test.batch);
    const auto steps = static_cast<double>(result.steps);
    EXPECT_NEAR(steps, result.tokens / result.test.batch, 3) << "rounded in each repetition";
    EXPECT_NEAR(static_cast<double>(result.steps_queued), steps / 2, 3);
    EXPECT_NEAR(static_cast<double>(result.workers[1].calls), 2 * steps, 6);
    EXPECT_NEAR(result.workers[1].device_seconds / steps, 20e-6, 3e-6);
    EXPECT_NEAR(result.workers[0].round_trip_seconds / steps, 80e-6, 12e-6);
    EXPECT_NEAR(result.bytes, 1e6 * steps, 1) << "the work is per step";
    EXPECT_NEAR(result.flops, 1e6 * result.tokens, 1) << "and per token";
  }
  EXPECT_DOUBLE_EQ(report->bytes_per_step, 200);
  ASSERT_EQ(report->devices.size(), 1u) << "a device that the machine does not have is left out";
  EXPECT_EQ(report->devices[0].hop_p50_us, 29);
  EXPECT_THAT(report->devices[0].not_measured, HasSubstr("no address"));
}

TEST_F(MeasureTest, ASensorThatDidNotMoveDuringATestHasNoFigure) {
  options_ = {.prompts = {10}, .tokens = {0}, .batches = {1}, .depths = {0}, .repetitions = 2};
  std::vector<std::unique_ptr<EnergySensor>> sensors;
  sensors.push_back(std::make_unique<FakeSensor>("slow", 0));
  sensors.push_back(std::make_unique<FakeSensor>("quick", 5));
  EnergyMeter meter(std::move(sensors));
  const auto report = Measure(*stub_, options_, {.energy = &meter});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->results.size(), 1u);
  ASSERT_EQ(report->results[0].energy.size(), 1u);
  EXPECT_EQ(report->results[0].energy[0].sensor, "quick");
  EXPECT_GE(report->results[0].energy[0].joules, 10) << "at least one reading a repetition";
}

TEST_F(MeasureTest, DevicesThatAlwaysWorkHaveNoMoreThanAllOfTheTime) {
  gateway_.always_busy = true;
  options_ = {.prompts = {}, .tokens = {6}, .repetitions = 3, .warm_up = false};
  for (const bool hold_up : {false, true}) {
    gateway_.hold_up = hold_up;
    // Another program may hold up the test between a device's two readings.
    EXPECT_TRUE(testing::Eventually([&] {
      const auto report = Measure(*stub_, options_);
      EXPECT_TRUE(report.ok()) << report.status();
      if (!report.ok()) return true;
      EXPECT_LE(report->results[0].device_share(), 1.0) << hold_up;
      return report->results[0].device_share() > 0.3;
    })) << hold_up;
  }
}

TEST_F(MeasureTest, AGatewayThatIsNotThereIsAnErrorAtOnce) {
  const auto nobody = MakeGenerationStub(std::string("unix:/nowhere/gateway.sock"));
  const absl::Time begin = absl::Now();
  EXPECT_THAT(Measure(*nobody, options_).status(),
              testing::HasCode(absl::StatusCode::kUnavailable));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
}

TEST_F(MeasureTest, AsksTheWorkerWhatItsDeviceDoesAtBest) {
  testing::LocalWeightSource source(
      testing::RandomWeightSet(testing::MakeConfig({.num_layers = 1})));
  testing::InProcessWorker worker(
      std::make_unique<testing::FakeWorker>(
          testing::DescribeFakeWorker("gpu0"),
          testing::FakeWorker::Hooks{.ceilings =
                                         [] {
                                           return DeviceCeilings{2e9, 3e12, 0};
                                         }}),
      source, absl::StrFormat("/tmp/tandem-measure-worker-%d.sock", ::getpid()));
  gateway_.worker_target = worker.target();
  options_ = {.prompts = {}, .tokens = {2}, .repetitions = 1, .warm_up = false};
  const auto report = Measure(*stub_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_NE(report->measured_device(), nullptr);
  EXPECT_EQ(*report->measured_device()->read_bytes_per_second, 2e9);
  EXPECT_EQ(*report->measured_device()->best_flops_per_second(), 3e12) << "no matrix units";
}

TEST_F(MeasureTest, SaysWhyItCannotMeasure) {
  options_.tokens = {991};
  EXPECT_THAT(Measure(*stub_, options_).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("1012 positions, the cluster's context is 1000")));
  options_.tokens = {8};
  options_.batches = {5};
  EXPECT_THAT(Measure(*stub_, options_).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("5 sequences, the cluster runs at most 4")));
  options_.batches = {1};
  options_.prompts = options_.tokens = {0};
  EXPECT_THAT(Measure(*stub_, options_).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nothing")));
  options_.tokens = {8};
  gateway_.fail = true;
  const absl::Status status = Measure(*stub_, options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "worker gpu0 is lost");
}

TEST_F(MeasureTest, ASequenceThatEndsTooEarlyIsNotMistakenForSpeed) {
  options_ = {.prompts = {}, .tokens = {8}, .repetitions = 1, .warm_up = false};
  v1::GenerateRequest request;
  request.mutable_limits()->set_max_tokens(4);
  BenchStreams streams(*stub_, {request, request});
  const auto first = streams.AwaitFirstTokens();
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(streams.AwaitTokens(*first, 8).status(),
              testing::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("4 tokens")));
}

// Gemma-like: 2 global layers of 4 bytes a position, 10 in windows of 100 positions.
TEST(CountWorkTest, CountsWeightsOnceAStepAndOnlyWhatAWindowSees) {
  v1::ModelWork work;
  work.set_step_weight_bytes(1000);
  work.set_head_weight_bytes(100);
  work.set_row_multiply_adds(50);
  work.set_output_multiply_adds(7);
  work.set_global_kv_bytes(8);
  work.set_window_kv_bytes(40);
  work.set_sliding_window(100);
  BenchResult decode{.test = {.tokens = 10, .batch = 2, .depth = 495}, .tokens = 20, .steps = 10};
  CountWork(work, 64, 1, decode);
  EXPECT_DOUBLE_EQ(decode.bytes, 10 * 1100 + 20 * (500 * 8 + 100 * 40));
  EXPECT_DOUBLE_EQ(decode.flops, 2 * 20 * (50 + 7));
  // Two chunks of 64, which see 96 positions on average; one of them has an output.
  BenchResult prompt{.test = {.is_prompt = true, .tokens = 128}, .tokens = 128, .steps = 2};
  CountWork(work, 64, 1, prompt);
  EXPECT_DOUBLE_EQ(prompt.bytes, 2 * 1000 + 100 + 2 * (96 * 8 + 96 * 40));
  EXPECT_DOUBLE_EQ(prompt.flops, 2 * (128 * 50 + 7));
}

}  // namespace
}  // namespace tandem

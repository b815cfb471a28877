// The executor against a real loader and worker processes, on the demo model.
#include "services/gateway/executor/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "services/common/rpc/polling.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/step_builder.h"
#include "tandem/worker/v1/worker.grpc.pb.h"
#include "tests/integration/cluster.h"

namespace tandem::gateway {
namespace {

using testing::ChildProcess;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::InProcessLoader;
using testing::StatusIs;

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

TEST_F(ExecutorTest, HybridAndGpuOnlyPlacementsGiveTheSameTokens) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  std::vector<double> fractions;
  auto started = Executor::Start(
      Options({"gpu0", "npu0"}, NpuPolicy::kRequire),
      [&](std::string_view /*phase*/, double fraction) { fractions.push_back(fraction); });
  ASSERT_OK(started);
  Executor& hybrid = **started;
  EXPECT_FALSE(fractions.empty());
  EXPECT_EQ(hybrid.plan().segments.size(), 2 * hybrid.config().num_layers + 1);
  EXPECT_THAT(hybrid.placement(), HasSubstr("on npu0"));
  EXPECT_EQ(hybrid.vocabulary().pieces.size(), hybrid.config().vocab_size);
  ASSERT_OK_AND_ASSIGN(const auto with_npu, Greedy(hybrid, prompt_, 12));
  started->reset();

  const auto gpu_only = MustStart(Options({"gpu0", "npu0"}, NpuPolicy::kOff));
  ASSERT_NE(gpu_only, nullptr);
  EXPECT_EQ(gpu_only->plan().segments.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const auto without_npu, Greedy(*gpu_only, prompt_, 12));
  EXPECT_EQ(with_npu, without_npu);
}

TEST_F(ExecutorTest, StatusShowsWorkersSegmentsAndHops) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  const auto executor = MustStart(Options({"gpu0", "npu0"}, NpuPolicy::kPrefer));
  ASSERT_NE(executor, nullptr);
  ASSERT_OK(Greedy(*executor, prompt_, 3));
  v1::GetStatusResponse status;
  executor->FillStatus(status);
  ASSERT_EQ(status.workers_size(), 2);
  for (const v1::WorkerStatus& worker : status.workers()) {
    EXPECT_EQ(worker.state(), "ready");
    EXPECT_EQ(worker.pid(), workers_[worker.name()]->pid());
    EXPECT_GT(worker.hop_p50_us(), 0.0);
    EXPECT_GE(worker.hop_p99_us(), worker.hop_p50_us());
  }
  EXPECT_EQ(status.workers(1).kind(), "npu");
  ASSERT_EQ(status.segments_size(), static_cast<int>(executor->plan().segments.size()));
  EXPECT_EQ(status.segments(0).stages(), "Embed+Qkv(0)");
  EXPECT_EQ(status.segments(1).worker(), "npu0");
  for (const v1::SegmentStatus& segment : status.segments()) {
    EXPECT_EQ(segment.calls(), 3u);
    EXPECT_GT(segment.round_trip_seconds(), 0.0);
  }
}

TEST_F(ExecutorTest, ASmallerStepThanTheLimitsAndEveryLogit) {
  StartLoader();
  StartWorker("gpu0");
  const auto executor = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(executor, nullptr);
  testing::StepBuilder builder(executor->limits());
  builder.Begin();
  const uint32_t first = builder.AddRows(builder.AddSequence(), prompt_);
  builder.AddOutput(first);
  builder.AddOutput(first + 6, 17);
  builder.set_want_logits(true);
  StepBatch batch = builder.batch();
  batch.header.step_id = 77;
  WriteStep(batch, executor->StepArea(0));
  ASSERT_OK(executor->RunStep(0, 77));
  for (const uint32_t o : {0u, 1u}) {
    const OutputResult& output = executor->Output(0, o);
    const std::span<const float> logits = executor->Logits(0, o);
    ASSERT_EQ(logits.size(), executor->config().vocab_size);
    EXPECT_EQ(output.num_nonfinite, 0u);
    EXPECT_EQ(output.candidates[0].logit, logits[output.candidates[0].token]);
    EXPECT_EQ(output.candidates[0].logit, *std::max_element(logits.begin(), logits.end()));
  }
  EXPECT_EQ(executor->Output(0, 1).target_logit, executor->Logits(0, 1)[17]);
}

TEST_F(ExecutorTest, AMalformedStepIsRefusedAndTheWorkersLiveOn) {
  StartLoader();
  StartWorker("gpu0");
  const auto executor = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(executor, nullptr);
  std::ranges::fill(executor->StepArea(0), std::byte{0xFF});
  EXPECT_THAT(executor->RunStep(0, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Embed..Head on gpu0")));
  EXPECT_OK(Greedy(*executor, prompt_, 2));
}

TEST_F(ExecutorTest, AMissingNpuIsWaitedForNamedOrDoneWithout) {
  StartLoader();
  StartWorker("gpu0");
  ExecutorOptions options = Options({"gpu0", "npu0"}, NpuPolicy::kRequire);
  options.worker_wait = absl::Milliseconds(700);
  EXPECT_THAT(Executor::Start(options, nullptr),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("npu0.sock is not there")));
  options.policy.npu = NpuPolicy::kPrefer;
  const auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  EXPECT_EQ(executor->plan().segments.size(), 1u);
  EXPECT_THAT(executor->plan().notice, HasSubstr("npu0.sock is not there"));
  v1::GetStatusResponse status;
  executor->FillStatus(status);
  EXPECT_EQ(status.workers(1).state(), "lost");

  options.policy.npu = NpuPolicy::kRequire;
  options.worker_wait = absl::Seconds(30);
  std::thread late([this] {
    absl::SleepFor(absl::Milliseconds(600));
    StartWorker("npu0");
  });
  EXPECT_NE(MustStart(options), nullptr);
  late.join();
}

TEST_F(ExecutorTest, OptionsOutOfRangeAndModelsThatAreNotThereAreNamed) {
  StartLoader();
  StartWorker("gpu0");
  ExecutorOptions options = Options({"gpu0"}, NpuPolicy::kOff);
  options.context_len = 1u << 20;
  EXPECT_THAT(Executor::Start(options, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("context_len")));
  options = Options({"gpu0"}, NpuPolicy::kOff);
  options.model_name = "nothing.gguf";
  EXPECT_THAT(Executor::Start(options, nullptr),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing.gguf")));
  EXPECT_THAT(Executor::Start(Options({}, NpuPolicy::kOff), nullptr),
              HasCode(absl::StatusCode::kInvalidArgument));
}

// Says that it speaks another version.
class OtherVersion final : public worker::v1::Worker::CallbackService {
 public:
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const worker::v1::DescribeRequest* /*request*/,
                                     worker::v1::DescribeResponse* response) override {
    response->set_protocol_version(99);
    response->set_name("gpu0");
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

TEST_F(ExecutorTest, AWorkerOfAnotherVersionIsRefusedAtTheHandshake) {
  StartLoader();
  OtherVersion service;
  auto server = Server::Start({.listen = {"unix:" + Socket("gpu0")}},
                              {{worker::v1::Worker::service_full_name(), &service}});
  ASSERT_OK(server);
  ExecutorOptions options = Options({"gpu0"}, NpuPolicy::kOff);
  options.worker_wait = absl::Milliseconds(500);
  EXPECT_THAT(Executor::Start(options, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("protocol version 99")));
}

TEST_F(ExecutorTest, RunningStreamsDoNotNoticeTheLoadersDeath) {
  StartLoader();
  StartWorker("gpu0");
  ExecutorOptions options = Options({"gpu0"}, NpuPolicy::kOff);
  options.worker_wait = absl::Seconds(1);
  const auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto before, Greedy(*executor, prompt_, 5));
  loader_.reset();
  ASSERT_OK_AND_ASSIGN(const auto after, Greedy(*executor, prompt_, 5));
  EXPECT_EQ(before, after);
  EXPECT_THAT(executor->Recover(nullptr),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("loader at")));
  StartLoader();
  ASSERT_OK(executor->Recover(nullptr));
  ASSERT_OK_AND_ASSIGN(const auto again, Greedy(*executor, prompt_, 5));
  EXPECT_EQ(before, again);
}

TEST_F(ExecutorTest, AWorkerThatMissesItsDeadlineIsDeadUntilRecovery) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  ExecutorOptions options = Options({"gpu0", "npu0"}, NpuPolicy::kRequire);
  options.segment_deadline = absl::Milliseconds(300);
  const auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto before, Greedy(*executor, prompt_, 4));
  workers_["npu0"]->Signal(SIGSTOP);
  EXPECT_THAT(Greedy(*executor, prompt_, 4),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Attend(0) on npu0")));
  EXPECT_THAT(Greedy(*executor, prompt_, 1), HasCode(absl::StatusCode::kUnavailable));
  std::thread wakes([this] {
    absl::SleepFor(absl::Milliseconds(400));
    workers_["npu0"]->Signal(SIGCONT);
  });
  EXPECT_OK(executor->Recover(nullptr));
  wakes.join();
  ASSERT_OK_AND_ASSIGN(const auto after, Greedy(*executor, prompt_, 4));
  EXPECT_EQ(before, after) << "what it answered late went nowhere";
}

TEST_F(ExecutorTest, UnderPreferAKilledNpuLeavesTheGpuToGoOn) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  const auto executor = MustStart(Options({"gpu0", "npu0"}, NpuPolicy::kPrefer));
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto before, Greedy(*executor, prompt_, 4));
  workers_.erase("npu0");
  EXPECT_THAT(Greedy(*executor, prompt_, 4), HasCode(absl::StatusCode::kUnavailable));
  ASSERT_OK(executor->Recover(nullptr));
  EXPECT_EQ(executor->plan().segments.size(), 1u);
  EXPECT_THAT(executor->plan().notice, HasSubstr("npu0.sock is not there"));
  ASSERT_OK_AND_ASSIGN(const auto after, Greedy(*executor, prompt_, 4));
  EXPECT_EQ(before, after);
}

TEST_F(ExecutorTest, FiftyKillsInMidStepAreFiftyRecoveriesAndNoLeak) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  const auto executor = MustStart(Options({"gpu0", "npu0"}, NpuPolicy::kRequire));
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto expected, Greedy(*executor, prompt_, 3));
  std::mt19937 random(20);
  std::optional<testing::DescriptorCount> descriptors;
  std::optional<uint32_t> regions;
  for (int round = 0; round < 50; ++round) {
    const std::string victim = random() % 2 == 0 ? "gpu0" : "npu0";
    std::thread killer([&, delay = absl::Microseconds(random() % 20000)] {
      absl::SleepFor(delay);
      workers_[victim]->Signal(SIGKILL);
    });
    absl::Status status;
    while (status.ok()) status = Greedy(*executor, prompt_, 3).status();
    killer.join();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr(victim))) << round;
    workers_[victim]->Wait();
    StartWorker(victim);
    ASSERT_OK(executor->Recover(nullptr)) << round;
    ASSERT_OK_AND_ASSIGN(const auto answer, Greedy(*executor, prompt_, 3));
    EXPECT_EQ(answer, expected);
    if (round == 4) {
      descriptors = testing::CountDescriptors();
      regions = loader_->store().GetStatus().num_regions;
    }
  }
  // A connection that is being closed may still be there for a moment.
  for (int i = 0; i < 300 && testing::CountDescriptors().others > descriptors->others; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_LE(testing::CountDescriptors().others, descriptors->others);
  EXPECT_LE(testing::CountDescriptors().eventfds, descriptors->eventfds + 4);
  EXPECT_LE(loader_->store().GetStatus().num_regions, *regions);
}

TEST_F(ExecutorTest, ATerminatedWorkerDrainsAndExitsCleanly) {
  StartLoader();
  StartWorker("gpu0");
  const auto executor = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(executor, nullptr);
  ASSERT_OK(Greedy(*executor, prompt_, 2));
  workers_["gpu0"]->Signal(SIGTERM);
  EXPECT_EQ(workers_["gpu0"]->Wait(), 0) << "exit status";
  workers_.clear();
  EXPECT_THAT(Greedy(*executor, prompt_, 2), HasCode(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace tandem::gateway

// The executor when the loader dies, and workers are killed, stopped or terminated.
#include <cmath>
#include <csignal>
#include <filesystem>
#include <optional>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "services/common/rpc/worker_client.h"
#include "services/common/testing/paths.h"
#include "tests/integration/answer_proxy.h"
#include "tests/integration/executor_fixture.h"

namespace tandem::gateway {
namespace {

using ::testing::ContainsRegex;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;
using ExecutorFaultsTest = ExecutorTest;

TEST_F(ExecutorFaultsTest, RunningStreamsDoNotNoticeTheLoadersDeath) {
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

TEST_F(ExecutorFaultsTest, AWorkerThatMissesItsDeadlineIsDeadUntilRecovery) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  ExecutorOptions options = Options({"gpu0", "npu0"}, NpuPolicy::kRequire);
  options.segment_deadline = absl::Seconds(1);
  const auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto before, Greedy(*executor, prompt_, 4));
  // The signal may reach the worker a call or two later.
  workers_["npu0"]->Signal(SIGSTOP);
  EXPECT_THAT(Greedy(*executor, prompt_, 4),
              StatusIs(absl::StatusCode::kUnavailable,
                       ContainsRegex("Attend\\([0-9]+\\) on npu0: .*did not answer")));
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

TEST_F(ExecutorFaultsTest, UnderPreferAKilledNpuLeavesTheGpuToGoOn) {
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

TEST_F(ExecutorFaultsTest, FiftyKillsInMidStepAreFiftyRecoveriesAndNoLeak) {
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

// The gateway's own view of what the head of the step in `lane` left.
OutputResult* ResultsIn(Executor& executor, uint32_t lane) {
  const ExchangeLayout layout = MakeExchangeLayout(executor.config(), executor.limits(), 2);
  return reinterpret_cast<OutputResult*>(executor.StepArea(lane).data() - layout.step.offset +
                                         layout.candidates.offset);
}

TEST_F(ExecutorFaultsTest, AnswersThatFitNoCallOrNoStepEndTheStreamAndChangeNoToken) {
  StartLoader();
  StartWorker("gpu1");
  testing::AnswerProxy proxy(Socket("gpu0"), Socket("gpu1"));
  ExecutorOptions options = Options({"gpu0"}, NpuPolicy::kOff);
  options.num_lanes = 2;
  options.segment_deadline = absl::Seconds(2);
  const auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto expected, Greedy(*executor, prompt_, 6));
  OutputResult* results = nullptr;
  using Answer = worker::v1::ExecuteResponse;
  struct Case {
    const char* name;
    const char* reason;
    testing::AnswerProxy::Fault fault;
  };
  const Case cases[] = {
      {"twice", "was due", [](Answer&) { return 2; }},
      {"of another step", "was due",
       [](Answer& answer) { return answer.set_step_id(answer.step_id() - 1), 1; }},
      {"of another segment", "was due",
       [](Answer& answer) { return answer.set_segment_index(1), 1; }},
      {"of another epoch", "was due",
       [](Answer& answer) { return answer.set_epoch(answer.epoch() - 1), 1; }},
      {"never", "did not answer", [](Answer&) { return 0; }},
      {"a token outside the vocabulary", "names token",
       [&](Answer&) { return results[0].candidates[0].token = 1u << 20, 1; }},
      {"too many candidates", "were asked for",
       [&](Answer&) { return results[0].num_candidates = 4096, 1; }},
      {"no log-sum-exp", "log-sum-exp", [&](Answer&) { return results[0].log_sum_exp = NAN, 1; }},
      {"logits above their sum", "above",
       [&](Answer&) { return results[0].log_sum_exp = -1e9f, 1; }},
  };
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.name);
    results = ResultsIn(*executor, 0);
    int answers = 0;
    proxy.SetFault([&](Answer& answer) { return ++answers == 3 ? wrong.fault(answer) : 1; });
    EXPECT_THAT(Greedy(*executor, prompt_, 6),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr(wrong.reason)));
    proxy.SetFault(nullptr);
    ASSERT_OK(executor->Recover(nullptr));
    ASSERT_OK_AND_ASSIGN(const auto again, Greedy(*executor, prompt_, 6));
    EXPECT_EQ(again, expected);
  }
}

TEST_F(ExecutorFaultsTest, ACodeThatTheWorkerGivesIsNoMistakeOfTheClient) {
  StartLoader();
  StartWorker("gpu1");
  testing::AnswerProxy proxy(Socket("gpu0"), Socket("gpu1"));
  const auto executor = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(executor, nullptr);
  for (const int code : {1, 3, 5, 8, 13, 77}) {
    proxy.SetFault(
        [code](worker::v1::ExecuteResponse& answer) { return answer.set_code(code), 1; });
    EXPECT_THAT(Greedy(*executor, prompt_, 1), HasCode(absl::StatusCode::kInternal)) << code;
  }
  proxy.SetFault(nullptr);
  EXPECT_OK(Greedy(*executor, prompt_, 1));
}

TEST_F(ExecutorFaultsTest, AnEpochFromBeforeOrFromElsewhereDoesNotLockTheGatewayOut) {
  StartLoader();
  StartWorker("gpu0");
  auto executor = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto before, Greedy(*executor, prompt_, 4));
  WorkerClient stranger("unix:" + Socket("gpu0"));
  const uint64_t ahead = absl::ToUnixMicros(absl::Now() + absl::Hours(1));
  EXPECT_THAT(stranger.UnloadPlan(ahead, "", absl::Seconds(20)),
              HasCode(absl::StatusCode::kAborted));
  EXPECT_OK(executor->CheckWorkers());
  EXPECT_EQ(Greedy(*executor, prompt_, 4).value_or(std::vector<uint32_t>()), before);
  for (int i = 0; i < 3; ++i) ASSERT_OK(executor->Recover(nullptr));
  const uint64_t epoch = executor->epoch();
  // The next gateway knows nothing of the one before.
  executor.reset();
  executor = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(executor, nullptr);
  EXPECT_EQ(executor->epoch(), epoch + 1);
  EXPECT_EQ(Greedy(*executor, prompt_, 4).value_or(std::vector<uint32_t>()), before);
}

TEST_F(ExecutorFaultsTest, AFileThatChangesWhileItIsServedDoesNotMatterWhenAWorkerIsLost) {
  const std::string folder = directory_.path() + "/models";
  std::filesystem::create_directory(folder);
  const std::string file = folder + "/demo.Q8_0.gguf";
  std::filesystem::copy_file(SourcePath("models/demo/demo.Q8_0.gguf"), file);
  loader_ = std::make_unique<InProcessLoader>(Socket("loader"), folder);
  StartWorker("gpu0");
  ExecutorOptions options = Options({"gpu0"}, NpuPolicy::kOff);
  options.worker_wait = absl::Seconds(5);
  const auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto before, Greedy(*executor, prompt_, 4));
  std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now());
  workers_.erase("gpu0");
  EXPECT_THAT(Greedy(*executor, prompt_, 4), HasCode(absl::StatusCode::kUnavailable));
  StartWorker("gpu0");
  ASSERT_OK(executor->Recover(nullptr));
  EXPECT_EQ(Greedy(*executor, prompt_, 4).value_or(std::vector<uint32_t>()), before);
  std::filesystem::remove(file);
  workers_.erase("gpu0");
  EXPECT_THAT(Greedy(*executor, prompt_, 4), HasCode(absl::StatusCode::kUnavailable));
  StartWorker("gpu0");
  ASSERT_OK(executor->Recover(nullptr));
  EXPECT_EQ(Greedy(*executor, prompt_, 4).value_or(std::vector<uint32_t>()), before);
}

TEST_F(ExecutorFaultsTest, ATerminatedWorkerDrainsAndExitsCleanly) {
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

// The executor against a real loader and worker processes: plans, steps, status, refusals.
#include <algorithm>
#include <thread>

#include "absl/time/clock.h"
#include "services/common/rpc/worker_absence.h"
#include "tandem/worker/v1/worker.grpc.pb.h"
#include "tests/integration/answer_proxy.h"
#include "tests/integration/executor_fixture.h"

namespace tandem::gateway {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;

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

TEST_F(ExecutorTest, WorkersLoadAPlanWithTheFormatThatThePlannerChose) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0", "unix:" + Socket("npu0"), {"--ports=bf16"});
  const auto hybrid = MustStart(Options({"gpu0", "npu0"}, NpuPolicy::kRequire));
  ASSERT_NE(hybrid, nullptr) << "npu0 refuses plans in float16";
  EXPECT_EQ(hybrid->plan().port_dtype, DType::kBf16);
  EXPECT_OK(Greedy(*hybrid, prompt_, 2));
}

TEST_F(ExecutorTest, TimingsHaveThePowerThatWorkersReportIfItCanBe) {
  StartLoader();
  StartWorker("gpu0", "unix:" + Socket("gpu0"), {"--watts=312.5"});
  for (const char* reported : {"45.5", "0", "-3", "nan", "inf", "1e9"}) {
    workers_.erase("npu0");
    StartWorker("npu0", "unix:" + Socket("npu0"), {std::string("--watts=") + reported});
    const auto executor = MustStart(Options({"gpu0", "npu0"}, NpuPolicy::kRequire));
    ASSERT_NE(executor, nullptr);
    testing::StepBuilder builder(executor->limits());
    builder.Begin();
    builder.AddOutput(builder.AddRows(builder.AddSequence(), {7}));
    StepBatch batch = builder.batch();
    batch.header.step_id = 1;
    WriteStep(batch, executor->StepArea(0));
    ASSERT_OK_AND_ASSIGN(const auto timings, RunStep(*executor, 1));
    for (const SegmentTiming& timing : timings) {
      const uint32_t worker = executor->plan().segments[timing.segment_index].worker;
      const bool on_gpu = executor->plan().workers[worker].name == "gpu0";
      const double of_npu = std::string(reported) == "45.5" ? 45.5 : 0.0;
      EXPECT_EQ(timing.device_watts, on_gpu ? 312.5 : of_npu) << reported;
    }
  }
}

TEST_F(ExecutorTest, TwoPlansOfOneGatewayRunOnOneWorkerAtOnce) {
  StartLoader();
  StartWorker("gpu0");
  ExecutorOptions main = Options({"gpu0"}, NpuPolicy::kOff);
  main.plan_token = NewPlanToken();
  main.queue_steps = false;
  ExecutorOptions draft = main;
  draft.plan_id = "draft";
  draft.yields = true;
  std::vector<uint32_t> alone, draft_alone;
  {
    const auto executor = MustStart(main);
    ASSERT_NE(executor, nullptr);
    ASSERT_OK_AND_ASSIGN(alone, Greedy(*executor, prompt_, 12));
  }
  {
    const auto executor = MustStart(draft);
    ASSERT_NE(executor, nullptr);
    ASSERT_OK_AND_ASSIGN(draft_alone,
                         Greedy(*executor, {prompt_.begin(), prompt_.begin() + 3}, 12));
  }
  const auto first = MustStart(main);
  const auto second = MustStart(draft);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_GT(second->epoch(), first->epoch()) << "epochs rise over all plans of a worker";
  // A step of one, then a step of the other, each with its own KV cache.
  absl::StatusOr<std::vector<uint32_t>> drafted;
  std::thread drafter([&] {
    testing::StepBuilder builder(second->limits());
    const uint32_t sequence = builder.AddSequence();
    std::vector<uint32_t> rows(prompt_.begin(), prompt_.begin() + 3), answer;
    for (uint64_t step = 5'000'001; answer.size() < 12; ++step) {
      builder.Begin();
      builder.AddOutput(builder.AddRows(sequence, rows) + static_cast<uint32_t>(rows.size()) - 1);
      StepBatch batch = builder.batch();
      batch.header.step_id = step;
      WriteStep(batch, second->StepArea(0));
      const auto ran = RunStep(*second, step);
      if (!ran.ok()) {
        drafted = ran.status();
        return;
      }
      answer.push_back(second->Output(0, 0).candidates[0].token);
      rows = {answer.back()};
    }
    drafted = answer;
  });
  const auto answered = Greedy(*first, prompt_, 12);
  drafter.join();
  ASSERT_OK(answered);
  ASSERT_OK(drafted);
  EXPECT_EQ(*answered, alone);
  EXPECT_EQ(*drafted, draft_alone);
  // Loading the one again leaves the other.
  ASSERT_OK(second->Recover(nullptr));
  EXPECT_OK(first->CheckWorkers());
  EXPECT_OK(second->CheckWorkers());
  ASSERT_OK_AND_ASSIGN(const auto again, Greedy(*first, prompt_, 12));
  EXPECT_EQ(again, alone);
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
  ASSERT_OK(RunStep(*executor, 77));
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

TEST_F(ExecutorTest, QueuedStepsGiveTheTokensOfStepsOneByOne) {
  StartLoader();
  StartWorker("gpu0");
  const auto executor = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(executor, nullptr);
  ASSERT_EQ(executor->depth(), 2u);
  constexpr uint32_t kTokens = 9;
  ASSERT_OK_AND_ASSIGN(const auto expected, Greedy(*executor, prompt_, kTokens));
  ASSERT_OK_AND_ASSIGN(const auto queued, QueuedGreedy(*executor, prompt_, kTokens));
  EXPECT_EQ(queued, expected);
  workers_.erase("gpu0");
  EXPECT_THAT(QueuedGreedy(*executor, prompt_, 3), HasCode(absl::StatusCode::kUnavailable));
  StartWorker("gpu0");
  ASSERT_OK(executor->Recover(nullptr));
  ASSERT_OK_AND_ASSIGN(const auto recovered, QueuedGreedy(*executor, prompt_, kTokens));
  EXPECT_EQ(recovered, expected);
}

TEST_F(ExecutorTest, AStepIsOneMessageWhetherLoneOrBehindAnother) {
  StartLoader();
  StartWorker("gpu1");
  testing::AnswerProxy proxy(Socket("gpu0"), Socket("gpu1"));
  const auto executor = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(executor, nullptr);
  ASSERT_OK(Greedy(*executor, prompt_, 5));
  EXPECT_EQ(proxy.num_requests(), 5);
  ASSERT_OK(QueuedGreedy(*executor, prompt_, 7));
  EXPECT_EQ(proxy.num_requests(), 5 + 7);
}

TEST_F(ExecutorTest, AnAnnouncedStepThatDoesNotComeIsDoneWithout) {
  StartLoader();
  StartWorker("gpu0");
  const auto executor = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(executor, nullptr);
  testing::StepBuilder builder(executor->limits());
  builder.Begin();
  builder.AddOutput(builder.AddRows(builder.AddSequence(), prompt_));
  StepBatch batch = builder.batch();
  const auto submit = [&](uint32_t lane, uint64_t step_id) {
    batch.header.step_id = step_id;
    WriteStep(batch, executor->StepArea(lane));
    executor->Submit({.lane = lane, .step_id = step_id, .another_follows = true});
  };
  submit(0, 1);
  EXPECT_OK(executor->Wait());
  // One that cannot be sent fails in its turn.
  submit(0, 2);
  std::ranges::fill(executor->StepArea(1), std::byte{0xFF});
  executor->Submit({.lane = 1, .step_id = 3});
  EXPECT_OK(executor->Wait());
  EXPECT_THAT(executor->Wait(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("has been overwritten")));
  submit(1, 4);
  EXPECT_OK(executor->Wait());
}

TEST_F(ExecutorTest, StepsOfMoreThanOneWorkerAreNotFed) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  ExecutorOptions options = Options({"gpu0", "npu0"}, NpuPolicy::kRequire);
  auto hybrid = MustStart(options);
  ASSERT_NE(hybrid, nullptr);
  EXPECT_EQ(hybrid->depth(), 3u);
  EXPECT_EQ(hybrid->prompt_depth(), 2u);
  EXPECT_FALSE(hybrid->feeds());
  hybrid.reset();
  options.queue_steps = false;
  const auto one = MustStart(options);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->depth(), 1u);
}

TEST_F(ExecutorTest, AMalformedStepIsRefusedAndTheWorkersLiveOn) {
  StartLoader();
  StartWorker("gpu0");
  const auto executor = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(executor, nullptr);
  testing::StepBuilder builder(executor->limits());
  builder.Begin();
  builder.AddOutput(builder.AddRows(builder.AddSequence(), prompt_));
  StepBatch batch = builder.batch();
  batch.header.step_id = 1;
  WriteStep(batch, executor->StepArea(0));
  // The worker refuses rows that name no sequence; the gateway itself a header that it did not
  // write.
  std::ranges::fill(executor->StepArea(0).subspan(sizeof(StepHeader)), std::byte{0xFF});
  EXPECT_THAT(RunStep(*executor, 1), StatusIs(absl::StatusCode::kInternal,
                                              HasSubstr("Embed..Head on gpu0: INVALID_ARGUMENT")));
  std::ranges::fill(executor->StepArea(0), std::byte{0xFF});
  EXPECT_THAT(RunStep(*executor, 1),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("has been overwritten")));
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
  auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  EXPECT_EQ(executor->plan().segments.size(), 1u);
  EXPECT_THAT(executor->plan().notice, HasSubstr("npu0.sock is not there"));
  v1::GetStatusResponse status;
  executor->FillStatus(status);
  EXPECT_EQ(status.workers(1).state(), "lost");
  executor.reset();  // its lease: workers serve one gateway

  options.policy.npu = NpuPolicy::kRequire;
  options.worker_wait = absl::Seconds(30);
  std::thread late([this] {
    absl::SleepFor(absl::Milliseconds(600));
    StartWorker("npu0");
  });
  EXPECT_NE(MustStart(options), nullptr);
  late.join();
}

TEST_F(ExecutorTest, AnNpuThatThisMachineDoesNotHaveIsNeitherWaitedForNorLost) {
  StartLoader();
  StartWorker("gpu0");
  ExecutorOptions options = Options({"gpu0", "npu0"}, NpuPolicy::kPrefer);
  options.worker_grace = options.worker_wait = absl::Hours(1);
  for (const bool present : {false, true}) {
    ASSERT_OK(WriteAbsence("unix:" + Socket("npu0"), {.kind = "npu",
                                                      .name = "npu0",
                                                      .device_present = present,
                                                      .reason = "this machine has none"}));
    const auto executor = MustStart(options);
    ASSERT_NE(executor, nullptr);
    EXPECT_EQ(executor->plan().segments.size(), 1u);
    EXPECT_EQ(executor->plan().notice, "Attend runs on the GPU: this machine has none");
    ASSERT_OK(executor->CheckWorkers());
    v1::GetStatusResponse status;
    executor->FillStatus(status);
    EXPECT_EQ(status.workers(1).name(), "npu0");
    EXPECT_EQ(status.workers(1).kind(), "npu");
    EXPECT_EQ(status.workers(1).state(), present ? "unusable" : "absent");
    EXPECT_EQ(status.workers(1).detail(), "this machine has none");
  }
  options.policy.npu = NpuPolicy::kRequire;
  EXPECT_THAT(Executor::Start(options, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("this machine has none")));
}

TEST_F(ExecutorTest, WithThePolicyOffAnNpuWorkerIsLeftOutWhetherItIsThereOrNot) {
  StartLoader();
  StartWorker("gpu0");
  ExecutorOptions options = Options({"gpu0"}, NpuPolicy::kOff);
  options.npu_targets = {"unix:" + Socket("npu0")};
  options.worker_grace = options.worker_wait = absl::Hours(1);
  for (const bool there : {false, true}) {
    if (there) StartWorker("npu0");
    const auto executor = MustStart(options);
    ASSERT_NE(executor, nullptr);
    ASSERT_OK(executor->CheckWorkers());
    EXPECT_EQ(executor->plan().notice, "");
    v1::GetStatusResponse status;
    executor->FillStatus(status);
    EXPECT_EQ(status.workers(1).name(), "npu0");
    EXPECT_EQ(status.workers(1).state(), "absent");
    EXPECT_THAT(status.workers(1).detail(), HasSubstr("--npu=off"));
  }
}

TEST_F(ExecutorTest, AWorkerThatAppearsIsTakenInAndLostFromThenOn) {
  StartLoader();
  StartWorker("gpu0");
  const std::string target = "unix:" + Socket("npu0");
  const WorkerAbsence note{.kind = "npu", .name = "npu0", .reason = "this machine has none"};
  ASSERT_OK(WriteAbsence(target, note));
  const auto executor = MustStart(Options({"gpu0", "npu0"}, NpuPolicy::kPrefer));
  ASSERT_NE(executor, nullptr);
  RemoveAbsence(target);
  ASSERT_OK(executor->CheckWorkers());
  const auto npu = [&executor] {
    v1::GetStatusResponse status;
    executor->FillStatus(status);
    return status.workers(1);
  };
  EXPECT_EQ(npu().state(), "lost") << "nobody says any more that it will not come";
  StartWorker("npu0");
  absl::Status found;
  for (const absl::Time patience = absl::Now() + absl::Minutes(1);
       found.ok() && absl::Now() < patience; absl::SleepFor(absl::Milliseconds(5))) {
    found = executor->CheckWorkers();
  }
  EXPECT_THAT(found, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("npu0 is there now")));
  ASSERT_OK(executor->Recover(nullptr));
  EXPECT_THAT(executor->placement(), HasSubstr("on npu0"));
  EXPECT_EQ(npu().state(), "ready");
  EXPECT_EQ(npu().detail(), "");
  workers_.erase("npu0");
  ASSERT_OK(WriteAbsence(target, note));
  ASSERT_OK(executor->Recover(nullptr));
  EXPECT_EQ(npu().state(), "lost") << "it was there, whatever it says now";
  EXPECT_EQ(npu().detail(), "this machine has none");
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

}  // namespace
}  // namespace tandem::gateway

#include "services/common/worker/service/worker_service.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/polling.h"
#include "services/common/rpc/worker_client.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/step_builder.h"
#include "services/common/worker/service/in_process_worker.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;
using worker::v1::ExecuteRequest;
using worker::v1::ExecuteResponse;

constexpr absl::Duration kLong = absl::Seconds(30);

// Stages of a model of two layers in three calls to one worker.
std::vector<Segment> ThreeSegments() {
  return {{.index = 0, .first_ordinal = 0, .last_ordinal = 1},
          {.index = 1, .first_ordinal = 2, .last_ordinal = 2},
          {.index = 2, .first_ordinal = 3, .last_ordinal = 9}};
}

// gRPC's reserve of eventfds left out.
size_t CountDescriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) != "anon_inode:[eventfd]") ++count;
  }
  return count;
}

class WorkerServiceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { PollForLatency(); }  // as workers do

  void SetUp() override {
    char pattern[] = "/tmp/tandem-worker-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    directory_ = pattern;
    limits_ = testing::MakeStepLimits(weights_->config(), {.max_rows = 16, .max_sequences = 2});
    limits_.max_outputs = limits_.max_logit_outputs = 16;
    exchange_ = testing::MakeLocalExchange(weights_->config(), limits_, 2);
  }
  void TearDown() override {
    client_.reset();
    worker_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Start(testing::FakeWorker::Hooks hooks, WorkerServiceOptions options = {}) {
    worker_ = std::make_unique<testing::InProcessWorker>(
        std::make_unique<testing::FakeWorker>(testing::DescribeFakeWorker("fake0"),
                                              std::move(hooks)),
        source_, directory_ + "/w.sock", options);
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
    StepBatch batch = builder.batch();
    batch.header.step_id = ++step_id_;
    tandem::WriteStep(batch, exchange_->Area(lane, exchange_->layout.step));
    return step_id_;
  }

  static ExecuteRequest Call(uint64_t epoch, uint64_t step_id, uint32_t segment = 0,
                             uint32_t lane = 0) {
    ExecuteRequest request;
    request.set_epoch(epoch);
    request.set_step_id(step_id);
    request.set_segment_index(segment);
    request.set_lane(lane);
    return request;
  }
  absl::Status Execute(const ExecuteRequest& request, absl::Duration timeout = kLong) {
    return client_->Execute(request, timeout).status();
  }

  std::string directory_;
  std::shared_ptr<const WeightSet> weights_ =
      testing::RandomWeightSet(testing::MakeConfig({.num_layers = 2}));
  testing::LocalWeightSource source_{weights_};
  StepLimits limits_;
  std::shared_ptr<const Exchange> exchange_;
  uint64_t step_id_ = 0;
  std::unique_ptr<testing::InProcessWorker> worker_;
  std::unique_ptr<WorkerClient> client_;
};

TEST_F(WorkerServiceTest, DescribesItselfOnceTheSelfTestHasPassed) {
  absl::Notification may_pass;
  Start({.check_health = [&] {
    may_pass.WaitForNotification();
    return absl::OkStatus();
  }});
  EXPECT_THAT(client_->Describe(kLong), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(worker_->serving());
  may_pass.Notify();
  while (!worker_->serving()) absl::SleepFor(absl::Milliseconds(1));
  ASSERT_OK_AND_ASSIGN(const RemoteWorker remote, client_->Describe(kLong));
  EXPECT_EQ(remote.description.name, "fake0");
  EXPECT_EQ(remote.description.max_rows, 64u);
  EXPECT_EQ(remote.description.stages.size(), 6u);
  EXPECT_EQ(remote.pid, ::getpid());
}

TEST_F(WorkerServiceTest, AFailedSelfTestKeepsItFromServingAndFromLoading) {
  Start({.check_health = [] { return absl::InternalError("canary overwritten"); }});
  while (client_->Describe(kLong).status().code() == absl::StatusCode::kUnavailable) {
  }
  EXPECT_THAT(client_->Describe(kLong),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("canary overwritten")));
  EXPECT_THAT(Load(1), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("self-test")));
  EXPECT_FALSE(worker_->serving());
}

TEST_F(WorkerServiceTest, LoadsAPlanWithProgressAndReport) {
  ModelLoad seen;
  Start({.load = [&](const ModelLoad& load) {
    seen = load;
    return absl::OkStatus();
  }});
  std::vector<std::string> phases;
  ASSERT_OK_AND_ASSIGN(
      const worker::v1::LoadPlanReport report,
      client_->LoadPlan(
          LoadRequest(3),
          [&](double /*fraction*/, std::string_view phase) { phases.emplace_back(phase); }, kLong));
  EXPECT_EQ(report.weight_import(), "host-pointer");
  EXPECT_EQ(report.weight_bytes(), weights_->total_bytes());
  ASSERT_FALSE(phases.empty());
  EXPECT_EQ(phases.front(), "fetching weights");
  EXPECT_EQ(seen.segments.size(), 1u);
  EXPECT_EQ(seen.limits.max_rows, 16u);
  EXPECT_EQ(seen.limits.vocab_size, weights_->config().vocab_size);
  EXPECT_EQ(seen.kv.num_blocks[kWindowGroup], limits_.num_blocks[kWindowGroup]);
  EXPECT_EQ(seen.exchange->layout.num_lanes, 2u);
  ASSERT_OK_AND_ASSIGN(const auto status, client_->GetStatus(kLong));
  EXPECT_EQ(status.epoch(), 3u);
  EXPECT_EQ(status.model_id(), weights_->model_id());
}

TEST_F(WorkerServiceTest, RunsSegmentsAndSaysWhichIsTheFirstOfAStep) {
  std::vector<std::pair<uint32_t, bool>> seen;  // rows of the step, first_of_step
  Start({.run = [&](const SegmentRun& run) {
    seen.emplace_back(run.step->header.num_rows, run.first_of_step);
    return SegmentResult{.device_ns = 5, .stage_times = {{StageKind::kFfn, 3}}};
  }});
  auto request =
      testing::MakeLoadRequest(1, *weights_, ThreeSegments(), limits_, *exchange_, source_);
  ASSERT_OK(client_->LoadPlan(request, nullptr, kLong));
  client_->Open(worker_->execution_target());
  for (const uint32_t num_rows : {1u, 13u}) {
    const uint64_t step = WriteStep(num_rows);
    for (uint32_t segment = 0; segment < 3; ++segment) {
      ASSERT_OK_AND_ASSIGN(const ExecuteResponse* response,
                           client_->Execute(Call(1, step, segment), kLong));
      EXPECT_EQ(response->step_id(), step);
      EXPECT_EQ(response->segment_index(), segment);
      EXPECT_EQ(response->device_ns(), 5u);
      EXPECT_GT(response->worker_ns(), 0u);
    }
  }
  using Pair = std::pair<uint32_t, bool>;
  EXPECT_THAT(seen, ElementsAre(Pair{1, true}, Pair{1, false}, Pair{1, false}, Pair{13, true},
                                Pair{13, false}, Pair{13, false}));
  ASSERT_OK_AND_ASSIGN(const auto status, client_->GetStatus(kLong));
  EXPECT_EQ(status.segments_run(), 6u);
  EXPECT_EQ(status.rows_run(), 3u * (1 + 13));
  ASSERT_EQ(status.busy_size(), 1);
  EXPECT_EQ(status.busy(0).kind(), worker::v1::STAGE_KIND_FFN);
  EXPECT_EQ(status.busy(0).device_ns(), 6u * 3);
}

TEST_F(WorkerServiceTest, AStepChangedAfterItWasReadChangesNothing) {
  std::vector<uint32_t> tokens;
  Start({.run = [&](const SegmentRun& run) {
    tokens.push_back(run.step->rows[0].token);
    return SegmentResult{};
  }});
  auto request =
      testing::MakeLoadRequest(1, *weights_, ThreeSegments(), limits_, *exchange_, source_);
  ASSERT_OK(client_->LoadPlan(request, nullptr, kLong));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  ASSERT_OK(Execute(Call(1, step, 0)));
  auto area = exchange_->Area(0, exchange_->layout.step);
  reinterpret_cast<RowEntry*>(area.data() + sizeof(StepHeader))->token = 0xFFFFFFFF;
  ASSERT_OK(Execute(Call(1, step, 1)));
  EXPECT_THAT(tokens, ElementsAre(7, 7));
  EXPECT_THAT(Execute(Call(1, step, 0)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token 4294967295")));
}

TEST_F(WorkerServiceTest, LanesSegmentsAndStepsThatAreNotThereAreAnswersWithACode) {
  Start({});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(3);
  WriteStep(3, 1);
  EXPECT_OK(Execute(Call(1, step)));
  EXPECT_THAT(Execute(Call(1, step, 0, 2)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lane 2")));
  EXPECT_THAT(Execute(Call(1, step, 0, 0xFFFFFFFF)), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Execute(Call(1, step, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("segment 1")));
  EXPECT_THAT(Execute(Call(1, step, 0xFFFFFFFF)), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Execute(Call(1, step, 0, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lane 1 holds step")));
  EXPECT_OK(Execute(Call(1, step))) << "the stream lives on";
  ASSERT_OK_AND_ASSIGN(const auto status, client_->GetStatus(kLong));
  EXPECT_EQ(status.segments_failed(), 5u);
}

TEST_F(WorkerServiceTest, OlderEpochsAreRefusedAndNewerOnesReplace) {
  Start({});
  client_->Open(worker_->execution_target());
  EXPECT_THAT(Execute(Call(1, 1)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("no plan loaded")));
  ASSERT_OK(Load(5));
  EXPECT_THAT(Load(4), HasCode(absl::StatusCode::kAborted));
  const uint64_t step = WriteStep(1);
  EXPECT_OK(Execute(Call(5, step)));
  ASSERT_OK(Load(6));
  EXPECT_THAT(Execute(Call(5, step)), HasCode(absl::StatusCode::kAborted));
  EXPECT_THAT(Execute(Call(7, step)), HasCode(absl::StatusCode::kAborted));
  EXPECT_OK(Execute(Call(6, step)));
  EXPECT_THAT(client_->UnloadPlan(5, kLong), HasCode(absl::StatusCode::kAborted));
  EXPECT_OK(client_->UnloadPlan(6, kLong));
  EXPECT_THAT(Execute(Call(6, step)), HasCode(absl::StatusCode::kAborted));
}

TEST_F(WorkerServiceTest, WeightsAreFetchedOnceForPlansOfOneModel) {
  Start({});
  ASSERT_OK(Load(1));
  ASSERT_OK(Load(2));
  EXPECT_EQ(source_.num_fetches, 1);
  source_.lease_alive = false;
  ASSERT_OK(Load(3));
  EXPECT_EQ(source_.num_fetches, 2) << "a lease that is lost is taken again";
  source_.loader_gone = true;
  EXPECT_OK(Load(4)) << "without a loader the mappings live on";
}

TEST_F(WorkerServiceTest, PlansThatDoNotFitAreRefusedByName) {
  Start({});
  auto request = LoadRequest(1);
  request.mutable_limits()->set_max_rows(65);
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_rows is 65")));
  request = LoadRequest(1);
  request.set_num_lanes(17);
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_lanes")));
  request = LoadRequest(1);
  request.set_num_lanes(3);
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              HasCode(absl::StatusCode::kInvalidArgument))
      << "the region has two lanes";
  request = LoadRequest(1);
  request.mutable_segments(0)->set_last_ordinal(10);
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("segment 0")));
  request = LoadRequest(1);
  request.clear_segments();
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              HasCode(absl::StatusCode::kInvalidArgument));
  request = LoadRequest(1);
  request.set_model_id("another");
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong), HasCode(absl::StatusCode::kNotFound));
  EXPECT_OK(Load(1));
}

TEST_F(WorkerServiceTest, AFailedSegmentIsAnAnswerAndTheNextOneRuns) {
  bool fail = true;
  Start({.run = [&](const SegmentRun& run) -> absl::StatusOr<SegmentResult> {
    EXPECT_TRUE(run.first_of_step) << "after a failure the step is read again";
    if (std::exchange(fail, false)) return absl::InternalError("shader went wrong");
    return SegmentResult{};
  }});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  EXPECT_THAT(Execute(Call(1, step)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("shader went wrong")));
  EXPECT_OK(Execute(Call(1, step)));
  EXPECT_TRUE(worker_->serving());
}

TEST_F(WorkerServiceTest, ALostDeviceStopsServingUntilAPlanIsLoadedAgain) {
  bool lost = false;
  Start({.run = [&](const SegmentRun&) -> absl::StatusOr<SegmentResult> {
    if (lost) return absl::UnavailableError("VK_ERROR_DEVICE_LOST");
    return SegmentResult{};
  }});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  ASSERT_OK(Execute(Call(1, step)));
  EXPECT_TRUE(worker_->serving());
  lost = true;
  EXPECT_THAT(Execute(Call(1, step)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("VK_ERROR_DEVICE_LOST")));
  EXPECT_FALSE(worker_->serving());
  lost = false;
  EXPECT_THAT(Execute(Call(1, step)), HasCode(absl::StatusCode::kUnavailable)) << "until a reload";
  ASSERT_OK(Load(2));
  EXPECT_TRUE(worker_->serving());
  EXPECT_OK(Execute(Call(2, step)));
}

TEST_F(WorkerServiceTest, AnExceptionOfTheDriverIsALostDeviceNotTheEndOfTheProcess) {
  bool throws = true;
  Start({.run = [&](const SegmentRun&) -> absl::StatusOr<SegmentResult> {
           if (std::exchange(throws, false)) throw std::runtime_error("ioctl failed");
           return SegmentResult{};
         },
         .load = [&](const ModelLoad&) -> absl::Status {
           if (!throws) return absl::OkStatus();
           throw 7;
         }});
  EXPECT_THAT(Load(1), HasCode(absl::StatusCode::kUnavailable));
  throws = false;
  ASSERT_OK(Load(2));
  throws = true;
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  EXPECT_THAT(Execute(Call(2, step)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ioctl failed")));
  ASSERT_OK(Load(3));
  EXPECT_OK(Execute(Call(3, step)));
}

TEST_F(WorkerServiceTest, AnIdleDeviceThatStopsAnsweringIsNoticed) {
  std::atomic<bool> healthy{true};
  Start({.check_health =
             [&] { return healthy ? absl::OkStatus() : absl::InternalError("no answer"); }},
        {.idle_check_interval = absl::Milliseconds(2)});
  ASSERT_OK(Load(1));
  healthy = false;
  while (worker_->serving()) absl::SleepFor(absl::Milliseconds(1));
  client_->Open(worker_->execution_target());
  EXPECT_THAT(Execute(Call(1, WriteStep(1))),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no answer")));
}

// A client that sends calls without waiting for answers.
class Pipeline : public grpc::ClientBidiReactor<ExecuteRequest, ExecuteResponse> {
 public:
  Pipeline(const std::string& target, std::vector<ExecuteRequest> calls)
      : stub_(worker::v1::Execution::NewStub(CreateChannel(target))), calls_(std::move(calls)) {
    stub_->async()->Execute(&context_, this);
    StartWrite(&calls_[0]);
    StartRead(&response_);
    StartCall();
  }
  void OnWriteDone(bool ok) override {
    if (ok && ++num_written_ < calls_.size()) {
      StartWrite(&calls_[num_written_]);
    } else {
      StartWritesDone();
    }
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    answers.push_back(response_);
    if (on_answer) on_answer();
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& result) override {
    status = result;
    done.Notify();
  }
  void Cancel() { context_.TryCancel(); }

  std::function<void()> on_answer;
  std::vector<ExecuteResponse> answers;
  grpc::Status status;
  absl::Notification done;

 private:
  grpc::ClientContext context_;
  std::unique_ptr<worker::v1::Execution::Stub> stub_;
  std::vector<ExecuteRequest> calls_;
  size_t num_written_ = 0;
  ExecuteResponse response_;
};

TEST_F(WorkerServiceTest, AnswersComeInTheOrderOfTheCallsHoweverManyAreUnderWay) {
  Start({});
  ASSERT_OK(Load(1));
  const uint64_t step = WriteStep(2);
  constexpr uint32_t kCalls = 203;  // many times round the window of slots
  std::vector<ExecuteRequest> calls;
  for (uint32_t i = 0; i < kCalls; ++i) calls.push_back(Call(1, step, i % 3 == 0 ? 0 : i));
  Pipeline pipeline(worker_->execution_target(), calls);
  pipeline.done.WaitForNotification();
  EXPECT_TRUE(pipeline.status.ok()) << pipeline.status.error_message();
  ASSERT_EQ(pipeline.answers.size(), kCalls);
  for (uint32_t i = 0; i < kCalls; ++i) {
    EXPECT_EQ(pipeline.answers[i].segment_index(), calls[i].segment_index());
    EXPECT_EQ(pipeline.answers[i].code(), i % 3 == 0 ? 0 : 3) << i;
  }
}

TEST_F(WorkerServiceTest, AClientThatGoesWhileItsCallsWaitMakesRoomForTheNext) {
  std::atomic<int> num_runs{0};
  absl::Notification running, release;
  Start({.run =
             [&](const SegmentRun&) {
               if (num_runs++ == 0) {
                 running.Notify();
                 release.WaitForNotification();
               }
               return SegmentResult{};
             }},
        {.max_execute_streams = 1});
  ASSERT_OK(Load(1));
  const uint64_t step = WriteStep(1);
  Pipeline pipeline(worker_->execution_target(), std::vector<ExecuteRequest>(40, Call(1, step)));
  running.WaitForNotification();
  pipeline.Cancel();
  pipeline.done.WaitForNotification();
  release.Notify();
  absl::Status status = absl::UnavailableError("not tried");
  while (absl::IsUnavailable(status)) {  // until the old stream's place is free
    client_->Open(worker_->execution_target());
    status = Execute(Call(1, step));
  }
  EXPECT_OK(status);
}

TEST_F(WorkerServiceTest, ADeadlineClosesTheStreamAndTheLateAnswerIsDropped) {
  absl::Notification release;
  std::atomic<int> num_runs{0};
  Start({.run = [&](const SegmentRun&) {
    if (num_runs++ == 0) release.WaitForNotification();
    return SegmentResult{};
  }});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  EXPECT_THAT(Execute(Call(1, step), absl::Milliseconds(20)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("did not answer within 20ms")));
  EXPECT_THAT(Execute(Call(1, step)), HasCode(absl::StatusCode::kUnavailable))
      << "closed until it is opened again";
  release.Notify();
  ASSERT_OK(Load(2));
  client_->Open(worker_->execution_target());
  EXPECT_OK(Execute(Call(2, step)));
}

TEST_F(WorkerServiceTest, AClientNoticesAWorkersEndAndReconnectsToTheNextOne) {
  Start({});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  ASSERT_OK(Execute(Call(1, step)));
  worker_->Stop();
  EXPECT_THAT(Execute(Call(1, step)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is gone")));
  std::unique_ptr<WorkerClient> client = std::move(client_);
  Start({});  // a new process would know nothing of the plan
  client_ = std::move(client);
  ASSERT_OK(client_->Describe(kLong));
  client_->Open(worker_->execution_target());
  EXPECT_THAT(Execute(Call(1, step)), HasCode(absl::StatusCode::kAborted));
  ASSERT_OK(Load(2));
  EXPECT_OK(Execute(Call(2, step)));
}

TEST_F(WorkerServiceTest, MoreStreamsThanItTakesAreRefused) {
  Start({}, {.max_execute_streams = 1});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  ASSERT_OK(Execute(Call(1, step)));
  WorkerClient second(worker_->target());
  second.Open(worker_->execution_target());
  EXPECT_THAT(second.Execute(Call(1, step), kLong), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_OK(Execute(Call(1, step)));
}

TEST_F(WorkerServiceTest, ClientsThatVanishInMidStreamLeakNothing) {
  Start({});
  ASSERT_OK(Load(1));
  const uint64_t step = WriteStep(1);
  const auto round = [&](int calls) {
    WorkerClient client(worker_->target());
    client.Open(worker_->execution_target());
    for (int i = 0; i < calls; ++i) ASSERT_OK(client.Execute(Call(1, step), kLong));
  };
  round(1);
  const size_t before = CountDescriptors();
  for (int i = 0; i < 20; ++i) round(1 + i % 3);
  // Connections close on their own time.
  for (int i = 0; i < 500 && CountDescriptors() > before; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_LE(CountDescriptors(), before);
}

}  // namespace
}  // namespace tandem

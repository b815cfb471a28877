// Segment calls: order, faults, clients and workers that disappear.
#include "services/worker_host/execution.h"

#include <atomic>

#include "absl/synchronization/notification.h"
#include "services/common/rpc/channel.h"
#include "services/common/testing/eventually.h"
#include "services/worker_host/worker_service_fixture.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using testing::Eventually;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;
using worker::v1::ExecuteRequest;
using worker::v1::ExecuteResponse;
using ExecutionTest = WorkerServiceTest;

// Stages of a model of two layers in three calls to one worker.
std::vector<Segment> ThreeSegments() {
  return {{.index = 0, .first_ordinal = 0, .last_ordinal = 1},
          {.index = 1, .first_ordinal = 2, .last_ordinal = 2},
          {.index = 2, .first_ordinal = 3, .last_ordinal = 9}};
}

// Without gRPC's reserve of eventfds.
size_t CountDescriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) != "anon_inode:[eventfd]") ++count;
  }
  return count;
}

TEST_F(ExecutionTest, RunsSegmentsAndSaysWhichIsTheFirstOfAStep) {
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
      ASSERT_OK_AND_ASSIGN(const ExecuteResponse* response, Run(*client_, Call(1, step, segment)));
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

TEST_F(ExecutionTest, AnswersSayThePowerOfTheDevice) {
  std::atomic<double> watts{0.0};
  Start({.run = [](const SegmentRun&) -> absl::StatusOr<SegmentResult> {
          return SegmentResult{.device_ns = 5};
        }},
        {.power = [&watts] { return watts.load(); }});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  for (const double now : {0.0, 312.5, 40.0}) {
    watts = now;
    ASSERT_OK_AND_ASSIGN(const ExecuteResponse* response, Run(*client_, Call(1, WriteStep(1))));
    EXPECT_EQ(response->device_watts(), now);
  }
}

TEST_F(ExecutionTest, WithoutASensorThereIsNoPower) {
  Start({});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  ASSERT_OK_AND_ASSIGN(const ExecuteResponse* response, Run(*client_, Call(1, WriteStep(1))));
  EXPECT_EQ(response->device_watts(), 0.0);
}

TEST_F(ExecutionTest, AStepChangedAfterItWasReadChangesNothing) {
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

TEST_F(ExecutionTest, LanesSegmentsAndStepsThatAreNotThereAreAnswersWithACode) {
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

TEST_F(ExecutionTest, AnAnswerWaitsForTheCallThatFollowsOrForAFlush) {
  std::vector<uint64_t> runs;
  Start({.run = [&](const SegmentRun& run) {
    runs.push_back(run.step->header.step_id);
    return SegmentResult{.device_ns = run.lane};
  }});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const auto send = [&](uint64_t step, uint32_t lane) {
    ExecuteRequest call = Call(1, step, 0, lane);
    call.set_another_follows(true);
    ASSERT_OK(client_->Submit(call, kLong));
  };
  const auto receive = [&](uint64_t step, uint32_t lane) {
    ASSERT_OK_AND_ASSIGN(const ExecuteResponse* answer, client_->Wait(kLong));
    EXPECT_EQ(answer->step_id(), step);
    EXPECT_EQ(answer->device_ns(), lane);
  };
  const uint64_t first = WriteStep(2, 0), second = WriteStep(3, 1);
  send(first, 0);
  send(second, 1);
  receive(first, 0);  // the fake worker runs a step when its answer is due
  const uint64_t third = WriteStep(1, 0);
  EXPECT_THAT(runs, ElementsAre(first));
  send(third, 0);
  receive(second, 1);
  ASSERT_OK(client_->Flush(kLong));
  receive(third, 0);
  EXPECT_THAT(runs, ElementsAre(first, second, third));
  EXPECT_OK(Execute(Call(1, WriteStep(1)))) << "one by one again";
}

TEST_F(ExecutionTest, ADeviceThatRunsWhileItIsWaitedForAnswersWithoutTheCallThatFollows) {
  Start({.runs_in_wait = true});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  for (const uint32_t lane : {0u, 1u, 0u}) {
    const uint64_t step = WriteStep(2, lane);
    ExecuteRequest call = Call(1, step, 0, lane);
    call.set_another_follows(true);
    ASSERT_OK(client_->Submit(call, kLong));
    ASSERT_OK_AND_ASSIGN(const ExecuteResponse* answer, client_->Wait(kLong));
    EXPECT_EQ(answer->step_id(), step);
  }
  ASSERT_OK(client_->Flush(kLong));
  EXPECT_OK(Execute(Call(1, WriteStep(1)))) << "a flush does no harm";
}

TEST_F(ExecutionTest, ARefusedCallIsAnsweredAfterTheOneHeldBefore) {
  Start({});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(2, 0);
  ExecuteRequest held = Call(1, step, 0, 0), bad = Call(1, step, 7, 1);
  held.set_another_follows(true);
  ASSERT_OK(client_->Submit(held, kLong));
  ASSERT_OK(client_->Submit(bad, kLong));
  ASSERT_OK_AND_ASSIGN(const ExecuteResponse* answer, client_->Wait(kLong));
  EXPECT_EQ(answer->step_id(), step);
  EXPECT_THAT(client_->Wait(kLong).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("segment 7")));
}

TEST_F(ExecutionTest, AClientThatGoesWithAnAnswerHeldLeavesTheWorkerToTheNext) {
  std::atomic<int> runs = 0;
  Start({.run = [&](const SegmentRun&) {
    ++runs;
    return SegmentResult{};
  }});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  ExecuteRequest held = Call(1, WriteStep(2, 0));
  held.set_another_follows(true);
  ASSERT_OK(client_->Submit(held, kLong));
  WorkerClient second(worker_->target());
  second.Open(worker_->execution_target());
  EXPECT_OK(Run(second, Call(1, WriteStep(1, 1), 0, 1)));
  client_.reset();
  ASSERT_OK(second.LoadPlan(LoadRequest(2), nullptr, kLong));
  EXPECT_OK(Run(second, Call(2, WriteStep(1, 0))));
  EXPECT_GE(runs.load(), 2);
}

TEST_F(ExecutionTest, OnlyTheStepBeforeFeedsAStep) {
  Start({});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const auto write = [&](uint32_t lane, uint64_t after, uint32_t output) {
    testing::StepBuilder builder(limits_);
    builder.Begin();
    const uint32_t row = builder.AddRows(builder.AddSequence(), {7});
    builder.AddOutput(row);
    if (after != 0) builder.FeedRow(row, output);
    StepBatch batch = builder.batch();
    batch.header.step_id = ++step_id_;
    batch.header.after_step = after;
    tandem::WriteStep(batch, exchange_->Area(lane, exchange_->layout.step));
    return step_id_;
  };
  const uint64_t first = write(0, 0, 0);
  ASSERT_OK(Execute(Call(1, first)));
  const uint64_t second = write(1, first, 0);
  ASSERT_OK(Execute(Call(1, second, 0, 1)));
  EXPECT_THAT(Execute(Call(1, write(0, first, 0))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fed from step")));
  EXPECT_THAT(Execute(Call(1, write(0, second, 0))), HasCode(absl::StatusCode::kInvalidArgument))
      << "after a refusal there is nothing to be fed from";
  const uint64_t again = write(0, 0, 0);
  ASSERT_OK(Execute(Call(1, again)));
  EXPECT_THAT(Execute(Call(1, write(1, again, 1), 0, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("output 1")));
}

TEST_F(ExecutionTest, AnswersComeInTheOrderOfTheCallsHoweverManyAreUnderWay) {
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

TEST_F(ExecutionTest, AClientThatGoesWhileItsCallsWaitMakesRoomForTheNext) {
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

TEST_F(ExecutionTest, ADeadlineClosesTheStreamAndTheLateAnswerIsDropped) {
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

TEST_F(ExecutionTest, AClientNoticesAWorkersEndAndReconnectsToTheNextOne) {
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
  ASSERT_TRUE(Eventually([this] {  // its self-test has run
    return !absl::IsUnavailable(client_->Describe(kLong).status());
  }));
  client_->Open(worker_->execution_target());
  EXPECT_THAT(Execute(Call(1, step)), HasCode(absl::StatusCode::kAborted));
  ASSERT_OK(Load(2));
  EXPECT_OK(Execute(Call(2, step)));
}

TEST_F(ExecutionTest, MoreStreamsThanItTakesAreRefused) {
  Start({}, {.max_execute_streams = 1});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  ASSERT_OK(Execute(Call(1, step)));
  WorkerClient second(worker_->target());
  second.Open(worker_->execution_target());
  EXPECT_THAT(Run(second, Call(1, step)), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_OK(Execute(Call(1, step)));
}

TEST_F(ExecutionTest, ClientsThatVanishInMidStreamLeakNothing) {
  Start({});
  ASSERT_OK(Load(1));
  const uint64_t step = WriteStep(1);
  const auto round = [&](int calls) {
    WorkerClient client(worker_->target());
    client.Open(worker_->execution_target());
    for (int i = 0; i < calls; ++i) ASSERT_OK(Run(client, Call(1, step)));
  };
  round(1);
  const size_t before = CountDescriptors();
  for (int i = 0; i < 20; ++i) round(1 + i % 3);
  // Connections close on their own time.
  EXPECT_TRUE(Eventually([&] { return CountDescriptors() <= before; }));
}

}  // namespace
}  // namespace tandem

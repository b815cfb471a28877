// Calls whose masks are written while they run.
#include <atomic>
#include <cstring>
#include <thread>

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

class LateMasksTest : public WorkerServiceTest {
 protected:
  // A row whose output has mask 0.
  uint64_t WriteMaskedStep(uint32_t lane) {
    testing::StepBuilder builder(limits_);
    builder.Begin();
    builder.AddOutput(builder.AddRows(builder.AddSequence(), {7}));
    builder.MaskOutput();
    return Write(builder.batch(), lane);
  }
  // Submits a call whose masks follow, in lane 1; the worker has it when this returns.
  void SubmitMasked() {
    ExecuteRequest before = Call(1, WriteStep(1, 0)), call = Call(1, WriteMaskedStep(1), 0, 1);
    before.set_another_follows(true);
    call.set_masks_follow(true);
    ASSERT_OK(client_->Submit(before, kLong));
    ASSERT_OK(client_->Submit(call, kLong));
    ASSERT_OK(client_->Wait(kLong).status());  // for that the worker needs the call behind
  }
};

// What a step chose before its masks were there would be wrong.
TEST_F(LateMasksTest, ACallIsNotWaitedForBeforeItsMasksAreThere) {
  for (const bool runs_in_wait : {false, true}) {
    SCOPED_TRACE(runs_in_wait);
    std::vector<uint32_t> masks;  // first word as each step saw it
    const ExchangeArea& area = exchange_->layout.masks;
    const auto write = [&](uint32_t lane, uint32_t word) {
      std::memcpy(exchange_->Area(lane, area).data(), &word, sizeof(word));
    };
    Start({.run =
               [&](const SegmentRun& run) {
                 uint32_t word = 0;
                 std::memcpy(&word, exchange_->Area(run.lane, area).data(), sizeof(word));
                 masks.push_back(word);
                 return SegmentResult{};
               },
           .runs_in_wait = runs_in_wait});
    ASSERT_OK(Load(1));
    client_->Open(worker_->execution_target());
    for (const bool another_follows : {true, false}) {
      write(0, 1);
      write(1, 2);
      const uint64_t first = WriteMaskedStep(0), second = WriteMaskedStep(1);
      ExecuteRequest call = Call(1, first, 0, 0), behind = Call(1, second, 0, 1);
      call.set_another_follows(true);
      behind.set_another_follows(another_follows);
      behind.set_masks_follow(true);
      ASSERT_OK(client_->Submit(call, kLong));
      ASSERT_OK(client_->Submit(behind, kLong));
      ASSERT_OK(client_->Wait(kLong).status());
      ASSERT_OK(client_->Flush(kLong));  // no reason to run it
      ASSERT_OK(client_->GetStatus(kLong).status());
      write(1, 3);
      ASSERT_OK(client_->MasksReady(kLong));
      ASSERT_OK(client_->Wait(kLong).status());
      EXPECT_THAT(masks, ElementsAre(1, 3));
      masks.clear();
    }
    TearDown();
  }
}

TEST_F(LateMasksTest, MasksMayTakeLongerThanAnIdleCheck) {
  std::atomic<int> checks = 0, runs = 0;
  Start({.run =
             [&](const SegmentRun&) {
               ++runs;
               return SegmentResult{};
             },
         .check_health =
             [&] {
               ++checks;
               return absl::OkStatus();
             }},
        {.idle_check_interval = absl::Milliseconds(5)});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  EXPECT_TRUE(Eventually([&] { return checks > 2; }));
  ExecuteRequest call = Call(1, WriteMaskedStep(0));
  call.set_masks_follow(true);
  ASSERT_OK(client_->Submit(call, kLong));
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(runs, 0);
  ASSERT_OK(client_->MasksReady(kLong));
  EXPECT_OK(client_->Wait(kLong));
  TearDown();  // before what its checks count goes
}

TEST_F(LateMasksTest, TasksWaitForMasksAndNotForEver) {
  Start({});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  WorkerClient second(worker_->target());
  for (const bool come : {true, false}) {
    SubmitMasked();
    std::thread task([&] {
      EXPECT_THAT(second.MeasureCeilings(kLong).status(),
                  HasCode(absl::StatusCode::kUnimplemented));
    });
    absl::SleepFor(absl::Milliseconds(20));
    if (!come) task.join();
    ASSERT_OK(client_->MasksReady(kLong));
    const absl::Status status = client_->Wait(kLong).status();
    if (come) {
      EXPECT_OK(status);
      task.join();
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("masks")));
    }
  }
}

TEST_F(LateMasksTest, MasksThatNeverComeHoldNothingUp) {
  std::atomic<int> runs = 0;
  Start({.run = [&](const SegmentRun&) {
    ++runs;
    return SegmentResult{};
  }});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  SubmitMasked();
  client_.reset();
  WorkerClient second(worker_->target());
  ASSERT_OK(second.LoadPlan(LoadRequest(2), nullptr, kLong));
  second.Open(worker_->execution_target());
  EXPECT_OK(Run(second, Call(2, WriteStep(1, 1), 0, 1)));
  EXPECT_EQ(runs.load(), 3);
  ASSERT_OK(second.MasksReady(kLong));
  EXPECT_OK(Run(second, Call(2, WriteStep(1, 0)))) << "masks of no call do no harm";
}

}  // namespace
}  // namespace tandem

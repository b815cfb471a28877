#include "services/gateway/engine/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/time/clock.h"
#include "services/gateway/engine/testing/fake_executor.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using testing::FakeExecutor;
using ::testing::HasSubstr;

class RecoveryTest : public ::testing::Test {
 protected:
  // Loses the workers as the engine does while no request runs.
  void Lose() { recovery_.MarkLost(executor_.CheckWorkers()); }

  absl::Status answer_ = absl::UnavailableError("npu0 does not answer");  // of a recovery
  std::vector<bool> ready_;
  FakeExecutor executor_{{.on_check = [] { return absl::UnavailableError("npu0 is gone"); },
                          .on_recover = [this](StepLimits&) { return answer_; }}};
  Recovery recovery_{executor_,
                     {.down_wait = absl::Seconds(20),
                      .min_pause = absl::Milliseconds(1),
                      .max_pause = absl::Milliseconds(3),
                      .on_ready_change = [this](bool ready) { ready_.push_back(ready); }}};
};

TEST_F(RecoveryTest, ALossIsReportedUntilTheEngineCanUseTheWorkersAgain) {
  EXPECT_FALSE(recovery_.down());
  Lose();
  EXPECT_TRUE(recovery_.down());
  EXPECT_EQ(recovery_.reason(), "npu0 is gone");
  answer_ = absl::OkStatus();
  int turns = 0;
  EXPECT_TRUE(recovery_.Attempt([&turns] { return ++turns > 0; }).ok());
  EXPECT_TRUE(recovery_.down()) << "until Succeeded";
  recovery_.Succeeded();
  EXPECT_FALSE(recovery_.down());
  EXPECT_EQ(recovery_.reason(), "");
  EXPECT_EQ(recovery_.count(), 1u);
  EXPECT_THAT(ready_, ElementsAre(false, true));
}

TEST_F(RecoveryTest, PausesDoubleUpToTheLongestAndStartAgainAfterSuccess) {
  Lose();
  const auto turn = [] { return true; };
  for (const int ms : {1, 2, 3, 3}) {
    recovery_.Failed(recovery_.Attempt(turn));
    EXPECT_THAT(recovery_.reason(), HasSubstr("does not answer"));
    EXPECT_EQ(recovery_.pause(), absl::Milliseconds(ms));
    const absl::Time begin = absl::Now();
    recovery_.Pause(turn);
    EXPECT_GE(absl::Now() - begin, absl::Milliseconds(ms));
  }
  answer_ = absl::OkStatus();
  ASSERT_TRUE(recovery_.Attempt(turn).ok());
  recovery_.Succeeded();
  EXPECT_EQ(recovery_.pause(), absl::Milliseconds(1));
  EXPECT_EQ(recovery_.count(), 1u) << "only successful attempts count";
}

TEST_F(RecoveryTest, APauseEndsWhenTheTurnReturnsFalse) {
  Recovery slow(executor_, {.min_pause = absl::Hours(1)});
  int turns = 0;
  slow.Pause([&turns] { return ++turns < 3; });
  EXPECT_EQ(turns, 3);
}

TEST_F(RecoveryTest, ARequestWaitsADownWaitFromItsSubmissionOrTheLoss) {
  const absl::Time before = absl::Now();
  EXPECT_TRUE(recovery_.CheckWait(before, before + absl::Hours(1)).ok()) << "nothing is lost";
  Lose();
  const absl::Time after = absl::Now();
  EXPECT_TRUE(recovery_.CheckWait(absl::InfinitePast(), before + absl::Seconds(19)).ok());
  EXPECT_EQ(recovery_.CheckWait(absl::InfinitePast(), after + absl::Seconds(20)).code(),
            absl::StatusCode::kUnavailable);
  const absl::Time late = after + absl::Minutes(1);
  EXPECT_TRUE(recovery_.CheckWait(late, late + absl::Seconds(19)).ok());
  EXPECT_THAT(std::string(recovery_.CheckWait(late, late + absl::Seconds(20)).message()),
              HasSubstr("not come back within 20s: npu0 is gone"));
}

}  // namespace
}  // namespace tandem::gateway

#include "services/gateway/model/gateway_pulse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/engine/testing/gate.h"

namespace tandem::gateway {
namespace {

using testing::FakeExecutor;
using testing::Gate;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kSegmentDeadline = absl::Seconds(5);

TEST(GatewayPulseTest, AStartIsExtendedWhileItLoadsAndReadyWhenItServes) {
  Gate loading, go, ready;
  Launcher launcher(
      [&](const Executor::Progress& progress) -> absl::StatusOr<std::unique_ptr<Executor>> {
        progress("packing layer 3 qkv", 0.42);
        loading.Open();
        go.Wait();
        return std::make_unique<FakeExecutor>(testing::FakeExecutorOptions());
      },
      {});
  GatewayPulse pulse(launcher, {.segment_deadline = kSegmentDeadline});
  const Pulse before = pulse.Take(absl::UnixEpoch());
  EXPECT_FALSE(before.serving);
  EXPECT_FALSE(before.starting) << "it has not begun, so it makes no progress";
  EXPECT_TRUE(before.alive);
  launcher.Begin([&](bool is_ready) {
    if (is_ready) ready.Open();
  });
  loading.Wait();
  const Pulse during = pulse.Take(absl::UnixEpoch());
  EXPECT_FALSE(during.serving);
  EXPECT_TRUE(during.starting);
  EXPECT_THAT(during.status, HasSubstr("packing layer 3 qkv: 42%"));
  go.Open();
  ready.Wait();
  const Pulse after = pulse.Take(absl::UnixEpoch());
  EXPECT_TRUE(after.serving);
  EXPECT_TRUE(after.alive);
  EXPECT_THAT(after.status, StartsWith("ready: toy, "));
}

TEST(GatewayPulseTest, AnEngineThatStandsStillIsNotAlive) {
  Gate ready;
  Launcher launcher(
      [](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
        return std::make_unique<FakeExecutor>(testing::FakeExecutorOptions());
      },
      // Between its looks at the workers the idle engine does nothing: as if it hung.
      {.idle_check = absl::Hours(1)});
  launcher.Begin([&](bool is_ready) {
    if (is_ready) ready.Open();
  });
  ready.Wait();
  GatewayPulse pulse(launcher, {.segment_deadline = kSegmentDeadline});
  const absl::Time start = absl::UnixEpoch();
  EXPECT_TRUE(pulse.Take(start).alive);
  EXPECT_TRUE(pulse.Take(start + kSegmentDeadline).alive);
  const Pulse late = pulse.Take(start + absl::Minutes(10));
  EXPECT_FALSE(late.alive);
  EXPECT_THAT(late.status, HasSubstr("stands still"));
}

}  // namespace
}  // namespace tandem::gateway

#include "services/gateway/service/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/engine/testing/gate.h"

namespace tandem::gateway {
namespace {

using testing::FakeExecutor;
using testing::Gate;
using ::testing::HasSubstr;

TEST(LauncherTest, SaysHowFarItIsUntilTheModelIsUp) {
  Gate loading, go, ready;
  Launcher launcher(
      [&](const Executor::Progress& progress) -> absl::StatusOr<std::unique_ptr<Executor>> {
        progress("packing layer 3 qkv", 0.42);
        loading.Open();
        go.Wait();
        return std::make_unique<FakeExecutor>(testing::FakeExecutorOptions());
      },
      {});
  v1::GetStatusResponse status;
  launcher.FillStatus(status);
  EXPECT_EQ(status.state(), "starting");
  launcher.Begin([&](bool is_ready) {
    if (is_ready) ready.Open();
  });
  loading.Wait();
  launcher.FillStatus(status);
  EXPECT_EQ(status.state(), "loading");
  EXPECT_THAT(status.detail(), HasSubstr("packing layer 3 qkv: 42%"));
  const auto none = launcher.model();
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("42%"));
  EXPECT_TRUE(launcher.waiting_for_services());
  go.Open();
  ready.Wait();
  launcher.FillStatus(status);
  EXPECT_EQ(status.state(), "ready");
  EXPECT_EQ(status.model(), "toy");
  EXPECT_EQ((*launcher.model())->info().context_len(), 256u);
  launcher.Drain(absl::Seconds(1));
  launcher.FillStatus(status);
  EXPECT_EQ(status.state(), "draining");
}

TEST(LauncherTest, TriesAgainWhenSomethingIsNotThereYet) {
  std::atomic<int> attempts = 0;
  Gate ready;
  Launcher launcher(
      [&](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
        if (++attempts < 2) return absl::UnavailableError("gpu0 does not answer");
        return std::make_unique<FakeExecutor>(testing::FakeExecutorOptions());
      },
      {});
  launcher.Begin([&](bool) { ready.Open(); });
  ready.Wait();
  EXPECT_EQ(attempts.load(), 2);
}

TEST(LauncherTest, OtherErrorsAreAFailureWithItsReason) {
  Launcher launcher(
      [&](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
        return absl::FailedPreconditionError("no NPU, and the policy is require");
      },
      {});
  launcher.Begin([](bool) {});
  v1::GetStatusResponse status;
  while (status.state() != "failed") {
    launcher.FillStatus(status);
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(status.detail(), "no NPU, and the policy is require");
}

}  // namespace
}  // namespace tandem::gateway

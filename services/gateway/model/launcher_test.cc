#include "services/gateway/model/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "services/common/testing/eventually.h"
#include "services/gateway/engine/testing/engine_harness.h"
#include "services/gateway/executor/model_changed.h"

namespace tandem::gateway {
namespace {

using tandem::testing::Eventually;
using testing::FakeExecutor;
using testing::Gate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::StreamReader;

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

TEST(LauncherTest, SaysHowFarTheDraftModelIs) {
  Gate loading, go;
  EngineOptions options;
  options.make_drafters = [&](const Executor&, const Executor::Progress& progress)
      -> absl::StatusOr<std::vector<std::unique_ptr<Drafter>>> {
    progress("draft: packing layer 2 qkv", 0.25);
    loading.Open();
    go.Wait();
    return std::vector<std::unique_ptr<Drafter>>();
  };
  Launcher launcher(
      [](const Executor::Progress& progress) -> absl::StatusOr<std::unique_ptr<Executor>> {
        progress("worker gpu0", 1.0);
        return std::make_unique<FakeExecutor>(testing::FakeExecutorOptions());
      },
      options);
  launcher.Begin([](bool) {});
  loading.Wait();
  v1::GetStatusResponse status;
  launcher.FillStatus(status);
  EXPECT_EQ(status.state(), "loading");
  EXPECT_EQ(status.detail(), "draft: packing layer 2 qkv: 25%");
  go.Open();
  EXPECT_TRUE(Eventually([&] { return launcher.model().ok(); }));
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
  ASSERT_TRUE(Eventually([&] {
    launcher.FillStatus(status);
    return status.state() == "failed";
  }));
  EXPECT_EQ(status.detail(), "no NPU, and the policy is require");
}

TEST(LauncherTest, ServesTheChangedFileWhereTheFormerModelIsLost) {
  std::atomic<int> starts = 0;
  Gate loading, go;
  Launcher launcher(
      [&](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
        testing::FakeExecutorOptions fake;
        if (++starts == 1) {
          fake.on_step = [](const StepBatch& step) {
            return step.header.step_id == 5 ? absl::UnavailableError("gpu0 is gone")
                                            : absl::OkStatus();
          };
          fake.on_recover = [](StepLimits&) { return ModelChangedError("toy.gguf"); };
        } else {
          loading.Open();
          go.Wait();
        }
        return std::make_unique<FakeExecutor>(std::move(fake));
      },
      {});
  std::atomic<bool> ready = false;
  launcher.Begin([&](bool is_ready) { ready = is_ready; });
  ASSERT_TRUE(Eventually([&] { return launcher.model().ok(); }));
  const ServedModel* former = *launcher.model();
  StreamReader ends;
  ASSERT_TRUE(former->replicas().Submit(GreedyRequest(1, 5, 50), ends.stream()).ok());
  const absl::Status end = ends.ReadToEnd().status;
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(end.message()), HasSubstr("file has changed"));
  loading.Wait();
  EXPECT_FALSE(ready);
  EXPECT_EQ(launcher.model().status().code(), absl::StatusCode::kUnavailable);
  v1::GetStatusResponse status;
  launcher.FillStatus(status);
  EXPECT_EQ(status.state(), "loading");
  EXPECT_THAT(status.detail(), HasSubstr("file has changed"));
  // Requests with the former model are refused in the same words, and it keeps no constraint.
  former->constraints().Get({.kind = constraint::SourceKind::kRegex, .text = "a"},
                            [](const constraint::ConstraintCache::Result& result) {
                              EXPECT_THAT(std::string(result.status().message()),
                                          HasSubstr("file has changed"));
                            });
  StreamReader late;
  EXPECT_THAT(
      std::string(former->replicas().Submit(GreedyRequest(2, 5, 5), late.stream()).message()),
      HasSubstr("file has changed"));
  go.Open();
  ASSERT_TRUE(Eventually([&] { return ready.load(); }));
  StreamReader next;
  ASSERT_TRUE((*launcher.model())->replicas().Submit(GreedyRequest(3, 5, 5), next.stream()).ok());
  EXPECT_TRUE(next.ReadToEnd().status.ok());
  status.Clear();
  launcher.FillStatus(status);
  EXPECT_EQ(status.state(), "ready");
  EXPECT_EQ(status.model_reloads(), 1u);
  EXPECT_EQ(starts, 2);
}

}  // namespace
}  // namespace tandem::gateway

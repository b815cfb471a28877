// A model's file that changes while it is served, and the deaths that follow in every order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "services/common/testing/paths.h"
#include "services/common/testing/temporary_directory.h"
#include "tests/integration/cluster_fixture.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ModelFileTest : public ClusterFixture {
 protected:
  static constexpr char kName[] = "demo.Q8_0.gguf";

  void Start() {
    fs::copy_file(SourcePath("models/demo/demo.Q8_0.gguf"), File());
    StartCluster({.npu = false, .model_folder = models_.path()});
    if (former_.tokens.empty()) former_ = Generate(request_);
    ASSERT_TRUE(former_.status.ok()) << former_.status.error_message();
  }
  std::string File() const { return models_.path() + "/" + kName; }
  // Other weights under the same name.
  void Replace() const {
    fs::copy_file(SourcePath("tests/data/demo.Q4_0.gguf"), models_.path() + "/new");
    fs::rename(models_.path() + "/new", File());
  }
  void Touch() const {
    fs::last_write_time(File(), fs::file_time_type::clock::now() + std::chrono::seconds(1));
  }
  void Restart(const std::string& service) {
    KillService(service);
    StartService(service);
  }
  void LoseWorker() {
    const v1::GetStatusResponse before = Status();
    Restart("gpu");
    WaitForStatus("recovered or loaded again", [&](const v1::GetStatusResponse& now) {
      return now.state() == "ready" && (now.recoveries() > before.recoveries() ||
                                        now.model_reloads() > before.model_reloads());
    });
  }
  void WaitForNotice(const std::string& words) {
    WaitForStatus(words, [&](const v1::GetStatusResponse& status) {
      return status.model_notice().find(words) != std::string::npos;
    });
  }
  // Streams; `faults` happen after the fifth message.
  Answer GenerateThrough(const std::function<void()>& faults) {
    int seen = 0;
    return Generate(request_, [&] {
      if (++seen == 5) faults();
    });
  }
  void ExpectServed(const Answer& answer, const Answer& expected) {
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.tokens, expected.tokens);
  }

  TemporaryDirectory models_;
  const v1::GenerateRequest request_ = GreedyRequest("The capital of", 400);
  Answer former_;
};

TEST_F(ModelFileTest, AChangedFileIsAWarningAndWhatWasLoadedIsServed) {
  Start();
  EXPECT_EQ(Status().model_notice(), "");
  const fs::file_time_type loaded = fs::last_write_time(File());
  Touch();
  WaitForNotice("has changed since it was loaded");
  ExpectServed(GenerateThrough([&] { LoseWorker(); }), former_);
  fs::last_write_time(File(), loaded);
  WaitForStatus("as before", [](const auto& status) { return status.model_notice().empty(); });
  Replace();
  WaitForNotice("has changed since it was loaded");
  ExpectServed(GenerateThrough([&] { LoseWorker(); }), former_);
  fs::remove(File());
  WaitForNotice("is gone");
  ExpectServed(GenerateThrough([&] { LoseWorker(); }), former_);
  EXPECT_EQ(Status().model_reloads(), 0u);
}

// F: the file is replaced.  L: the loader is killed and comes back.  W: the worker.  The former
// weights are gone once the loader has come back without them, so that W after F and L loads the
// new file: the streams that ran end, by name, and the next are answered by it.
TEST_F(ModelFileTest, ADeathOfTheLoaderAndOfAWorkerInEveryOrderEndsInAServiceThatAnswers) {
  for (const std::string order : {"FLW", "LFW", "FWL", "WFL", "LWF", "WLF"}) {
    SCOPED_TRACE(order);
    std::error_code ignored;
    fs::remove(File(), ignored);
    Start();
    const Answer answer = GenerateThrough([&] {
      for (const char fault : order) {
        if (fault == 'F') Replace();
        if (fault == 'L') Restart("loader");
        if (fault == 'W') LoseWorker();
      }
    });
    if (order.back() == 'W') {
      EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
      EXPECT_THAT(answer.status.error_message(), HasSubstr("file has changed"));
    } else {
      ExpectServed(answer, former_);
      EXPECT_EQ(Status().model_reloads(), 0u);
      // In that order the loader has loaded the file before it changed.
      if (order == "LWF") Restart("loader");
      WaitForNotice("loader no longer has it");
      ExpectServed(Generate(request_), former_);
      LoseWorker();
    }
    EXPECT_EQ(Status().model_reloads(), 1u);
    const Answer next = Generate(request_);
    EXPECT_TRUE(next.status.ok()) << next.status.error_message();
    EXPECT_NE(next.tokens, former_.tokens);
    EXPECT_EQ(Status().model_notice(), "");
    StopCluster();
  }
}

TEST_F(ModelFileTest, AFileThatCannotBeLoadedIsWaitedForUntilItCan) {
  Start();
  fs::rename(File(), models_.path() + "/aside");
  Restart("loader");
  KillService("gpu");
  WaitForStatus("recovering", [](const auto& status) { return status.state() == "recovering"; });
  StartService("gpu");
  WaitForStatus("named", [](const v1::GetStatusResponse& status) {
    return status.detail().find("no GGUF file") != std::string::npos;
  });
  fs::rename(models_.path() + "/aside", File());
  WaitForStatus("ready", [](const auto& status) { return status.state() == "ready"; });
  EXPECT_EQ(Status().model_reloads(), 0u);
  ExpectServed(Generate(request_), former_);
}

}  // namespace
}  // namespace tandem::testing

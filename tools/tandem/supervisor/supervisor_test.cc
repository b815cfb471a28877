#include "tools/tandem/supervisor/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/logging.h"
#include "services/common/metrics/metrics_server.h"
#include "tools/tandem/supervisor/supervisor_metrics.h"

namespace tandem {
namespace {

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    dir_ = std::filesystem::temp_directory_path() / absl::StrFormat("supervisor.%d", getpid());
    std::filesystem::create_directories(dir_);
    options_.handle_signals = false;
    options_.first_delay = absl::Milliseconds(5);
  }
  ~SupervisorTest() override {
    std::error_code ignored;  // a destructor must not throw, whatever a child still does there
    std::filesystem::remove_all(dir_, ignored);
  }

  ServiceSpec Shell(const std::string& name, const std::string& script) {
    ServiceSpec spec;
    spec.process.name = name;
    spec.process.argv = {"/bin/sh", "-c", script};
    spec.process.environment = {{"DIR", dir_.string()}};
    spec.process.log_path = dir_ / (name + ".log");
    return spec;
  }

  std::string Read(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(dir_ / name).rdbuf();
    return text.str();
  }

  // Runs until `done` holds (or ten seconds have passed), then stops and drains.
  absl::Status RunUntil(Supervisor& supervisor, const std::function<bool()>& done) {
    std::thread watcher([&] {
      for (int i = 0; i < 1000 && !done(); ++i) absl::SleepFor(absl::Milliseconds(10));
      supervisor.RequestStop();
    });
    const absl::Status status = supervisor.Run();
    watcher.join();
    return status;
  }
  // Likewise, and 200 ms longer, for a start that must not come.
  absl::Status RunBeyond(Supervisor& supervisor, const std::function<bool()>& done) {
    absl::Time until = absl::InfiniteFuture();
    return RunUntil(supervisor, [&] {
      if (until == absl::InfiniteFuture() && done()) until = absl::Now() + absl::Milliseconds(200);
      return absl::Now() > until;
    });
  }

  std::filesystem::path dir_;
  SupervisorOptions options_;
};

TEST_F(SupervisorTest, RestartsAServiceThatEnds) {
  auto supervisor = Supervisor::Create(
      {Shell("crasher",
             "echo x >> $DIR/starts; [ $(wc -l < $DIR/starts) -lt 4 ] && exit 3; "
             "exec sleep 60")},
      options_);
  ASSERT_TRUE(supervisor.ok());
  ASSERT_TRUE((*supervisor)->Start().ok());
  const absl::Status end = RunUntil(**supervisor, [&] { return Read("starts") == "x\nx\nx\nx\n"; });
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ((*supervisor)->States()[0].restarts, 3);
  const std::string page =
      MetricsText([&](MetricSamples& samples) { AddSupervisorMetrics(**supervisor, samples); });
  EXPECT_NE(page.find("tandem_service_restarts_total{service=\"crasher\"} 3\n"), page.npos) << page;
}

TEST_F(SupervisorTest, LeavesAServiceAloneAfterAFinalExitCode) {
  ServiceSpec spec = Shell("nothing", "echo x >> $DIR/starts; exit 42");
  spec.final_exit_codes = {42};
  auto supervisor = Supervisor::Create({spec}, options_);
  ASSERT_TRUE(supervisor.ok());
  ASSERT_TRUE((*supervisor)->Start().ok());
  EXPECT_TRUE(RunBeyond(**supervisor, [&] { return (*supervisor)->States()[0].finished; }).ok());
  EXPECT_TRUE((*supervisor)->States()[0].finished);
  EXPECT_EQ(Read("starts"), "x\n");
}

TEST_F(SupervisorTest, GoesOnWithoutAServiceWhoseFatalExitCodeIsFinalAndSaysWhy) {
  ServiceSpec spec = Shell("wrong", "echo x >> $DIR/starts; echo answers are wrong >&2; exit 5");
  spec.final_exit_codes = {3, 5};
  spec.fatal_exit_codes = {5};
  auto supervisor = Supervisor::Create({Shell("other", "exec sleep 60"), spec}, options_);
  ASSERT_TRUE(supervisor.ok());
  const int fd = ::open((dir_ / "serve.log").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  CopyLogTo(fd);
  ASSERT_TRUE((*supervisor)->Start().ok());
  EXPECT_TRUE(RunBeyond(**supervisor, [&] { return (*supervisor)->States()[1].finished; }).ok());
  CopyLogTo(-1);
  ::close(fd);
  EXPECT_TRUE((*supervisor)->States()[1].finished);
  EXPECT_FALSE((*supervisor)->States()[0].finished) << "the other was not stopped for it";
  EXPECT_EQ(Read("starts"), "x\n");
  EXPECT_THAT(Read("serve.log"), testing::HasSubstr("cannot run, and is not started again"));
  EXPECT_THAT(Read("serve.log"), testing::HasSubstr("answers are wrong"));
}

TEST_F(SupervisorTest, GivesUpAServiceThatTheOthersCanDoWithout) {
  options_.crash_limit = 3;
  std::vector<std::string> reasons;
  std::atomic<int> num_given_up = 0;
  const auto give_up = [&](const std::string& reason) {
    reasons.push_back(reason);
    ++num_given_up;
  };
  for (const bool ready : {false, true}) {
    reasons.clear();
    num_given_up = 0;
    std::filesystem::remove(dir_ / "loops");
    ServiceSpec unlinked = Shell("unlinked", "echo libxrt.so.2 is missing >&2; exit 127");
    unlinked.fatal_exit_codes = {126, 127};
    unlinked.give_up = give_up;
    ServiceSpec loop = Shell("loop", "echo x >> $DIR/loops; echo it crashed >&2; exit 1");
    loop.give_up = give_up;
    ServiceSpec gone = Shell("gone", "");
    gone.process.argv = {"/nonexistent/tandem-npu-worker"};
    gone.give_up = give_up;
    auto supervisor =
        Supervisor::Create({gone, unlinked, loop, Shell("other", "exec sleep 60")}, options_);
    ASSERT_TRUE(supervisor.ok());
    if (ready) (*supervisor)->MarkReady();
    ASSERT_TRUE((*supervisor)->Start().ok());
    const absl::Status end = RunUntil(**supervisor, [&] { return num_given_up == 3; });
    EXPECT_TRUE(end.ok()) << end;
    EXPECT_EQ(Read("loops"), "x\nx\nx\n");
    EXPECT_THAT(reasons, testing::UnorderedElementsAre(
                             testing::HasSubstr("cannot execute /nonexistent/tandem-npu-worker"),
                             "unlinked cannot run: libxrt.so.2 is missing (exit code 127)",
                             "loop cannot run: it crashed (exit code 1)"));
    const auto states = (*supervisor)->States();
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(states[i].finished) << states[i].name;
    EXPECT_FALSE(states[3].finished);
  }
}

TEST_F(SupervisorTest, AServiceThatTheOthersCanDoWithoutIsStartedAgainOnceItHasWorked) {
  options_.steady_after = absl::Milliseconds(50);
  bool given_up = false;
  ServiceSpec spec = Shell("device",
                           "echo x >> $DIR/starts; [ $(wc -l < $DIR/starts) -gt 1 ] && "
                           "exec sleep 60; sleep 0.2; exit 4");
  spec.fatal_exit_codes = {4};
  spec.give_up = [&given_up](const std::string&) { given_up = true; };
  auto supervisor = Supervisor::Create({spec}, options_);
  ASSERT_TRUE(supervisor.ok());
  ASSERT_TRUE((*supervisor)->Start().ok());
  EXPECT_TRUE(RunUntil(**supervisor, [&] { return Read("starts") == "x\nx\n"; }).ok());
  EXPECT_EQ(Read("starts"), "x\nx\n");
  EXPECT_FALSE(given_up);
}

TEST_F(SupervisorTest, StopsEverythingAtAFatalExitCodeAndSaysWhatTheLogSays) {
  ServiceSpec spec = Shell("broken", "echo x >> $DIR/starts; echo no such device >&2; exit 4");
  spec.fatal_exit_codes = {4};
  auto supervisor = Supervisor::Create({Shell("other", "exec sleep 60"), spec}, options_);
  ASSERT_TRUE(supervisor.ok());
  ASSERT_TRUE((*supervisor)->Start().ok());
  EXPECT_EQ((*supervisor)->Run(),
            absl::FailedPreconditionError("broken cannot run: no such device (exit code 4)"));
  EXPECT_EQ(Read("starts"), "x\n");
  EXPECT_EQ((*supervisor)->States()[0].pid, 0);
}

TEST_F(SupervisorTest, OpensTheCircuitOfACrashLoop) {
  options_.crash_limit = 3;
  auto supervisor = Supervisor::Create({Shell("loop", "echo x >> $DIR/starts; exit 1")}, options_);
  ASSERT_TRUE(supervisor.ok());
  (*supervisor)->MarkReady();
  ASSERT_TRUE((*supervisor)->Start().ok());
  EXPECT_TRUE(RunBeyond(**supervisor, [&] { return Read("starts") == "x\nx\nx\n"; }).ok());
  EXPECT_EQ(Read("starts"), "x\nx\nx\n");
}

TEST_F(SupervisorTest, WhatNeverWorkedIsNotTriedForEver) {
  options_.crash_limit = 3;
  auto supervisor = Supervisor::Create(
      {Shell("loop", "echo x >> $DIR/starts; echo out of memory >&2; kill -9 $$")}, options_);
  ASSERT_TRUE(supervisor.ok());
  ASSERT_TRUE((*supervisor)->Start().ok());
  EXPECT_EQ((*supervisor)->Run(),
            absl::FailedPreconditionError("loop cannot run: out of memory (signal 9 (Killed))"));
  EXPECT_EQ(Read("starts"), "x\nx\nx\n");
}

TEST_F(SupervisorTest, WhatHasWorkedIsStartedAgainHoweverItEnds) {
  ServiceSpec spec = Shell("device",
                           "echo x >> $DIR/starts; [ $(wc -l < $DIR/starts) -lt 2 ] && "
                           "exit 4; exec sleep 60");
  spec.fatal_exit_codes = {4};
  auto supervisor = Supervisor::Create({spec}, options_);
  ASSERT_TRUE(supervisor.ok());
  (*supervisor)->MarkReady();
  ASSERT_TRUE((*supervisor)->Start().ok());
  EXPECT_TRUE(RunUntil(**supervisor, [&] { return Read("starts") == "x\nx\n"; }).ok());
}

TEST_F(SupervisorTest, RotatesWhatServicesPrint) {
  options_.rotation = {.max_bytes = 4096, .num_old = 2};
  auto supervisor = Supervisor::Create(
      {Shell("talker",
             "i=0; while [ $i -lt 500 ]; do echo a line of some thirty letters; "
             "echo and one to the other end >&2; i=$((i+1)); done; echo up > $DIR/up; "
             "exec sleep 60")},
      options_);
  ASSERT_TRUE(supervisor.ok());
  ASSERT_TRUE((*supervisor)->Start().ok());
  EXPECT_TRUE(RunUntil(**supervisor, [&] { return !Read("up").empty(); }).ok());
  supervisor->reset();
  for (const char* name : {"talker.log", "talker.log.1", "talker.log.2"}) {
    EXPECT_GT(Read(name).size(), 0u) << name;
    EXPECT_LE(Read(name).size(), 4096u) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ / "talker.log.3"));
  EXPECT_NE(Read("talker.log").find("other end"), std::string::npos);
}

TEST_F(SupervisorTest, StopsHigherRanksFirst) {
  const std::string script =
      "trap 'echo NAME >> $DIR/order; exit 0' TERM; echo up >> $DIR/NAME.up; "
      "while :; do sleep 0.02; done";
  std::vector<ServiceSpec> specs;
  for (const std::string name : {"loader", "gateway"}) {
    std::string text = script;
    for (size_t at; (at = text.find("NAME")) != std::string::npos;) text.replace(at, 4, name);
    specs.push_back(Shell(name, text));
    specs.back().stop_rank = name == "gateway" ? 2 : 0;
  }
  auto supervisor = Supervisor::Create(specs, options_);
  ASSERT_TRUE(supervisor.ok());
  ASSERT_TRUE((*supervisor)->Start().ok());
  EXPECT_TRUE(RunUntil(**supervisor, [&] {
                return !Read("loader.up").empty() && !Read("gateway.up").empty();
              }).ok());
  EXPECT_EQ(Read("order"), "gateway\nloader\n");
}

TEST_F(SupervisorTest, KillsWhatIgnoresItsGraceAndSaysSo) {
  ServiceSpec spec =
      Shell("deaf", "trap '' TERM; echo up >> $DIR/up; while :; do sleep 0.02; done");
  spec.stop_grace = absl::Milliseconds(100);
  auto supervisor = Supervisor::Create({spec}, options_);
  ASSERT_TRUE(supervisor.ok());
  ASSERT_TRUE((*supervisor)->Start().ok());
  const absl::Status status = RunUntil(**supervisor, [&] { return !Read("up").empty(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*supervisor)->States()[0].pid, 0);
}

TEST_F(SupervisorTest, NamesAnExecutableThatIsMissing) {
  ServiceSpec spec = Shell("gone", "");
  spec.process.argv = {"/nonexistent/tandem-loader"};
  auto supervisor = Supervisor::Create({spec}, options_);
  ASSERT_TRUE(supervisor.ok());
  const absl::Status status = (*supervisor)->Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nonexistent/tandem-loader"), std::string_view::npos);
}

}  // namespace
}  // namespace tandem

// `tandem pull`, `models`, `run` and `rm`, against a hub of the test's own that has the demo model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/base/exit_codes.h"
#include "services/common/pull/testing/fake_hub.h"
#include "services/common/testing/eventually.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/temporary_directory.h"
#include "tools/tandem/commands/testing/child.h"

namespace tandem {
namespace {

using pull::testing::FakeHub;
using pull::testing::TestReply;
using pull::testing::TestRequest;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PullRunTest : public ::testing::Test {
 protected:
  PullRunTest() {
    std::ifstream demo(SourcePath("models/demo/demo.Q8_0.gguf"), std::ios::binary);
    hub_.SetContent({std::istreambuf_iterator<char>(demo), std::istreambuf_iterator<char>()});
    const std::string table = folder_.path() + "/table.json";
    std::ofstream(table)
        << R"({"models": [{"names": ["demo:11m"], "repo": "owner/repo", "file": "model-Q4_0.gguf"}]})";
    ::setenv("TANDEM_MODEL_TABLE", table.c_str(), 1);
    ::setenv("TANDEM_MODELS", (folder_.path() + "/models").c_str(), 1);
    ::setenv("HF_ENDPOINT", hub_.hub().url().c_str(), 1);
    ::setenv("HF_TOKEN", "hf_secret", 1);
    // No gateway of another's is asked.
    ::setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
    ::setenv("TANDEM_ADDRESS", ("unix:" + folder_.path() + "/none.sock").c_str(), 1);
  }
  int Run(const std::vector<std::string>& arguments) {
    Child child(arguments);
    child.CloseInput();
    const int code = child.Wait();
    output_ = child.output();
    errors_ = child.errors();
    EXPECT_THAT(output_ + errors_, Not(HasSubstr("hf_secret")));
    return code;
  }
  bool IsThere() const { return std::filesystem::exists(Path()); }
  std::string Path() const { return folder_.path() + "/models/owner/repo/model-Q4_0.gguf"; }

  FakeHub hub_{8};
  TemporaryDirectory folder_;
  std::string output_, errors_;
};

TEST_F(PullRunTest, AModelIsPulledListedAndRemoved) {
  EXPECT_EQ(Run({"serve", "--model", "demo:11m", "--runtime-dir", folder_.path() + "/run"}),
            kExitUsage);
  EXPECT_THAT(errors_, HasSubstr("`tandem pull demo:11m`"));
  ASSERT_EQ(Run({"pull", "demo:11m"}), 0) << errors_;
  EXPECT_EQ(output_, Path() + "\n");
  EXPECT_THAT(errors_, AllOf(HasSubstr("pulling model-Q4_0.gguf 100%"),
                             HasSubstr("it reads no pictures: owner/repo has no vision encoder"),
                             HasSubstr("tandem serve --model demo:11m")));
  ASSERT_EQ(Run({"models", "--json"}), 0) << errors_;
  const auto pulled = nlohmann::json::parse(output_).at("pulled");
  ASSERT_EQ(pulled.size(), 1u);
  EXPECT_EQ(pulled[0].at("name"), "demo:11m");
  EXPECT_EQ(pulled[0].at("sha256"), FakeHub::Sha256(hub_.content()));
  ASSERT_EQ(Run({"inspect", "demo:11m"}), 0) << errors_;
  EXPECT_THAT(output_, HasSubstr("gemma3"));
  ASSERT_EQ(Run({"models"}), 0) << errors_;
  EXPECT_THAT(output_, HasSubstr("demo:11m"));
  ASSERT_EQ(Run({"rm", "demo:11m"}), 0) << errors_;
  EXPECT_FALSE(IsThere());
  EXPECT_EQ(Run({"rm", "demo:11m"}), kExitFailure);
  EXPECT_THAT(errors_, HasSubstr("demo:11m"));
}

// The encoder's contents are made up, so it is left out when the model is served.
TEST_F(PullRunTest, AModelThatReadsPicturesIsTwoFilesAndOneModel) {
  const std::string name = "mmproj-model-f16.gguf";
  const std::string encoder = FakeHub::MakeContent(1 << 20, 3);
  hub_.SetFile(name, encoder);
  ASSERT_EQ(Run({"pull", "demo:11m", "--mmproj", "none"}), 0) << errors_;
  EXPECT_THAT(errors_, Not(HasSubstr("pictures")));
  EXPECT_EQ(Run({"pull", "demo:11m", "--mmproj", "mmproj-x.gguf"}), kExitFailure);
  EXPECT_THAT(errors_, HasSubstr("it has " + name));
  ASSERT_EQ(Run({"pull", "demo:11m"}), 0) << errors_;
  EXPECT_THAT(errors_, AllOf(HasSubstr("pulling " + name + " 100%"),
                             HasSubstr("it reads pictures with " + name),
                             HasSubstr("warning: pictures are not served")));
  ASSERT_EQ(Run({"models", "--json"}), 0) << errors_;
  const auto pulled = nlohmann::json::parse(output_).at("pulled");
  ASSERT_EQ(pulled.size(), 1u);
  EXPECT_EQ(pulled[0].at("mmproj").at("sha256"), FakeHub::Sha256(encoder));
  ASSERT_EQ(Run({"models"}), 0) << errors_;
  EXPECT_THAT(output_, HasSubstr("yes"));
  ASSERT_EQ(Run({"rm", "demo:11m"}), 0) << errors_;
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path() + "/models"));
}

TEST_F(PullRunTest, NamesAreListedAndWrongOnesAreRefused) {
  ASSERT_EQ(Run({"pull", "--list"}), 0);
  EXPECT_THAT(output_, HasSubstr("demo:11m"));
  EXPECT_EQ(Run({"pull"}), kExitUsage);
  EXPECT_EQ(Run({"pull", "demo:12m"}), kExitFailure);
  EXPECT_THAT(errors_, HasSubstr("demo:11m"));
  for (const char* name : {"../x", "hf:owner/..:x.gguf", "hf:a/b:%2e%2e.gguf"}) {
    EXPECT_EQ(Run({"pull", name}), kExitFailure) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/models"));
}

TEST_F(PullRunTest, CtrlCStopsAPullThatGoesOnLater) {
  std::atomic<int> asked = 0;
  std::atomic<bool> slow = true;
  hub_.Set({.cut_every = 1 << 20});
  const auto hook = hub_.HookCdn([&](const TestRequest&) {
    ++asked;
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (slow && asked > 3 && absl::Now() < until) absl::SleepFor(absl::Milliseconds(10));
    return TestReply{.status = 0};
  });
  Child child({"pull", "demo:11m", "--connections", "1"});
  ASSERT_TRUE(testing::Eventually([&] { return asked >= 4; }));
  child.Signal(SIGINT);
  EXPECT_EQ(child.Wait(), kExitFailure);
  EXPECT_THAT(child.errors(), HasSubstr("`tandem pull demo:11m` goes on"));
  EXPECT_FALSE(IsThere());
  slow = false;
  hub_.Set({});
  const uint64_t before = hub_.cdn().body_bytes();
  ASSERT_EQ(Run({"pull", "demo:11m"}), 0) << errors_;
  EXPECT_THAT(errors_, HasSubstr("are there from before"));
  // 3 MiB had come; the answer that was held back may have been sent to nobody.
  EXPECT_LE(hub_.cdn().body_bytes() - before, hub_.content().size() - (3 << 20) + (1 << 20));
}

TEST_F(PullRunTest, ALicenceToAcceptIsExplained) {
  const auto hook = hub_.HookHub([](const TestRequest&) {
    return TestReply{.status = 403, .fields = {{"X-Error-Code", "GatedRepo"}}};
  });
  EXPECT_EQ(Run({"pull", "demo:11m"}), kExitFailure);
  EXPECT_THAT(errors_, AllOf(HasSubstr("licence"), HasSubstr("/owner/repo")));
}

TEST_F(PullRunTest, RunPullsServesAnswersAndStops) {
  ASSERT_EQ(
      Run({"run", "demo:11m", "--npu", "off", "What", "is", "the", "capital", "of", "Japan?"}), 0)
      << errors_;
  EXPECT_TRUE(IsThere());
  EXPECT_THAT(output_, HasSubstr("Tokyo"));
  EXPECT_THAT(errors_, HasSubstr("not on this machine: pulling it"));
}

}  // namespace
}  // namespace tandem

// --npu auto over real processes: whether an NPU computes prompts, whole, beside the GPU that decodes.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "tests/integration/replicas_fixture.h"

namespace tandem::gateway {
namespace {

using ::testing::StartsWith;

class AutoPromptsTest : public ReplicasFixture {
 protected:
  AutoPromptsTest() { setenv("XDG_CACHE_HOME", directory_.path().c_str(), 1); }

  // Microseconds that each row takes longer in each Ffn of a worker from now on.
  void Delay(const std::string& worker, int microseconds) {
    const std::string path = DelayFile(worker);
    std::ofstream(path + ".new") << microseconds;
    std::filesystem::rename(path + ".new", path);
  }
  void Start(const std::string& name, int microseconds, const std::string& driver = "1.0") {
    Delay(name, microseconds);
    std::vector<std::string> flags = {"--ffn-delay", DelayFile(name), "--delay-by-row", "--driver",
                                      driver};
    if (name == "npu0") flags.push_back("--layers");
    StartWorker(name, "unix:" + Socket(name), flags);
  }
  void LaunchAuto() {
    GatewayFlags flags = Flags({"gpu0"}, NpuPolicy::kAuto);
    flags.executor.npu_targets = {"unix:" + Socket("npu0")};
    flags.executor.choice.sustain = absl::Milliseconds(300);
    flags.executor.choice.steps = 4;
    flags.executor.choice.first_pause = absl::Seconds(3);
    flags.executor.npu_layers = false;  // an NPU that is faster should have some of them
    Launch(flags);
  }
  // Answers until a placement is in force that begins so, with so many replicas that are all ready.
  // An NPU that is left is tried again after a pause, and each next pause is twice as long: so one
  // is long enough to be seen.
  void AnswerUntil(const std::string& placement, int num_replicas,
                   const std::vector<std::vector<uint32_t>>& expected) {
    const auto there = [&] {
      const v1::GetStatusResponse status = Status();
      return InForce().starts_with(placement) && status.replicas_size() == num_replicas &&
             std::ranges::all_of(status.replicas(), [](const v1::ReplicaStatus& replica) {
               return replica.state() == "ready";
             });
    };
    const absl::Time patience = absl::Now() + absl::Minutes(2);
    while (!there()) {
      ASSERT_LT(absl::Now(), patience) << placement << " is not in force, but " << InForce();
      ASSERT_EQ(Answers(), expected);
    }
  }
  std::string InForce() const {
    const v1::GetStatusResponse status = Status();
    for (const v1::PlacementStatus& placement : status.placements()) {
      if (placement.in_force()) return placement.placement();
    }
    return "none of several";
  }

 private:
  std::string DelayFile(const std::string& worker) const {
    return directory_.path() + "/" + worker + ".delay";
  }
};

TEST_F(AutoPromptsTest, PromptsGoToAnNpuThatIsFasterAndComeBackWhenItIsNot) {
  StartLoader();
  Start("gpu0", 200);
  Start("npu0", 0);
  LaunchAuto();
  // Measured anew where this machine stalled meanwhile.
  for (int i = 0; i < 3 && !InForce().starts_with("prompts: "); ++i) {
    StopServing();
    std::filesystem::remove(directory_.path() + "/tandem/placements.json");
    LaunchAuto();
  }
  EXPECT_THAT(InForce(), StartsWith("prompts: Embed and Head on gpu0"));
  ASSERT_TRUE(Eventually([&] { return Status().replicas_size() == 2; }));
  AwaitReady(1);
  EXPECT_EQ(Status().replicas(0).role(), "decode");
  EXPECT_EQ(Status().replicas(1).role(), "prompts");
  const auto expected = Answers();
  EXPECT_GT(Status().replicas(1).handed_over(), 0u);

  // The NPU is slow: the GPU does it all, and no stream notices.
  Delay("npu0", 1'000);
  AnswerUntil("everything on gpu0", 0, expected);  // one is no list
  EXPECT_EQ(Status().recoveries(), 0u) << "the plan that decodes is the same";

  Delay("npu0", 0);
  AnswerUntil("prompts: ", 2, expected);
  EXPECT_EQ(Answers(), expected);
}

TEST_F(AutoPromptsTest, ASlowNpuComputesNoPromptsAndTheMeasurementIsKept) {
  StartLoader();
  Start("gpu0", 0);
  Start("npu0", 400);
  LaunchAuto();
  v1::GetStatusResponse status = Status();
  ASSERT_GE(status.placements_size(), 3);
  EXPECT_TRUE(std::ranges::any_of(status.placements(), [](const v1::PlacementStatus& placement) {
    return placement.placement().starts_with("prompts: ");
  }));
  EXPECT_THAT(InForce(), ::testing::Not(StartsWith("prompts: ")));
  EXPECT_EQ(status.replicas_size(), 0);
  const auto expected = Answers();
  StopServing();

  // No longer true, and not measured again.
  Delay("gpu0", 400);
  Delay("npu0", 0);
  LaunchAuto();
  EXPECT_EQ(Status().placements_size(), status.placements_size());
  EXPECT_THAT(InForce(), ::testing::Not(StartsWith("prompts: ")));
  EXPECT_EQ(Answers(), expected);
}

TEST_F(AutoPromptsTest, WithoutAnNpuTheGpuServesAlone) {
  StartLoader();
  Start("gpu0", 0);
  LaunchAuto();
  EXPECT_EQ(Status().placements_size(), 0);
  EXPECT_EQ(Status().replicas_size(), 0);
  const auto expected = Answers();
  // It comes, does whole layers, and is faster.  Where this machine stalled while that was measured it
  // comes again with another driver, and is measured anew.
  Delay("gpu0", 200);
  const auto computes_prompts = [&] { return Status().replicas_size() == 2; };
  for (int driver = 1; driver <= 3 && !computes_prompts(); ++driver) {
    workers_.erase("npu0");
    Start("npu0", 0, absl::StrFormat("%d.0", driver));
    (void)Eventually(computes_prompts, absl::Seconds(30));
  }
  ASSERT_TRUE(computes_prompts()) << InForce();
  AwaitReady(1);
  EXPECT_EQ(Answers(), expected);
}

}  // namespace
}  // namespace tandem::gateway

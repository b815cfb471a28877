#include "services/gateway/replica_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPattern[] = "tls://w-{}.workers:7001";

class ReplicaNamesTest : public ::testing::Test {
 protected:
  std::vector<std::string> Workers() const {
    std::vector<std::string> workers;
    for (const ReplicaWorkers& replica : names_.replicas()) {
      EXPECT_EQ(replica.workers.size(), 1u);
      workers.push_back(replica.workers.front());
    }
    return workers;
  }

  std::set<std::string> there_;
  NameAnswer otherwise_ = NameAnswer::kGone;
  ReplicaNames names_{kPattern, [this](const std::string& target) {
                        return there_.contains(target) ? NameAnswer::kThere : otherwise_;
                      }};
};

std::string Target(int number) { return "tls://w-" + std::to_string(number) + ".workers:7001"; }

TEST_F(ReplicaNamesTest, NumberZeroIsWaitedForUntilAnotherIsThere) {
  EXPECT_THAT(Workers(), ElementsAre(Target(0)));
  EXPECT_FALSE(names_.Look());
  EXPECT_FALSE(names_.found());
  EXPECT_THAT(Workers(), ElementsAre(Target(0)));
  there_ = {Target(2)};
  EXPECT_TRUE(names_.Look());
  EXPECT_TRUE(names_.found());
  EXPECT_THAT(Workers(), ElementsAre(Target(2)));
}

TEST_F(ReplicaNamesTest, ThatNumberZeroIsThereAtLastIsAChange) {
  EXPECT_FALSE(names_.Look());
  there_ = {Target(0)};
  EXPECT_TRUE(names_.Look());
  EXPECT_FALSE(names_.Look());
}

TEST_F(ReplicaNamesTest, AllThatAreThereAreFoundAtOnceWithTwoMissingBetween) {
  there_ = {Target(0), Target(1), Target(4), Target(5), Target(9)};
  EXPECT_TRUE(names_.Look());
  EXPECT_THAT(Workers(), ElementsAre(Target(0), Target(1), Target(4), Target(5)));
  EXPECT_FALSE(names_.Look()) << "nothing is new";
}

TEST_F(ReplicaNamesTest, OneLeavesWhenItWasGoneAtThreeLooksInARow) {
  there_ = {Target(0), Target(1)};
  names_.Look();
  there_ = {Target(0)};
  EXPECT_FALSE(names_.Look());
  EXPECT_FALSE(names_.Look());
  there_.insert(Target(1));
  EXPECT_FALSE(names_.Look());
  there_.erase(Target(1));
  EXPECT_FALSE(names_.Look());
  EXPECT_FALSE(names_.Look());
  EXPECT_TRUE(names_.Look());
  EXPECT_THAT(Workers(), ElementsAre(Target(0)));
}

TEST_F(ReplicaNamesTest, NothingChangesWhileNobodyAnswersOrAllAreGone) {
  there_ = {Target(0), Target(1)};
  names_.Look();
  there_.clear();
  otherwise_ = NameAnswer::kUnknown;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(names_.Look());
  otherwise_ = NameAnswer::kGone;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(names_.Look());
  EXPECT_THAT(Workers(), ElementsAre(Target(0), Target(1)));
}

TEST_F(ReplicaNamesTest, NamesWithoutEndAreBounded) {
  ReplicaNames endless(kPattern, [](const std::string&) { return NameAnswer::kThere; });
  EXPECT_TRUE(endless.Look());
  EXPECT_EQ(endless.replicas().size(), 256u);
}

TEST(ReplicaNamesWatchTest, TellsOfAChangeAndEnds) {
  std::vector<std::string> told;
  absl::BlockingCounter one(1);
  {
    const ReplicaNamesWatch watch(
        ReplicaNames(kPattern,
                     [](const std::string& target) {
                       return target == Target(1) ? NameAnswer::kThere : NameAnswer::kGone;
                     }),
        absl::Milliseconds(1), [&](const std::vector<ReplicaWorkers>& replicas) {
          for (const ReplicaWorkers& replica : replicas) told.push_back(replica.key());
          one.DecrementCount();
        });
    one.Wait();
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_THAT(told, ElementsAre(Target(1))) << "once";
}

TEST(CheckReplicaNamesTest, SaysWhatIsWrong) {
  const auto refusal = [](const std::string& pattern) {
    return std::string(CheckReplicaNames(pattern).message());
  };
  for (const char* good : {kPattern, "tcp://{}.w:1", "unix:/run/tandem/gpu{}.sock"}) {
    EXPECT_EQ(refusal(good), "") << good;
  }
  EXPECT_THAT(refusal("tls://w.workers:7001"), HasSubstr("must have one {}"));
  EXPECT_THAT(refusal("tls://w-{}.{}:7001"), HasSubstr("must have one {}"));
  EXPECT_THAT(refusal("tls://w-{}"), HasSubstr("must be unix:PATH or HOST:PORT"));
  EXPECT_THAT(refusal("tls://workers:70{}"), HasSubstr("not in its port"));
  EXPECT_THAT(refusal("workers:70{}"), HasSubstr("not in its port"));
}

TEST(LookUpTest, KnowsSocketsAndHosts) {
  const TemporaryDirectory folder;
  const std::string socket = folder.path() + "/gpu0.sock";
  EXPECT_EQ(LookUp("unix:" + socket), NameAnswer::kGone);
  std::ofstream(socket) << "";
  EXPECT_EQ(LookUp("unix:" + socket), NameAnswer::kThere);
  EXPECT_EQ(LookUp("tls://localhost:7001"), NameAnswer::kThere);
  // RFC 6761: nobody may answer that it is there.
  EXPECT_NE(LookUp("tls://w-0.invalid:7001"), NameAnswer::kThere);
}

}  // namespace
}  // namespace tandem::gateway

#include "services/gateway/placement/costs_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem::gateway {
namespace {

PlacementCosts Costs(double seconds) {
  const StepSeconds step = {.device = {seconds, 2 * seconds}, .other = seconds / 4};
  return {
      .prompt_rows = 256, .streams = 16, .depth = 1024, .prompt = step, .lone = step, .full = step};
}

class CostsFileTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) const { std::ofstream(path_) << text; }

  const TemporaryDirectory folder_;
  const std::string path_ = folder_.path() + "/placements.json";
  const CostsFile file_{path_};
};

TEST_F(CostsFileTest, KeepsWhatWasPut) {
  const CostsFile deeper(folder_.path() + "/a/b/placements.json");
  for (const CostsFile* file : {&file_, &deeper}) {
    EXPECT_FALSE(file->Find("one", 2).has_value());
    ASSERT_OK(file->Put("one", Costs(0.5)));
    ASSERT_OK(file->Put("two", Costs(3.0)));
    const auto found = file->Find("one", 2);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->prompt_rows, 256u);
    EXPECT_EQ(found->streams, 16u);
    EXPECT_EQ(found->depth, 1024u);
    EXPECT_EQ(found->lone.device, (std::vector<double>{0.5, 1.0}));
    EXPECT_EQ(found->full.other, 0.125);
    EXPECT_EQ(file->Find("two", 2)->prompt.device[0], 3.0);
  }
}

TEST_F(CostsFileTest, PowerIsKeptWhereItWasMeasured) {
  PlacementCosts costs = Costs(0.5);
  ASSERT_OK(file_.Put("without", costs));
  for (StepSeconds* step : {&costs.prompt, &costs.lone, &costs.full}) step->watts = {45.5, 0.0};
  ASSERT_OK(file_.Put("with", costs));
  const auto without = file_.Find("without", 2), with = file_.Find("with", 2);
  ASSERT_TRUE(without.has_value() && with.has_value());
  EXPECT_FALSE(PowerMeasured(*without));
  ASSERT_TRUE(PowerMeasured(*with));
  EXPECT_EQ(with->lone.watts, (std::vector<double>{45.5, 0.0}));
  EXPECT_EQ(WorkersWithoutPower(*with), (std::vector<size_t>{1}));
  for (const std::vector<double>& wrong :
       {std::vector<double>{45.5}, {1.0, 2.0, 3.0}, {-1.0, 2.0}}) {
    costs.lone.watts = wrong;
    ASSERT_OK(file_.Put("wrong", costs));
    EXPECT_FALSE(file_.Find("wrong", 2).has_value());
  }
}

TEST_F(CostsFileTest, AnotherNumberOfWorkersIsAnotherPlacement) {
  ASSERT_OK(file_.Put("one", Costs(0.5)));
  EXPECT_FALSE(file_.Find("one", 1).has_value());
  EXPECT_FALSE(file_.Find("one", 3).has_value());
}

TEST_F(CostsFileTest, ADamagedFileIsEmptyAndIsReplaced) {
  ASSERT_OK(file_.Put("one", Costs(0.5)));
  std::ifstream stream(path_);
  const std::string good((std::istreambuf_iterator<char>(stream)), {});
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[1]"), std::string(R"({"version":1})"),
        std::string(R"({"version":2,"placements":{"one":{}}})"),
        std::string(R"({"version":1,"placements":{"one":{"prompt_rows":"x"}}})"),
        std::string(R"({"version":1,"placements":[]})"), good.substr(0, good.size() / 2)}) {
    Write(bad);
    EXPECT_FALSE(file_.Find("one", 2).has_value()) << bad;
    ASSERT_OK(file_.Put("two", Costs(1.0)));
    EXPECT_TRUE(file_.Find("two", 2).has_value()) << bad;
  }
}

TEST_F(CostsFileTest, TimesThatCannotBeAreNotTaken) {
  for (const double seconds : {-1.0, 0.0}) {
    ASSERT_OK(file_.Put("one", Costs(seconds)));
    EXPECT_FALSE(file_.Find("one", 2).has_value()) << seconds;
  }
}

TEST_F(CostsFileTest, TheOldestKeysGo) {
  for (int i = 0; i < 70; ++i) ASSERT_OK(file_.Put(absl::StrFormat("key %d", i), Costs(1.0)));
  EXPECT_FALSE(file_.Find("key 5", 2).has_value());
  EXPECT_TRUE(file_.Find("key 6", 2).has_value());
  EXPECT_TRUE(file_.Find("key 69", 2).has_value());
}

TEST_F(CostsFileTest, WithoutAPathNothingIsKept) {
  const CostsFile none("");
  EXPECT_OK(none.Put("one", Costs(1.0)));
  EXPECT_FALSE(none.Find("one", 2).has_value());
}

TEST_F(CostsFileTest, AFolderThatCannotBeWrittenIsNamed) {
  const CostsFile file("/proc/nowhere/placements.json");
  EXPECT_THAT(file.Put("one", Costs(1.0)),
              testing::StatusIs(absl::StatusCode::kUnavailable,
                                ::testing::HasSubstr("/proc/nowhere/placements.json")));
}

}  // namespace
}  // namespace tandem::gateway

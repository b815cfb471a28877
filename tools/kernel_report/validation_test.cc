// Files of measurements, and the predictions' error.
#include "tools/kernel_report/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "services/common/testing/paths.h"
#include "tools/kernel_report/chip.h"

namespace tandem::report {
namespace {

using ::testing::HasSubstr;

ValidatedStep Step(double measured, double predicted) {
  return {{.model = "synthetic:gemma3-1b?type=q4_0&seed=1",
           .max_rows = 128,
           .batch = 8,
           .tokens_per_second = measured},
          {.tokens = predicted, .seconds = 1, .at_best = 0.5, .bound = "memory"}};
}

TEST(ValidationTest, TheErrorIsOfTheMeasuredFigure) {
  const std::vector<ValidatedStep> steps = {Step(100, 130), Step(200, 180), Step(50, 52)};
  EXPECT_NEAR(steps[0].Error(), 0.3, 1e-9);
  EXPECT_NEAR(steps[1].Error(), -0.1, 1e-9);
  const ErrorSummary summary = Summarise(steps);
  EXPECT_NEAR(summary.median, 0.1, 1e-9);
  EXPECT_NEAR(summary.largest, 0.3, 1e-9);
  EXPECT_NEAR(summary.bias, 0.04, 1e-9);
  const std::string text = ValidationAsMarkdown({.chip = "h200", .source = "s"}, steps);
  EXPECT_THAT(text, HasSubstr("| gemma3-1b q4_0 | tg b8 | 100 | 130 | +30% | 260 | memory |"));
  EXPECT_THAT(text, HasSubstr("10% in the median and at most 30%; its bias is +4%"));
}

TEST(ValidationTest, TheH200sMeasurementsAreAFile) {
  std::ifstream file(SourcePath("tools/kernel_report/h200.json"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto measurements = ParseMeasurements(text, "h200.json");
  ASSERT_TRUE(measurements.ok()) << measurements.status();
  EXPECT_TRUE(FindChip(measurements->chip).ok());
  EXPECT_GE(measurements->steps.size(), 30u);
  EXPECT_EQ(measurements->steps[0].Name(), "tg");
}

TEST(ValidationTest, AFileThatIsNoneIsNamedWithTheReason) {
  for (const char* text :
       {"", "[]", "{}", R"({"chip":"h200","source":"s","median_error":0.1,"steps":[]})",
        R"({"chip":"h200","source":"s","median_error":0.1,
                               "steps":[{"model":"m","max_rows":128,"tokens_per_second":0}]})"}) {
    const auto measurements = ParseMeasurements(text, "m.json");
    EXPECT_EQ(measurements.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(measurements.status().message()), HasSubstr("m.json")) << text;
  }
}

}  // namespace
}  // namespace tandem::report

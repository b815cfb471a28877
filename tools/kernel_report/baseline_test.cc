// What fails a build: spills, scratch memory, a missing instruction, estimates that got worse.
#include "tools/kernel_report/baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

KernelFacts GoodMatrixKernel() {
  KernelFacts facts{.name = "tiled_rows[HEAD_DIM=256]",
                    .kernel = gpu::KernelId::kTiledRows,
                    .compiled = true,
                    .vgprs = 192,
                    .waves_per_simd = 5,
                    .latency = 1000,
                    .inverse_throughput = 2000};
  facts.assembly.all.matrix = 32;
  return facts;
}

std::vector<ModelReport> Reports(const std::vector<KernelFacts>& kernels) {
  return {
      {.chip = *FindChip("phoenix"), .model = "m", .driver = "Mesa 25.0.7", .kernels = kernels}};
}

std::vector<std::string> Faults(const KernelFacts& before, const KernelFacts& now) {
  const auto check = CompareWithBaseline(MakeBaseline(Reports({before})), "b.json", Reports({now}));
  EXPECT_TRUE(check.ok()) << check.status();
  EXPECT_EQ(check->note, "");
  return check->faults;
}

TEST(BaselineTest, TakesWhatIsAlikeOrUpToATwentiethWorse) {
  KernelFacts now = GoodMatrixKernel();
  EXPECT_THAT(Faults(GoodMatrixKernel(), now), IsEmpty());
  now.latency = 1050;
  now.inverse_throughput = 1000;
  now.vgprs = 250;  // what counts is the subgroups
  EXPECT_THAT(Faults(GoodMatrixKernel(), now), IsEmpty());
}

TEST(BaselineTest, NamesEveryFigureThatGotWorse) {
  KernelFacts now = GoodMatrixKernel();
  now.latency = 1051;
  now.waves_per_simd = 4;
  EXPECT_THAT(
      Faults(GoodMatrixKernel(), now),
      ElementsAre("phoenix: tiled_rows[HEAD_DIM=256]: subgroups a SIMD 4, 5 in the baseline",
                  "phoenix: tiled_rows[HEAD_DIM=256]: latency 1051, 1000 in the baseline"));
}

TEST(BaselineTest, NamesKernelsThatCameOrWent) {
  KernelFacts other = GoodMatrixKernel();
  other.name = "tiled_rows[HEAD_DIM=128]";
  EXPECT_THAT(Faults(GoodMatrixKernel(), other),
              ElementsAre(HasSubstr("[HEAD_DIM=128]: not in the baseline"),
                          HasSubstr("[HEAD_DIM=256]: in the baseline, and no longer made")));
}

TEST(BaselineTest, ComparesOneCompilersFiguresAlone) {
  std::vector<ModelReport> newer = Reports({GoodMatrixKernel()});
  newer[0].driver = "Mesa 25.0.9";
  newer[0].kernels[0].latency = 1 << 20;
  const auto check =
      CompareWithBaseline(MakeBaseline(Reports({GoodMatrixKernel()})), "b.json", newer);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_THAT(check->faults, IsEmpty());
  EXPECT_THAT(check->note, HasSubstr("is of Mesa 25.0.7, this is Mesa 25.0.9"));
}

TEST(BaselineTest, RefusesOtherFilesByName) {
  for (const char* text :
       {"", "[]", "{}", R"({"driver": 1, "chips": {}})",
        R"({"driver": "Mesa 25.0.7", "chips": {"phoenix": {"tiled_rows[HEAD_DIM=256]": [1]}}})",
        R"({"driver": "Mesa 25.0.7",
            "chips": {"phoenix": {"tiled_rows[HEAD_DIM=256]": [1, 2, 3, 4, "5"]}}})"}) {
    const auto check = CompareWithBaseline(text, "b.json", Reports({GoodMatrixKernel()}));
    EXPECT_EQ(check.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(check.status().message()), HasSubstr("b.json")) << text;
  }
}

TEST(FaultsTest, NamesSpillsScratchMemoryAndMissingInstructions) {
  EXPECT_THAT(FaultsOf(GoodMatrixKernel()), IsEmpty());
  KernelFacts facts = GoodMatrixKernel();
  facts.spilled_vgprs = 604;
  facts.spilled_sgprs = 3;
  facts.scratch_bytes = 53760;
  facts.assembly.all.matrix = 0;
  EXPECT_THAT(FaultsOf(facts),
              ElementsAre(HasSubstr("604 vector registers"), HasSubstr("3 scalar registers"),
                          HasSubstr("53760 bytes of scratch"), HasSubstr("no matrix instruction")));
}

TEST(FaultsTest, TheMatrixProbeNeedsNoProduct) {
  KernelFacts probe = GoodMatrixKernel();
  probe.kernel = gpu::KernelId::kCoopProbe;
  probe.assembly.all.matrix = 0;
  EXPECT_THAT(FaultsOf(probe), IsEmpty());
}

TEST(ChipTest, IsKnownByNameAndByItsCard) {
  EXPECT_EQ(FindChip("phoenix")->title, "Radeon 780M");
  EXPECT_EQ(FindChip("780M")->name, "phoenix");
  EXPECT_EQ(FindChip("Radeon 8060S")->name, "gfx1151");
  EXPECT_THAT(std::string(FindChip("radeon 9").status().message()), HasSubstr("gfx1150"));
}

}  // namespace
}  // namespace tandem::report

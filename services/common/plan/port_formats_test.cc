#include "services/common/plan/port_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "services/common/plan/alternatives.h"
#include "services/common/plan/planner_test_workers.h"

namespace tandem {
namespace {

using planner_test::Config;
using planner_test::Gpu;
using planner_test::MustPlan;
using planner_test::Npu;
using ::testing::HasSubstr;

constexpr DType kF16 = DType::kF16, kBf16 = DType::kBf16;

WorkerDescription GpuWith(std::vector<DType> matrix_ports, const std::string& name = "gpu0") {
  WorkerDescription worker = Gpu(name);
  worker.matrix_port_dtypes = std::move(matrix_ports);
  return worker;
}
// One that also runs Out, with the same formats.
WorkerDescription NpuWith(const std::vector<DType>& ports, const std::string& name = "npu0") {
  WorkerDescription worker = Npu(name);
  worker.attend_port_dtypes = worker.matrix_port_dtypes = ports;
  return worker;
}

DType Chosen(const std::vector<WorkerDescription>& workers, const PlacementPolicy& policy = {}) {
  return MustPlan(Config(6, 64), workers, policy).port_dtype;
}

TEST(PortFormatsTest, TheFormatIsWhatAttendPrefersOfWhatBothSidesHave) {
  EXPECT_EQ(Chosen({GpuWith({kF16, kBf16}), NpuWith({kBf16, kF16})}), kBf16);
  EXPECT_EQ(Chosen({GpuWith({kF16, kBf16}), NpuWith({kF16, kBf16})}), kF16);
  EXPECT_EQ(Chosen({GpuWith({kF16}), NpuWith({kBf16, kF16})}), kF16);
  EXPECT_EQ(Chosen({GpuWith({}), NpuWith({kBf16, kF16})}), kF16) << "an empty list is float16";
  EXPECT_EQ(Chosen({GpuWith({kF16, kBf16}), NpuWith({})}), kF16);
}

TEST(PortFormatsTest, EveryWorkerOfThePlanHasTheFormat) {
  PlacementPolicy policy = {.num_gpus = 2};
  const auto npu = NpuWith({kBf16, kF16});
  EXPECT_EQ(Chosen({GpuWith({kF16, kBf16}), GpuWith({kF16, kBf16}, "gpu1"), npu}, policy), kBf16);
  EXPECT_EQ(Chosen({GpuWith({kF16, kBf16}), GpuWith({kF16}, "gpu1"), npu}, policy), kF16);
  policy.num_gpus = 1;
  EXPECT_EQ(Chosen({GpuWith({kF16, kBf16}), GpuWith({kF16}, "gpu1"), npu}, policy), kBf16)
      << "gpu1 has no stage";
  EXPECT_EQ(Chosen({GpuWith({kF16, kBf16}), npu, NpuWith({kF16}, "npu1")}), kF16);
}

TEST(PortFormatsTest, WhereNoSuchPortCrossesItIsFloat16) {
  EXPECT_EQ(Chosen({GpuWith({kF16, kBf16}), NpuWith({kBf16, kF16})}, {.npu = NpuPolicy::kOff}),
            kF16);
  WorkerDescription npu = NpuWith({kBf16, kF16});
  npu.stages = {StageKind::kQkv, StageKind::kAttend, StageKind::kOut, StageKind::kFfn};
  EXPECT_EQ(Chosen({GpuWith({kF16, kBf16}), npu}, {.layers_on_npu = true}), kF16);
}

TEST(PortFormatsTest, OutOnTheNpuLeavesQAndKAndVToCross) {
  EXPECT_EQ(Chosen({GpuWith({kF16, kBf16}), NpuWith({kBf16, kF16})}, {.out_on_npu = true}), kBf16);
  EXPECT_EQ(Chosen({GpuWith({kF16}), NpuWith({kBf16, kF16})}, {.out_on_npu = true}), kF16);
}

TEST(PortFormatsTest, EveryAlternativeHasItsOwn) {
  const auto plans =
      MakeAlternatives(Config(6, 64), {kBf16}, {GpuWith({kF16, kBf16}), NpuWith({kBf16, kF16})},
                       {.npu = NpuPolicy::kAuto});
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_EQ(plans->size(), 3u);
  EXPECT_EQ((*plans)[0].port_dtype, kBf16);
  EXPECT_EQ((*plans)[1].port_dtype, kBf16);
  EXPECT_EQ((*plans)[2].port_dtype, kF16) << "the GPU alone";
}

TEST(PortFormatsTest, AFormatThatAWorkerDoesNotHaveIsRefusedByName) {
  const Segment attend = {.inputs = InputsOf(StageKind::kAttend),
                          .outputs = OutputsOf(StageKind::kAttend)};
  const Segment matrices = {.inputs = OutputsOf(StageKind::kAttend),
                            .outputs = OutputsOf(StageKind::kQkv)};
  const Segment whole = {.inputs = static_cast<PortMask>(Port::kResidual),
                         .outputs = static_cast<PortMask>(Port::kResidual)};
  const WorkerDescription gpu = GpuWith({kF16, kBf16});
  EXPECT_TRUE(CheckPortDType(gpu, {{matrices, whole}}, kBf16).ok());
  EXPECT_TRUE(CheckPortDType(gpu, {{whole, attend}}, kF16).ok());
  const absl::Status refused = CheckPortDType(gpu, {{matrices, attend}}, kBf16);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("gpu0: ports of Attend are f16, the plan has bf16"));
  EXPECT_THAT(std::string(CheckPortDType(NpuWith({kF16}), {{matrices}}, kBf16).message()),
              HasSubstr("npu0: ports of Qkv and Out are f16, the plan has bf16"));
}

}  // namespace
}  // namespace tandem

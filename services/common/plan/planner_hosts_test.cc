// Plans over several hosts: ranges of whole layers, and nothing else, on another host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/common/plan/planner_test_workers.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using namespace planner_test;  // NOLINT(google-build-using-namespace)

WorkerDescription Remote(WorkerDescription worker) {
  worker.remote = true;
  return worker;
}
WorkerDescription RemoteGpu(const std::string& name = "gpu1") { return Remote(Gpu(name)); }

// Of a worker on another host: one segment for each of its ranges, which begins with Embed or Qkv,
// ends with Ffn or Head, and exchanges only the residual.
void ExpectWholeLayersAbroad(const Plan& plan, uint32_t num_layers) {
  for (const Segment& segment : plan.segments) {
    if (!plan.workers[segment.worker].remote) continue;
    const StageKind first = StageAt(segment.first_ordinal, num_layers).kind;
    const StageKind last = StageAt(segment.last_ordinal, num_layers).kind;
    EXPECT_TRUE(first == StageKind::kEmbed || first == StageKind::kQkv) << segment.index;
    EXPECT_TRUE(last == StageKind::kFfn || last == StageKind::kHead) << segment.index;
    const PortMask residual = kNone | Port::kResidual;
    EXPECT_EQ(segment.inputs, first == StageKind::kEmbed ? kNone : residual);
    EXPECT_EQ(segment.outputs, last == StageKind::kHead ? kNone : residual);
  }
}

TEST(PlannerHostsTest, LayersAreSplitBetweenTwoHosts) {
  const ModelConfig config = Config(12, 64);
  const Plan plan = MustPlan(config, {Gpu(), RemoteGpu()}, {.npu = NpuPolicy::kOff, .num_gpus = 0});
  ASSERT_EQ(plan.segments.size(), 2u);
  ExpectWholeLayersAbroad(plan, 12);
  EXPECT_EQ(DescribeSegment(plan.segments[1], 12), "Qkv(6)..Head");
  EXPECT_EQ(DescribePlacement(plan, config),
            "layers 6-11 and Head on gpu1 (llvmpipe, another host), the rest on gpu0 (llvmpipe)");
}

TEST(PlannerHostsTest, MemoryDecidesHowManyLayersEachTakes) {
  WorkerDescription small = Gpu(), large = RemoteGpu();
  small.memory_bytes = uint64_t{16} << 30;
  large.memory_bytes = uint64_t{48} << 30;
  const Plan plan =
      MustPlan(Config(12, 64), {small, large}, {.npu = NpuPolicy::kOff, .num_gpus = 0});
  EXPECT_EQ(DescribeSegment(plan.segments[1], 12), "Qkv(3)..Head");
}

TEST(PlannerHostsTest, AHybridHereAndAGpuAbroadShareTheLayers) {
  const ModelConfig config = Config(6, 128);
  const Plan plan = MustPlan(config, {Gpu(), Npu(), RemoteGpu()}, {.num_gpus = 0});
  // Layers 0-2 as NPU and GPU share them, then layers 3-5 in one call.
  ASSERT_EQ(plan.segments.size(), 2u * 3 + 2);
  ExpectWholeLayersAbroad(plan, 6);
  EXPECT_EQ(DescribeSegment(plan.segments[5], 6), "Attend(2)");
  EXPECT_EQ(DescribeSegment(plan.segments[6], 6), "Out(2)+Ffn(2)");
  EXPECT_EQ(plan.segments[6].outputs, kNone | Port::kResidual);
  EXPECT_EQ(DescribeSegment(plan.segments[7], 6), "Qkv(3)..Head");
  EXPECT_EQ(plan.notice,
            "Attend of 3 of 6 layers runs on the GPU: they are on another host than npu0");
  // The other way round: the answer comes back to the host of the NPU.
  const Plan back = MustPlan(config, {RemoteGpu(), Gpu(), Npu()}, {.num_gpus = 0});
  ASSERT_EQ(back.segments.size(), 1 + 2u * 3 + 1);
  ExpectWholeLayersAbroad(back, 6);
  EXPECT_EQ(DescribeSegment(back.segments[0], 6), "Embed..Ffn(2)");
  EXPECT_EQ(DescribeSegment(back.segments[1], 6), "Qkv(3)");
  EXPECT_EQ(back.segments[1].inputs, kNone | Port::kResidual);
}

TEST(PlannerHostsTest, OutOnTheNpuHoldsForItsOwnHostAlone) {
  const Plan plan =
      MustPlan(Config(4, 128), {Gpu(), Npu(), RemoteGpu()}, {.out_on_npu = true, .num_gpus = 0});
  ExpectWholeLayersAbroad(plan, 4);
  EXPECT_EQ(DescribeSegment(plan.segments[1], 4), "Attend(0)+Out(0)");
}

TEST(PlannerHostsTest, AnNpuOnAnotherHostIsLeftOut) {
  const auto alone = MakePlan(Config(4, 128), {}, {Remote(Npu())}, {});
  EXPECT_EQ(alone.status().code(), absl::StatusCode::kFailedPrecondition);
  const Plan plan = MustPlan(Config(4, 128), {Gpu(), Remote(Npu())}, {});
  EXPECT_EQ(plan.segments.size(), 1u);
  EXPECT_EQ(plan.notice,
            "Attend runs on the GPU: npu0 is on another host, and attention alone does not cross "
            "hosts");
  const auto required = MakePlan(Config(4, 128), {DType::kBf16}, {Gpu(), Remote(Npu())},
                                 {.npu = NpuPolicy::kRequire});
  EXPECT_THAT(std::string(required.status().message()), HasSubstr("npu0 is on another host"));
}

TEST(PlannerHostsTest, RequireIsNotMetByAnNpuThatHasNothingToDo) {
  const std::vector<LayerRange> all_abroad = {{"gpu1", 0, 3}};
  const auto required = MakePlan(Config(4, 128), {DType::kBf16}, {Gpu(), Npu(), RemoteGpu()},
                                 {.npu = NpuPolicy::kRequire, .layers = all_abroad});
  EXPECT_EQ(required.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(required.status().message()),
              HasSubstr("every layer is on another host than npu0"));
  const Plan preferred =
      MustPlan(Config(4, 128), {Gpu(), Npu(), RemoteGpu()}, {.layers = all_abroad});
  EXPECT_EQ(preferred.segments.size(), 1u);
  EXPECT_THAT(preferred.notice, HasSubstr("Attend of 4 of 4 layers"));
}

TEST(PlannerHostsTest, SingleOperationsNeverCrossHosts) {
  WorkerDescription no_attention = RemoteGpu();
  no_attention.stages = {StageKind::kEmbed, StageKind::kQkv, StageKind::kOut, StageKind::kFfn,
                         StageKind::kHead};
  // The NPU here could attend for it, over the network, at every layer.
  const Plan plan = MustPlan(Config(4, 128), {Gpu(), Npu(), no_attention}, {.num_gpus = 0});
  EXPECT_EQ(plan.workers.size(), 2u);
  const auto alone = MakePlan(Config(4, 128), {DType::kBf16}, {Npu(), no_attention}, {});
  EXPECT_EQ(alone.status().message(), "Embed: no worker can run it: gpu1 has no Attend stage");
}

TEST(PlannerHostsTest, RangesAreTakenAsGiven) {
  const ModelConfig config = Config(12, 64);
  const PlacementPolicy policy{.npu = NpuPolicy::kOff,
                               .layers = {{"gpu1", 0, 1}, {"gpu0", 2, 9}, {"gpu1", 10, 11}}};
  const Plan plan = MustPlan(config, {Gpu(), RemoteGpu()}, policy);
  ASSERT_EQ(plan.segments.size(), 3u);
  ExpectWholeLayersAbroad(plan, 12);
  EXPECT_EQ(DescribeSegment(plan.segments[0], 12), "Embed..Ffn(1)");
  EXPECT_EQ(DescribeSegment(plan.segments[1], 12), "Qkv(2)..Ffn(9)");
  const auto away = MakePlan(config, {DType::kBf16}, {Gpu()}, policy);
  EXPECT_EQ(away.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(away.status().message(), "layers 0-1 on gpu1: gpu1 is not connected");
  const auto npu = MakePlan(config, {DType::kBf16}, {Gpu(), Npu()}, {.layers = {{"npu0", 0, 11}}});
  EXPECT_EQ(npu.status().message(), "layers 0-11 on npu0: npu0 has no Qkv stage");
  const auto gap = MakePlan(config, {DType::kBf16}, {Gpu()}, {.layers = {{"gpu0", 0, 10}}});
  EXPECT_EQ(gap.status().code(), absl::StatusCode::kInvalidArgument);
}

// An NPU that runs whole layers, and neither Embed nor Head.
WorkerDescription LayersNpu(const std::string& name = "npu0") {
  WorkerDescription npu = Npu(name);
  npu.stages = {StageKind::kQkv, StageKind::kAttend, StageKind::kOut, StageKind::kFfn};
  npu.weight_dtypes = {DType::kBf16};
  return npu;
}

std::vector<std::string> Segments(const Plan& plan, uint32_t num_layers) {
  std::vector<std::string> texts;
  for (const Segment& segment : plan.segments) {
    texts.push_back(DescribeSegment(segment, num_layers) + " on " +
                    plan.workers[segment.worker].name);
  }
  return texts;
}

TEST(PlannerHostsTest, AnNpuTakesWholeLayersWhereItIsNamed) {
  const ModelConfig config = Config(12, 128);
  const auto segments = [&](std::vector<LayerRange> layers) {
    return Segments(MustPlan(config, {Gpu(), LayersNpu()}, {.layers = std::move(layers)}), 12);
  };
  // In layers that are not its own it does not attend.
  EXPECT_EQ(segments({{"gpu0", 0, 3}, {"npu0", 4, 9}, {"gpu0", 10, 11}}),
            (std::vector<std::string>{"Embed..Ffn(3) on gpu0", "Qkv(4)..Ffn(9) on npu0",
                                      "Qkv(10)..Head on gpu0"}));
  EXPECT_EQ(segments({{"npu0", 0, 7}, {"gpu0", 8, 11}}),
            (std::vector<std::string>{"Embed on gpu0", "Qkv(0)..Ffn(7) on npu0",
                                      "Qkv(8)..Head on gpu0"}));
  EXPECT_EQ(segments({{"npu0", 0, 11}}),
            (std::vector<std::string>{"Embed on gpu0", "Qkv(0)..Ffn(11) on npu0", "Head on gpu0"}));
  const Plan plan = MustPlan(config, {Gpu(), LayersNpu()}, {.layers = {{"npu0", 0, 11}}});
  for (const Segment& segment : plan.segments) {
    EXPECT_EQ((segment.inputs | segment.outputs) & ~static_cast<PortMask>(Port::kResidual), 0u);
  }
  EXPECT_EQ(plan.notice, "");
}

TEST(PlannerHostsTest, EmbedAndHeadAreOnTheNearestGpu) {
  const Plan plan =
      MustPlan(Config(12, 128), {Gpu("gpu0"), Gpu("gpu1"), LayersNpu()},
               {.layers = {{"npu0", 0, 3}, {"gpu1", 4, 5}, {"gpu0", 6, 7}, {"npu0", 8, 11}}});
  EXPECT_EQ(Segments(plan, 12),
            (std::vector<std::string>{"Embed on gpu1", "Qkv(0)..Ffn(3) on npu0",
                                      "Qkv(4)..Ffn(5) on gpu1", "Qkv(6)..Ffn(7) on gpu0",
                                      "Qkv(8)..Ffn(11) on npu0", "Head on gpu0"}));
}

TEST(PlannerHostsTest, NpusTakeAllLayersWhereThePolicySaysSo) {
  const ModelConfig config = Config(12, 128);
  const auto segments = [&](const std::vector<WorkerDescription>& workers) {
    return Segments(MustPlan(config, workers, {.layers_on_npu = true}), 12);
  };
  EXPECT_EQ(segments({Gpu(), LayersNpu()}),
            (std::vector<std::string>{"Embed on gpu0", "Qkv(0)..Ffn(11) on npu0", "Head on gpu0"}));
  // One that only attends has no layers.
  EXPECT_EQ(segments({Gpu(), Npu("npu1"), LayersNpu("npu0"), LayersNpu("npu2")}),
            (std::vector<std::string>{"Embed on gpu0", "Qkv(0)..Ffn(5) on npu0",
                                      "Qkv(6)..Ffn(11) on npu2", "Head on gpu0"}));
  const auto refusal = [&](const std::vector<WorkerDescription>& workers, NpuPolicy policy) {
    const auto plan =
        MakePlan(config, {DType::kBf16}, workers, {.npu = policy, .layers_on_npu = true});
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(plan.status().message());
  };
  EXPECT_EQ(refusal({Gpu(), Npu()}, NpuPolicy::kRequire),
            "no NPU runs whole layers: npu0 has no Qkv stage");
  EXPECT_EQ(refusal({Gpu()}, NpuPolicy::kPrefer),
            "no NPU runs whole layers: Attend runs on the GPU: no NPU worker is connected");
  EXPECT_EQ(refusal({Gpu(), LayersNpu()}, NpuPolicy::kOff),
            "no NPU runs whole layers: policy off leaves NPUs out");
  EXPECT_EQ(refusal({RemoteGpu(), LayersNpu()}, NpuPolicy::kRequire),
            "Embed: no worker can run it: gpu1 is on another host than the NPU's layers");
}

TEST(PlannerHostsTest, AnNpuThatThePolicyLeavesOutTakesNoLayers) {
  const auto refusal = [](const WorkerDescription& npu, NpuPolicy policy) {
    return std::string(MakePlan(Config(12, 128), {DType::kBf16}, {Gpu(), npu},
                                {.npu = policy, .layers = {{"npu0", 0, 11}}})
                           .status()
                           .message());
  };
  EXPECT_EQ(refusal(LayersNpu(), NpuPolicy::kOff),
            "layers 0-11 on npu0: npu0 is an NPU, which policy off leaves out");
  WorkerDescription emulated = LayersNpu();
  emulated.emulated = true;
  EXPECT_EQ(refusal(emulated, NpuPolicy::kPrefer),
            "layers 0-11 on npu0: npu0 is an emulated NPU, which policy prefer leaves out");
}

}  // namespace
}  // namespace tandem

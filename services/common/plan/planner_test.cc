#include "services/common/plan/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/common/plan/planner_test_workers.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

using namespace planner_test;  // NOLINT(google-build-using-namespace)

TEST(PlannerTest, PutsEverythingOnTheGpuInOneSegmentWithoutPorts) {
  for (const uint32_t num_layers : {1u, 2u, 13u, 62u}) {
    const ModelConfig config = Config(num_layers, 64);
    const Plan plan = MustPlan(config, {Gpu()}, {.npu = NpuPolicy::kOff});
    ASSERT_EQ(plan.segments.size(), 1u);
    EXPECT_EQ(plan.segments[0].inputs, kNone);
    EXPECT_EQ(plan.segments[0].outputs, kNone);
    EXPECT_EQ(plan.max_rows, 512u);
    EXPECT_EQ(plan.notice, "");
    EXPECT_EQ(DescribePlacement(plan, config), "everything on gpu0 (llvmpipe)");
    EXPECT_EQ(DescribeSegment(plan.segments[0], num_layers), "Embed..Head");
  }
}

TEST(PlannerTest, ASoftwareGpuIsSaidToBeOneOrRefused) {
  const ModelConfig config = Config(4, 64);
  PlacementPolicy policy = {.npu = NpuPolicy::kOff};
  const Plan preferred = MustPlan(config, {SoftwareGpu()}, policy);
  EXPECT_THAT(preferred.notice, HasSubstr("gpu0 has no GPU: llvmpipe computes on the processor"));
  EXPECT_THAT(preferred.notice, HasSubstr("--gpu=require"));
  EXPECT_EQ(DescribePlacement(preferred, config), "everything on gpu0 (llvmpipe, software)");
  policy.gpu = GpuPolicy::kSoftware;
  EXPECT_EQ(MustPlan(config, {SoftwareGpu()}, policy).notice, "") << "as asked for";
  policy.gpu = GpuPolicy::kRequire;
  const auto required = MakePlan(config, {DType::kBf16}, {SoftwareGpu()}, policy);
  EXPECT_EQ(required.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(required.status().message()),
              HasSubstr("gpu0 has no GPU: llvmpipe is software"));
}

TEST(PlannerTest, ThePolicyChoosesBetweenAGpuAndSoftware) {
  const ModelConfig config = Config(4, 64);
  const std::vector<WorkerDescription> workers = {SoftwareGpu("soft"), Gpu("real")};
  for (const auto& [gpu, taken] : {std::pair{GpuPolicy::kRequire, "real"},
                                   {GpuPolicy::kPrefer, "real"},
                                   {GpuPolicy::kSoftware, "soft"}}) {
    // As many as there are: the other one is left out all the same.
    const Plan plan =
        MustPlan(config, workers, {.npu = NpuPolicy::kOff, .gpu = gpu, .num_gpus = 0});
    ASSERT_EQ(plan.workers.size(), 1u) << GpuPolicyName(gpu);
    EXPECT_EQ(plan.workers[0].name, taken) << GpuPolicyName(gpu);
    EXPECT_EQ(plan.notice, "") << GpuPolicyName(gpu);
  }
  const auto none = MakePlan(config, {DType::kBf16}, {Gpu("real")},
                             {.npu = NpuPolicy::kOff, .gpu = GpuPolicy::kSoftware});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("real is a GPU"));
}

TEST(PlannerTest, GpuPoliciesHaveNames) {
  for (const GpuPolicy policy : {GpuPolicy::kRequire, GpuPolicy::kPrefer, GpuPolicy::kSoftware}) {
    EXPECT_EQ(*ParseGpuPolicy(GpuPolicyName(policy)), policy);
  }
  EXPECT_EQ(ParseGpuPolicy("cpu").status().message(),
            "gpu policy \"cpu\": must be require, prefer or software");
}

TEST(PlannerTest, HybridIsTwoSegmentsALayerAndOneMore) {
  for (const uint32_t num_layers : {1u, 2u, 13u, 62u}) {
    const Plan plan = MustPlan(Config(num_layers, 128), {Gpu(), Npu()}, {});
    EXPECT_EQ(plan.segments.size(), 2 * num_layers + 1);
    EXPECT_EQ(plan.workers.size(), 2u);
    EXPECT_EQ(plan.max_rows, 256u) << "the smaller of the two";
    EXPECT_EQ(plan.notice, "");
  }
}

TEST(PlannerTest, ResidualStaysOnTheGpuWhileAttentionRunsOnTheNpu) {
  const Plan plan = MustPlan(Config(3, 128), {Gpu(), Npu()}, {});
  const PortMask qkv = Port::kQ | Port::kK | Port::kV;
  const PortMask attention = kNone | Port::kAttention;
  ASSERT_EQ(plan.segments.size(), 7u);
  for (uint32_t i = 0; i < 7; ++i) {
    const Segment& segment = plan.segments[i];
    const bool attend = i % 2 == 1;
    EXPECT_EQ(plan.workers[segment.worker].kind, attend ? DeviceKind::kNpu : DeviceKind::kGpu);
    EXPECT_EQ(segment.inputs, attend ? qkv : i == 0 ? kNone : attention);
    EXPECT_EQ(segment.outputs, attend ? attention : i == 6 ? kNone : qkv);
  }
  EXPECT_EQ(DescribeSegment(plan.segments[0], 3), "Embed+Qkv(0)");
  EXPECT_EQ(DescribeSegment(plan.segments[1], 3), "Attend(0)");
  EXPECT_EQ(DescribeSegment(plan.segments[2], 3), "Out(0)+Ffn(0)+Qkv(1)");
  EXPECT_EQ(DescribeSegment(plan.segments[6], 3), "Out(2)+Ffn(2)+Head");
}

TEST(PlannerTest, OutOnTheNpuHandsOverTheProjection) {
  const ModelConfig config = Config(4, 256);
  const Plan plan = MustPlan(config, {Gpu(), Npu()}, {.out_on_npu = true});
  ASSERT_EQ(plan.segments.size(), 9u);
  EXPECT_EQ(DescribeSegment(plan.segments[1], 4), "Attend(0)+Out(0)");
  EXPECT_EQ(plan.segments[1].outputs, kNone | Port::kProjection);
  EXPECT_EQ(plan.segments[2].inputs, kNone | Port::kProjection);
  EXPECT_EQ(DescribePlacement(plan, config),
            "Attend x4 and Out x4 on npu0 (Strix), the rest on gpu0 (llvmpipe)");
}

TEST(PlannerTest, OutStaysOnTheGpuWhenTheNpuDoesNotReadTheWeights) {
  const Plan plan =
      MustPlan(Config(4, 256), {Gpu(), Npu()}, {.out_on_npu = true}, {DType::kQ4_0, DType::kBf16});
  EXPECT_EQ(DescribeSegment(plan.segments[1], 4), "Attend(0)");
  EXPECT_EQ(plan.notice, "Out runs on the GPU: npu0 does not read q4_0 weights");
}

TEST(PlannerTest, PreferFallsBackToTheGpuAndSaysWhy) {
  const ModelConfig config = Config(2, 96);
  const Plan plan = MustPlan(config, {Gpu(), Npu()}, {.npu = NpuPolicy::kPrefer});
  EXPECT_EQ(plan.segments.size(), 1u);
  EXPECT_EQ(plan.notice,
            "Attend runs on the GPU: npu0 attends with head sizes 64, 128, 256, the model has 96");
  const Plan alone = MustPlan(config, {Gpu()}, {.npu = NpuPolicy::kPrefer});
  EXPECT_EQ(alone.notice, "Attend runs on the GPU: no NPU worker is connected");
}

TEST(PlannerTest, PreferLeavesAnEmulatedNpuAloneAndSaysSo) {
  const Plan plan = MustPlan(Config(2, 64), {Gpu(), EmulatedNpu()}, {.npu = NpuPolicy::kPrefer});
  EXPECT_EQ(plan.segments.size(), 1u);
  EXPECT_THAT(plan.notice, HasSubstr("npu0 is emulated"));
}

TEST(PlannerTest, EmulateUsesTheEmulatedNpuAndThePlacementNamesIt) {
  const ModelConfig config = Config(12, 64);
  const Plan plan = MustPlan(config, {Gpu(), EmulatedNpu()}, {.npu = NpuPolicy::kEmulate});
  EXPECT_EQ(DescribePlacement(plan, config),
            "Attend x12 on npu0 (emulated Strix), the rest on gpu0 (llvmpipe)");
  const auto real = MakePlan(config, {}, {Gpu(), Npu()}, {.npu = NpuPolicy::kEmulate});
  EXPECT_EQ(real.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(real.status().message()), HasSubstr("npu0 is a real NPU"));
}

TEST(PlannerTest, RequireWithoutAnNpuIsRefusedWithTheReason) {
  const PlacementPolicy require{.npu = NpuPolicy::kRequire};
  const auto none = MakePlan(Config(2, 64), {}, {Gpu()}, require);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(none.status().message(),
            "Attend: policy require wants an NPU: no NPU worker is connected");
  const auto emulated = MakePlan(Config(2, 64), {}, {Gpu(), EmulatedNpu()}, require);
  EXPECT_THAT(std::string(emulated.status().message()), HasSubstr("npu0 is emulated"));
  const auto head_size = MakePlan(Config(2, 80), {}, {Gpu(), Npu()}, require);
  EXPECT_THAT(std::string(head_size.status().message()), HasSubstr("the model has 80"));
}

TEST(PlannerTest, OffLeavesANpuOut) {
  const Plan plan = MustPlan(Config(2, 64), {Npu(), Gpu()}, {.npu = NpuPolicy::kOff});
  EXPECT_EQ(plan.segments.size(), 1u);
  EXPECT_EQ(plan.workers[0].name, "gpu0");
  EXPECT_EQ(plan.notice, "");
}

TEST(PlannerTest, AttendGoesWhereTheCacheCanHaveItsFormat) {
  const ModelConfig config = Config(2, 128);
  const PlacementPolicy quantised = {.kv_dtype = DType::kQ8_0};
  const Plan plan = MustPlan(config, {Gpu(), Npu()}, quantised);
  EXPECT_EQ(plan.segments.size(), 1u);
  EXPECT_THAT(plan.notice, HasSubstr("npu0 has no q8_0 KV cache"));
  const auto refused = [](const ModelConfig& model, NpuPolicy npu) {
    const auto result =
        MakePlan(model, {DType::kBf16}, {Gpu(), Npu()}, {.npu = npu, .kv_dtype = DType::kQ8_0});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(result.status().message());
  };
  EXPECT_THAT(refused(config, NpuPolicy::kRequire), HasSubstr("npu0 has no q8_0 KV cache"));
  EXPECT_THAT(refused(Config(2, 72), NpuPolicy::kOff), HasSubstr("multiples of 64, not 72"));
}

TEST(PlannerTest, RefusesWeightsThatNoWorkerReads) {
  const auto plan = MakePlan(Config(2, 64), {DType::kBf16, DType::kQ6_K}, {Gpu(), Npu()}, {});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(plan.status().message(),
            "Embed: no worker can run it: gpu0 does not read q6_k weights");
}

TEST(PlannerTest, AttendReadsNoWeightsSoTheirFormatDoesNotMatter) {
  WorkerDescription npu = Npu();
  npu.weight_dtypes.clear();
  const Plan plan = MustPlan(Config(2, 64), {Gpu(), npu}, {}, {DType::kQ4_0});
  EXPECT_EQ(plan.segments.size(), 5u);
}

TEST(PlannerTest, TakesTheNextGpuThatReadsTheWeights) {
  WorkerDescription second = Gpu("gpu1");
  second.weight_dtypes.push_back(DType::kQ6_K);
  const Plan plan = MustPlan(Config(2, 64), {Gpu(), second}, {}, {DType::kQ6_K});
  ASSERT_EQ(plan.workers.size(), 1u);
  EXPECT_EQ(plan.workers[0].name, "gpu1");
}

TEST(PlannerTest, GpuWithoutAttendNeedsTheNpu) {
  WorkerDescription gpu = Gpu();
  gpu.stages = {StageKind::kEmbed, StageKind::kQkv, StageKind::kOut, StageKind::kFfn,
                StageKind::kHead};
  EXPECT_EQ(MustPlan(Config(2, 64), {gpu, Npu()}, {}).segments.size(), 5u);
  const auto without = MakePlan(Config(2, 64), {}, {gpu}, {});
  EXPECT_EQ(without.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(without.status().message(),
            "Attend(0): no worker can run it: gpu0 has no Attend stage");
}

TEST(PlannerTest, NoGpuIsRefusedAtTheFirstStage) {
  const auto plan = MakePlan(Config(2, 64), {}, {Npu()}, {});
  EXPECT_EQ(plan.status().message(), "Embed: no worker can run it: no GPU worker is connected");
}

TEST(PlannerTest, ResidualCrossesOnceWhenTwoGpusShareTheLayers) {
  const ModelConfig config = Config(5, 64);
  const Plan plan = MustPlan(config, {Gpu("a"), Gpu("b")}, {.npu = NpuPolicy::kOff, .num_gpus = 2});
  ASSERT_EQ(plan.segments.size(), 2u);
  EXPECT_EQ(plan.segments[0].inputs, kNone);
  EXPECT_EQ(plan.segments[0].outputs, kNone | Port::kResidual);
  EXPECT_EQ(plan.segments[1].inputs, kNone | Port::kResidual);
  EXPECT_EQ(plan.segments[1].outputs, kNone);
  EXPECT_EQ(DescribeSegment(plan.segments[1], 5), "Qkv(3)..Head");
}

TEST(PlannerTest, ResidualCrossesBetweenGpusWithANpuBetweenThem) {
  const Plan plan = MustPlan(Config(4, 64), {Gpu("a"), Gpu("b"), Npu()}, {.num_gpus = 2});
  // Embed+Qkv(0) a | Attend(0) | Out(0)+Ffn(0)+Qkv(1) a | Attend(1) | Out(1)+Ffn(1) a |
  // Qkv(2) b | ...
  ASSERT_EQ(plan.segments.size(), 10u);
  EXPECT_EQ(plan.segments[4].outputs, kNone | Port::kResidual);
  EXPECT_EQ(plan.segments[5].inputs, kNone | Port::kResidual);
  for (uint32_t i = 0; i < plan.segments.size(); ++i) {
    if (i == 4) continue;
    EXPECT_FALSE(Has(plan.segments[i].outputs, Port::kResidual)) << i;
  }
  // Ffn(2) reads the residual that b imported before Qkv(2): the copy that crossed is read again.
  EXPECT_EQ(plan.segments[7].inputs, Port::kAttention | Port::kResidual);
}

TEST(PlannerTest, SaysSoWhenThereAreFewerGpusThanAskedFor) {
  const Plan plan = MustPlan(Config(4, 64), {Gpu()}, {.npu = NpuPolicy::kOff, .num_gpus = 4});
  EXPECT_EQ(plan.notice, "layers are split over 1 GPUs, 4 were asked for");
  const Plan all = MustPlan(Config(4, 64), {Gpu("a"), Gpu("b"), Gpu("c")},
                            {.npu = NpuPolicy::kOff, .num_gpus = 0});
  EXPECT_EQ(all.workers.size(), 3u);
  EXPECT_EQ(all.notice, "");
}

TEST(PlannerTest, StagesGoToWhoeverHasThemWhenNoGpuHasAll) {
  WorkerDescription body = Gpu("body");
  body.stages = {StageKind::kQkv, StageKind::kAttend, StageKind::kOut, StageKind::kFfn};
  WorkerDescription ends = Gpu("ends");
  ends.stages = {StageKind::kEmbed, StageKind::kHead};
  const ModelConfig config = Config(3, 64);
  const Plan plan = MustPlan(config, {body, ends}, {.npu = NpuPolicy::kOff});
  ASSERT_EQ(plan.segments.size(), 3u);
  EXPECT_EQ(plan.workers[0].name, "ends") << "in order of first use";
  EXPECT_EQ(plan.segments[0].outputs, kNone | Port::kResidual);
  EXPECT_EQ(plan.segments[1].inputs, kNone | Port::kResidual);
  EXPECT_EQ(plan.segments[1].outputs, kNone | Port::kResidual);
  EXPECT_EQ(DescribePlacement(plan, config),
            "Embed and Head on ends (llvmpipe), the rest on body (llvmpipe)");
}

TEST(PlannerTest, TwoNpusShareTheLayers) {
  const ModelConfig config = Config(4, 64);
  const Plan plan = MustPlan(config, {Gpu(), Npu("npu0"), Npu("npu1")}, {});
  EXPECT_EQ(
      DescribePlacement(plan, config),
      "Attend(0-1) on npu0 (Strix), Attend(2-3) on npu1 (Strix), the rest on gpu0 (llvmpipe)");
}

TEST(PlannerTest, Plans27B) {
  ModelConfig config = Config(62, 128);
  config.hidden_dim = 5376;
  config.ffn_dim = 21504;
  config.num_heads = 32;
  config.num_kv_heads = 16;
  config.vocab_size = 262208;
  config.context_len = 131072;
  config.sliding_window = 1024;
  const Plan plan =
      MustPlan(config, {Gpu(), Npu()}, {.npu = NpuPolicy::kRequire}, {DType::kQ4_0, DType::kF16});
  EXPECT_EQ(plan.segments.size(), 125u);
  EXPECT_EQ(DescribePlacement(plan, config),
            "Attend x62 on npu0 (Strix), the rest on gpu0 (llvmpipe)");
}

TEST(PlannerTest, RefusesWorkersOfOneNameAndThoseWithoutRows) {
  const auto twins = MakePlan(Config(2, 64), {}, {Gpu(), Gpu()}, {});
  EXPECT_EQ(twins.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(twins.status().message()), HasSubstr("gpu0"));
  WorkerDescription empty = Gpu();
  empty.max_rows = 0;
  EXPECT_EQ(MakePlan(Config(2, 64), {}, {empty}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PlannerTest, PromptsOnTheNpuNeedAPolicyThatHasOne) {
  NpuPolicy policy = NpuPolicy::kAuto;
  EXPECT_TRUE(RequireNpuForPrompts(policy).ok());
  EXPECT_EQ(policy, NpuPolicy::kRequire);
  for (const NpuPolicy kept : {NpuPolicy::kRequire, NpuPolicy::kEmulate}) {
    policy = kept;
    EXPECT_TRUE(RequireNpuForPrompts(policy).ok());
    EXPECT_EQ(policy, kept);
  }
  policy = NpuPolicy::kPrefer;
  EXPECT_THAT(std::string(RequireNpuForPrompts(policy).message()), HasSubstr("--npu is prefer"));
}

TEST(PlannerTest, PolicyNamesParseBackAndOthersAreRefused) {
  for (const char* name : {"auto", "require", "prefer", "emulate", "off"}) {
    const auto policy = ParseNpuPolicy(name);
    ASSERT_TRUE(policy.ok());
    EXPECT_EQ(NpuPolicyName(*policy), name);
  }
  EXPECT_THAT(std::string(ParseNpuPolicy("always").status().message()), HasSubstr("\"always\""));
}

}  // namespace
}  // namespace tandem

// Workers and models for tests of the planner.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "services/common/plan/planner.h"

namespace tandem::planner_test {

inline constexpr PortMask kNone = 0;

inline ModelConfig Config(uint32_t num_layers, uint32_t head_dim) {
  ModelConfig config;
  config.num_layers = num_layers;
  config.hidden_dim = 256;
  config.ffn_dim = 512;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = head_dim;
  config.vocab_size = 1000;
  config.context_len = 2048;
  config.sliding_window = 64;
  config.layer_is_global = EverySixthGlobal(num_layers);
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  config.embedding_scale = 16.0f;
  return config;
}

inline VisionConfig SmallVision(const ModelConfig& decoder) {
  VisionConfig vision;
  vision.image_size = 8;
  vision.patch_size = 2;
  vision.num_layers = 2;
  vision.hidden_dim = 16;
  vision.ffn_dim = 32;
  vision.num_heads = 2;
  vision.tokens_per_image = 4;
  vision.text_hidden_dim = decoder.hidden_dim;
  return vision;
}

inline WorkerDescription Gpu(const std::string& name = "gpu0") {
  WorkerDescription worker;
  worker.name = name;
  worker.device = "llvmpipe";
  worker.stages = {StageKind::kEmbed, StageKind::kQkv, StageKind::kAttend,
                   StageKind::kOut,   StageKind::kFfn, StageKind::kHead};
  worker.weight_dtypes = {DType::kF32, DType::kF16, DType::kBf16, DType::kQ8_0, DType::kQ4_0};
  worker.kv_dtypes = {DType::kF16, DType::kQ8_0};
  worker.max_rows = 512;
  return worker;
}

inline WorkerDescription SoftwareGpu(const std::string& name = "gpu0") {
  WorkerDescription worker = Gpu(name);
  worker.emulated = true;
  return worker;
}

inline WorkerDescription Npu(const std::string& name = "npu0") {
  WorkerDescription worker;
  worker.name = name;
  worker.device = "Strix";
  worker.kind = DeviceKind::kNpu;
  worker.stages = {StageKind::kAttend, StageKind::kOut};
  worker.weight_dtypes = {DType::kF16, DType::kBf16};
  worker.head_dims = {64, 128, 256};
  worker.max_rows = 256;
  return worker;
}

inline WorkerDescription EmulatedNpu() {
  WorkerDescription worker = Npu();
  worker.emulated = true;
  return worker;
}

inline Plan MustPlan(const ModelConfig& config, const std::vector<WorkerDescription>& workers,
                     const PlacementPolicy& policy,
                     const std::vector<DType>& dtypes = {DType::kBf16}) {
  absl::StatusOr<Plan> plan = MakePlan(config, dtypes, workers, policy);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  // Whatever the placement: every stage exactly once, in order, neighbours on different workers.
  uint32_t next = 0;
  for (uint32_t i = 0; i < plan->segments.size(); ++i) {
    const Segment& segment = plan->segments[i];
    EXPECT_EQ(segment.index, i);
    EXPECT_EQ(segment.first_ordinal, next);
    EXPECT_GE(segment.last_ordinal, segment.first_ordinal);
    if (i > 0) {
      EXPECT_NE(segment.worker, plan->segments[i - 1].worker);
    }
    next = segment.last_ordinal + 1;
  }
  EXPECT_EQ(next, NumStages(config.num_layers));
  return *std::move(plan);
}

}  // namespace tandem::planner_test

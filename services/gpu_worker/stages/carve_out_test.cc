// Models on a device that shares the host's memory and shows a small part of it as its own: weights,
// KV cache and buffers go where they fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/gpu_worker/stages/gpu_worker_for_test.h"
#include "services/gpu_worker/vulkan/carve_out_for_test.h"

namespace tandem::gpu {
namespace {

using ::testing::HasSubstr;
using vulkan::CarveOutMemory;

constexpr uint64_t kMib = 1 << 20;

class CarveOutTest : public GpuWorkerTest {
 protected:
  void SetUp() override {}  // each test opens the device with its own heaps
  void TearDown() override { worker_.reset(); }

  // Skips where the machine's memory cannot stand for others'.
  void OpenWith(uint64_t carve_out_bytes, uint64_t lent_bytes, bool tells_budget = true) {
    worker_.reset();
    CarveOutMemory::Get().Reset(carve_out_bytes, lent_bytes, tells_budget);
    Open({.import_memory = false});
    if (IsSkipped()) return;
    if (!worker_->device().info().unified_memory() || !CarveOutMemory::Get().works()) {
      GTEST_SKIP() << "this needs a software driver's memory: " << worker_->device().info().name;
    }
  }

  absl::StatusOr<std::unique_ptr<PlanRunner>> Load() {
    return PlanRunner::Create(weights_, {worker_.get()}, testing::WholeModel(config_),
                              {.max_rows = 16, .max_outputs = 16, .max_logit_outputs = 16});
  }

  // 6 MiB of weights, 6 MiB of KV.
  const ModelConfig config_ = testing::MakeConfig(
      {.hidden_dim = 256, .ffn_dim = 1024, .num_heads = 4, .num_kv_heads = 2, .context_len = 512});
  const std::shared_ptr<const WeightSet> weights_ =
      testing::RandomWeightSet(config_, {.max_region_bytes = kMib});
};

TEST_F(CarveOutTest, AModelLargerThanTheCarveOutLoadsAndComputesTheSame) {
  const std::vector<uint32_t> tokens = Tokens(40, config_.vocab_size, 1);
  std::vector<std::vector<float>> logits;
  // All of it fits the carve-out; a part of it does, and the driver tells how much or does not;
  // nothing does.
  for (const auto& [carve_out, tells_budget] :
       {std::pair{512 * kMib, true}, {4 * kMib, true}, {4 * kMib, false}, {uint64_t{4096}, true}}) {
    SCOPED_TRACE(carve_out);
    OpenWith(carve_out, 1024 * kMib, tells_budget);
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_OK_AND_ASSIGN(const auto runner, Load());
    const auto& [local, lent] = CarveOutMemory::Get().heaps();
    const LoadReport& report = runner->load_reports()[0];
    EXPECT_EQ(report.weight_import, ImportPath::kUpload);
    const uint64_t wanted = report.weight_bytes + report.kv_bytes;
    EXPECT_GT(wanted, 8 * kMib);
    if (carve_out > wanted) {
      EXPECT_GT(local.used, wanted);
    } else {
      EXPECT_GT(local.used + lent.used, wanted);
      EXPECT_GT(lent.used, wanted - carve_out);
    }
    if (carve_out == 4 * kMib) {
      EXPECT_GT(local.used, carve_out / 2) << "the carve-out is not used";
    }
    // A heap without room is not tried: a driver that overcommits would move buffers at each step.
    EXPECT_EQ(local.refused == 0, tells_budget) << local.refused;
    logits.push_back(Logits(*runner, tokens, 8));
  }
  for (const auto& others : logits) EXPECT_EQ(others, logits[0]);
}

TEST_F(CarveOutTest, AModelLargerThanAllHeapsIsRefusedWithWhatEachHasFree) {
  OpenWith(4 * kMib, 1024 * kMib);
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_OK(Load());
  const auto& [local, lent] = CarveOutMemory::Get().heaps();
  OpenWith(2 * kMib, local.most_used + lent.most_used - 6 * kMib);
  if (IsSkipped() || HasFatalFailure()) return;
  const auto refused = Load();
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("of 2 MiB free, device-local; heap 1: "));
  EXPECT_GT(CarveOutMemory::Get().heaps()[1].refused, 0u) << "not all heaps were tried";
}

}  // namespace
}  // namespace tandem::gpu

// KV copied between plans: of two devices, of one, and of one kind of worker and another.
#include "services/common/reference/reference_worker.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/kv_copy_case.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/gpu_worker/stages/gpu_worker_for_test.h"

namespace tandem::gpu {
namespace {

using testing::KvCopyResult;

class KvCopierTest : public GpuWorkerTest {
 protected:
  void SetUp() override { Open({.validation = true, .adjust_tuning = UsePlainKernels}); }
  // The same model under another plan number, or on another worker.
  std::unique_ptr<PlanRunner> Load(Worker& worker, DType kv_dtype, uint32_t plan = 0) {
    auto runner = PlanRunner::Create(
        weights_, {&worker}, testing::WholeModel(weights_->config()),
        {.block_tokens = 7, .kv_dtype = kv_dtype, .plan = plan, .kv_area_bytes = 1 << 20});
    EXPECT_OK(runner.status());
    return runner.ok() ? *std::move(runner) : nullptr;
  }

  const std::shared_ptr<const WeightSet> weights_ =
      testing::RandomWeightSet(testing::MakeConfig({}));
  const testing::KvCopyCase case_{.prompt = Tokens(45, weights_->config().vocab_size, 3),
                                  .next = Tokens(4, weights_->config().vocab_size, 9)};
};

TEST_F(KvCopierTest, APlanGoesOnWithAnothersKvBitForBit) {
  for (const bool import_memory : {true, false}) {
    Open({.import_memory = import_memory, .validation = true, .adjust_tuning = UsePlainKernels});
    for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
      const auto from = Load(*worker_, dtype, 0), to = Load(*worker_, dtype, 1);
      ASSERT_TRUE(from != nullptr && to != nullptr);
      ASSERT_OK_AND_ASSIGN(const KvCopyResult result, RunKvCopyCase(*from, *to, case_));
      EXPECT_EQ(result.copied, result.computed);
    }
  }
}

// What an NPU's host computed goes on here, and the reverse.
TEST_F(KvCopierTest, GoesOnWithTheKvOfAnotherKindOfWorker) {
  for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
    reference::ReferenceWorker reference;
    for (const bool from_here : {true, false}) {
      const auto here = Load(*worker_, dtype), there = Load(reference, dtype);
      ASSERT_TRUE(here != nullptr && there != nullptr);
      ASSERT_OK_AND_ASSIGN(const KvCopyResult result, from_here
                                                          ? RunKvCopyCase(*here, *there, case_)
                                                          : RunKvCopyCase(*there, *here, case_));
      // Both round activations to float16 between stages, and sum in another order: twice per stage of
      // each layer.
      EXPECT_TRUE(
          testing::IsNearInNorm(result.copied, result.computed,
                                2 * 4 * weights_->config().num_layers * testing::kEpsilonF16));
    }
  }
}

TEST_F(KvCopierTest, ADeviceThatWasLostHasNoKv) {
  EXPECT_TRUE(absl::IsUnavailable(worker_->CopyKv(0, {})));
}

}  // namespace
}  // namespace tandem::gpu

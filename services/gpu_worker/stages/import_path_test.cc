// How weights reach a Radeon: as dmabufs, or as copies.
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/gpu_worker/stages/gpu_worker_for_test.h"

namespace tandem::gpu {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ImportPathTest : public GpuWorkerTest {
 protected:
  void SetUp() override {
    Open({});
    if (IsSkipped() || HasFatalFailure()) return;
    const vulkan::DeviceInfo& info = worker_->device().info();
    if (!info.waits_hide_loss || !info.unified_memory()) GTEST_SKIP() << "no Radeon of this kind";
  }
  // Loads, and computes the logits of a few tokens.
  void Load(bool with_dmabufs) {
    const auto weights =
        testing::RandomWeightSet(config_, {.memory_files_are_dmabufs = with_dmabufs});
    ::testing::internal::CaptureStdout();
    const auto runner =
        PlanRunner::Create(weights, {worker_.get()}, testing::WholeModel(config_), {});
    log_ = ::testing::internal::GetCapturedStdout();
    ASSERT_OK(runner.status());
    report_ = (*runner)->load_reports()[0];
    logits_ = Logits(**runner, {1, 2, 3}, 3);
  }

  const ModelConfig config_ = testing::MakeConfig({});
  std::string log_;
  LoadReport report_;
  std::vector<float> logits_;
};

TEST_F(ImportPathTest, WithoutDmabufsSharedMemoryIsCopiedAndTheLogWarns) {
  Load(false);
  EXPECT_EQ(report_.weight_import, ImportPath::kUpload);
  EXPECT_EQ(report_.exchange_import, ImportPath::kUpload);
  EXPECT_THAT(report_.note, HasSubstr("dmabuf: the loader has exported none; host-pointer: "));
  EXPECT_THAT(report_.note, HasSubstr("amdgpu takes no shared memory by pointer"));
  EXPECT_THAT(log_, HasSubstr("weights are copied"));
}

TEST_F(ImportPathTest, DmabufsAreNotCopied) {
  if (std::getenv("GPU_EMU_ALLOW_MEMFD") == nullptr) {
    GTEST_SKIP() << "GPU_EMU_ALLOW_MEMFD is not set";
  }
  Load(false);
  const std::vector<float> expected = logits_;
  Load(true);
  EXPECT_EQ(report_.weight_import, ImportPath::kDmabuf) << report_.note;
  EXPECT_THAT(report_.note, Not(HasSubstr("dmabuf")));
  EXPECT_THAT(log_, Not(HasSubstr("weights are copied")));
  EXPECT_EQ(logits_, expected);
}

}  // namespace
}  // namespace tandem::gpu

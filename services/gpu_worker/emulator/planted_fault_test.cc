// Kernels with a mistake that was planted in them: the emulated Radeon must not let it pass.  Run it
// by run.sh, with GPU_EMU_CHECK_LDS=1, and each test in a process of its own: a race loses the device.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "services/common/testing/compare.h"
#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/matrix_launches.h"
#include "services/gpu_worker/kernels/tile_matrix_for_test.h"
#include "shaders/tandem_radeon_planted_shaders.h"

namespace tandem::gpu {
namespace {

constexpr uint32_t kRows = 17, kColumns = 40, kDepth = 256;

// A prompt's matmul: two subgroups share tiles in LDS and multiply on matrix units.
class PlantedFaultTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(tuning().matrix.fragments.path, MatrixPath::kRows) << "this is no Radeon";
    ASSERT_NE(std::getenv("GPU_EMU_CHECK_LDS"), nullptr) << "races are not looked for";
  }

  // `product`: [kRows, kColumns].
  absl::Status Multiply(std::vector<float>& product) {
    Tuning tuning = this->tuning();
    tuning.matrix.min_rows = 1;
    tuning.matrix.tiles = {{.columns = 16, .rows = 16, .subgroups = 2}};
    const DeviceArray step = MakeStep(kRows), input(device(), x_),
                      output(device(), size_t{kRows} * kColumns * sizeof(float)),
                      sums(device(), 1 << 20),
                      arrivals(device(), std::vector<uint32_t>(kMatrixMaxTiles, 0));
    const Launch launch =
        MatrixMatmulLaunch(tuning, matrix_.tensor, matrix_.tensor.shards[0],
                           {.count = RowCount(step),
                            .x = input.address(),
                            .destination = output.address(),
                            .out_stride = kColumns,
                            .max_rows = std::bit_ceil(kRows),
                            .workspace = {sums.address(), sums.data().size(), arrivals.address()}});
    TANDEM_ASSIGN_OR_RETURN(const auto pool, vulkan::CommandPool::Create(device()));
    TANDEM_ASSIGN_OR_RETURN(const auto timeline, vulkan::Timeline::Create(device()));
    TANDEM_ASSIGN_OR_RETURN(auto recorder, vulkan::Recorder::Begin(pool, kernels().layout()));
    TANDEM_RETURN_IF_ERROR(kernels().Record(launch, recorder));
    recorder.HostBarrier();
    TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
    TANDEM_RETURN_IF_ERROR(timeline->SubmitAndWait({&commands, 1}, absl::Minutes(1)));
    product = output.floats();
    return absl::OkStatus();
  }

  // How far from the sums in double, as a part of the error that is allowed.
  double Error(const std::vector<float>& product) const {
    const std::vector<float> x = testing::HalvesToFloats(x_);
    double worst = 0;
    for (uint32_t r = 0; r < kRows; ++r) {
      const auto row = std::span(x).subspan(size_t{r} * kDepth, kDepth);
      for (uint32_t n = 0; n < kColumns; ++n) {
        double sum = 0;
        for (uint32_t k = 0; k < kDepth; ++k) sum += double{row[k]} * matrix_.row(n)[k];
        const double bound = testing::DotBound(kDepth, testing::Norm(row),
                                               testing::Norm(matrix_.row(n)), testing::kEpsilonF16);
        worst = std::max(worst, std::fabs(product[size_t{r} * kColumns + n] - sum) / bound);
      }
    }
    return worst;
  }

 private:
  TileMatrix matrix_{device(), DType::kQ4_0, kColumns, kDepth, 1};
  const std::vector<uint16_t> x_ = testing::FloatsToHalves(RandomFloats(size_t{kRows} * kDepth, 2));
};

TEST_F(PlantedFaultTest, TheKernelItselfIsRight) {
  std::vector<float> product;
  ASSERT_OK(Multiply(product));
  EXPECT_LE(Error(product), 1.0);
}

TEST_F(PlantedFaultTest, ASwappedHalfOfAMatrixOperandGivesAWrongResult) {
  kernels().Replace(KernelId::kCoopMatmulRows, shaders::kPlantedSwappedHalves);
  std::vector<float> product;
  ASSERT_OK(Multiply(product));
  EXPECT_GT(Error(product), 100.0);
}

TEST_F(PlantedFaultTest, AMissingBarrierIsARace) {
  kernels().Replace(KernelId::kCoopMatmulRows, shaders::kPlantedNoBarriers);
  std::vector<float> product;
  ::testing::internal::CaptureStderr();
  const absl::Status status = Multiply(product);
  const std::string messages = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(messages.find("LDS race"), std::string::npos) << messages;
}

}  // namespace
}  // namespace tandem::gpu

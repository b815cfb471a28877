#include "services/gpu_worker/stages/self_test.h"

#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/common/step/step_batch.h"
#include "services/common/weights/dequantize.h"
#include "services/gpu_worker/kernels/launches.h"

namespace tandem::gpu {
namespace {

// x[k] = k - 31.5, its norm's weights 1, w[n, k] = (n + 1) (-1)^k / 4 over 64 columns and 48 rows.
// The alternating sum of x is -32, so out[n] = -8 (n + 1) / rms(x).
constexpr uint32_t kCols = 64, kRows = 48;
constexpr uint64_t kStep = 0, kX = 1024, kOnes = 2048, kNormed = 3072, kOut = 4096;
constexpr uint64_t kWeights = 8192, kBytes = 16384, kBlockBytes = 34;
constexpr float kCanary = 12345.0f;

void Fill(std::byte* memory) {
  StepHeader header{.num_rows = 1};
  std::memcpy(memory + kStep, &header, sizeof(header));
  auto* x = reinterpret_cast<float*>(memory + kX);
  auto* ones = reinterpret_cast<float*>(memory + kOnes);
  for (uint32_t k = 0; k < kCols; ++k) {
    x[k] = static_cast<float>(k) - 31.5f;
    ones[k] = 1.0f;
  }
  for (uint32_t n = 0; n < kRows; ++n) {
    std::array<std::byte, kCols / 32 * kBlockBytes> row;  // in the file layout: d, then q[32]
    for (uint32_t k = 0; k < kCols; ++k) {
      std::byte* block = row.data() + k / 32 * kBlockBytes;
      const uint16_t scale = FloatToHalf(0.25f);
      std::memcpy(block, &scale, sizeof(scale));
      block[2 + k % 32] = static_cast<std::byte>(k % 2 == 0 ? n + 1 : -static_cast<int>(n + 1));
    }
    RepackRow(DType::kQ8_0, row, kCols,
              RowInShard(DType::kQ8_0, kRows, kCols, memory + kWeights, n));
  }
}

double Rms() {
  double sum = 0;
  for (uint32_t k = 0; k < kCols; ++k) sum += (k - 31.5) * (k - 31.5);
  return std::sqrt(sum / kCols);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SelfTest>> SelfTest::Create(const vulkan::Device& device,
                                                           KernelSet& kernels,
                                                           vulkan::Timeline& timeline) {
  std::unique_ptr<SelfTest> test(new SelfTest(timeline));
  TANDEM_ASSIGN_OR_RETURN(
      test->memory_,
      vulkan::Buffer::Allocate(device, kBytes, vulkan::MemoryKind::kExchange, "self-test"));
  Fill(test->memory_.mapped().data());
  const uint64_t base = test->memory_.address();
  TANDEM_ASSIGN_OR_RETURN(test->pool_, vulkan::CommandPool::Create(device));
  TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder,
                          vulkan::Recorder::Begin(test->pool_, kernels.layout()));
  TANDEM_RETURN_IF_ERROR(kernels.Record(RmsNormLaunch(kernels.tuning(),
                                                      {.step = base + kStep,
                                                       .source = base + kX,
                                                       .weight = base + kOnes,
                                                       .destination = base + kNormed,
                                                       .cols = kCols},
                                                      false, 1),
                                        recorder));
  recorder.Barrier();
  const std::vector<Plane> planes = PlanesOf(DType::kQ8_0, kRows, kCols);
  TANDEM_CHECK(kWeights + ShardBytes(DType::kQ8_0, kRows, kCols) <= kBytes);
  DeviceShard shard{
      .num_rows = kRows,
      .plane = {base + kWeights + planes[0].offset, base + kWeights + planes[1].offset}};
  const DeviceTensor weights{DType::kQ8_0, kRows, kCols, {shard}};
  TANDEM_RETURN_IF_ERROR(
      kernels.Record(PlainMatmulLaunch(kernels.tuning(), weights, shard,
                                       {.count = base + kStep + offsetof(StepHeader, num_rows),
                                        .x = base + kNormed,
                                        .destination = base + kOut,
                                        .out_stride = kRows,
                                        .max_rows = 1}),
                     recorder));
  recorder.HostBarrier();
  TANDEM_ASSIGN_OR_RETURN(test->commands_, recorder.End());
  return test;
}

absl::Status SelfTest::Run(absl::Duration timeout) {
  auto* out = reinterpret_cast<float*>(memory_.mapped().data() + kOut);
  std::fill_n(out, kRows + 1, kCanary);
  TANDEM_RETURN_IF_ERROR(timeline_.SubmitAndWait({&commands_, 1}, timeout));
  for (uint32_t n = 0; n < kRows; ++n) {
    const double expected = -8.0 * (n + 1) / Rms();
    // Sums of 64 terms in float32.
    if (!(std::abs(out[n] - expected) <= 1e-5 * std::abs(expected))) {
      return absl::InternalError(
          absl::StrFormat("self-test: output %d is %g, must be %g: the device computes wrongly", n,
                          out[n], expected));
    }
  }
  if (out[kRows] != kCanary) {
    return absl::InternalError("self-test: the device writes past the end of its output");
  }
  return absl::OkStatus();
}

}  // namespace tandem::gpu

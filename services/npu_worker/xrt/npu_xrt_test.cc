// This folder's classes over an unmodified, current XRT and its NPU plugin, on the emulated driver.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "services/common/base/shared_memory.h"

#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/attention/kernel_abi.h"
#include "services/npu_worker/emulator/kernels/instructions.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;

const std::string kPackage = BuildPath("lib/tandem/npu/emulated/kernels.xclbin");
constexpr uint32_t kHeadDim = 64;
constexpr uint64_t kExchangeBytes = 4096;

// Attention of one row, one head and position 0, whose result is v.
class NpuXrtTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(kernel_, NpuKernel::Open({.xclbin_path = kPackage}, kKernelName));
    const emulator::Instructions words = {
        .kind = emulator::KernelKind::kAttend, .head_dim = kHeadDim, .max_positions = 4096};
    ASSERT_OK_AND_ASSIGN(code_,
                         kernel_->MakeCode(CodeForm::kInstructions,
                                           std::span(reinterpret_cast<const uint32_t*>(&words),
                                                     emulator::kNumInstructionWords)));
    for (int i = 0; i < kNumDataBuffers; ++i) {
      ASSERT_OK_AND_ASSIGN(NpuBuffer buffer, kernel_->Allocate(i, i == kKvBuffer ? 65536 : 4096));
      buffers_.push_back(std::move(buffer));
    }
    for (const NpuBuffer& buffer : buffers_) data_.push_back(&buffer);
    struct {
      StepDescriptor header{.num_rows = 1, .num_sequences = 1, .table_len = 1, .num_positions = 1};
      SequenceDescriptor sequence{.num_rows = 1};
      uint32_t block = 0;
    } step;
    std::memcpy(buffers_[kStepBuffer].data(), &step, sizeof(step));
    const AttendParameters layer = {.head_dim = kHeadDim,
                                    .num_heads = 1,
                                    .num_kv_heads = 1,
                                    .block_tokens = 16,
                                    .num_blocks = 1,
                                    .scale = 1.0f,
                                    .q_offset = 0,
                                    .k_offset = 256,
                                    .v_offset = 512,
                                    .attention_offset = 1024};
    std::memcpy(buffers_[kLayerBuffer].data(), &layer, sizeof(layer));
    for (uint32_t i = 0; i < kHeadDim; ++i) Exchange(512)[i] = static_cast<uint16_t>(0x3C00 + i);
  }
  uint16_t* Exchange(size_t offset) {
    return reinterpret_cast<uint16_t*>(buffers_[kExchangeBuffer].data() + offset);
  }
  std::vector<NpuRun> MakeRuns(size_t count) {
    std::vector<NpuRun> runs;
    for (size_t i = 0; i < count; ++i) {
      auto run = kernel_->MakeRun(code_, data_);
      EXPECT_OK(run);
      runs.push_back(*std::move(run));
    }
    return runs;
  }
  // Whether the last run wrote v to the output; clears it.
  bool HasRun() {
    EXPECT_OK(buffers_[kExchangeBuffer].SyncFromDevice(0, kExchangeBytes));
    const bool equal = std::equal(Exchange(512), Exchange(512) + kHeadDim, Exchange(1024));
    std::fill(Exchange(1024), Exchange(1024) + kHeadDim, uint16_t{0});
    return equal;
  }

  std::shared_ptr<NpuKernel> kernel_;
  NpuCode code_;
  std::vector<NpuBuffer> buffers_;
  std::vector<const NpuBuffer*> data_;
};

TEST_F(NpuXrtTest, ARunExecutesAgainAndAgain) {
  std::vector<NpuRun> runs = MakeRuns(1);
  for (int i = 0; i < 10; ++i) {
    ASSERT_OK(runs[0].Execute(absl::Seconds(30)));
    ASSERT_TRUE(HasRun());
  }
}

// A run that belongs to a list cannot be started by itself: XRT refuses it.
TEST_F(NpuXrtTest, ListsOfAnyLengthExecuteAgainAndAgain) {
  for (const size_t count : {1, 2, 24, 25, 60}) {
    std::vector<NpuRun> runs = MakeRuns(count);
    std::vector<NpuRun*> pointers;
    for (NpuRun& run : runs) pointers.push_back(&run);
    ASSERT_OK_AND_ASSIGN(NpuRunList list, kernel_->context().MakeRunList(pointers));
    std::vector<int64_t> run_ns(count);
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(list.Execute(absl::Seconds(30), run_ns)) << count << " runs, time " << i;
      ASSERT_TRUE(HasRun());
    }
    EXPECT_GT(run_ns[0], 0);
  }
}

TEST_F(NpuXrtTest, ARefusedCommandIsAnErrorAndTheNextOneRuns) {
  std::vector<NpuRun> runs = MakeRuns(1);
  std::vector<NpuRun*> pointers = {&runs[0]};
  ASSERT_OK_AND_ASSIGN(NpuRunList list, kernel_->context().MakeRunList(pointers));
  std::vector<int64_t> run_ns(1);
  auto* header = reinterpret_cast<StepDescriptor*>(buffers_[kStepBuffer].data());
  header->magic = 1;
  EXPECT_THAT(list.Execute(absl::Seconds(30), run_ns), HasCode(absl::StatusCode::kInternal));
  EXPECT_FALSE(HasRun());
  header->magic = kStepDescriptorMagic;
  EXPECT_OK(list.Execute(absl::Seconds(30), run_ns));
  EXPECT_TRUE(HasRun());
}

// A memory file stands in for a dmabuf.
TEST_F(NpuXrtTest, ImportedAndWrappedMemoryIsComputedOn) {
  const UniqueFd file(::memfd_create("exchange", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kExchangeBytes), 0);
  ASSERT_OK_AND_ASSIGN(const Mapping mapping,
                       Mapping::Map(file.get(), kExchangeBytes, Mapping::Access::kReadWrite));
  std::memcpy(mapping.data(), Exchange(0), kExchangeBytes);
  auto* result = reinterpret_cast<uint16_t*>(mapping.data() + 1024);
  for (const bool import : {true, false}) {
    std::fill(result, result + kHeadDim, uint16_t{0});
    auto buffer = import ? kernel_->ImportDmabuf(kExchangeBuffer, file.get(), kExchangeBytes)
                         : kernel_->WrapMapping(kExchangeBuffer, mapping.data(), kExchangeBytes);
    ASSERT_OK(buffer);
    data_[kExchangeBuffer] = &*buffer;
    std::vector<NpuRun> runs = MakeRuns(1);
    ASSERT_OK(runs[0].Execute(absl::Seconds(30)));
    EXPECT_TRUE(std::equal(Exchange(512), Exchange(512) + kHeadDim, result)) << import;
  }
}

TEST_F(NpuXrtTest, ReportsXrtsVersionAndTheDevicesName) {
  EXPECT_THAT(NpuContext::XrtVersion(), HasSubstr("XRT 2."));
  EXPECT_THAT(kernel_->context().name(), HasSubstr("RyzenAI"));
}

}  // namespace
}  // namespace tandem::npu

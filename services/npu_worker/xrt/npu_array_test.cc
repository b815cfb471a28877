// Control code through an unmodified, current XRT and its NPU plugin, on an emulated array of the
// emulated driver.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"
#include "services/common/weights/dequantize.h"
#include "services/npu_worker/control/attention.h"
#include "services/npu_worker/control/gemm.h"
#include "services/npu_worker/emulator/array/configuration.h"
#include "services/npu_worker/emulator/axlf_builder.h"
#include "services/npu_worker/emulator/driver/driver_counts.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr uint32_t kRows = 70, kOutputs = 96, kInputs = 320;
constexpr uint16_t kOne = 0x3F80;  // bfloat16

// The product of ones and of weights n + 1 for output n.
class NpuArrayTest : public ::testing::Test {
 protected:
  static bool IsNpu1() {
    const char* profile = std::getenv("NPU_EMU_PROFILE");
    return profile != nullptr && std::string(profile) == "npu1";
  }
  struct NamedDesign {
    std::string kernel, design;
  };
  // A context of an xclbin with these kernels.
  absl::StatusOr<std::shared_ptr<NpuContext>> OpenContext(
      const std::vector<NamedDesign>& kernels) const {
    emulator::AxlfOptions options;
    options.kernels.clear();
    for (const auto& [kernel, design] : kernels) {
      options.kernels.push_back(
          {.name = kernel, .num_data_buffers = 4, .pdi = emulator::MakeConfiguration(design)});
    }
    options.num_columns = IsNpu1() ? 4 : 8;
    options.uuid.fill(0xA7);
    const auto bytes = emulator::BuildAxlf(options);
    if (!bytes.ok()) return bytes.status();
    const std::string path = folder_.path() + "/kernels.xclbin";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes->data()),
               static_cast<std::streamsize>(bytes->size()));
    return NpuContext::Open({.xclbin_path = path});
  }
  absl::StatusOr<std::shared_ptr<NpuKernel>> Open(const std::string& design) const {
    auto context = OpenContext({{"MLIR_AIE", design}});
    if (!context.ok()) return context.status();
    return NpuKernel::Open(*std::move(context), "MLIR_AIE");
  }
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(kernel_, Open("gemm_q8_0"));
    const size_t bytes[] = {size_t{GemmPaddedRows(kRows)} * kInputs * 2,
                            ShardBytes(DType::kQ8_0, kOutputs, kInputs), OutputBytes()};
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK_AND_ASSIGN(NpuBuffer buffer, kernel_->Allocate(i, bytes[i]));
      buffers_.push_back(std::move(buffer));
    }
    auto* activations = reinterpret_cast<uint16_t*>(buffers_[0].data());
    std::fill_n(activations, size_t{kRows} * kInputs, kOne);
    for (uint32_t n = 0; n < kOutputs; ++n) {
      const std::vector<float> row(kInputs, static_cast<float>(n + 1));
      QuantizePackedRow(DType::kQ8_0, row,
                        RowInShard(DType::kQ8_0, kOutputs, kInputs, buffers_[1].data(), n));
    }
    for (NpuBuffer& buffer : buffers_) ASSERT_OK(buffer.SyncToDevice(0, buffer.size()));
  }
  static size_t OutputBytes() { return size_t{GemmPaddedRows(kRows)} * kOutputs * sizeof(float); }
  static GemmJob Job() {
    return {.array = {.generation = IsNpu1() ? 3u : 4u, .num_columns = IsNpu1() ? 4u : 8u},
            .num_rows = kRows,
            .num_outputs = kOutputs,
            .num_inputs = kInputs,
            .activations = {.argument = 0},
            .weights = {.argument = 1},
            .output = {.argument = 2}};
  }
  absl::Status Run(NpuKernel& kernel, std::span<const uint32_t> words,
                   CodeForm form = CodeForm::kInstructions) {
    const auto code = kernel.MakeCode(form, words);
    if (!code.ok()) return code.status();
    std::vector<const NpuBuffer*> data;
    for (const NpuBuffer& buffer : buffers_) data.push_back(&buffer);
    auto run = kernel.MakeRun(*code, data);
    if (!run.ok()) return run.status();
    return run->Execute(absl::Seconds(30));
  }
  void ExpectProduct() {
    ASSERT_OK(buffers_[2].SyncFromDevice(0, OutputBytes()));
    const auto* output = reinterpret_cast<const float*>(buffers_[2].data());
    for (uint32_t row = 0; row < kRows; ++row) {
      for (uint32_t n = 0; n < kOutputs; ++n) {
        const float expected = static_cast<float>(kInputs * (n + 1));
        ASSERT_NEAR(output[row * kOutputs + n], expected, expected / 60) << row << " " << n;
      }
    }
  }

  TemporaryDirectory folder_;
  std::shared_ptr<NpuKernel> kernel_;
  std::vector<NpuBuffer> buffers_;
};

TEST_F(NpuArrayTest, AProductIsComputedAgainAndAgain) {
  ASSERT_OK_AND_ASSIGN(const Transaction code, BuildGemm(Job()));
  for (int i = 0; i < 2; ++i) {
    std::memset(buffers_[2].data(), 0, OutputBytes());
    ASSERT_OK(buffers_[2].SyncToDevice(0, OutputBytes()));
    ASSERT_OK(Run(*kernel_, code.words()));
    ExpectProduct();
  }
}

TEST_F(NpuArrayTest, AnElfComputesTheSame) {
  ASSERT_OK_AND_ASSIGN(const Transaction code, BuildGemm(Job()));
  ASSERT_OK(Run(*kernel_, code.words(), CodeForm::kElf));
  ExpectProduct();
  const uint32_t none[] = {0, 0, 0, 0};  // the assembler takes it, the array does not
  EXPECT_THAT(Run(*kernel_, none, CodeForm::kElf), HasCode(absl::StatusCode::kInternal));
}

// The output begins one word too late in its buffer, whose neighbour in memory is another one.
TEST_F(NpuArrayTest, ADescriptorOneWordPastItsBufferFailsTheCommandAndTheNextOneRuns) {
  GemmJob job = Job();
  job.output.offset = sizeof(uint32_t);
  ASSERT_OK_AND_ASSIGN(const Transaction past_the_end, BuildGemm(job));
  ASSERT_OK_AND_ASSIGN(NpuBuffer neighbour, kernel_->Allocate(2, OutputBytes()));
  std::memset(neighbour.data(), 0x5A, OutputBytes());
  ASSERT_OK(neighbour.SyncToDevice(0, OutputBytes()));
  EXPECT_THAT(Run(*kernel_, past_the_end.words()), HasCode(absl::StatusCode::kInternal));
  for (const NpuBuffer* buffer : {&buffers_[2], &neighbour}) {
    ASSERT_OK(buffer->SyncFromDevice(0, OutputBytes()));
    const std::byte expected{buffer == &neighbour ? uint8_t{0x5A} : uint8_t{0}};
    for (size_t i = 0; i < OutputBytes(); ++i) ASSERT_EQ(buffer->data()[i], expected) << i;
  }
  ASSERT_OK_AND_ASSIGN(const Transaction code, BuildGemm(Job()));
  ASSERT_OK(Run(*kernel_, code.words()));
  ExpectProduct();
}

// Values are 1.5 everywhere, so every row's attention is as well, whatever its keys.
TEST_F(NpuArrayTest, APromptsAttentionIsComputed) {
  constexpr uint32_t kHeads = 2, kHeadDim = 128, kPositions = 96 + kZeroSlots, kPromptRows = 33;
  constexpr uint16_t kOneAndAHalf = 0x3FC0;
  constexpr size_t kSlab = size_t{kPositions} * kHeadDim;
  ASSERT_OK_AND_ASSIGN(const auto kernel, Open("attention_128"));
  buffers_.clear();
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK_AND_ASSIGN(NpuBuffer buffer, kernel->Allocate(i, 65536));
    buffers_.push_back(std::move(buffer));
  }
  std::fill_n(reinterpret_cast<uint16_t*>(buffers_[1].data()), kSlab, kOne);
  std::fill_n(reinterpret_cast<uint16_t*>(buffers_[1].data()) + kSlab, kSlab, kOneAndAHalf);
  ASSERT_OK(buffers_[1].SyncToDevice(0, buffers_[1].size()));
  const CacheExtent extent = {.num_positions = kPositions - kZeroSlots};
  const AttentionRun run = {.num_rows = kPromptRows, .first_position = 50, .extents = {&extent, 1}};
  ASSERT_OK_AND_ASSIGN(
      const Transaction code,
      BuildAttention({.array = Job().array,
                      .head_dim = kHeadDim,
                      .num_heads = kHeads,
                      .num_kv_heads = 1,
                      .cache_slots = kPositions,
                      .queries = {.argument = 0},
                      .keys = {.argument = 1},
                      .values = {.argument = 1, .offset = kSlab * sizeof(uint16_t)},
                      .output = {.argument = 2},
                      .scratch = {.argument = 3}},
                     {&run, 1}));
  ASSERT_OK(Run(*kernel, code.words()));
  ASSERT_OK(buffers_[2].SyncFromDevice(0, buffers_[2].size()));
  const auto* output = reinterpret_cast<const uint16_t*>(buffers_[2].data());
  for (size_t i = 0; i < 32768; ++i) {
    ASSERT_EQ(output[i], i < kPromptRows * kHeads * kHeadDim ? kOneAndAHalf : 0) << i;
  }
}

// What `aiecc --xclbin-input` merges: kernels with a configuration each, in one context.
class NpuArrayListTest : public NpuArrayTest, public ::testing::WithParamInterface<CodeForm> {};
INSTANTIATE_TEST_SUITE_P(Forms, NpuArrayListTest,
                         ::testing::Values(CodeForm::kInstructions, CodeForm::kElf));
TEST_P(NpuArrayListTest, KernelsOfOneContextTakeTurns) {
  const emulator::DriverCounts before = emulator::ReadDriverCounts();
  ASSERT_OK_AND_ASSIGN(const auto context,
                       OpenContext({{"first", "gemm_q8_0"}, {"second", "gemm_q8_0"}}));
  EXPECT_THAT(NpuKernel::Open(context, "third").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no kernel 'third'")));
  ASSERT_OK_AND_ASSIGN(const Transaction code, BuildGemm(Job()));
  std::vector<std::shared_ptr<NpuKernel>> kernels;
  std::vector<NpuCode> codes;
  std::vector<NpuRun> runs;
  std::vector<NpuBuffer> outputs;
  const char* const names[] = {"first", "second", "second", "first"};
  for (const char* const name : names) {
    ASSERT_OK_AND_ASSIGN(auto kernel, NpuKernel::Open(context, name));
    ASSERT_OK_AND_ASSIGN(NpuCode loaded, kernel->MakeCode(GetParam(), code.words()));
    ASSERT_OK_AND_ASSIGN(NpuBuffer output, kernel->Allocate(2, OutputBytes()));
    ASSERT_OK_AND_ASSIGN(NpuRun run, kernel->MakeRun());
    const NpuBuffer* const data[] = {&buffers_[0], &buffers_[1], &output};
    ASSERT_OK(run.SetArguments(loaded, data));
    kernels.push_back(std::move(kernel));
    codes.push_back(std::move(loaded));
    runs.push_back(std::move(run));
    outputs.push_back(std::move(output));
  }
  std::vector<NpuRun*> pointers;
  for (NpuRun& run : runs) pointers.push_back(&run);
  ASSERT_OK_AND_ASSIGN(NpuRunList list, context->MakeRunList(pointers));
  std::vector<int64_t> run_ns(runs.size());
  ASSERT_OK(list.Execute(absl::Seconds(30), run_ns));
  const emulator::DriverCounts after = emulator::ReadDriverCounts();
  EXPECT_EQ(after.submissions, before.submissions + 1);
  EXPECT_EQ(after.commands, before.commands + 4);
  EXPECT_EQ(after.configurations, before.configurations + 3) << "first, second, first";
  EXPECT_EQ(after.open_contexts, before.open_contexts + 1);

  // Other code for one of them, in the same list.
  GemmJob first_rows = Job();
  first_rows.num_rows = 64;
  ASSERT_OK_AND_ASSIGN(const Transaction shorter, BuildGemm(first_rows));
  ASSERT_OK(codes[2].Load(shorter.words()));
  for (size_t i = 0; i < runs.size(); ++i) {
    const NpuBuffer* const data[] = {&buffers_[0], &buffers_[1], &outputs[i]};
    ASSERT_OK(runs[i].SetArguments(codes[i], data));
    std::memset(outputs[i].data(), 0, OutputBytes());
    ASSERT_OK(outputs[i].SyncToDevice(0, OutputBytes()));
  }
  ASSERT_OK(list.Execute(absl::Seconds(30), run_ns));
  EXPECT_EQ(emulator::ReadDriverCounts().submissions, after.submissions + 1);
  ASSERT_OK(outputs[2].SyncFromDevice(0, OutputBytes()));
  const auto* rows = reinterpret_cast<const float*>(outputs[2].data());
  EXPECT_NE(rows[63 * kOutputs], 0);
  EXPECT_EQ(rows[64 * kOutputs], 0);
  for (const size_t i : {0, 1, 3}) {
    buffers_[2] = std::move(outputs[i]);
    ExpectProduct();
  }
}

TEST_F(NpuArrayTest, DamagedControlCodeFailsTheCommand) {
  ASSERT_OK_AND_ASSIGN(const Transaction code, BuildGemm(Job()));
  std::vector<uint32_t> words = code.words();
  words[10] ^= 1u << 5;
  EXPECT_THAT(Run(*kernel_, words), HasCode(absl::StatusCode::kInternal));
  words.resize(words.size() - 1);
  EXPECT_THAT(Run(*kernel_, words), HasCode(absl::StatusCode::kInternal));
}

TEST_F(NpuArrayTest, ControlCodeThatWaitsForEverIsGivenUpByTheDriver) {
  Transaction code(Job().array);
  code.Sync({});
  const absl::Time start = absl::Now();
  EXPECT_THAT(Run(*kernel_, code.words()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("driver")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

TEST_F(NpuArrayTest, ADesignThatIsNotKnownFailsItsCommands) {
  ASSERT_OK_AND_ASSIGN(const Transaction code, BuildGemm(Job()));
  ASSERT_OK_AND_ASSIGN(const auto other, Open("convolution"));
  ASSERT_OK_AND_ASSIGN(const NpuCode loaded,
                       other->MakeCode(CodeForm::kInstructions, code.words()));
  std::vector<NpuBuffer> buffers;
  std::vector<const NpuBuffer*> data;
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(NpuBuffer buffer, other->Allocate(i, 4096));
    buffers.push_back(std::move(buffer));
  }
  for (const NpuBuffer& buffer : buffers) data.push_back(&buffer);
  ASSERT_OK_AND_ASSIGN(NpuRun run, other->MakeRun(loaded, data));
  EXPECT_THAT(run.Execute(absl::Seconds(30)), HasCode(absl::StatusCode::kInternal));
}

}  // namespace
}  // namespace tandem::npu

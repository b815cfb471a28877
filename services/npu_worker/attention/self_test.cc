#include "services/npu_worker/attention/self_test.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/attention/kernel_abi.h"
#include "services/npu_worker/backend/known_attention.h"

namespace tandem::npu {
namespace {

using known_attention::kBlockTokens;
using known_attention::kChunkRows;
using known_attention::kDeepPosition;
using known_attention::kGroupHeads;
using known_attention::kNumBlocks;
using known_attention::kNumRows;
using known_attention::kTable;
using known_attention::kTolerance;
using known_attention::kWindow;

constexpr uint32_t kNumKvHeads = 1;
constexpr uint32_t kNumHeads = kNumKvHeads * kGroupHeads;
constexpr uint64_t kGuardBytes = 256;
constexpr uint16_t kGuard = 0xA5A5;
constexpr uint16_t kCanary = 0x7E5A;  // a NaN: no attention gives it

// Places of q, k, v and attention in the exchange buffer, guards between.
struct Layout {
  uint64_t q, k, v, attention, bytes;
};
Layout LayoutFor(uint32_t head_dim) {
  const uint64_t q_bytes = uint64_t{kNumRows} * kNumHeads * head_dim * sizeof(uint16_t);
  const uint64_t kv_bytes = uint64_t{kNumRows} * kNumKvHeads * head_dim * sizeof(uint16_t);
  Layout layout;
  layout.q = kGuardBytes;
  layout.k = layout.q + q_bytes + kGuardBytes;
  layout.v = layout.k + kv_bytes + kGuardBytes;
  layout.attention = layout.v + kv_bytes + kGuardBytes;
  layout.bytes = layout.attention + q_bytes + kGuardBytes;
  return layout;
}

void WriteStep(std::byte* out) {
  StepDescriptor header = {.num_rows = kNumRows,
                           .num_sequences = 2,
                           .table_len = std::size(kTable),
                           .num_positions = kDeepPosition + 1};
  const SequenceDescriptor sequences[] = {
      {.first_row = 0, .num_rows = kChunkRows, .table_offset = {0, 0}},
      {.first_row = kChunkRows,
       .num_rows = 1,
       .first_position = kDeepPosition,
       .table_offset = {1, 1}}};
  std::memcpy(out, &header, sizeof(header));
  std::memcpy(out + sizeof(header), sequences, sizeof(sequences));
  std::memcpy(out + sizeof(header) + sizeof(sequences), kTable, sizeof(kTable));
}

absl::Status Failure(uint32_t head_dim, const std::string& what) {
  return absl::DataLossError(absl::StrFormat("NPU self-test, head size %d: %s", head_dim, what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SelfTest>> SelfTest::Create(NpuKernel& npu,
                                                           const AttendKernel& kernel) {
  std::unique_ptr<SelfTest> test(new SelfTest);
  test->head_dim_ = kernel.head_dim;
  const Layout layout = LayoutFor(kernel.head_dim);
  const uint64_t kv_bytes =
      kNumBlocks * KvBlockElements(kNumKvHeads, kBlockTokens, kernel.head_dim) * sizeof(uint16_t);
  TANDEM_ASSIGN_OR_RETURN(test->code_, npu.MakeCode(CodeForm::kInstructions, kernel.instructions));
  TANDEM_ASSIGN_OR_RETURN(test->step_, npu.Allocate(kStepBuffer, 4096));
  TANDEM_ASSIGN_OR_RETURN(test->layer_, npu.Allocate(kLayerBuffer, 4096));
  TANDEM_ASSIGN_OR_RETURN(test->exchange_, npu.Allocate(kExchangeBuffer, layout.bytes));
  TANDEM_ASSIGN_OR_RETURN(test->kv_, npu.Allocate(kKvBuffer, kv_bytes));
  const AttendParameters parameters = {
      .head_dim = kernel.head_dim,
      .num_heads = kNumHeads,
      .num_kv_heads = kNumKvHeads,
      .group = kWindowGroup,
      .window = kWindow,
      .block_tokens = kBlockTokens,
      .num_blocks = kNumBlocks,
      .scale = 1.0f / std::sqrt(static_cast<float>(kernel.head_dim)),
      .q_offset = layout.q,
      .k_offset = layout.k,
      .v_offset = layout.v,
      .attention_offset = layout.attention};
  std::memcpy(test->layer_.data(), &parameters, sizeof(parameters));
  WriteStep(test->step_.data());
  const std::array<const NpuBuffer*, kNumDataBuffers> data = {
      &test->step_, &test->layer_, &test->exchange_, &test->kv_, &test->step_};
  TANDEM_ASSIGN_OR_RETURN(NpuRun run, npu.MakeRun(test->code_, data));
  test->run_.push_back(std::move(run));
  return test;
}

void SelfTest::Fill() {
  const Layout layout = LayoutFor(head_dim_);
  auto* words = reinterpret_cast<uint16_t*>(exchange_.data());
  std::fill_n(words, layout.bytes / sizeof(uint16_t), kGuard);
  uint16_t* q = words + layout.q / sizeof(uint16_t);
  uint16_t* k = words + layout.k / sizeof(uint16_t);
  uint16_t* v = words + layout.v / sizeof(uint16_t);
  for (uint32_t row = 0; row < kNumRows; ++row) {
    const known_attention::Place at = known_attention::PlaceOf(row);
    for (uint32_t d = 0; d < head_dim_; ++d) {
      for (uint32_t h = 0; h < kNumHeads; ++h) {
        q[(row * kNumHeads + h) * head_dim_ + d] = FloatToHalf(known_attention::Query(row, h, d));
      }
      k[row * head_dim_ + d] = FloatToHalf(known_attention::Key(0, at.sequence, at.position, d));
      v[row * head_dim_ + d] = FloatToHalf(known_attention::Value(0, at.sequence, at.position, d));
    }
  }
  std::fill_n(words + layout.attention / sizeof(uint16_t), kNumRows * kNumHeads * head_dim_,
              kCanary);
  // What sequence 1 has seen before.
  auto* cache = reinterpret_cast<uint16_t*>(kv_.data());
  const uint64_t block = KvBlockElements(kNumKvHeads, kBlockTokens, head_dim_);
  for (uint32_t position = 0; position < kDeepPosition; ++position) {
    uint16_t* slot = cache + kTable[1 + position / kBlockTokens] * block +
                     uint64_t{position % kBlockTokens} * head_dim_;
    for (uint32_t d = 0; d < head_dim_; ++d) {
      slot[d] = FloatToHalf(known_attention::Key(0, 1, position, d));
      slot[block / 2 + d] = FloatToHalf(known_attention::Value(0, 1, position, d));
    }
  }
}

absl::Status SelfTest::Check() const {
  const Layout layout = LayoutFor(head_dim_);
  const auto* words = reinterpret_cast<const uint16_t*>(exchange_.data());
  const uint16_t* attention = words + layout.attention / sizeof(uint16_t);
  const std::vector<float> expected = known_attention::Expected(kNumKvHeads, head_dim_);
  const auto untouched = std::count(attention, attention + expected.size(), kCanary);
  if (untouched == static_cast<ptrdiff_t>(expected.size())) {
    return Failure(head_dim_,
                   "the device reported success and wrote nothing.  This is XRT's noop device "
                   "(XCL_EMULATION_MODE=noop without the emulated NPU's library) or a kernel "
                   "package that was built for another NPU");
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const float actual = HalfToFloat(attention[i]);
    if (!(std::abs(actual - expected[i]) <= kTolerance)) {
      return Failure(head_dim_, absl::StrFormat("output %d of %d is %g, expected %g", i,
                                                expected.size(), actual, expected[i]));
    }
  }
  for (const uint64_t end : {layout.q, layout.k, layout.v, layout.attention, layout.bytes}) {
    const uint16_t* guard = words + (end - kGuardBytes) / sizeof(uint16_t);
    const uint16_t* after = guard + kGuardBytes / sizeof(uint16_t);
    if (std::any_of(guard, after, [](uint16_t word) { return word != kGuard; })) {
      return Failure(head_dim_, absl::StrFormat("the device wrote outside its output, before "
                                                "byte %d of the exchange buffer",
                                                end));
    }
  }
  return absl::OkStatus();
}

absl::Status SelfTest::Run(absl::Duration timeout) {
  Fill();
  for (const NpuBuffer* buffer : {&step_, &layer_, &exchange_, &kv_}) {
    TANDEM_RETURN_IF_ERROR(buffer->SyncToDevice(0, buffer->size()));
  }
  const absl::Status status = run_.front().Execute(timeout);
  if (absl::IsInternal(status)) return Failure(head_dim_, std::string(status.message()));
  TANDEM_RETURN_IF_ERROR(status);
  TANDEM_RETURN_IF_ERROR(exchange_.SyncFromDevice(0, exchange_.size()));
  return Check();
}

absl::Status TestPackage(NpuKernel& npu, const KernelPackage& package, absl::Duration timeout) {
  uint32_t last_head_dim = 0;
  for (const AttendKernel& kernel : package.attend) {
    if (kernel.head_dim == last_head_dim) continue;
    last_head_dim = kernel.head_dim;
    TANDEM_ASSIGN_OR_RETURN(const auto test, SelfTest::Create(npu, kernel));
    TANDEM_RETURN_IF_ERROR(test->Run(timeout));
  }
  return absl::OkStatus();
}

}  // namespace tandem::npu

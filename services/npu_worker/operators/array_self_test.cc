#include "services/npu_worker/operators/array_self_test.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/backend/known_answer.h"
#include "services/npu_worker/backend/known_attention.h"

namespace tandem::npu {
namespace {

using known_attention::kBlockTokens;
using known_attention::kChunkRows;
using known_attention::kDeepPosition;
using known_attention::kNumBlocks;
using known_attention::kNumRows;
using known_attention::kTable;
using known_attention::kTolerance;
using known_attention::kWindow;
using known_attention::PlaceOf;

constexpr uint32_t kGuardRows = 1;  // before the rows, and behind them
// NaNs: no attention gives them.
constexpr Fill<uint16_t> kAttentionFill = {.guard = 0xA5A5, .canary = 0x7FDA};

StepBatch BatchOf(std::span<const RowEntry> rows, std::span<const SequenceEntry> sequences) {
  StepBatch batch = {};
  batch.rows = rows;
  batch.sequences = sequences;
  batch.block_table = kTable;
  return batch;
}

}  // namespace

absl::Status ArraySelfTest::Failure(const std::string& what) const {
  return absl::DataLossError(
      absl::StrFormat("NPU self-test of '%s', head size %d: %s", op_.name, op_.head_dim, what));
}

absl::StatusOr<std::unique_ptr<ArraySelfTest>> ArraySelfTest::Create(
    std::shared_ptr<NpuKernel> kernel, const NpuOperator& op) {
  std::unique_ptr<ArraySelfTest> test(new ArraySelfTest(std::move(kernel), op));
  test->expected_ = known_attention::Expected(test->num_kv_heads(), op.head_dim);
  TANDEM_ASSIGN_OR_RETURN(
      test->commands_,
      AttentionCommands::Create(*test->kernel_, op,
                                {.max_rows = kNumRows + 2 * kGuardRows,
                                 .num_heads = test->num_heads(),
                                 .num_kv_heads = test->num_kv_heads(),
                                 .scale = 1.0f / std::sqrt(static_cast<float>(op.head_dim)),
                                 .max_positions = kDeepPosition + 1,
                                 .block_tokens = kBlockTokens}));
  const SlabShape shape = {.num_kv_heads = test->num_kv_heads(),
                           .head_dim = op.head_dim,
                           .num_slots = kNumBlocks * kBlockTokens + kZeroSlots};
  TANDEM_ASSIGN_OR_RETURN(KvSlab slab,
                          KvSlab::Create(*test->kernel_, test->commands_->cache_index(), shape));
  test->slab_.push_back(std::move(slab));

  StepRuns::Options options = {.group = kWindowGroup,
                               .window = kWindow,
                               .block_tokens = kBlockTokens,
                               .num_blocks = kNumBlocks};
  std::vector<RowEntry> rows(kGuardRows);
  for (uint32_t row = 0; row < kNumRows; ++row) {
    rows.push_back({.position = PlaceOf(row).position, .sequence = PlaceOf(row).sequence});
  }
  const SequenceEntry sequences[] = {{kGuardRows, kChunkRows, {0, 0}},
                                     {kGuardRows + kChunkRows, 1, {1, 1}}};
  TANDEM_RETURN_IF_ERROR(test->runs_.Set(BatchOf(rows, sequences), options));
  TANDEM_RETURN_IF_ERROR(test->commands_->Build(test->runs_.runs(), kWindow, shape, test->code_));

  std::vector<RowEntry> earlier;
  for (uint32_t position = 0; position < kDeepPosition; ++position) {
    earlier.push_back({.position = position});
  }
  const SequenceEntry history = {0, kDeepPosition, {1, 1}};
  TANDEM_RETURN_IF_ERROR(test->history_.Set(BatchOf(earlier, {&history, 1}), options));
  return test;
}

absl::Status ArraySelfTest::Fill() {
  const size_t dim = op_.head_dim;
  const size_t row_size = num_heads() * dim;
  const size_t kv_size = num_kv_heads() * dim;
  std::ranges::fill(commands_->queries(), kAttentionFill.guard);
  std::ranges::fill(commands_->output(), kAttentionFill.guard);
  std::ranges::fill(commands_->output().subspan(kGuardRows * row_size, kNumRows * row_size),
                    kAttentionFill.canary);
  TANDEM_RETURN_IF_ERROR(commands_->HandOverOutput());
  std::vector<uint16_t> keys((kNumRows + kGuardRows) * kv_size), values(keys.size());
  const auto put = [&](size_t row, const known_attention::Place& at) {
    for (uint32_t g = 0; g < num_kv_heads(); ++g) {
      for (uint32_t d = 0; d < dim; ++d) {
        const size_t i = row * kv_size + g * dim + d;
        keys[i] = FloatToHalf(known_attention::Key(g, at.sequence, at.position, d));
        values[i] = FloatToHalf(known_attention::Value(g, at.sequence, at.position, d));
      }
    }
  };
  for (uint32_t row = 0; row < kNumRows; ++row) {
    for (uint32_t h = 0; h < num_heads(); ++h) {
      for (uint32_t d = 0; d < dim; ++d) {
        commands_->queries()[(row + kGuardRows) * row_size + h * dim + d] =
            FloatToBf16(known_attention::Query(row, h, d));
      }
    }
    put(row + kGuardRows, PlaceOf(row));
  }
  TANDEM_RETURN_IF_ERROR(slab_.front().Append(runs_.runs(), DType::kF16, keys, values));
  // What sequence 1 has seen before.
  keys.resize(kDeepPosition * kv_size);
  values.resize(kDeepPosition * kv_size);
  for (uint32_t position = 0; position < kDeepPosition; ++position) put(position, {1, position});
  return slab_.front().Append(history_.runs(), DType::kF16, keys, values);
}

absl::Status ArraySelfTest::Check() {
  const std::vector<float>& expected = expected_;
  const size_t guards = size_t{kGuardRows} * num_heads() * op_.head_dim;
  const std::span<const uint16_t> all = commands_->output();
  const auto answer = all.subspan(guards, expected.size());
  const std::string wrong = WrongWrites<uint16_t>(
      answer, {all.first(guards), all.subspan(guards + expected.size())}, kAttentionFill);
  if (!wrong.empty()) return Failure(wrong);
  largest_error_ = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const float actual = Bf16ToFloat(answer[i]);
    const float error = std::abs(actual - expected[i]);
    if (!(error <= kTolerance)) {
      return Failure(absl::StrFormat("output %d of %d is %g, expected %g", i, expected.size(),
                                     actual, expected[i]));
    }
    largest_error_ = std::max(largest_error_, error);
  }
  return absl::OkStatus();
}

absl::Status ArraySelfTest::Run(absl::Duration timeout) {
  TANDEM_RETURN_IF_ERROR(Fill());
  const auto ns = commands_->Execute(code_, slab_.front(), kNumRows + 2 * kGuardRows, timeout);
  if (absl::IsInternal(ns.status())) return Failure(std::string(ns.status().message()));
  if (!ns.ok()) return ns.status();
  return Check();
}

}  // namespace tandem::npu

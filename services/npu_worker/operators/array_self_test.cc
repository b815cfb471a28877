#include "services/npu_worker/operators/array_self_test.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kNumHeads = 2;
constexpr uint32_t kNumRows = 6;
constexpr uint32_t kGuardRows = 1;      // before the rows, and behind them
constexpr uint32_t kChunkRows = 5;      // sequence 0, positions 0 ..
constexpr uint32_t kDeepPosition = 37;  // sequence 1, a single row
constexpr uint32_t kWindow = 21;
constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kNumBlocks = 4;
constexpr uint32_t kTable[] = {2, 3, 0, 1};  // sequence 0: block 2; sequence 1: 3, 0, 1
constexpr uint16_t kGuard = 0xA5A5;
constexpr uint16_t kCanary = 0x7FDA;  // a NaN: no attention gives it
// Answers are from 0.5 to 1.5.  Scores, probabilities, values and results are rounded, each by 2^-8 of the
// largest at most, in block floating point by 2^-7 (npu4).
constexpr float kTolerance = 0.06f;

// Reproducible numbers in [0, 1).
float Random(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t x = a * 0x9E3779B1u ^ b * 0x85EBCA77u ^ c * 0xC2B2AE3Du;
  x = (x ^ x >> 15) * 0x2C1B3C6Du;
  x = (x ^ x >> 12) * 0x297A2D39u;
  return static_cast<float>((x ^ x >> 15) >> 8) * 0x1p-24f;
}

// As both float16 and bfloat16 have them.
float ToBoth(float value) { return Bf16ToFloat(FloatToBf16(value)); }
float QueryAt(uint32_t row, uint32_t head, uint32_t d) {
  return ToBoth(2.0f * Random(row * kNumHeads + head, d, 1) - 1.0f);
}
float KeyAt(uint32_t sequence, uint32_t position, uint32_t d) {
  return ToBoth(2.0f * Random(sequence * 64 + position, d, 2) - 1.0f);
}
// A sign by element and a size by position: the answer stays away from zero, and shows which
// positions were weighed.
float ValueAt(uint32_t sequence, uint32_t position, uint32_t d) {
  const float sign = Random(0, d, 3) < 0.5f ? -1.0f : 1.0f;
  return ToBoth(sign * (0.5f + Random(sequence * 64 + position, 0, 4)));
}

struct Place {
  uint32_t sequence;
  uint32_t position;
};
// Of a row behind the guards.
Place PlaceOf(uint32_t row) { return row < kChunkRows ? Place{0, row} : Place{1, kDeepPosition}; }

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
    std::shared_ptr<NpuDevice> device, const NpuOperator& op) {
  std::unique_ptr<ArraySelfTest> test(new ArraySelfTest(std::move(device), op));
  TANDEM_ASSIGN_OR_RETURN(
      test->commands_,
      AttentionCommands::Create(*test->device_, op,
                                {.max_rows = kNumRows + 2 * kGuardRows,
                                 .num_heads = kNumHeads,
                                 .num_kv_heads = 1,
                                 .scale = 1.0f / std::sqrt(static_cast<float>(op.head_dim)),
                                 .max_positions = kDeepPosition + 1,
                                 .block_tokens = kBlockTokens}));
  const SlabShape shape = {.num_kv_heads = 1,
                           .head_dim = op.head_dim,
                           .num_slots = kNumBlocks * kBlockTokens + kZeroSlots};
  TANDEM_ASSIGN_OR_RETURN(KvSlab slab,
                          KvSlab::Create(*test->device_, test->commands_->cache_index(), shape));
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
  const size_t row_size = kNumHeads * dim;
  std::ranges::fill(commands_->queries(), kGuard);
  std::ranges::fill(commands_->output(), kGuard);
  std::ranges::fill(commands_->output().subspan(kGuardRows * row_size, kNumRows * row_size),
                    kCanary);
  TANDEM_RETURN_IF_ERROR(commands_->HandOverOutput());
  std::vector<uint16_t> keys((kNumRows + kGuardRows) * dim), values(keys.size());
  for (uint32_t row = 0; row < kNumRows; ++row) {
    for (uint32_t d = 0; d < dim; ++d) {
      for (uint32_t h = 0; h < kNumHeads; ++h) {
        commands_->queries()[(row + kGuardRows) * row_size + h * dim + d] =
            FloatToBf16(QueryAt(row, h, d));
      }
      const Place at = PlaceOf(row);
      keys[(row + kGuardRows) * dim + d] = FloatToHalf(KeyAt(at.sequence, at.position, d));
      values[(row + kGuardRows) * dim + d] = FloatToHalf(ValueAt(at.sequence, at.position, d));
    }
  }
  TANDEM_RETURN_IF_ERROR(slab_.front().Append(runs_.runs(), keys, values));
  // What sequence 1 has seen before.
  keys.resize(kDeepPosition * dim);
  values.resize(kDeepPosition * dim);
  for (uint32_t position = 0; position < kDeepPosition; ++position) {
    for (uint32_t d = 0; d < dim; ++d) {
      keys[position * dim + d] = FloatToHalf(KeyAt(1, position, d));
      values[position * dim + d] = FloatToHalf(ValueAt(1, position, d));
    }
  }
  return slab_.front().Append(history_.runs(), keys, values);
}

std::vector<float> ArraySelfTest::Expected() const {
  std::vector<float> expected;
  const uint32_t dim = op_.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  for (uint32_t row = 0; row < kNumRows; ++row) {
    const Place at = PlaceOf(row);
    const uint32_t first = at.position + 1 > kWindow ? at.position + 1 - kWindow : 0;
    for (uint32_t h = 0; h < kNumHeads; ++h) {
      std::vector<double> sum(dim, 0.0);
      double total = 0.0;
      for (uint32_t j = first; j <= at.position; ++j) {
        double score = 0.0;
        for (uint32_t d = 0; d < dim; ++d) {
          score += double{QueryAt(row, h, d)} * KeyAt(at.sequence, j, d);
        }
        const double weight = std::exp(score * scale);
        total += weight;
        for (uint32_t d = 0; d < dim; ++d) sum[d] += weight * ValueAt(at.sequence, j, d);
      }
      for (const double s : sum) expected.push_back(static_cast<float>(s / total));
    }
  }
  return expected;
}

absl::Status ArraySelfTest::Check() {
  const std::vector<float> expected = Expected();
  const size_t guards = size_t{kGuardRows} * kNumHeads * op_.head_dim;
  const auto all = commands_->output();
  const auto answer = all.subspan(guards, expected.size());
  if (std::ranges::count(answer, kCanary) == static_cast<ptrdiff_t>(expected.size())) {
    return Failure(
        "the NPU reported success and wrote nothing.  Its driver has no hardware below it, or the "
        "package was built for another NPU");
  }
  for (const auto guard : {all.first(guards), all.subspan(guards + expected.size())}) {
    if (std::ranges::count(guard, kGuard) != static_cast<ptrdiff_t>(guard.size())) {
      return Failure("the NPU wrote outside its output");
    }
  }
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

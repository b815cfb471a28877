#include "services/npu_worker/control/rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/control/shim_descriptor.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kRowsChannel = 0;
constexpr uint32_t kNormWeightChannel = 1;
// Descriptors of a shim tile.
constexpr uint32_t kFirstDescriptor = 0;
constexpr uint32_t kSecondDescriptor = 1;
constexpr uint32_t kWeightDescriptor = 2;
constexpr uint32_t kOutputDescriptor = 3;
constexpr uint32_t kMaxRowNumbers = 1u << 16;

absl::Status CheckRows(const RowJob& job) {
  const auto wrong = [](const std::string& what) {
    return absl::InvalidArgumentError("rows: " + what);
  };
  if (job.num_rows == 0 || job.num_rows > MaxJobRows(job.array)) {
    return wrong(absl::StrFormat("%d rows, must be 1 to %d", job.num_rows, MaxJobRows(job.array)));
  }
  const bool is_norm = job.function == RowFunction::kNorm || job.function == RowFunction::kNormAdd;
  const uint32_t limit = is_norm                              ? kRowMaxNorm
                         : job.function == RowFunction::kRope ? kRowMaxHead
                                                              : kMaxRowNumbers;
  if (job.size == 0 || job.size % kRowMultiple != 0 || job.size > limit) {
    return wrong(absl::StrFormat("%d numbers, must be a multiple of %d and at most %d", job.size,
                                 kRowMultiple, limit));
  }
  if (job.count > job.size) {
    return wrong(absl::StrFormat("a mean over %d of %d numbers", job.count, job.size));
  }
  if (job.num_heads == 0 || job.num_heads > 1024) {
    return wrong(absl::StrFormat("%d heads, must be 1 to 1024", job.num_heads));
  }
  const RowWords words = RowWordsOf(job);
  const std::pair<const RowOperand*, uint32_t> operands[] = {
      {&job.first, words.first}, {&job.second, words.second}, {&job.output, words.output}};
  for (const auto& [operand, row_words] : operands) {
    if (row_words == 0) continue;
    if (operand->stride < row_words) {
      return wrong(absl::StrFormat("rows of %d words, %d words apart", row_words, operand->stride));
    }
    const uint64_t bytes = uint64_t{PaddedJobRows(job.num_rows)} * operand->stride * 4;
    if (bytes > ~0u - operand->place.offset) {
      return wrong(absl::StrFormat("%d rows %d words apart take more than 4 GiB", job.num_rows,
                                   operand->stride));
    }
  }
  return absl::OkStatus();
}

// Four rows at a time, an object of each in turn; `first_group`: of four rows.
ShimPart Rows(const RowOperand& operand, uint32_t row_words, uint32_t first_group,
              uint32_t num_groups, uint32_t descriptor) {
  const uint64_t words = uint64_t{first_group} * kRowCores * operand.stride;
  return {.descriptor = descriptor,
          .argument = operand.place.argument,
          .offset = operand.place.offset + static_cast<uint32_t>(words * sizeof(uint32_t)),
          .transfer = {.length = kRowCores * row_words,
                       .size = {kRowObjectWords, kRowCores},
                       .step = {1, operand.stride, kRowObjectWords},
                       .repeat_step = kRowCores * operand.stride,
                       .num_repeats = num_groups}};
}

ShimChannel Output(uint32_t column) {
  return {.column = column, .direction = DmaDirection::kFromTile, .channel = kRowsChannel};
}

void SetCores(const RowJob& job, uint32_t column, uint32_t num_groups, Transaction& transaction) {
  const uint32_t count = job.count == 0 ? job.size : job.count;
  const RowParameters parameters = {.function = static_cast<int32_t>(job.function),
                                    .num_rows = static_cast<int32_t>(num_groups),
                                    .size = static_cast<int32_t>(job.size),
                                    .num_heads = static_cast<int32_t>(job.num_heads),
                                    .inverse_count = 1.0f / static_cast<float>(count),
                                    .epsilon = job.epsilon};
  constexpr size_t kWords = sizeof(RowParameters) / sizeof(uint32_t);
  const auto words = std::bit_cast<std::array<uint32_t, kWords>>(parameters);
  for (uint32_t core = 0; core < kRowCores; ++core) {
    SetParameters({column, kFirstCoreRow + core}, words, transaction, job.parameters);
  }
}

}  // namespace

RowWords RowWordsOf(const RowJob& job) {
  const uint32_t size = job.size;
  switch (job.function) {
    case RowFunction::kNorm:
      return {.first = size, .weights = size, .output = size / 2};
    case RowFunction::kNormAdd:
      return {.first = size, .second = size, .weights = size, .output = size};
    case RowFunction::kRope:
      return {.first = size,
              .second = job.num_heads * size,
              .weights = size,
              .output = job.num_heads * size / 2};
    case RowFunction::kGeglu:
      return {.first = 2 * size, .output = size / 2};
  }
  return {};
}

absl::StatusOr<Transaction> BuildRows(const RowJob& job) {
  TANDEM_RETURN_IF_ERROR(CheckRows(job));
  const RowWords words = RowWordsOf(job);
  const uint32_t num_groups = PaddedJobRows(job.num_rows) / kRowCores;
  const uint32_t share = (num_groups + job.array.num_columns - 1) / job.array.num_columns;
  Transaction transaction(job.array);
  uint32_t column = 0;
  for (uint32_t group = 0; group < num_groups; group += share, ++column) {
    const uint32_t count = std::min(share, num_groups - group);
    SetCores(job, column, count, transaction);
    if (words.weights != 0) {
      const ShimPart part = {.descriptor = kWeightDescriptor,
                             .argument = job.weights.argument,
                             .offset = job.weights.offset,
                             .transfer = {.length = words.weights}};
      TANDEM_RETURN_IF_ERROR(StartShimTask({.column = column, .channel = kNormWeightChannel},
                                           {&part, 1}, /*with_token=*/false, transaction));
    }
    std::vector<ShimPart> parts = {Rows(job.first, words.first, group, count, kFirstDescriptor)};
    if (words.second != 0) {
      parts.push_back(Rows(job.second, words.second, group, count, kSecondDescriptor));
    }
    TANDEM_RETURN_IF_ERROR(StartShimTask({.column = column, .channel = kRowsChannel}, parts,
                                         /*with_token=*/false, transaction));
    const ShimPart output = Rows(job.output, words.output, group, count, kOutputDescriptor);
    RouteTokens(Output(column), transaction);
    TANDEM_RETURN_IF_ERROR(
        StartShimTask(Output(column), {&output, 1}, /*with_token=*/true, transaction));
  }
  for (uint32_t waited = 0; waited < column; ++waited) {
    transaction.Sync(TokenOf(Output(waited)));
  }
  return transaction;
}

}  // namespace tandem::npu

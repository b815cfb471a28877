#include "services/npu_worker/control/attention.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numbers>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/control/attention_checks.h"
#include "services/npu_worker/control/cache_tasks.h"
#include "services/npu_worker/control/core_parameters.h"
#include "services/npu_worker/control/shim_descriptor.h"
#include "services/npu_worker/kernels/aie/attention_tile.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kQueryChannel = 0;
constexpr uint32_t kCacheChannel = 1;
// Descriptors of a shim tile.
constexpr uint32_t kTasksUnderWay = 3;     // of the cache
constexpr uint32_t kCacheDescriptors = 0;  // two for each of them
constexpr uint32_t kQueryDescriptor = 6;
constexpr uint32_t kAttentionOutputs = 7;  // two for each head of an item

// What a column computes at a time: rows of heads that share keys and values.
struct AttentionItem {
  const AttentionRun* run = nullptr;
  uint32_t first_head = 0;
  uint32_t first_row = 0;  // of the run
  uint32_t num_rows = 0;
  Tiles tiles;
};

class AttentionBuilder {
 public:
  AttentionBuilder(const AttentionJob& job, uint32_t max_bytes, std::vector<Transaction>& code)
      : job_(job),
        max_bytes_(max_bytes),
        heads_(HeadsOfItem(job.num_heads / job.num_kv_heads)),
        rows_(kAttentionColumnQueries / heads_),
        head_words_(job.head_dim * kCacheElementBytes / sizeof(uint32_t)),
        row_words_(job.num_heads * head_words_),
        code_(code),
        transaction_(Begin()),
        begin_bytes_(transaction_.num_bytes()) {}

  absl::Status Build(std::span<const AttentionRun> runs) {
    std::vector<AttentionItem> items;
    for (const AttentionRun& run : runs) AddItems(run, items);
    // A wave takes as long as its longest item: those of like lengths go together.
    std::ranges::stable_sort(items, std::ranges::greater{},
                             [](const AttentionItem& item) { return item.tiles.count; });
    const std::span<const AttentionItem> all = items;
    for (size_t i = 0; i < items.size(); i += job_.array.num_columns) {
      const size_t count = std::min<size_t>(job_.array.num_columns, items.size() - i);
      TANDEM_RETURN_IF_ERROR(AddWave(all.subspan(i, count)));
    }
    if (transaction_.num_bytes() > begin_bytes_) code_.push_back(std::move(transaction_));
    return absl::OkStatus();
  }

 private:
  // Four heads, two or one, as many as share keys and values.
  static uint32_t HeadsOfItem(uint32_t group) {
    return group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1;
  }

  void AddItems(const AttentionRun& run, std::vector<AttentionItem>& items) const {
    for (uint32_t head = 0; head < job_.num_heads; head += heads_) {
      for (uint32_t row = 0; row < run.num_rows; row += rows_) {
        AttentionItem item = {&run, head, row, std::min(rows_, run.num_rows - row), {}};
        const uint32_t first = FirstSeen(job_, run, run.first_position + row) / kAttentionKeys;
        const uint32_t end_row =
            run.picture_first == kNoPictureRows ? row + item.num_rows : run.num_rows;
        const uint32_t last = (run.first_position + end_row - 1) / kAttentionKeys;
        item.tiles = {first, last + 1 - first};
        items.push_back(item);
      }
    }
  }

  // A transaction for waves to follow.
  Transaction Begin() const {
    Transaction transaction(job_.array);
    for (uint32_t column = 0; column < job_.array.num_columns; ++column) {
      RouteTokens(Output(column), transaction);
      RouteTokens(Cache(column), transaction);
    }
    return transaction;
  }

  // A wave is never cut; one that is too long for a transaction has fewer columns.
  absl::Status AddWave(std::span<const AttentionItem> items) {
    Transaction wave(job_.array);
    TANDEM_RETURN_IF_ERROR(WriteWave(items, wave));
    const uint64_t alone = uint64_t{begin_bytes_} + wave.num_bytes();
    if (alone > max_bytes_) {
      if (items.size() == 1) {
        return absl::ResourceExhaustedError(absl::StrFormat(
            "attention: %d bytes of control code for a column, at most %d", alone, max_bytes_));
      }
      TANDEM_RETURN_IF_ERROR(AddWave(items.first(items.size() / 2)));
      return AddWave(items.subspan(items.size() / 2));
    }
    if (uint64_t{transaction_.num_bytes()} + wave.num_bytes() > max_bytes_) {
      code_.push_back(std::move(transaction_));
      transaction_ = Begin();
    }
    transaction_.Append(wave);
    return absl::OkStatus();
  }

  // The items of a wave, one a column.
  absl::Status WriteWave(std::span<const AttentionItem> items, Transaction& wave) const {
    std::vector<std::vector<CacheTask>> tasks;
    size_t most = 0;
    for (uint32_t column = 0; column < items.size(); ++column) {
      SetCores(column, items[column], wave);
      TANDEM_RETURN_IF_ERROR(StartQueries(column, items[column], wave));
      TANDEM_RETURN_IF_ERROR(StartOutput(column, items[column], wave));
      tasks.push_back(
          CacheTasksOf(job_.cache_slots, items[column].run->extents, items[column].tiles));
      most = std::max(most, tasks.back().size());
    }
    for (size_t i = 0; i < most; ++i) {
      for (uint32_t column = 0; column < items.size(); ++column) {
        if (i >= tasks[column].size()) continue;
        const ShimChannel channel = Cache(column);
        if (i >= kTasksUnderWay) wave.Sync(TokenOf(channel));
        const bool with_token = i + kTasksUnderWay < tasks[column].size();
        TANDEM_RETURN_IF_ERROR(StartCache(channel, items[column].first_head, tasks[column][i],
                                          i % kTasksUnderWay, with_token, wave));
      }
    }
    for (uint32_t column = 0; column < items.size(); ++column) {
      wave.Sync(TokenOf(Output(column)));
    }
    return absl::OkStatus();
  }

  void SetCores(uint32_t column, const AttentionItem& item, Transaction& wave) const {
    const AttentionRun& run = *item.run;
    const uint32_t end = run.first_position + run.num_rows;
    for (uint32_t core = 0; core < kAttentionCores; ++core) {
      const uint32_t row = item.first_row + core * kAttentionQueries % rows_;
      AttentionParameters parameters = {
          .first_position = static_cast<int32_t>(run.first_position + row),
          .first_key = static_cast<int32_t>(item.tiles.first * kAttentionKeys),
          .num_tiles = static_cast<int32_t>(item.tiles.count),
          .num_keys = static_cast<int32_t>(end),
          .window = static_cast<int32_t>(job_.window),
          .scale = job_.scale * std::numbers::log2e_v<float>};
      if (run.picture_first != kNoPictureRows) {
        parameters.picture_first = static_cast<int32_t>(run.picture_first);
        parameters.picture_last = static_cast<int32_t>(end - 1);
      }
      constexpr size_t kWords = sizeof(AttentionParameters) / sizeof(uint32_t);
      const auto words = std::bit_cast<std::array<uint32_t, kWords>>(parameters);
      SetParameters({column, kFirstCoreRow + core}, words, wave, job_.parameters);
    }
  }

  // Rows of one head, from a row of the step on.
  ShimPart Rows(const Operand& operand, uint32_t head, uint32_t row, uint32_t num_rows) const {
    const uint64_t words = uint64_t{row} * row_words_ + head * head_words_;
    return {.argument = operand.argument,
            .offset = operand.offset + static_cast<uint32_t>(words * sizeof(uint32_t)),
            .transfer = {.length = num_rows * head_words_,
                         .size = {head_words_, num_rows},
                         .step = {1, row_words_, 1}}};
  }

  absl::Status StartQueries(uint32_t column, const AttentionItem& item, Transaction& wave) const {
    ShimPart part =
        Rows(job_.queries, item.first_head, item.run->first_row + item.first_row, rows_);
    part.descriptor = kQueryDescriptor;
    part.transfer.length *= heads_;
    part.transfer.step[2] = head_words_;
    return StartShimTask({.column = column, .channel = kQueryChannel}, {&part, 1},
                         /*with_token=*/false, wave);
  }

  absl::Status StartOutput(uint32_t column, const AttentionItem& item, Transaction& wave) const {
    std::vector<ShimPart> parts;
    for (uint32_t head = 0; head < heads_; ++head) {
      parts.push_back(Rows(job_.output, item.first_head + head,
                           item.run->first_row + item.first_row, item.num_rows));
      if (item.num_rows == rows_) continue;
      parts.push_back({.argument = job_.scratch.argument,
                       .offset = job_.scratch.offset,
                       .transfer = {.length = (rows_ - item.num_rows) * head_words_}});
    }
    for (uint32_t i = 0; i < parts.size(); ++i) parts[i].descriptor = kAttentionOutputs + i;
    return StartShimTask(Output(column), parts, /*with_token=*/true, wave);
  }

  absl::Status StartCache(const ShimChannel& channel, uint32_t head, const CacheTask& task,
                          uint32_t set, bool with_token, Transaction& wave) const {
    const uint32_t kv_head = head / (job_.num_heads / job_.num_kv_heads);
    std::array<ShimPart, 2> parts;
    for (uint32_t i = 0; i < task.num_parts; ++i) {
      const CachePart& part = task.parts[i];
      const Operand& operand = part.values ? job_.values : job_.keys;
      const uint64_t slot = uint64_t{kv_head} * job_.cache_slots + part.piece.first_slot;
      const uint64_t bytes = slot * job_.head_dim * kCacheElementBytes;
      ShimTransfer transfer = {.length = part.num_pieces * part.piece.num_slots * head_words_,
                               .repeat_step = std::max(task.repeat_distance, 1u) * head_words_,
                               .num_repeats = task.num_repeats};
      if (part.num_pieces > 1) {
        transfer.size = {head_words_, part.piece.num_slots};
        transfer.step = {1, head_words_, part.distance * head_words_};
      }
      parts[i] = {.descriptor = kCacheDescriptors + 2 * set + i,
                  .argument = operand.argument,
                  .offset = operand.offset + static_cast<uint32_t>(bytes),
                  .transfer = transfer};
    }
    return StartShimTask(channel, std::span(parts).first(task.num_parts), with_token, wave);
  }

  static ShimChannel Cache(uint32_t column) { return {.column = column, .channel = kCacheChannel}; }
  static ShimChannel Output(uint32_t column) {
    return {.column = column, .direction = DmaDirection::kFromTile, .channel = 0};
  }

  const AttentionJob& job_;
  const uint32_t max_bytes_;
  const uint32_t heads_;       // of an item
  const uint32_t rows_;        // of an item
  const uint32_t head_words_;  // of a head's row
  const uint32_t row_words_;   // of all heads' row
  std::vector<Transaction>& code_;
  Transaction transaction_;     // the one that waves are added to
  const uint32_t begin_bytes_;  // of one without waves
};

}  // namespace

absl::Status BuildAttention(const AttentionJob& job, std::span<const AttentionRun> runs,
                            uint32_t max_bytes, std::vector<Transaction>& code) {
  TANDEM_RETURN_IF_ERROR(CheckAttentionJob(job));
  for (const AttentionRun& run : runs) TANDEM_RETURN_IF_ERROR(CheckAttentionRun(job, run));
  return AttentionBuilder(job, max_bytes, code).Build(runs);
}

absl::StatusOr<Transaction> BuildAttention(const AttentionJob& job,
                                           std::span<const AttentionRun> runs) {
  std::vector<Transaction> code;
  TANDEM_RETURN_IF_ERROR(BuildAttention(job, runs, ~0u, code));
  if (code.empty()) return absl::InvalidArgumentError("attention: no rows");
  return std::move(code.front());
}

uint64_t AttentionCodeBytes(uint64_t num_positions, uint32_t block_tokens) {
  constexpr uint64_t kPart = 48 + 48;  // a descriptor, its address
  constexpr uint64_t kTask = 2 * kPart + 24 + 16;
  constexpr uint64_t kBegin = 16 + 8 * 2 * 28;  // routes of eight columns' tokens
  constexpr uint64_t kItem =
      16 + kAttentionCores * (16 + 64 + 24) + (kPart + 24) + (8 * kPart + 24) + 16;
  const uint64_t block = std::max(block_tokens, 1u);
  const uint64_t tiles = num_positions / kAttentionKeys + 2;
  uint64_t pieces = (kAttentionKeys + block - 2) / block + 1;  // of a tile
  if (kAttentionKeys % block == 0) pieces = kAttentionKeys / block;
  return kBegin + kItem + tiles * pieces * kTask;
}

}  // namespace tandem::npu

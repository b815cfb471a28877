#include "services/npu_worker/control/attention.h"

#include <algorithm>
#include <bit>
#include <numbers>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/control/core_parameters.h"
#include "services/npu_worker/control/shim_descriptor.h"
#include "services/npu_worker/kernels/aie/attention_tile.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kColumnQueries = kAttentionQueries * kAttentionCores;
constexpr uint32_t kQueryChannel = 0;
constexpr uint32_t kCacheChannel = 1;
constexpr uint32_t kElement = 2;  // bytes of a bfloat16
// Descriptors of a shim tile.
constexpr uint32_t kCacheTasks = 3;        // under way at a time
constexpr uint32_t kCacheDescriptors = 0;  // two for each of them
constexpr uint32_t kQueryDescriptor = 6;
constexpr uint32_t kAttentionDescriptors = 7;  // two for each head of an item

absl::Status WrongAttention(const std::string& what) {
  return absl::InvalidArgumentError("attention: " + what);
}

uint32_t WindowStart(const AttentionJob& job, uint32_t position) {
  return job.window == 0 || position < job.window ? 0 : position + 1 - job.window;
}

absl::Status CheckHeads(const AttentionJob& job) {
  if (job.head_dim != 64 && job.head_dim != 128 && job.head_dim != 256) {
    return WrongAttention(absl::StrFormat("heads of %d, cores have 64, 128 and 256", job.head_dim));
  }
  if (job.num_kv_heads == 0 || job.num_heads == 0 || job.num_heads % job.num_kv_heads != 0 ||
      job.num_heads > 1024) {
    return WrongAttention(
        absl::StrFormat("%d heads over %d kv heads", job.num_heads, job.num_kv_heads));
  }
  return absl::OkStatus();
}

absl::Status CheckAttention(const AttentionJob& job) {
  constexpr uint32_t kMaxPositions = 1u << 30;
  TANDEM_RETURN_IF_ERROR(CheckHeads(job));
  if (job.num_rows == 0 || job.num_rows > kMaxPositions || job.first_position > kMaxPositions ||
      job.window > kMaxPositions) {
    return WrongAttention(absl::StrFormat("%d rows from position %d on, window %d", job.num_rows,
                                          job.first_position, job.window));
  }
  const uint32_t first_tile = WindowStart(job, job.first_position) / kAttentionKeys;
  const uint32_t end = job.first_position + job.num_rows;
  const uint32_t seen = (end + kAttentionKeys - 1) / kAttentionKeys - first_tile;
  if (job.cache_positions % kAttentionKeys != 0 || job.cache_positions / kAttentionKeys < seen) {
    return WrongAttention(
        absl::StrFormat("a cache of %d positions, must be a multiple of %d and %d or more",
                        job.cache_positions, kAttentionKeys, seen * kAttentionKeys));
  }
  const uint64_t head_bytes = uint64_t{job.head_dim} * kElement;
  const uint64_t cache_bytes = head_bytes * job.num_kv_heads * job.cache_positions;
  const uint64_t row_bytes = head_bytes * job.num_heads * (job.num_rows + kColumnQueries);
  if (cache_bytes > ~0u - std::max(job.keys.offset, job.values.offset) ||
      row_bytes > ~0u - std::max(job.queries.offset, job.output.offset)) {
    return WrongAttention(absl::StrFormat("a cache of %d bytes and rows of %d: more than 4 GiB",
                                          cache_bytes, row_bytes));
  }
  return absl::OkStatus();
}

// What a column computes at a time: `num_rows` rows of heads that share keys and values.
struct AttentionItem {
  uint32_t first_head = 0;
  uint32_t first_row = 0;
  uint32_t num_rows = 0;
};

class AttentionBuilder {
 public:
  explicit AttentionBuilder(const AttentionJob& job)
      : job_(job),
        heads_(HeadsOfItem(job.num_heads / job.num_kv_heads)),
        rows_(kColumnQueries / heads_),
        head_words_(job.head_dim * kElement / sizeof(uint32_t)),
        row_words_(job.num_heads * head_words_),
        transaction_(job.array) {}

  absl::StatusOr<Transaction> Build() {
    std::vector<AttentionItem> items;
    for (uint32_t head = 0; head < job_.num_heads; head += heads_) {
      for (uint32_t row = 0; row < job_.num_rows; row += rows_) {
        items.push_back({head, row, std::min(rows_, job_.num_rows - row)});
      }
    }
    const std::span<const AttentionItem> all = items;
    for (size_t i = 0; i < items.size(); i += job_.array.num_columns) {
      const size_t count = std::min<size_t>(job_.array.num_columns, items.size() - i);
      TANDEM_RETURN_IF_ERROR(Wave(all.subspan(i, count)));
    }
    return std::move(transaction_);
  }

 private:
  // Four heads, two or one, as many as share keys and values.
  static uint32_t HeadsOfItem(uint32_t group) {
    return group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1;
  }

  struct Tiles {
    uint32_t first = 0;  // of 32 positions
    uint32_t count = 0;
  };
  Tiles TilesOf(const AttentionItem& item) const {
    const uint32_t first_position = job_.first_position + item.first_row;
    const uint32_t first = WindowStart(job_, first_position) / kAttentionKeys;
    const uint32_t last = (first_position + item.num_rows - 1) / kAttentionKeys;
    return {first, last + 1 - first};
  }
  // The tiles as tasks: none crosses the end of the cache.
  std::vector<Tiles> CacheTasks(const AttentionItem& item) const {
    const uint32_t slots = job_.cache_positions / kAttentionKeys;
    Tiles left = TilesOf(item);
    std::vector<Tiles> tasks;
    while (left.count > 0) {
      const uint32_t count = std::min({left.count, kShimRepeats, slots - left.first % slots});
      tasks.push_back({left.first % slots, count});
      left = {left.first + count, left.count - count};
    }
    return tasks;
  }

  // The items of a wave, one a column.
  absl::Status Wave(std::span<const AttentionItem> items) {
    std::vector<std::vector<Tiles>> tasks;
    size_t most = 0;
    for (uint32_t column = 0; column < items.size(); ++column) {
      SetCores(column, items[column]);
      TANDEM_RETURN_IF_ERROR(StartQueries(column, items[column]));
      TANDEM_RETURN_IF_ERROR(StartOutput(column, items[column]));
      tasks.push_back(CacheTasks(items[column]));
      most = std::max(most, tasks.back().size());
    }
    for (size_t i = 0; i < most; ++i) {
      for (uint32_t column = 0; column < items.size(); ++column) {
        if (i >= tasks[column].size()) continue;
        const ShimChannel channel = {.column = column, .channel = kCacheChannel};
        if (i >= kCacheTasks) transaction_.Sync(TokenOf(channel));
        const bool with_token = i + kCacheTasks < tasks[column].size();
        TANDEM_RETURN_IF_ERROR(StartCache(channel, items[column].first_head, tasks[column][i],
                                          i % kCacheTasks, with_token));
      }
    }
    for (uint32_t column = 0; column < items.size(); ++column) {
      transaction_.Sync(TokenOf(Output(column)));
    }
    return absl::OkStatus();
  }

  void SetCores(uint32_t column, const AttentionItem& item) {
    const Tiles tiles = TilesOf(item);
    for (uint32_t core = 0; core < kAttentionCores; ++core) {
      const uint32_t row = item.first_row + core * kAttentionQueries % rows_;
      const AttentionParameters parameters = {
          .first_position = static_cast<int32_t>(job_.first_position + row),
          .first_key = static_cast<int32_t>(tiles.first * kAttentionKeys),
          .num_tiles = static_cast<int32_t>(tiles.count),
          .num_keys = static_cast<int32_t>(job_.first_position + job_.num_rows),
          .window = static_cast<int32_t>(job_.window),
          .scale = job_.scale * std::numbers::log2e_v<float>};
      constexpr size_t kWords = sizeof(AttentionParameters) / sizeof(uint32_t);
      const auto words = std::bit_cast<std::array<uint32_t, kWords>>(parameters);
      SetParameters({column, kFirstCoreRow + core}, words, transaction_);
    }
  }

  // Rows of one head, from `row` on.
  ShimPart Rows(const Operand& operand, uint32_t head, uint32_t row, uint32_t num_rows) const {
    const uint64_t words = uint64_t{row} * row_words_ + head * head_words_;
    return {.argument = operand.argument,
            .offset = operand.offset + static_cast<uint32_t>(words * sizeof(uint32_t)),
            .transfer = {.length = num_rows * head_words_,
                         .size = {head_words_, num_rows},
                         .step = {1, row_words_, 1}}};
  }

  absl::Status StartQueries(uint32_t column, const AttentionItem& item) {
    ShimPart part = Rows(job_.queries, item.first_head, item.first_row, rows_);
    part.descriptor = kQueryDescriptor;
    part.transfer.length *= heads_;
    part.transfer.step[2] = head_words_;
    return StartShimTask({.column = column, .channel = kQueryChannel}, {&part, 1},
                         /*with_token=*/false, transaction_);
  }

  absl::Status StartOutput(uint32_t column, const AttentionItem& item) {
    std::vector<ShimPart> parts;
    for (uint32_t head = 0; head < heads_; ++head) {
      parts.push_back(Rows(job_.output, item.first_head + head, item.first_row, item.num_rows));
      if (item.num_rows == rows_) continue;
      parts.push_back({.argument = job_.scratch.argument,
                       .offset = job_.scratch.offset,
                       .transfer = {.length = (rows_ - item.num_rows) * head_words_}});
    }
    for (uint32_t i = 0; i < parts.size(); ++i) parts[i].descriptor = kAttentionDescriptors + i;
    return StartShimTask(Output(column), parts, /*with_token=*/true, transaction_);
  }

  absl::Status StartCache(const ShimChannel& channel, uint32_t head, const Tiles& tiles,
                          uint32_t set, bool with_token) {
    const uint32_t kv_head = head / (job_.num_heads / job_.num_kv_heads);
    const uint64_t position =
        uint64_t{kv_head} * job_.cache_positions + tiles.first * kAttentionKeys;
    const uint32_t tile_words = kAttentionKeys * head_words_;
    std::vector<ShimPart> parts;
    for (const Operand* operand : {&job_.keys, &job_.values}) {
      const uint64_t bytes = position * job_.head_dim * kElement;
      parts.push_back(
          {.descriptor = kCacheDescriptors + 2 * set + static_cast<uint32_t>(parts.size()),
           .argument = operand->argument,
           .offset = operand->offset + static_cast<uint32_t>(bytes),
           .transfer = {
               .length = tile_words, .repeat_step = tile_words, .num_repeats = tiles.count}});
    }
    return StartShimTask(channel, parts, with_token, transaction_);
  }

  static ShimChannel Output(uint32_t column) {
    return {.column = column, .direction = DmaDirection::kFromTile, .channel = 0};
  }

  const AttentionJob& job_;
  const uint32_t heads_;       // of an item
  const uint32_t rows_;        // of an item
  const uint32_t head_words_;  // of a head's row
  const uint32_t row_words_;   // of all heads' row
  Transaction transaction_;
};

}  // namespace

absl::StatusOr<Transaction> BuildAttention(const AttentionJob& job) {
  TANDEM_RETURN_IF_ERROR(CheckAttention(job));
  return AttentionBuilder(job).Build();
}

}  // namespace tandem::npu

#include "services/npu_worker/emulator/array/attention_design.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/npu_worker/kernels/aie_host/attention_cores.h"

namespace tandem::npu::emulator {
namespace {

// Where element (row, column) of rows of `head_dim` lies among blocks of 8 x 8: what the memory
// tile's DMA does to queries, keys and values on their way to a core, and back to its output.
size_t BlockOffset(size_t row, size_t column, size_t head_dim) {
  return (row / 8 * (head_dim / 8) + column / 8) * 64 + row % 8 * 8 + column % 8;
}

}  // namespace

// The program of a core: takes AttentionParameters, and computes its queries' attention.
class AttentionDesign::Core final : public EmulatedCore {
 public:
  Core(const AttentionCore& functions, uint32_t head_dim, ParameterBox& parameters, Deal& queries,
       Broadcast& cache, Join& output, uint32_t column, uint32_t row)
      : functions_(functions),
        head_dim_(head_dim),
        box_(parameters),
        query_stream_(queries),
        cache_stream_(cache),
        output_(output),
        column_(column),
        row_(row),
        queries_(size_t{kAttentionQueries} * head_dim),
        tile_(size_t{kAttentionKeys} * head_dim),
        sums_(size_t{kAttentionQueries} * head_dim) {}

  std::string Waiting() const override {
    if (waits_for_ == Need::kParameters) return "";
    const char* const names[] = {"", "queries", "keys", "values", "room for its output"};
    return absl::StrFormat("core (%d, %d) waits for %s, tile %d of %d", column_,
                           row_ + kFirstCoreRow, names[static_cast<int>(waits_for_)], tile_index_,
                           parameters_.num_tiles);
  }

 private:
  enum class Need { kParameters, kQueries, kKeys, kValues, kOutput };

  bool FireInMode() override {
    switch (waits_for_) {
      case Need::kParameters:
        return TakeParameters();
      case Need::kQueries:
        if (!TakeRows(query_stream_, kAttentionQueries, queries_)) return false;
        functions_.begin(&state_, sums_.data());
        waits_for_ = Need::kKeys;
        return true;
      case Need::kKeys:
        if (!TakeRows(cache_stream_, kAttentionKeys, tile_)) return false;
        functions_.keys(&parameters_, FirstKey(), queries_.data(), tile_.data(), scores_,
                        probabilities_, &state_);
        waits_for_ = Need::kValues;
        return true;
      case Need::kValues:
        if (!TakeRows(cache_stream_, kAttentionKeys, tile_)) return false;
        functions_.values(&parameters_, FirstKey(), probabilities_, tile_.data(), &state_,
                          sums_.data());
        if (++tile_index_ < parameters_.num_tiles) {
          waits_for_ = Need::kKeys;
          return true;
        }
        functions_.end(&state_, sums_.data(), queries_.data());
        waits_for_ = Need::kOutput;
        return true;
      case Need::kOutput:
        if (!PutOutput()) return false;
        waits_for_ = Need::kParameters;
        return true;
    }
    return false;
  }

  int32_t FirstKey() const {
    return parameters_.first_key + tile_index_ * static_cast<int32_t>(kAttentionKeys);
  }

  bool TakeParameters() {
    if (!box_.is_full) return false;
    box_.is_full = false;
    std::array<uint32_t, sizeof(AttentionParameters) / sizeof(uint32_t)> words;
    std::copy_n(box_.words.begin(), words.size(), words.begin());
    parameters_ = std::bit_cast<AttentionParameters>(words);
    tile_index_ = 0;
    waits_for_ = Need::kQueries;
    return true;
  }

  template <typename Stream>
  bool TakeRows(Stream& stream, size_t num_rows, std::vector<bfloat16>& blocks) {
    std::vector<uint32_t> rows(num_rows * head_dim_ / 2);
    if (!stream.Take(row_, rows)) return false;
    for (size_t row = 0; row < num_rows; ++row) {
      for (size_t pair = 0; pair < head_dim_ / 2; ++pair) {
        const size_t to = BlockOffset(row, 2 * pair, head_dim_);
        std::memcpy(&blocks[to], &rows[row * head_dim_ / 2 + pair], sizeof(uint32_t));
      }
    }
    return true;
  }

  // The output is where the queries were.
  bool PutOutput() {
    std::vector<uint32_t> rows(size_t{kAttentionQueries} * head_dim_ / 2);
    for (size_t row = 0; row < kAttentionQueries; ++row) {
      for (size_t pair = 0; pair < head_dim_ / 2; ++pair) {
        const size_t from = BlockOffset(row, 2 * pair, head_dim_);
        std::memcpy(&rows[row * head_dim_ / 2 + pair], &queries_[from], sizeof(uint32_t));
      }
    }
    return output_.Put(row_, rows);
  }

  const AttentionCore& functions_;
  const size_t head_dim_;
  ParameterBox& box_;
  Deal& query_stream_;
  Broadcast& cache_stream_;
  Join& output_;
  const uint32_t column_;
  const uint32_t row_;

  Need waits_for_ = Need::kParameters;
  AttentionParameters parameters_;
  int32_t tile_index_ = 0;
  AttentionState state_{};
  std::vector<bfloat16> queries_;
  std::vector<bfloat16> tile_;  // keys or values
  std::vector<float> sums_;
  float scores_[kAttentionQueries * kAttentionKeys];
  bfloat16 probabilities_[kAttentionQueries * kAttentionKeys];
};

AttentionDesign::AttentionDesign(uint32_t head_dim, const ArrayShape& shape, Fabric& fabric) {
  const AttentionCore* const functions = shape.generation == kAie2Generation
                                             ? AttentionCoreAie2(head_dim)
                                             : AttentionCoreAie2p(head_dim);
  TANDEM_CHECK(functions != nullptr);
  // Two tiles in the memory tile and two in the core.
  const size_t room = size_t{4} * kAttentionKeys * head_dim / 2;
  for (uint32_t column = 0; column < shape.num_columns; ++column) {
    queries_.emplace_back(fabric.shims[column], 0, kAttentionCores);
    cache_.emplace_back(fabric.shims[column], 1, kAttentionCores, room);
    outputs_.emplace_back(fabric.shims[column], 0, kAttentionCores);
  }
  for (uint32_t column = 0; column < shape.num_columns; ++column) {
    for (uint32_t row = 0; row < kAttentionCores; ++row) {
      cores_.push_back(std::make_unique<Core>(*functions, head_dim, fabric.parameters[column][row],
                                              queries_[column], cache_[column], outputs_[column],
                                              column, row));
    }
  }
}

}  // namespace tandem::npu::emulator

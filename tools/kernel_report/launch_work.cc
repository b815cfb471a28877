#include "tools/kernel_report/launch_work.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "services/common/weights/packed_tensor.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/kernels/phases.h"
#include "services/gpu_worker/kernels/push_constants.h"
#include "services/gpu_worker/kernels/tile_splits.h"
#include "tools/kernel_report/constant_names.h"

namespace tandem::report {
namespace {

using gpu::KernelId;

template <typename Push>
Push PushOf(const Dispatch& dispatch) {
  static_assert(sizeof(Push) <= sizeof(dispatch.push));
  Push push;
  std::memcpy(&push, dispatch.push.data(), sizeof(push));
  return push;
}

double RoundUp(double value, double to) { return std::ceil(value / to) * to; }

class Worker {
 public:
  Worker(const Dispatch& dispatch, const KernelFacts& facts, const StepBatch& step, DType kv_dtype)
      : dispatch_(dispatch), facts_(facts), step_(step), kv_dtype_(kv_dtype) {
    const double groups = static_cast<double>(dispatch.groups_x) * dispatch.groups_y;
    work_.subgroups = groups * Constant("LOCAL_SIZE", 32) / 32;
    uint64_t phase = 0;
    if (gpu::CountsPhases(facts.kernel)) {
      std::memcpy(&phase, dispatch.push.data() + gpu::kPhaseOffset, sizeof(phase));
    }
    work_.is_counted = !dispatch.after_barrier && (phase & gpu::kPhaseWaits) != 0;
    work_.is_phase = dispatch.after_barrier || work_.is_counted;
  }

  LaunchWork Of() {
    switch (facts_.kernel) {
      case KernelId::kMatvec:
      case KernelId::kCoopMatvec:
        Matvec();
        break;
      case KernelId::kMatmul:
        Matmul();
        break;
      case KernelId::kCoopMatmulShared:
      case KernelId::kCoopMatmulQuads:
      case KernelId::kCoopMatmulRows:
        Matrix();
        break;
      case KernelId::kDecode:
        Decode();
        break;
      case KernelId::kTiled:
      case KernelId::kTiledCooperative:
      case KernelId::kTiledQuads:
      case KernelId::kTiledRows:
      case KernelId::kChains:
        Tiled();
        break;
      default:
        Rows();
    }
    return work_;
  }

 private:
  uint32_t Constant(const char* name, uint32_t otherwise = 1) const {
    if (std::string_view(name) == "LOCAL_SIZE") {
      const auto size = facts_.constants.find(gpu::kLocalSize);
      return size == facts_.constants.end() ? otherwise : size->second;
    }
    return ConstantOf(facts_.kernel, facts_.constants, name).value_or(otherwise);
  }

  // Rows behind the address of a count: the step's or its outputs'.  Buffers begin at multiples of
  // 64 KiB.
  double RowsAt(uint64_t count, uint32_t first_row) const {
    const bool outputs = count % 64 == offsetof(StepHeader, num_outputs);
    const uint32_t rows = outputs ? step_.header.num_outputs : step_.header.num_rows;
    return rows > first_row ? rows - first_row : 0;
  }

  // A matmul of rows of k by a matrix of n rows.  `pass`: rows that are multiplied at once.
  void CountMatmul(double rows, double pass, uint64_t k, uint64_t n) {
    const auto dtype = static_cast<DType>(Constant("WEIGHT_DTYPE", 0));
    const double bytes = static_cast<double>(ShardBytes(dtype, n, k));
    const double passes = std::ceil(rows / pass);
    work_.macs = passes * pass * static_cast<double>(n) * static_cast<double>(k);
    work_.useful_flops = 2 * rows * static_cast<double>(n) * static_cast<double>(k);
    work_.weight_bytes = rows > 0 ? bytes : 0;
    work_.cache_bytes = passes * bytes;
  }

  void Matvec() {
    const auto push = PushOf<gpu::MatvecPush>(dispatch_);
    const double all = RowsAt(push.count, push.first_row);
    const double rows = std::min(
        all, static_cast<double>(dispatch_.groups_y) * Constant("ROWS") / Constant("SPLIT_K"));
    CountMatmul(rows, Constant("ROWS"), push.k_dim, push.n_dim);
    const double split_k = Constant("SPLIT_K");
    // Blocks of int8 with a scale each, or float16.
    const double input_bytes = facts_.kernel == KernelId::kMatvec ? 1.125 : 2.0;
    work_.activation_bytes = rows * (push.k_dim * input_bytes + push.n_dim * 4.0 * split_k);
    // Passes over rows that are not there end at once.
    work_.subgroups *= std::ceil(rows / Constant("ROWS")) * split_k / dispatch_.groups_y;
  }

  void Matmul() {
    const auto push = PushOf<gpu::MatmulPush>(dispatch_);
    const double rows = std::min(RowsAt(push.count, push.first_row),
                                 static_cast<double>(dispatch_.groups_y) * Constant("ROWS"));
    CountMatmul(rows, Constant("ROWS"), push.k_dim, push.n_dim);
    work_.activation_bytes = rows * (push.k_dim * 4.0 + push.n_dim * 4.0);
    work_.subgroups *= std::ceil(rows / Constant("ROWS")) / dispatch_.groups_y;
  }

  void Matrix() {
    const auto push = PushOf<gpu::MatrixPush>(dispatch_);
    const double tile_rows = Constant("ROWS");
    const double tile_columns = Constant("COLUMNS") * Constant("SUBGROUPS");
    const double rows = std::min(RowsAt(push.count, push.first_row),
                                 static_cast<double>(dispatch_.groups_x) * tile_rows);
    CountMatmul(rows, tile_rows, push.k_dim, push.n_dim);
    work_.macs *= RoundUp(push.n_dim, tile_columns) / push.n_dim;
    const auto row_tiles = static_cast<uint32_t>(std::ceil(rows / tile_rows));
    const auto column_tiles = static_cast<uint32_t>(std::ceil(push.n_dim / tile_columns));
    work_.cache_bytes += row_tiles * tile_rows * push.k_dim * 2.0 * column_tiles;
    work_.activation_bytes = rows * (push.k_dim * 2.0 + push.n_dim * 4.0);
    work_.subgroups = 0;
    if (row_tiles == 0) return;
    const gpu::TileSplits splits =
        gpu::split_tiles(row_tiles, column_tiles, push.groups, push.most_parts, push.fit);
    work_.subgroups = gpu::NumWorkgroups(row_tiles, column_tiles, splits) * Constant("SUBGROUPS");
  }

  // Positions that a row sees.
  static double Seen(uint32_t position, uint32_t window) {
    return window == 0 ? position + 1 : std::min(position + 1, window);
  }

  double PositionBytes(uint32_t kv_heads, uint32_t head_dim) const {
    return 2.0 * static_cast<double>(RowBytes(kv_dtype_, uint64_t{kv_heads} * head_dim));
  }

  void Decode() {
    const auto push = PushOf<gpu::DecodePush>(dispatch_);
    const uint32_t head_dim = Constant("HEAD_DIM");
    const double bytes = PositionBytes(push.num_kv_heads, head_dim);
    double seen = 0, rows = 0;
    const uint32_t end = std::min<uint32_t>(push.first_row + dispatch_.groups_y,
                                            static_cast<uint32_t>(step_.rows.size()));
    for (uint32_t r = push.first_row; r < end; ++r) {
      const RowEntry& row = step_.rows[r];
      if (step_.sequences[row.sequence].num_rows >= gpu::kLongRows) continue;
      seen += Seen(row.position, push.window);
      ++rows;
    }
    work_.macs = 2 * seen * push.num_heads * head_dim;
    work_.useful_flops = 2 * work_.macs;
    work_.kv_bytes = work_.cache_bytes = seen * bytes;
    work_.activation_bytes = rows * push.num_heads * head_dim * 6.0;
    // A subgroup for about every 64 positions of a KV head; others end at once.
    const double busy = seen * push.num_kv_heads / 64;
    work_.subgroups = std::clamp(busy, std::min(4.0, work_.subgroups), work_.subgroups);
    if (rows == 0) work_.subgroups = 0;
  }

  void Tiled() {
    const auto push = PushOf<gpu::TiledPush>(dispatch_);
    const uint32_t head_dim = Constant("HEAD_DIM"), queries = Constant("QUERIES");
    const double bytes = PositionBytes(push.num_kv_heads, head_dim);
    const double tile_rows =
        Constant("LOCAL_SIZE", 128) * Constant("ROW_BLOCKS") / 2.0 / Constant("PARTS") / queries;
    double tiles = 0;
    for (const SequenceEntry& sequence : step_.sequences) {
      if (sequence.num_rows < gpu::kLongRows) continue;
      const uint32_t first = step_.rows[sequence.first_row].position;
      double widest = 0;
      for (uint32_t r = 0; r < sequence.num_rows; r += static_cast<uint32_t>(tile_rows)) {
        const uint32_t last = std::min(r + static_cast<uint32_t>(tile_rows), sequence.num_rows) - 1;
        // From the first row's first position to the last row's own.
        const double begin = first + r + 1 - Seen(first + r, push.window);
        const double span = first + last + 1 - begin;
        work_.macs +=
            2 * tile_rows * RoundUp(span, Constant("POSITIONS", 32)) * push.num_heads * head_dim;
        work_.cache_bytes += span * bytes * push.num_heads / push.num_kv_heads / queries;
        widest = std::max(widest, span);
        ++tiles;
      }
      for (uint32_t r = 0; r < sequence.num_rows; ++r) {
        work_.useful_flops += 4 * Seen(first + r, push.window) * push.num_heads * head_dim;
      }
      const double all = push.window == 0 ? widest
                                          : std::min<double>(first + sequence.num_rows,
                                                             push.window + sequence.num_rows);
      work_.kv_bytes += all * bytes;
      work_.activation_bytes += sequence.num_rows * push.num_heads * head_dim * 4.0;
    }
    work_.subgroups *= tiles / dispatch_.groups_y;
  }

  // Kernels that read rows and write rows.
  void Rows() {
    const double rows = step_.header.num_rows, outputs = step_.header.num_outputs;
    double count = rows;
    switch (facts_.kernel) {
      case KernelId::kEmbed: {
        const auto push = PushOf<gpu::EmbedPush>(dispatch_);
        const auto dtype = static_cast<DType>(Constant("WEIGHT_DTYPE", 0));
        work_.weight_bytes = rows * static_cast<double>(ShardBytes(dtype, 32, push.cols)) / 32;
        work_.activation_bytes = rows * push.cols * 4.0;
        break;
      }
      case KernelId::kRmsNorm: {
        const auto push = PushOf<gpu::RmsNormPush>(dispatch_);
        count = Constant("GATHER", 0) != 0 ? outputs : rows;
        work_.activation_bytes = count * push.cols * 6.0;
        break;
      }
      case KernelId::kAddNorm:
      case KernelId::kAddNormWide: {
        const auto push = PushOf<gpu::AddNormPush>(dispatch_);
        count = Constant("ROWS", 0) != 0 ? outputs : rows;
        work_.activation_bytes = count * push.cols * (4.0 * Constant("SPLIT_K") + 10.0);
        break;
      }
      case KernelId::kQkNormRope: {
        const auto push = PushOf<gpu::QkNormRopePush>(dispatch_);
        work_.activation_bytes =
            rows * (push.num_heads + 2.0 * push.num_kv_heads) * push.head_dim * 6.0;
        break;
      }
      case KernelId::kHeadSlice: {
        const auto push = PushOf<gpu::HeadSlicePush>(dispatch_);
        count = outputs;
        work_.activation_bytes = outputs * push.vocab_size * 4.0;
        break;
      }
      default:
        break;
    }
    work_.cache_bytes = work_.activation_bytes + work_.weight_bytes;
    const double bucket = std::max(dispatch_.groups_x, dispatch_.groups_y);
    work_.subgroups *= std::min(1.0, std::max(1.0, count) / bucket);
  }

  const Dispatch& dispatch_;
  const KernelFacts& facts_;
  const StepBatch& step_;
  const DType kv_dtype_;
  LaunchWork work_;
};

}  // namespace

LaunchWork WorkOf(const Dispatch& dispatch, const KernelFacts& facts, const StepBatch& step,
                  DType kv_dtype) {
  return Worker(dispatch, facts, step, kv_dtype).Of();
}

}  // namespace tandem::report

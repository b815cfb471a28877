// The kernel table: each kernel's shader, and for a set of arguments its specialisation, push
// constants and number of workgroups.  Pure functions of plain data; nothing here calls Vulkan.
//
// `max_rows` is the row bucket that a launch is recorded for.  The number of rows comes from the
// step buffer when the launch runs.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/tensor/dtype.h"
#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/launch.h"
#include "services/gpu_worker/kernels/push_constants.h"
#include "services/gpu_worker/kernels/tuning.h"

namespace tandem::gpu {

// Rows of a packed matrix as the device sees them.
struct DeviceShard {
  uint64_t first_row = 0;
  uint64_t num_rows = 0;
  uint64_t plane[4] = {};  // addresses
};
struct DeviceTensor {
  DType dtype = DType::kF32;
  uint64_t rows = 0;
  uint64_t cols = 0;
  std::vector<DeviceShard> shards;
};

// REQUIRES in all: matrices of a multiple of 32 columns, norms f32; offsets of counts are those of
// StepHeader.  Attention's launches: attention_launches.h.

struct EmbedArgs {
  uint64_t step = 0;
  uint64_t guesses = 0;      // uint32 [outputs of the step before], tokens of speculative rows
  uint64_t soft_tokens = 0;  // float32 [max_rows, cols], rows of pictures; 0: steps have none
  uint64_t destination = 0;
  float scale = 1.0f;
  uint32_t max_rows = 0;
};
Launch EmbedLaunch(const Tuning& tuning, const DeviceTensor& table, const DeviceShard& shard,
                   const EmbedArgs& args);

inline constexpr uint32_t kCopyPiece = 2048;  // columns of a workgroup
Launch CopyRowsLaunch(const Tuning& tuning, const CopyRowsPush& push, uint32_t max_rows);

// Copies pages of `page_bytes` to where the table at address `table` says: pairs of uint64 addresses, from and
// to.  REQUIRES bytes and addresses that are multiples of 16.
inline constexpr uint32_t kPageTurns = 4;  // units that an invocation copies
Launch CopyPagesLaunch(const Tuning& tuning, uint64_t table, uint32_t num_pages,
                       uint64_t page_bytes);

// Adds the partial sums of a split-K matmul.  `split_k`: how many, kMaxSplitK at most.
Launch AddSplitKLaunch(const Tuning& tuning, const AddSplitKPush& push, uint32_t split_k,
                       uint32_t max_rows);

// `max_pooled`: of the step.
inline constexpr uint32_t kMaxPoolThreads = 256;
Launch PoolLaunch(const Tuning& tuning, const PoolPush& push, uint32_t max_pooled);

// gather: the rows are those of the step's outputs, from push.first_row on.
// `format`: of the destination, a multiple of 32 columns for int8.
Launch RmsNormLaunch(const Tuning& tuning, const RmsNormPush& push, bool gather, uint32_t max_rows,
                     ActivationFormat format = ActivationFormat::kF32);

// The rows of an AddNormLaunch.  The normed rows are contiguous.
enum class NormRows : uint32_t {
  kStep,       // all rows of the step
  kGathered,   // the output rows, gathered from all rows of the source and the residual
  kOfOutputs,  // the output rows; the source is already compacted to them
};

// `split_k`: partial sums that make up the source, 1 unless AddsSplitK; `format`: of the normed
// rows; `max_rows`: of `rows`.  Outputs must differ in their rows: each is updated once.
bool AddsSplitK(const Tuning& tuning, uint32_t cols);
Launch AddNormLaunch(const Tuning& tuning, const AddNormPush& push, uint32_t max_rows,
                     ActivationFormat format = ActivationFormat::kF32, uint32_t split_k = 1,
                     NormRows rows = NormRows::kStep);

struct PlainMatmulArgs {
  uint64_t count = 0;  // address of the number of rows
  uint64_t x = 0;
  ActivationFormat x_format = ActivationFormat::kF32;  // or kF16, kBf16
  uint64_t destination = 0;
  uint32_t out_stride = 0;
  bool geglu = false;  // rows 2i and 2i + 1 of the weights make column i
  uint32_t first_row = 0;
  uint32_t max_rows = 0;
};
// texel_matmul.comp if its operands fit tuning.max_texels, else matmul.comp.  The choice depends on
// the shapes of weights and rows alone.  x has max_rows rows.
Launch PlainMatmulLaunch(const Tuning& tuning, const DeviceTensor& weights,
                         const DeviceShard& shard, const PlainMatmulArgs& args);

// A row of logits is reduced in slices of the vocabulary.  All but the last have the same length.
struct HeadSlices {
  uint32_t length = 0;
  uint32_t count = 0;
};
inline constexpr uint32_t kHeadSlice = 4096;      // shortest but for small vocabularies
inline constexpr uint32_t kMaxHeadSlice = 16384;  // longest: vocabularies of up to 2,097,152 tokens
inline constexpr uint32_t kMostHeadSlices = 128;
HeadSlices SlicesOf(uint32_t vocab_size);

struct HeadReduceArgs {
  uint64_t step = 0;
  uint64_t logits = 0;   // float32 [tile, LogitStride(vocab_size)]
  uint64_t slices = 0;   // scratch, OutputResult [tile, slices]
  uint64_t results = 0;  // OutputResult [outputs]
  uint64_t sums = 0;     // see head_merge.comp
  uint64_t guesses = 0;  // uint32 [outputs], and once more for the host
  uint64_t guessed = 0;
  uint64_t masks = 0;  // uint32 [masks of the step, MaskWords(vocab_size)]; 0: there are none
  uint32_t vocab_size = 0;
  uint32_t first_output = 0;  // of the tile
};
// One after the other.
std::array<Launch, 2> HeadReduceLaunches(const Tuning& tuning, const HeadReduceArgs& args,
                                         uint32_t max_rows);

// Logits of a row lie this many elements apart.
inline uint32_t LogitStride(uint32_t vocab_size) { return (vocab_size + 1) / 2 * 2; }

}  // namespace tandem::gpu

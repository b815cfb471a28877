// The kernel table: each kernel's shader, and for a set of arguments its specialisation, push
// constants and number of workgroups.  Pure functions of plain data; nothing here calls Vulkan.
//
// `max_rows` is the row bucket a launch is recorded for; the rows there are come from the step
// buffer when it runs.
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

// `guesses`: uint32 [outputs of the step before], what fed rows take their tokens from.
Launch EmbedLaunch(const Tuning& tuning, const DeviceTensor& table, const DeviceShard& shard,
                   uint64_t step, uint64_t guesses, uint64_t destination, float scale,
                   uint32_t max_rows);

inline constexpr uint32_t kCopyPiece = 2048;  // columns of a workgroup
Launch CopyRowsLaunch(const Tuning& tuning, const CopyRowsPush& push, uint32_t max_rows);

// `slices`: in the source, kMaxSlices at most.
Launch AddSlicesLaunch(const Tuning& tuning, const AddSlicesPush& push, uint32_t slices,
                       uint32_t max_rows);

// `max_pools`: of the step.
inline constexpr uint32_t kMaxPoolThreads = 256;
Launch PoolLaunch(const Tuning& tuning, const PoolPush& push, uint32_t max_pools);

// gather: the rows are those of the step's outputs, from push.first_row on.
// `format`: of the destination, a multiple of 32 columns for int8.
Launch RmsNormLaunch(const Tuning& tuning, const RmsNormPush& push, bool gather, uint32_t max_rows,
                     ActivationFormat format = ActivationFormat::kF32);

// The rows of an AddNormLaunch; in what is normed they follow one another.
enum class NormRows : uint32_t {
  kStep,       // all of the step
  kGathered,   // those of the step's outputs, out of all in the source and the residual
  kOfOutputs,  // the output rows; the source is already compacted to them
};

// `slices`: sums of a split product that make the source, 1 where AddsSlices says no; `format`: of
// what is normed; `max_rows`: of `rows`.  Outputs must differ in their rows: each is updated once.
bool AddsSlices(const Tuning& tuning, uint32_t cols);
Launch AddNormLaunch(const Tuning& tuning, const AddNormPush& push, uint32_t max_rows,
                     ActivationFormat format = ActivationFormat::kF32, uint32_t slices = 1,
                     NormRows rows = NormRows::kStep);

struct MatmulArgs {
  uint64_t count = 0;  // address of the number of rows
  uint64_t x = 0;
  bool x_f16 = false;
  uint64_t destination = 0;
  uint32_t out_stride = 0;
  bool geglu = false;  // rows 2i and 2i + 1 of the weights make column i
  uint32_t first_row = 0;
  uint32_t max_rows = 0;
};
// texel_matmul.comp where tuning.max_texels holds what it reads, else matmul.comp: by the shapes of
// weights and rows alone.  x has max_rows rows.
Launch MatmulLaunch(const Tuning& tuning, const DeviceTensor& weights, const DeviceShard& shard,
                    const MatmulArgs& args);

// A row of logits is reduced slice by slice; slices of a vocabulary are of one length but the last.
struct HeadSlices {
  uint32_t length = 0;
  uint32_t count = 0;
};
inline constexpr uint32_t kHeadSlice = 4096;  // shortest but for small vocabularies
HeadSlices SlicesOf(uint32_t vocab_size);

struct HeadReduceArgs {
  uint64_t step = 0;
  uint64_t logits = 0;   // float32 [tile, LogitStride(vocab_size)]
  uint64_t slices = 0;   // scratch, OutputResult [tile, slices]
  uint64_t results = 0;  // OutputResult [outputs]
  uint64_t sums = 0;     // see head_merge.comp
  uint64_t guesses = 0;  // uint32 [outputs], and once more for the host
  uint64_t guessed = 0;
  uint32_t vocab_size = 0;
  uint32_t first_output = 0;  // of the tile
};
// One after the other.
std::array<Launch, 2> HeadReduceLaunches(const Tuning& tuning, const HeadReduceArgs& args,
                                         uint32_t max_rows);

// Logits of a row lie this many elements apart.
inline uint32_t LogitStride(uint32_t vocab_size) { return (vocab_size + 1) / 2 * 2; }

}  // namespace tandem::gpu

#include "services/npu_worker/control/gemm.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/weights/packed_tensor.h"
#include "services/npu_worker/control/core_parameters.h"
#include "services/npu_worker/control/shim_descriptor.h"
#include "services/npu_worker/kernels/aie/gemm_tile.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kWord = sizeof(uint32_t);
constexpr uint32_t kPiecesWords = 128;  // 32 rows of a packed tile, 16 bytes each
constexpr uint32_t kBf16TileWords = kGemmBf16Bytes / kWord;
constexpr uint32_t kActivationChannel = 0;
constexpr uint32_t kWeightChannel = 1;
constexpr uint32_t kMaxInputs =
    (kShimQueue - 1) * kShimRepeats * kGemmChunk;  // and a task for the rest
// Descriptors of a shim tile.
constexpr uint32_t kOutputDescriptors = 0;  // a core row each
constexpr uint32_t kInputDescriptors = 4;   // two sets
constexpr uint32_t kInputSetSize = (kShimDescriptors - kInputDescriptors) / 2;

absl::Status CheckGemm(const GemmJob& job) {
  const auto wrong = [](const std::string& what) {
    return absl::InvalidArgumentError("gemm: " + what);
  };
  const bool is_bf16 = job.weight_dtype == DType::kBf16;
  if (job.weight_dtype != DType::kQ8_0 && job.weight_dtype != DType::kQ4_0 && !is_bf16) {
    return wrong(absl::StrFormat("weights of format %s, cores have q8_0, q4_0 and bf16",
                                 std::string(Traits(job.weight_dtype).name)));
  }
  if (job.num_rows == 0) return wrong("no rows");
  if (job.num_outputs == 0) return wrong("no outputs");
  if (job.num_inputs == 0 || job.num_inputs % kGemmInputs != 0) {
    return wrong(
        absl::StrFormat("%d inputs, must be a multiple of %d", job.num_inputs, kGemmInputs));
  }
  if (job.num_inputs > kMaxInputs && !is_bf16) {
    return wrong(absl::StrFormat("%d inputs, must be %d or fewer", job.num_inputs, kMaxInputs));
  }
  if (job.num_outputs <= kTileRows && !is_bf16) {
    return wrong(absl::StrFormat("%d outputs, must be more than %d", job.num_outputs, kTileRows));
  }
  if (job.array.num_columns < kGemmCoreRows) {
    return wrong(absl::StrFormat("an array of %d columns, must be %d or more",
                                 job.array.num_columns, kGemmCoreRows));
  }
  const uint32_t multiple = is_bf16 ? kGemmOutputs : kTileRows;
  const uint64_t padded_outputs = (uint64_t{job.num_outputs} + multiple - 1) / multiple * multiple;
  if (job.output_stride < padded_outputs) {
    return wrong(absl::StrFormat("rows of the output are %d numbers apart, must be %d or more",
                                 job.output_stride, padded_outputs));
  }
  const uint64_t output_bytes =
      uint64_t{GemmPaddedRows(job.num_rows)} * job.output_stride * sizeof(float);
  const uint64_t activation_bytes = uint64_t{GemmPaddedRows(job.num_rows)} * job.num_inputs * 2;
  const uint64_t weight_bytes = is_bf16
                                    ? GemmBf16Bytes(job.num_outputs, job.num_inputs)
                                    : ShardBytes(job.weight_dtype, job.num_outputs, job.num_inputs);
  if (output_bytes > ~0u - job.output.offset || activation_bytes > ~0u - job.activations.offset ||
      weight_bytes > ~0u - job.weights.offset) {
    return wrong(absl::StrFormat("%d rows, %d outputs and %d inputs take more than 4 GiB",
                                 job.num_rows, job.num_outputs, job.num_inputs));
  }
  return absl::OkStatus();
}

// What the cores compute at a time.
struct GemmWave {
  uint32_t first_block = 0;  // of 64 rows
  uint32_t first_tile = 0;   // of 64 outputs
};

class GemmBuilder {
 public:
  explicit GemmBuilder(const GemmJob& job)
      : job_(job),
        is_bf16_(job.weight_dtype == DType::kBf16),
        planes_(is_bf16_ ? std::vector<Plane>()
                         : PlanesOf(job.weight_dtype, job.num_outputs, job.num_inputs)),
        num_blocks_(GemmPaddedRows(job.num_rows) / kGemmRows),
        num_packed_(is_bf16_ ? (job.num_outputs + kGemmOutputs - 1) / kGemmOutputs * 2
                             : (job.num_outputs + kTileRows - 1) / kTileRows),
        num_tiles_((num_packed_ + 1) / 2),
        transaction_(job.array) {}

  absl::StatusOr<Transaction> Build() {
    std::vector<GemmWave> waves;
    for (uint32_t block = 0; block < num_blocks_; block += kGemmCoreRows) {
      for (uint32_t tile = 0; tile < num_tiles_; tile += job_.array.num_columns) {
        waves.push_back({block, tile});
      }
    }
    const uint32_t parameters[] = {job_.num_inputs / kGemmInputs,
                                   static_cast<uint32_t>(waves.size())};
    for (uint32_t column = 0; column < job_.array.num_columns; ++column) {
      for (uint32_t row = 0; row < kGemmCoreRows; ++row) {
        SetParameters({column, kFirstCoreRow + row}, parameters, transaction_, job_.parameters);
      }
      RouteTokens(Output(column), transaction_);
    }
    // A wave's inputs are started while the wave before it computes, if queue and descriptors have
    // room for both.
    const bool ahead = WeightTasks({}, 0).size() <= kShimQueue / 2;
    TANDEM_RETURN_IF_ERROR(StartInputs(waves[0], 0));
    for (uint32_t i = 0; i < waves.size(); ++i) {
      const bool has_next = i + 1 < waves.size();
      if (has_next && ahead) TANDEM_RETURN_IF_ERROR(StartInputs(waves[i + 1], (i + 1) % 2));
      TANDEM_RETURN_IF_ERROR(FinishOutputs(waves[i]));
      if (has_next && !ahead) TANDEM_RETURN_IF_ERROR(StartInputs(waves[i + 1], 0));
    }
    return std::move(transaction_);
  }

 private:
  using Task = std::vector<ShimPart>;

  // The last block again for core rows, and the last tile again for columns, that have none of
  // their own.
  uint32_t Block(const GemmWave& wave, uint32_t row) const {
    return std::min(wave.first_block + row, num_blocks_ - 1);
  }
  // A tile's first packed tile.  The last tile begins early if the number of packed tiles is odd, which
  // that of bf16's is not.
  uint32_t FirstPacked(const GemmWave& wave, uint32_t column) const {
    return std::min(2 * std::min(wave.first_tile + column, num_tiles_ - 1), num_packed_ - 2);
  }

  ShimPart Part(const Operand& operand, uint64_t offset, const ShimTransfer& transfer) const {
    return {.argument = operand.argument,
            .offset = operand.offset + static_cast<uint32_t>(offset),
            .transfer = transfer};
  }

  // Pieces [first, first + num_pieces) of two packed tiles of a plane, `num_groups` times and again
  // for each repeat.
  ShimPart Pieces(const Plane& plane, uint32_t first_packed, uint32_t first, uint32_t num_pieces,
                  uint32_t num_groups, uint32_t num_repeats) const {
    const auto packed_words = static_cast<uint32_t>(plane.pieces_per_row * kPiecesWords);
    const uint32_t words = num_pieces * kPiecesWords;
    return Part(job_.weights,
                plane.offset + kWord * (uint64_t{first_packed} * packed_words +
                                        uint64_t{first} * kPiecesWords),
                {.length = 2 * words * num_groups,
                 .size = {words, 2},
                 .step = {1, packed_words, words},
                 .repeat_step = words * num_groups,
                 .num_repeats = num_repeats});
  }

  // Scales and weights of `num_chunks` chunks of `num_tiles` times 64 inputs each.
  Task Chunks(uint32_t first_packed, uint32_t first_chunk, uint32_t num_chunks,
              uint32_t num_tiles) const {
    const uint32_t pieces = kGemmInputs / planes_[0].piece.elements;
    const uint32_t first_piece = first_chunk * (kGemmChunk / planes_[0].piece.elements);
    return {Pieces(planes_[1], first_packed, first_chunk, 1, 1, num_chunks),
            Pieces(planes_[0], first_packed, first_piece, pieces, num_tiles, num_chunks)};
  }

  std::vector<Task> WeightTasks(const GemmWave& wave, uint32_t column) const {
    const uint32_t first_packed = FirstPacked(wave, column);
    if (is_bf16_) {
      // All inputs of a tile lie together.
      const uint32_t words = job_.num_inputs / kGemmInputs * kBf16TileWords;
      return {{Part(job_.weights, uint64_t{first_packed / 2} * words * kWord, {.length = words})}};
    }
    const uint32_t num_whole = job_.num_inputs / kGemmChunk;
    std::vector<Task> tasks;
    for (uint32_t chunk = 0; chunk < num_whole; chunk += kShimRepeats) {
      tasks.push_back(Chunks(first_packed, chunk, std::min(kShimRepeats, num_whole - chunk),
                             kGemmChunk / kGemmInputs));
    }
    const uint32_t rest = job_.num_inputs % kGemmChunk;
    if (rest != 0) tasks.push_back(Chunks(first_packed, num_whole, 1, rest / kGemmInputs));
    return tasks;
  }

  absl::Status StartInputs(const GemmWave& wave, uint32_t set) {
    for (uint32_t column = 0; column < job_.array.num_columns; ++column) {
      uint32_t descriptor = kInputDescriptors + set * kInputSetSize;
      if (column < kGemmCoreRows) {
        const uint32_t row_words = job_.num_inputs / 2;
        ShimPart part =
            Part(job_.activations, uint64_t{Block(wave, column)} * kGemmRows * row_words * kWord,
                 {.length = kGemmRows * row_words,
                  .size = {kGemmInputs / 2, kGemmRows},
                  .step = {1, row_words, kGemmInputs / 2}});
        part.descriptor = descriptor++;
        TANDEM_RETURN_IF_ERROR(StartShimTask({.column = column, .channel = kActivationChannel},
                                             {&part, 1}, /*with_token=*/false, transaction_));
      }
      for (Task& task : WeightTasks(wave, column)) {
        for (ShimPart& part : task) part.descriptor = descriptor++;
        TANDEM_RETURN_IF_ERROR(StartShimTask({.column = column, .channel = kWeightChannel}, task,
                                             /*with_token=*/false, transaction_));
      }
    }
    return absl::OkStatus();
  }

  // Starts the outputs and waits for them: by then all of the wave's inputs have been taken.
  absl::Status FinishOutputs(const GemmWave& wave) {
    for (uint32_t column = 0; column < job_.array.num_columns; ++column) {
      for (uint32_t row = 0; row < kGemmCoreRows; ++row) {
        const uint64_t number = uint64_t{Block(wave, row)} * kGemmRows * job_.output_stride +
                                uint64_t{FirstPacked(wave, column)} * kTileRows;
        ShimPart part = Part(job_.output, number * sizeof(float),
                             {.length = kGemmRows * kGemmOutputs,
                              .size = {kGemmOutputs, kGemmRows},
                              .step = {1, job_.output_stride, 1}});
        part.descriptor = kOutputDescriptors + row;
        const bool is_last = row + 1 == kGemmCoreRows;
        TANDEM_RETURN_IF_ERROR(StartShimTask(Output(column), {&part, 1}, is_last, transaction_));
      }
    }
    for (uint32_t column = 0; column < job_.array.num_columns; ++column) {
      transaction_.Sync(TokenOf(Output(column)));
    }
    return absl::OkStatus();
  }

  static ShimChannel Output(uint32_t column) {
    return {.column = column, .direction = DmaDirection::kFromTile, .channel = 0};
  }

  const GemmJob& job_;
  const bool is_bf16_;
  const std::vector<Plane> planes_;
  const uint32_t num_blocks_;
  const uint32_t num_packed_;  // halves of tiles: 32 outputs each
  const uint32_t num_tiles_;
  Transaction transaction_;
};

}  // namespace

absl::StatusOr<Transaction> BuildGemm(const GemmJob& given) {
  GemmJob job = given;
  if (job.output_stride == 0) job.output_stride = job.num_outputs;
  TANDEM_RETURN_IF_ERROR(CheckGemm(job));
  return GemmBuilder(job).Build();
}

}  // namespace tandem::npu

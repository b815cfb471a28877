#include "services/npu_worker/emulator/array/gemm_design.h"

#include <cstring>
#include <span>

#include "absl/strings/str_format.h"
#include "services/npu_worker/kernels/aie/gemm_tile.h"
#include "services/npu_worker/kernels/aie_host/gemm_cores.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint32_t kBlocks = kGemmInputs / kGemmBlock;
constexpr size_t kWord = sizeof(uint32_t);

size_t WeightBytes(GemmFormat format) {
  if (format == GemmFormat::kBf16) return kGemmBf16Bytes;
  return format == GemmFormat::kQ8_0 ? kGemmQ8Bytes : kGemmQ4Bytes;
}

// Where element (row, column) of a tile of 64 x 64 lies among its blocks: what the memory tile's
// DMA does to activations on their way to a core and, the other way round, to its output.
size_t InBlocks(size_t row, size_t column) {
  const size_t block = row / kGemmBlock * kBlocks + column / kGemmBlock;
  return (block * kGemmBlock + row % kGemmBlock) * kGemmBlock + column % kGemmBlock;
}

std::span<uint32_t> Words(void* data, size_t bytes) {
  return {static_cast<uint32_t*>(data), bytes / kWord};
}

}  // namespace

// The program of a core: takes parameters {tiles of inputs, tiles of outputs} and computes that
// many tiles.
class GemmDesign::Core final : public EmulatedCore {
 public:
  Core(const GemmCore& functions, GemmFormat format, ParameterBox& parameters,
       Broadcast& activations, uint32_t column, Broadcast& weights, uint32_t row, Join& output)
      : functions_(functions),
        format_(format),
        parameters_(parameters),
        activation_stream_(activations),
        column_(column),
        weight_stream_(weights),
        row_(row),
        output_(output) {}

  std::string Waiting() const override {
    if (tiles_left_ == 0) return "";
    const char* what = "room for its output";
    if (input_ < num_inputs_) what = has_activations_ ? "weights" : "scales or activations";
    return absl::StrFormat("core (%d, %d) waits for %s, input tile %d of %d, %d tiles left",
                           column_, row_ + kFirstCoreRow, what, input_, num_inputs_, tiles_left_);
  }

 private:
  bool FireInMode() override {
    if (tiles_left_ == 0) return TakeParameters();
    if (input_ == num_inputs_) return PutOutput();
    if (format_ == GemmFormat::kBf16) return MultiplyBf16();
    constexpr uint32_t kTilesOfChunk = kGemmChunk / kGemmInputs;
    if (input_ % kTilesOfChunk == 0 && !has_scales_) {
      alignas(64) uint16_t halves[kGemmScaleBytes / 2];
      has_scales_ = weight_stream_.Take(row_, Words(halves, sizeof(halves)));
      if (has_scales_) functions_.scales(halves, scales_);
      return has_scales_;
    }
    if (!has_activations_) return TakeActivations();
    if (!weight_stream_.Take(row_, Words(weights_, WeightBytes(format_)))) return false;
    const auto dequantise =
        format_ == GemmFormat::kQ8_0 ? functions_.dequantise_q8_0 : functions_.dequantise_q4_0;
    dequantise(weights_, scales_, input_ % kTilesOfChunk, tile_);
    functions_.multiply(activations_, tile_, sums_);
    has_activations_ = false;
    if (++input_ % kTilesOfChunk == 0) has_scales_ = false;
    return true;
  }

  // Weights come as gemm_multiply takes them.
  bool MultiplyBf16() {
    if (!has_activations_) return TakeActivations();
    if (!weight_stream_.Take(row_, Words(tile_, sizeof(tile_)))) return false;
    functions_.multiply(activations_, tile_, sums_);
    has_activations_ = false;
    ++input_;
    return true;
  }

  bool TakeParameters() {
    if (!parameters_.is_full) return false;
    parameters_.is_full = false;
    num_inputs_ = parameters_.words[0];
    tiles_left_ = parameters_.words[1];
    Begin();
    functions_.start();
    return true;
  }

  void Begin() {
    input_ = 0;
    has_scales_ = has_activations_ = false;
    functions_.clear(sums_);
  }

  bool TakeActivations() {
    uint16_t rows[kGemmRows * kGemmInputs];
    has_activations_ = activation_stream_.Take(column_, Words(rows, sizeof(rows)));
    if (!has_activations_) return false;
    for (size_t row = 0; row < kGemmRows; ++row) {
      for (size_t input = 0; input < kGemmInputs; ++input) {
        activations_[InBlocks(row, input)].bits = rows[row * kGemmInputs + input];
      }
    }
    return true;
  }

  bool PutOutput() {
    std::vector<uint32_t> rows(size_t{kGemmRows} * kGemmOutputs);
    for (size_t row = 0; row < kGemmRows; ++row) {
      for (size_t output = 0; output < kGemmOutputs; ++output) {
        std::memcpy(&rows[row * kGemmOutputs + output], &sums_[InBlocks(row, output)], kWord);
      }
    }
    if (!output_.Put(row_, rows)) return false;
    --tiles_left_;
    Begin();
    return true;
  }

  const GemmCore& functions_;
  const GemmFormat format_;
  ParameterBox& parameters_;
  Broadcast& activation_stream_;
  const uint32_t column_;
  Broadcast& weight_stream_;
  const uint32_t row_;
  Join& output_;

  uint32_t num_inputs_ = 0;
  uint32_t tiles_left_ = 0;
  uint32_t input_ = 0;
  bool has_scales_ = false;
  bool has_activations_ = false;
  alignas(64) bfloat16 activations_[kGemmRows * kGemmInputs];
  alignas(64) int8 weights_[kGemmQ8Bytes];
  alignas(64) bfloat16 scales_[kGemmScaleBytes / 2];
  alignas(64) bfloat16 tile_[kGemmInputs * kGemmOutputs];
  alignas(64) float sums_[kGemmRows * kGemmOutputs];
};

GemmDesign::GemmDesign(GemmFormat format, const ArrayShape& shape, Fabric& fabric) {
  const GemmCore& functions = shape.generation == kAie2Generation ? kGemmCoreAie2 : kGemmCoreAie2p;
  // Two tiles in the memory tile and two in the core.
  constexpr size_t kActivationRoom = 4 * kGemmActivationBytes / kWord;
  const size_t scales = format == GemmFormat::kBf16 ? 0 : 2 * kGemmScaleBytes;
  const size_t weight_room = (4 * WeightBytes(format) + scales) / kWord;
  for (uint32_t row = 0; row < kGemmCoreRows; ++row) {
    activations_.emplace_back(fabric.shims[row], 0, shape.num_columns, kActivationRoom);
  }
  for (uint32_t column = 0; column < shape.num_columns; ++column) {
    weights_.emplace_back(fabric.shims[column], 1, kGemmCoreRows, weight_room);
    outputs_.emplace_back(fabric.shims[column], 0, kGemmCoreRows);
  }
  for (uint32_t column = 0; column < shape.num_columns; ++column) {
    for (uint32_t row = 0; row < kGemmCoreRows; ++row) {
      cores_.push_back(std::make_unique<Core>(functions, format, fabric.parameters[column][row],
                                              activations_[row], column, weights_[column], row,
                                              outputs_[column]));
    }
  }
}

}  // namespace tandem::npu::emulator

// GEMM on a core of AIE2 or AIE2P: bfloat16 activations, and weights that are bfloat16 already or are
// dequantised a tile at a time.
//
// The array design (README.md) calls, for each tile of 64 rows x 64 outputs:
//   bfloat16:  gemm_clear; for each 64 inputs: gemm_multiply
//   quantised: gemm_clear; for each 256 inputs: gemm_scales;
//              for each 64 of them: gemm_dequantise_*, gemm_multiply
//
// Blocked tiles are 8 x 8 blocks of 8 x 8 elements, rows of blocks first:
//   activations [rows / 8][inputs / 8][8 rows][8 inputs]       as the memory tile's DMA stores them
//   weights     [inputs / 8][outputs / 8][8 inputs][8 outputs]
//   sums        [rows / 8][outputs / 8][8 rows][8 outputs]     float32
#include <aie_api/aie.hpp>

#include "services/npu_worker/kernels/aie/gemm_tile.h"

#ifndef TANDEM_CORE_FUNCTION
#define TANDEM_CORE_FUNCTION extern "C"
#endif

using namespace tandem::npu;

namespace {

constexpr unsigned kBlocks = kGemmInputs / kGemmBlock;  // of a tile, in each direction
constexpr unsigned kBlockSize = kGemmBlock * kGemmBlock;
constexpr unsigned kPackedRows = 32;                // of a tile of packed weights
constexpr unsigned kScalesOfRow = kGemmChunk / 32;  // a piece of a packed row's scales
constexpr unsigned kGroupsOfPacked = kPackedRows / kGemmBlock;

// The scales of 8 outputs, for each of 8 inputs.
aie::vector<bfloat16, kBlockSize> ForEachInput(const bfloat16* scales) {
  const aie::vector<bfloat16, 8> eight = aie::load_v<8>(scales);
  const aie::vector<bfloat16, 16> sixteen = aie::concat(eight, eight);
  const aie::vector<bfloat16, 32> half = aie::concat(sixteen, sixteen);
  return aie::concat(half, half);
}

// Stores 16 inputs of 8 outputs, given as [8 outputs][16 inputs], as blocks `input_block` and the
// next one.
void StoreBlocks(const aie::vector<int8, 2 * kBlockSize>& weights, const bfloat16* scales,
                 unsigned input_block, unsigned group, bfloat16* tile) {
  const aie::vector<int8, 2 * kBlockSize> by_input = aie::transpose(weights, 8, 16);
  const aie::vector<bfloat16, kBlockSize> scale = ForEachInput(scales);
  for (unsigned half = 0; half < 2; ++half) {
    const aie::vector<bfloat16, kBlockSize> whole =
        aie::to_float<bfloat16>(by_input.extract<kBlockSize>(half));
    const aie::accum<accfloat, kBlockSize> scaled = aie::mul(whole, scale);
    aie::store_v(tile + ((input_block + half) * kBlocks + group) * kBlockSize,
                 scaled.to_vector<bfloat16>());
  }
}

}  // namespace

// Cores start with rounding towards minus infinity, which makes the sums' errors add up.
TANDEM_CORE_FUNCTION void gemm_start() { aie::set_rounding(aie::rounding_mode::conv_even); }

TANDEM_CORE_FUNCTION void gemm_clear(float* sums) {
  const aie::vector<float, 16> zeros = aie::zeros<float, 16>();
  for (unsigned i = 0; i < kGemmRows * kGemmOutputs; i += 16) aie::store_v(sums + i, zeros);
}

// halves: float16 [64 outputs][8], as packed weights have them.
// scales: bfloat16 [8 groups of outputs][8][8 outputs].
TANDEM_CORE_FUNCTION void gemm_scales(const uint16* halves, bfloat16* scales) {
  constexpr unsigned kSize = kBlockSize;
  const aie::vector<int16, kSize> lowest_normal = aie::broadcast<int16, kSize>(0x400);
  const aie::vector<int16, kSize> magnitude_bits = aie::broadcast<int16, kSize>(0x7FFF);
  for (unsigned group = 0; group < kBlocks; ++group) {
    const aie::vector<int16, kSize> bits = aie::transpose(
        aie::load_v<kSize>(reinterpret_cast<const int16*>(halves) + group * kSize), 8, 8);
    const aie::vector<int16, kSize> magnitude = aie::bit_and(bits, magnitude_bits);
    const aie::vector<int16, kSize> sign = aie::sub(bits, magnitude);
    // Three bits of the mantissa go, rounded to nearest; the exponent's bias changes from 15 to
    // 127.
    const aie::vector<int16, kSize> normal =
        aie::add(aie::downshift(aie::add(magnitude, int16(4)), 3), int16((127 - 15) << 7));
    // Below the smallest normal number a float16 is its bits times 2^-24.
    const aie::vector<int16, kSize> small =
        aie::to_float<bfloat16>(magnitude, 24).template cast_to<int16>();
    const aie::vector<int16, kSize> converted =
        aie::select(normal, small, aie::lt(magnitude, lowest_normal));
    aie::store_v(scales + group * kSize, aie::add(converted, sign).template cast_to<bfloat16>());
  }
}

// weights: int8 [2 packed tiles][4 pieces][32 outputs][16 inputs].  quarter: which 64 of the 256
// inputs.
TANDEM_CORE_FUNCTION void gemm_dequantise_q8_0(const int8* weights, const bfloat16* scales,
                                               unsigned quarter, bfloat16* tile) {
  constexpr unsigned kPieces = kGemmInputs / 16;
  for (unsigned group = 0; group < kBlocks; ++group) {
    const unsigned packed = group / kGroupsOfPacked;
    for (unsigned piece = 0; piece < kPieces; ++piece) {
      const unsigned row = (packed * kPieces + piece) * kPackedRows + group % kGroupsOfPacked * 8;
      const unsigned block = (quarter * kGemmInputs + piece * 16) / 32;
      StoreBlocks(aie::load_v<2 * kBlockSize>(weights + row * 16),
                  scales + (group * kScalesOfRow + block) * 8, 2 * piece, group, tile);
    }
  }
}

// weights: int4 pairs [2 packed tiles][2 pieces][32 outputs][16]; byte i of a piece has inputs i
// and i + 16.
TANDEM_CORE_FUNCTION void gemm_dequantise_q4_0(const int8* weights, const bfloat16* scales,
                                               unsigned quarter, bfloat16* tile) {
  constexpr unsigned kPieces = kGemmInputs / 32;
  for (unsigned group = 0; group < kBlocks; ++group) {
    const unsigned packed = group / kGroupsOfPacked;
    for (unsigned piece = 0; piece < kPieces; ++piece) {
      const unsigned row = (packed * kPieces + piece) * kPackedRows + group % kGroupsOfPacked * 8;
      const int8* pairs = weights + row * 16;
      const aie::vector<int8, 128> first =
          aie::unpack(aie::load_v<64>(pairs).template cast_to<int4>());
      const aie::vector<int8, 128> second =
          aie::unpack(aie::load_v<64>(pairs + 64).template cast_to<int4>());
      const bfloat16* scale =
          scales + (group * kScalesOfRow + quarter * kGemmInputs / 32 + piece) * 8;
      StoreBlocks(aie::concat(aie::filter_even(first), aie::filter_even(second)), scale, 4 * piece,
                  group, tile);
      StoreBlocks(aie::concat(aie::filter_odd(first), aie::filter_odd(second)), scale,
                  4 * piece + 2, group, tile);
    }
  }
}

// sums += activations * weights, two by two blocks at a time.
TANDEM_CORE_FUNCTION void gemm_multiply(const bfloat16* activations, const bfloat16* weights,
                                        float* sums) {
  using Multiply = aie::mmul<8, 8, 8, bfloat16, bfloat16, accfloat>;
  for (unsigned row = 0; row < kBlocks; row += 2) {
    for (unsigned output = 0; output < kBlocks; output += 2) {
      const bfloat16* a0 = activations + row * kBlocks * kBlockSize;
      const bfloat16* a1 = a0 + kBlocks * kBlockSize;
      const bfloat16* b = weights + output * kBlockSize;
      float* c0 = sums + (row * kBlocks + output) * kBlockSize;
      float* c1 = c0 + kBlocks * kBlockSize;
      Multiply sum00(aie::load_v<kBlockSize>(c0));
      Multiply sum01(aie::load_v<kBlockSize>(c0 + kBlockSize));
      Multiply sum10(aie::load_v<kBlockSize>(c1));
      Multiply sum11(aie::load_v<kBlockSize>(c1 + kBlockSize));
      for (unsigned input = 0; input < kBlocks; ++input) {
        const auto left0 = aie::load_v<kBlockSize>(a0 + input * kBlockSize);
        const auto left1 = aie::load_v<kBlockSize>(a1 + input * kBlockSize);
        const auto right0 = aie::load_v<kBlockSize>(b + input * kBlocks * kBlockSize);
        const auto right1 = aie::load_v<kBlockSize>(b + (input * kBlocks + 1) * kBlockSize);
        sum00.mac(left0, right0);
        sum01.mac(left0, right1);
        sum10.mac(left1, right0);
        sum11.mac(left1, right1);
      }
      aie::store_v(c0, sum00.template to_vector<float>());
      aie::store_v(c0 + kBlockSize, sum01.template to_vector<float>());
      aie::store_v(c1, sum10.template to_vector<float>());
      aie::store_v(c1 + kBlockSize, sum11.template to_vector<float>());
    }
  }
}

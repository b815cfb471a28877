// Formats of the activations that a matmul reads:
//
//   kActivationF32   float32 [rows, cols]
//   kActivationF16   float16 [rows, cols], value = element * scale with one scale a tensor, which
//                    the matmul applies: 1 for norms and attention, kGegluHalfScale for GeGLU's
//                    outputs, which exceed float16's range in Gemma
//   kActivationInt8  rows of ceil(cols / 256) units of 288 bytes: int8 q[256], float32 scale[8];
//                    value k = scale[k / 32] * q[k].  In the last unit elements beyond cols are
//                    undefined; the reader takes them as zero.
//   kActivationFragments  float16 as kActivationF16 scales it, in the order in which a subgroup reads
//                    matrices (coop_matvec.comp): eight rows [ceil(cols / 128), 4, 32] pieces of 16
//                    bytes.  In a chunk of 128 columns lane 4 g + t has columns 32 t .. 32 t + 31 of
//                    row g: piece q is columns 32 t + 16 h + 4 q + {0, 2, 1, 3} for h = 0, 1.
//                    Elements beyond cols are undefined.
//   kActivationBf16  bfloat16 [rows, cols]: attention that an NPU computed.  Only read.
//
// services/gpu_worker/kernels/activation_format.h is the same for the host.
#ifndef TANDEM_ACTIVATION_GLSL
#define TANDEM_ACTIVATION_GLSL
#include "memory.glsl"

uint units_of(uint cols) { return (cols + kUnitElements - 1) / kUnitElements; }

// Of a row, on average.
uint64_t activation_row_bytes(uint format, uint cols) {
  if (format == kActivationInt8) return uint64_t(units_of(cols)) * kUnitBytes;
  if (format == kActivationFragments) {
    return uint64_t((cols + kFragmentElements - 1) / kFragmentElements) * (kFragmentElements * 2);
  }
  return uint64_t(cols) * (format == kActivationF16 || format == kActivationBf16 ? 2 : 4);
}

// Where row `row` begins.
uint64_t activation_row(uint64_t base, uint format, uint cols, uint row) {
  uint64_t bytes = activation_row_bytes(format, cols);
  if (format != kActivationFragments) return base + row * bytes;
  return base + row / 8 * 8 * bytes + row % 8 * 64;
}

// Four neighbours as pairs {0, 2} and {1, 3}, and back.
uvec2 fragment_pairs(uvec2 four) {
  return uvec2((four.x & 0xFFFFu) | four.y << 16, four.x >> 16 | (four.y & 0xFFFF0000u));
}
// Stores elements [k, k + 4) of a row of fragments (activation_row), k a multiple of 4.
void store_fragment(uint64_t row, uint k, vec4 v) {
  uint64_t chunk = row + k / kFragmentElements * (8 * kFragmentElements * 2);
  uint t = k % kFragmentElements / 32, q = k % 16 / 4, h = k % 32 / 16;
  uvec2 pairs = fragment_pairs(uvec2(pack_halves(v.xy), pack_halves(v.zw)));
  Long(chunk + q * 512 + t * 16 + h * 8).v = pack64(pairs);
}

// Highest magnitude among `v` as its bits.  Ordered as integers, so that a NaN wins and the block
// it is in comes out as NaN.
uint magnitude_bits(vec4 v) {
  uvec4 bits = floatBitsToUint(v) & 0x7FFFFFFFu;
  return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// Over aligned runs of eight lanes, all active.
uint max_of_eight(uint bits) {
  bits = max(bits, subgroupShuffleXor(bits, 1));
  bits = max(bits, subgroupShuffleXor(bits, 2));
  return max(bits, subgroupShuffleXor(bits, 4));
}

// A block's scale is its highest magnitude / 127; an element becomes round(v * inverse).
float block_scale(uint highest_bits) { return uintBitsToFloat(highest_bits) / 127.0; }
float block_inverse(uint highest_bits) {
  float highest = uintBitsToFloat(highest_bits);
  return highest > 1e-35 ? 127.0 / highest : 0.0;
}
uint quantize4(vec4 v, float inverse) {
  uvec4 q = uvec4(ivec4(roundEven(v * inverse))) & 255u;
  return q.x | (q.y << 8) | (q.z << 16) | (q.w << 24);
}

// Stores elements [k, k + 4) of the row of `cols` elements at `row`, k a multiple of 4.  All lanes
// call it, those with nothing to store say so; eight neighbouring lanes hold a block of 32.
void store_activation(uint format, uint64_t row, uint k, vec4 v, bool valid) {
  if (format == kActivationInt8) {
    uint highest = max_of_eight(valid ? magnitude_bits(v) : 0);
    if (!valid) return;
    uint64_t unit = row + uint64_t(k / kUnitElements) * kUnitBytes;
    Word(unit + k % kUnitElements).v = quantize4(v, block_inverse(highest));
    if ((k & 31) == 0) {
      Float(unit + kUnitElements + k % kUnitElements / 8).v = block_scale(highest);
    }
  } else if (valid) {
    if (format == kActivationFragments) {
      store_fragment(row, k, v);
    } else if (format == kActivationF16) {
      store_half4(row + uint64_t(k) * 2, v);
    } else {
      store_vec4(row + uint64_t(k) * 4, v);
    }
  }
}
#endif

// Formats of the activations that a matmul reads:
//
//   kActivationF32   float32 [rows, cols]
//   kActivationF16   float16 [rows, cols], value = element * scale with one scale a tensor, which
//                    the matmul applies: 1 for norms and attention, kGegluHalfScale for GeGLU's
//                    outputs, which exceed float16's range in Gemma
//   kActivationInt8  rows of ceil(cols / 256) units of 288 bytes: int8 q[256], float32 scale[8];
//                    value k = scale[k / 32] * q[k].  In the last unit elements beyond cols are
//                    undefined; the reader takes them as zero.
//
// services/gpu_worker/kernels/activation_format.h is the same for the host.
#ifndef TANDEM_ACTIVATION_GLSL
#define TANDEM_ACTIVATION_GLSL
#include "memory.glsl"

uint units_of(uint cols) { return (cols + kUnitElements - 1) / kUnitElements; }

uint64_t activation_row_bytes(uint format, uint cols) {
  if (format == kActivationInt8) return uint64_t(units_of(cols)) * kUnitBytes;
  return uint64_t(cols) * (format == kActivationF16 ? 2 : 4);
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
    if (format == kActivationF16) {
      store_half4(row + uint64_t(k) * 2, v);
    } else {
      store_vec4(row + uint64_t(k) * 4, v);
    }
  }
}
#endif

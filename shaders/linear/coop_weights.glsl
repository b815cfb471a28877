// Weights in tiles of 32 rows (services/common/weights/packed_tensor.h) as lanes of a matrix A read
// them.
//
// A chunk is CHUNK = 64 or 128 columns in steps of 16.  The order of k within a chunk is ours to
// choose, if the input comes in the same order (coop_input.glsl).  It is chosen so that what a lane
// needs in all steps lies together, CHUNK / 4 columns of a block of 32: quarter t of the lanes has
//   CHUNK 128: block t, all of it;    CHUNK 64: block t / 2, bytes 8 (t % 2) .. +7 of its nibbles,
// and in step 2 q + h elements 16 h + 8 (t % 2, for CHUNK 64) + 4 q + {0, 2} and {1, 3}, for f16 and
// bf16 {0, 1} and {2, 3}.
#ifndef TANDEM_COOP_WEIGHTS_GLSL
#define TANDEM_COOP_WEIGHTS_GLSL
#include "dtype.glsl"
#include "memory.glsl"

layout(constant_id = 3) const uint WEIGHT_DTYPE = 0;
const bool HALVES = WEIGHT_DTYPE == kF16 || WEIGHT_DTYPE == kBf16;
const bool K_QUANT = WEIGHT_DTYPE == kQ6_K || WEIGHT_DTYPE == kQ4_K || WEIGHT_DTYPE == kQ5_K;
const bool HIGH_BITS = WEIGHT_DTYPE == kQ5_K || WEIGHT_DTYPE == kQ5_0;

// Registers of a lane for one row and chunk: elements, high bits, scales.
const uint QUADS = CHUNK / 32;  // words of nibbles
const uint ELEMENT_WORDS = HALVES ? 4 * QUADS : WEIGHT_DTYPE == kQ8_0 ? 2 * QUADS : QUADS;
const uint HIGH_WORDS = WEIGHT_DTYPE == kQ6_K ? 2 : HIGH_BITS ? 1 : 0;
const uint SCALE_WORDS = HALVES ? 0 : WEIGHT_DTYPE == kQ6_K ? 2 : K_QUANT ? 3 : 1;
const uint ROW_WORDS = ELEMENT_WORDS + HIGH_WORDS + SCALE_WORDS;

// The block of a chunk that quarter t reads, and which half of it.
uint lane_block(uint t) { return CHUNK == 128 ? t : t / 2; }
uint lane_part(uint t) { return CHUNK == 128 ? 0 : t % 2; }

// Masks of nibbles whose value is kept from the compiler: NVIDIA's makes one instruction of (bits & mask) ^ number
// where one of the two is in a register, and two where it knows both.  For formats that gain by it, on an H200.
const bool HIDES_MASKS = FRAGMENT_LAYOUT == 1 && (WEIGHT_DTYPE == kQ4_0 || WEIGHT_DTYPE == kQ4_K);
uint low_nibbles = 0x000F000Fu, high_nibbles = 0x00F000F0u;

shared float16_t nonlinear[16];  // iq4_nl's numbers
void prepare_weights() {
  if (HIDES_MASKS) {
    uint zero = lane_id() & k_dim & 31;  // columns come in blocks of 32
    low_nibbles += zero;
    high_nibbles += zero;
  }
  if (WEIGHT_DTYPE != kIq4Nl) return;
  if (gl_LocalInvocationIndex < 16) {
    nonlinear[gl_LocalInvocationIndex] = float16_t(kIq4NlValues[gl_LocalInvocationIndex]);
  }
}

uint load_half_bits(uint64_t address) { return uint(Short(address).v); }

// A lane's addresses in the planes: where its row of a tile begins, then where a block of it does.
// What remains to be added for other rows of the tile is known when the shader is compiled.
struct LaneAddress {
  uint64_t plane[4];
};

// Plane of pieces of `elements` elements.
uint64_t row_at(uint64_t plane, uint tile, uint row, uint cols, uint elements, uint bytes) {
  uint64_t tile_bytes = uint64_t((cols + elements - 1) / elements) * (kTileRows * bytes);
  return plane + tile * tile_bytes + row * bytes;
}
LaneAddress lane_address(uint64_t plane[4], uint tile, uint row, uint cols) {
  LaneAddress w;
  w.plane = plane;
  uint elements = HALVES ? 8 : WEIGHT_DTYPE == kQ8_0 ? 16 : 32;
  w.plane[0] = row_at(plane[0], tile, row, cols, elements, 16);
  if (HALVES) return w;
  if (HIGH_BITS) {
    w.plane[1] = row_at(plane[1], tile, row, cols, 128, 16);
    w.plane[2] = row_at(plane[2], tile, row, cols, 256, 16);
    w.plane[3] = row_at(plane[3], tile, row, cols, 256, 4);
  } else if (WEIGHT_DTYPE == kQ6_K) {
    w.plane[1] = row_at(plane[1], tile, row, cols, 64, 16);
    w.plane[2] = row_at(plane[2], tile, row, cols, 256, 16);
    w.plane[3] = row_at(plane[3], tile, row, cols, 256, 2);
  } else {
    w.plane[1] = row_at(plane[1], tile, row, cols, 256, 16);
    w.plane[2] = row_at(plane[2], tile, row, cols, 256, 4);
  }
  return w;
}

// Bytes from a row's first block to `block`, in a plane whose pieces of `bytes` hold `blocks` blocks.
uint64_t block_offset(uint block, uint blocks, uint bytes) {
  return uint64_t(block / blocks) * (kTileRows * bytes) + block % blocks * (bytes / blocks);
}
// Of block `block`, for CHUNK 64 half `part` of it.
LaneAddress block_address(LaneAddress w, uint block, uint part) {
  const uint pieces = HALVES ? 4 : WEIGHT_DTYPE == kQ8_0 ? 2 : 1;
  w.plane[0] += uint64_t(block) * (pieces * kTileRows * 16) + part * (HALVES ? kTileRows * 16 : 8);
  if (HALVES) return w;
  if (HIGH_BITS) {
    w.plane[1] += block_offset(block, 4, 16);
  } else if (WEIGHT_DTYPE == kQ6_K) {
    w.plane[1] += block_offset(block, 2, 16);
  }
  if (WEIGHT_DTYPE == kQ6_K) {
    w.plane[2] += block_offset(block, 8, 16);
    w.plane[3] += block / 8 * (kTileRows * 2);
  } else if (K_QUANT) {
    const uint first = HIGH_BITS ? 2 : 1;
    w.plane[first] += uint64_t(block / 8) * (kTileRows * 16) + block % 8 / 2 * 2;  // of two blocks
    w.plane[first + 1] += block / 8 * (kTileRows * 4);
  } else {
    w.plane[HIGH_BITS ? 2 : 1] += block_offset(block, 8, 16);
  }
  return w;
}

// Loads what a lane needs of a block, `row` rows further on.  Nothing is done with it here: what
// waits for memory comes later.
void load_row(LaneAddress w, uint row, out uint raw[ROW_WORDS]) {
  uint64_t at = w.plane[0] + uint64_t(row * 16);
  if (HALVES) {
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      [[unroll]] for (uint piece = 0; piece < QUADS / 2; ++piece) {
        uvec4 v = load_uvec4(at + uint64_t((2 * h + piece) * (kTileRows * 16)));
        [[unroll]] for (uint i = 0; i < 4; ++i) raw[(h * QUADS + 2 * piece) * 2 + i] = v[i];
      }
    }
  } else {
    [[unroll]] for (uint h = 0; h < ELEMENT_WORDS / QUADS; ++h) {
      uint64_t piece = at + uint64_t(h * (kTileRows * 16));
      if (CHUNK == 128) {
        uvec4 v = load_uvec4(piece);
        [[unroll]] for (uint i = 0; i < QUADS; ++i) raw[h * QUADS + i] = v[i];
      } else {
        uvec2 v = unpack32(Long(piece).v);
        [[unroll]] for (uint i = 0; i < QUADS; ++i) raw[h * QUADS + i] = v[i];
      }
    }
  }
  const uint high = ELEMENT_WORDS, scale = ELEMENT_WORDS + HIGH_WORDS;
  if (HIGH_BITS) raw[high] = load_uint(w.plane[1] + uint64_t(row * 16));
  if (WEIGHT_DTYPE == kQ6_K) {
    uvec2 v = unpack32(Long(w.plane[1] + uint64_t(row * 16)).v);
    raw[high] = v.x;
    raw[high + 1] = v.y;
    raw[scale] = load_half_bits(w.plane[2] + uint64_t(row * 16));
    raw[scale + 1] = load_half_bits(w.plane[3] + uint64_t(row * 2));
  } else if (K_QUANT) {
    const uint first = HIGH_BITS ? 2 : 1;
    raw[scale] = load_half_bits(w.plane[first] + uint64_t(row * 16));
    raw[scale + 1] = load_half_bits(w.plane[first] + uint64_t(row * 16 + 8));
    raw[scale + 2] = load_uint(w.plane[first + 1] + uint64_t(row * 4));
  } else if (SCALE_WORDS == 1) {
    raw[scale] = load_half_bits(w.plane[HIGH_BITS ? 2 : 1] + uint64_t(row * 16));
  }
}

// What a block's numbers are multiplied by: .x, and for q6_k .y in its second half; for q4_k and
// q5_k .y is subtracted.  `odd`: 1 where the block's number is.
f16vec2 row_scale(uint raw[ROW_WORDS], uint odd) {
  const uint at = ELEMENT_WORDS + HIGH_WORDS;
  if (WEIGHT_DTYPE == kQ6_K) {
    int s = int(raw[at]);
    return f16vec2(float(unpackFloat2x16(raw[at + 1]).x) *
                   vec2(bitfieldExtract(s, 0, 8), bitfieldExtract(s, 8, 8)));
  }
  if (K_QUANT) {
    uvec2 factors = (uvec2(raw[at], raw[at + 1]) >> (8 * odd)) & 255;
    return f16vec2(unpackHalf2x16(raw[at + 2]) * vec2(factors));
  }
  if (SCALE_WORDS == 1) return unpackFloat2x16(raw[at]).xx;
  return f16vec2(1.0);
}

// Integers without conversions: bits 0..9 of 0x6400 | n are 1024 + n.
f16vec2 halves(uint bits) { return unpackFloat2x16(bits); }

// Numbers 16 h + 4 q + {0, 2} (pair 0) or {1, 3} (pair 1) of a row's block, before the scale: in
// bytes 0 and 2 of `nibbles` (half h of each byte) and of `high`, shifted down for pair 1.
f16vec2 nibble_pair(uint nibbles, uint high, uint h) {
  uint low = h == 0 ? nibbles : nibbles >> 4;
  if (WEIGHT_DTYPE == kIq4Nl) {
    return f16vec2(nonlinear[low & 15], nonlinear[(low >> 16) & 15]);
  }
  if (WEIGHT_DTYPE == kQ4_0) {  // signed numbers: flipping bit 3 adds 8
    if (h == 0) return halves((nibbles & low_nibbles) ^ 0x64086408u) - f16vec2(1032.0hf);
    return halves((nibbles & high_nibbles) ^ 0x64806480u) * f16vec2(0.0625hf) - f16vec2(72.0hf);
  }
  if (WEIGHT_DTYPE == kQ4_K && h == 1) {
    return halves((nibbles & high_nibbles) | 0x64006400u) * f16vec2(0.0625hf) - f16vec2(64.0hf);
  }
  uint bits = (low & low_nibbles) | 0x64006400u;
  if (WEIGHT_DTYPE == kQ6_K) return halves(bits | ((high & 0x00030003u) << 4)) - f16vec2(1056.0hf);
  if (HIGH_BITS) bits |= (high & 0x00010001u) << 4;
  return halves(bits) - f16vec2(WEIGHT_DTYPE == kQ5_0 ? 1040.0hf : 1024.0hf);
}

// Pair `p` of step 2 q + h; `part` as it was loaded.
f16vec2 weight_pair(uint raw[ROW_WORDS], f16vec2 scale, uint part, uint q, uint h, uint p) {
  if (HALVES) {
    uint word = raw[(h * QUADS + q) * 2 + p];
    if (WEIGHT_DTYPE == kF16) return halves(word);
    return f16vec2(uintBitsToFloat(uvec2(word << 16, word & 0xFFFF0000u)));
  }
  if (WEIGHT_DTYPE == kQ8_0) {
    uint bytes = raw[h * QUADS + q] >> (8 * p);
    return (halves((bytes & 0x00FF00FFu) ^ 0x64806480u) - f16vec2(1152.0hf)) * scale;
  }
  uint high = 0;
  if (WEIGHT_DTYPE == kQ6_K) high = raw[ELEMENT_WORDS + h] >> (4 * part + 2 * q + 8 * p);
  if (HIGH_BITS) high = raw[ELEMENT_WORDS] >> (2 * part + 4 * h + q + 8 * p);
  f16vec2 number = nibble_pair(raw[q] >> (8 * p), high, h);
  if (WEIGHT_DTYPE == kQ6_K) return number * (h == 0 ? scale.xx : scale.yy);
  if (K_QUANT) return number * scale.xx - scale.yy;
  return number * scale;
}
#endif

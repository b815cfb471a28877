// Layer norm (Ba, Kiros, Hinton 2016) of a residual that takes a matmul's sums first:
//
//   updated = residual + source + bias
//   normed = (updated - mean(updated)) / sqrt(mean((updated - mean(updated))^2) + epsilon) * weight
//            + norm_bias
//
// Without a source updated is the residual and is not written.  One subgroup a row.  The row stays
// in registers, HELD pieces of four elements a lane, or if HELD is 0 is read again.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint OUT_FORMAT = 0;
layout(constant_id = 4) const uint HELD = 0;  // 0, or HELD * 4 * subgroup size >= cols
#include "push/add_layer_norm.glsl"

const uint kHeld = HELD == 0 ? 1 : HELD;

uint held_column(uint j) { return (j * gl_SubgroupSize + gl_SubgroupInvocationID) * 4; }
vec4 load_added(uint64_t base, uint i) {
  return load_vec4(source + base + i * 4) + load_vec4(bias + i * 4);
}
float total(vec4 sums) { return subgroup_sum(sums.x + sums.y + sums.z + sums.w); }
// `squares`: sums of (updated - mean)^2.
float norm_factor(vec4 squares) { return 1.0 / sqrt(total(squares) / float(cols) + epsilon); }
void store_normed(uint64_t row, uint i, vec4 from_mean, float factor) {
  vec4 y = from_mean * factor * load_vec4(weight + i * 4) + load_vec4(norm_bias + i * 4);
  store_activation(OUT_FORMAT, row, i, y, true);
}

// `base`: of the row in the residual, in bytes; `to`: the normed row.
void norm_in_registers(uint64_t base, uint64_t to) {
  vec4 x[kHeld], added[kHeld];
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    uint i = held_column(j);
    x[j] = i < cols ? load_vec4(residual + base + i * 4) : vec4(0.0);
  }
  if (source != 0) {
    // All loads before the first store, which might be to what they read.
    [[unroll]] for (uint j = 0; j < kHeld; ++j) {
      uint i = held_column(j);
      added[j] = i < cols ? load_added(base, i) : vec4(0.0);
    }
    [[unroll]] for (uint j = 0; j < kHeld; ++j) {
      uint i = held_column(j);
      x[j] += added[j];
      if (i < cols) store_vec4(updated + base + i * 4, x[j]);
    }
  }
  vec4 sums = vec4(0.0), squares = vec4(0.0);
  [[unroll]] for (uint j = 0; j < kHeld; ++j) sums += x[j];
  float mean = total(sums) / float(cols);
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    x[j] = held_column(j) < cols ? x[j] - mean : vec4(0.0);
    squares += x[j] * x[j];
  }
  float factor = norm_factor(squares);
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    uint i = held_column(j);
    if (i < cols) store_normed(to, i, x[j], factor);
  }
}

// Each lane reads only what it has written itself.
void norm_from_memory(uint64_t base, uint64_t to) {
  uint first = held_column(0), stride = gl_SubgroupSize * 4;
  uint64_t row = (source == 0 ? residual : updated) + base;
  vec4 sums = vec4(0.0), squares = vec4(0.0);
  for (uint i = first; i < cols; i += stride) {
    vec4 x = load_vec4(residual + base + i * 4);
    if (source != 0) {
      x += load_added(base, i);
      store_vec4(row + i * 4, x);
    }
    sums += x;
  }
  float mean = total(sums) / float(cols);
  for (uint i = first; i < cols; i += stride) {
    vec4 x = load_vec4(row + i * 4) - mean;
    squares += x * x;
  }
  float factor = norm_factor(squares);
  for (uint i = first; i < cols; i += stride) {
    store_normed(to, i, load_vec4(row + i * 4) - mean, factor);
  }
}

void main() {
  uint row = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
  if (row >= rows) return;
  uint64_t base = uint64_t(row) * cols * 4;
  uint64_t to = activation_row(normed, OUT_FORMAT, cols, row);
  if (HELD != 0) {
    norm_in_registers(base, to);
  } else {
    norm_from_memory(base, to);
  }
}

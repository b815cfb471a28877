// Rows of patches from a picture: of the patch whose first pixel is (top, left),
//
//   row[(c * PATCH + y) * PATCH + x] = pixels[c, top + y, left + x]
//
// and zero from column 3 PATCH^2 on.  One workgroup a patch, in reading order.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint OUT_FORMAT = 0;
layout(constant_id = 4) const uint PATCH = 14;
#include "push/cut_patches.glsl"

const uint kColumns = 3 * PATCH * PATCH;

// `first`: the patch's first pixel.
float load_column(uint64_t first, uint column) {
  if (column >= kColumns) return 0.0;
  uint line = column / PATCH;  // of the three channels' lines, one below the other
  uint at = (line / PATCH * image_size + line % PATCH) * image_size + column % PATCH;
  return load_float(first + uint64_t(at) * 4);
}

void main() {
  uint patches = image_size / PATCH, index = gl_WorkGroupID.x;
  uint top = index / patches * PATCH, left = index % patches * PATCH;
  uint64_t first = pixels + (uint64_t(top) * image_size + left) * 4;
  uint64_t row = activation_row(destination, OUT_FORMAT, stride, index);
  for (uint i = gl_LocalInvocationIndex; i < stride / 4; i += gl_WorkGroupSize.x) {
    uint k = i * 4;
    vec4 v = vec4(load_column(first, k), load_column(first, k + 1), load_column(first, k + 2),
                  load_column(first, k + 3));
    store_activation(OUT_FORMAT, row, k, v, true);
  }
}

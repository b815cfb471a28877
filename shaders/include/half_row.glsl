// Half a row of a 16 x 16 matrix.
#ifndef TANDEM_HALF_ROW_GLSL
#define TANDEM_HALF_ROW_GLSL
#include "pack_halves.glsl"

struct HalfRow {
  float e[8];
};
uvec4 packed(HalfRow h) {
  return uvec4(pack_halves(vec2(h.e[0], h.e[1])), pack_halves(vec2(h.e[2], h.e[3])),
               pack_halves(vec2(h.e[4], h.e[5])), pack_halves(vec2(h.e[6], h.e[7])));
}
#endif

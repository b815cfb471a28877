// Half a row of a 16 x 16 matrix.
#ifndef TANDEM_HALF_ROW_GLSL
#define TANDEM_HALF_ROW_GLSL

struct HalfRow {
  float e[8];
};
uvec4 packed(HalfRow h) {
  return uvec4(packHalf2x16(vec2(h.e[0], h.e[1])), packHalf2x16(vec2(h.e[2], h.e[3])),
               packHalf2x16(vec2(h.e[4], h.e[5])), packHalf2x16(vec2(h.e[6], h.e[7])));
}
#endif

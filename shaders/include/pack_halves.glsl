// Two float32 as float16, rounded to nearest.  packHalf2x16 leaves the rounding to the driver, and
// Mesa's for Radeons rounds towards zero.
#ifndef TANDEM_PACK_HALVES_GLSL
#define TANDEM_PACK_HALVES_GLSL
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
uint pack_halves(vec2 x) { return packFloat2x16(f16vec2(x)); }
#endif

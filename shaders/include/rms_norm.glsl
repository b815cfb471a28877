// The arithmetic of an RMS norm (Zhang, Sennrich 2019), once for every kernel that has one:
//
//   rmsnorm(x) * weight = x / sqrt(mean(x^2) + epsilon) * weight
//
// and of a residual that takes the normed row: every kernel makes the same bits of the same row.
#ifndef TANDEM_RMS_NORM_GLSL
#define TANDEM_RMS_NORM_GLSL

// `squares`: the sum of x^2 over the row's `count` elements.
float rms_factor(float squares, uint count, float epsilon) {
  return 1.0 / sqrt(squares / float(count) + epsilon);
}
// `factor`: of the row, from rms_factor.
vec4 rms_normed(vec4 x, float factor, vec4 weight) { return x * factor * weight; }
vec4 add_rms_normed(vec4 residual, vec4 x, float factor, vec4 weight) {
  return residual + rms_normed(x, factor, weight);
}
#endif

// The activation of the vision encoder's FFN:
//
//   destination[row, i] = gelu_tanh(source[row, i] + bias[i])    i < cols, else 0
//
// As float16 divided by kGegluHalfScale.  One workgroup a row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
#include "geglu.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint OUT_FORMAT = 0;
#include "push/bias_gelu.glsl"

const float kOutScale = OUT_FORMAT == kActivationF16 ? 1.0 / kGegluHalfScale : 1.0;

void main() {
  uint64_t from = source + uint64_t(gl_WorkGroupID.x) * cols * 4;
  uint64_t row = activation_row(destination, OUT_FORMAT, stride, gl_WorkGroupID.x);
  for (uint i = gl_LocalInvocationIndex * 4; i < stride; i += gl_WorkGroupSize.x * 4) {
    vec4 y = vec4(0.0);
    if (i < cols) {
      vec4 x = load_vec4(from + i * 4) + load_vec4(bias + i * 4);
      y = vec4(gelu_tanh(x.x), gelu_tanh(x.y), gelu_tanh(x.z), gelu_tanh(x.w)) * kOutScale;
    }
    store_activation(OUT_FORMAT, row, i, y, true);
  }
}

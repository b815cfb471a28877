#ifndef TANDEM_GEGLU_GLSL
#define TANDEM_GEGLU_GLSL
// 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) = g / (1 + exp(-2 sqrt(2/pi) (...)))
float gelu_tanh(float g) {
  float u = 0.7978845608028654 * (g + 0.044715 * g * g * g);
  return g / (1.0 + exp(-2.0 * u));
}
#endif

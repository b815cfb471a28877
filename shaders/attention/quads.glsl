// Over the four lanes that hold two rows of the sums: coop.glsl, layout 1.
#ifndef TANDEM_QUADS_GLSL
#define TANDEM_QUADS_GLSL

float quad_max(float x) {
  x = max(x, subgroupShuffleXor(x, 1));
  return max(x, subgroupShuffleXor(x, 2));
}
float quad_sum(float x) {
  x += subgroupShuffleXor(x, 1);
  return x + subgroupShuffleXor(x, 2);
}
#endif

// Sum over a workgroup in one fixed order, the result in every invocation.
#ifndef TANDEM_REDUCE_GLSL
#define TANDEM_REDUCE_GLSL
#include "memory.glsl"
const uint kMaxSubgroups = 128;
shared float subgroup_sums[kMaxSubgroups];

float workgroup_sum(float value) {
  value = subgroup_sum(value);
  if (gl_NumSubgroups == 1) return value;
  barrier();
  if (gl_SubgroupInvocationID == 0) subgroup_sums[gl_SubgroupID] = value;
  barrier();
  float total = 0.0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) total += subgroup_sums[i];
  return total;
}
#endif

// Typed access by device address.  Loads go 8 or 16 bytes at a time; 64-bit components, because a
// software device pays per component.
#ifndef TANDEM_MEMORY_GLSL
#define TANDEM_MEMORY_GLSL
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_shuffle_relative : require
#include "bf16.glsl"
#include "numbers.glsl"
#include "pack_halves.glsl"
#include "push.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Wide { u64vec2 v; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Long { uint64_t v; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Word { uint v; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Float { float v; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Half { float16_t v; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Short { uint16_t v; };

uint load_uint(uint64_t address) { return Word(address).v; }
float load_float(uint64_t address) { return Float(address).v; }

uvec4 load_uvec4(uint64_t address) {
  u64vec2 pair = Wide(address).v;
  return uvec4(unpack32(pair.x), unpack32(pair.y));
}
vec4 load_vec4(uint64_t address) { return uintBitsToFloat(load_uvec4(address)); }
void store_vec4(uint64_t address, vec4 value) {
  uvec4 bits = floatBitsToUint(value);
  Wide(address).v = u64vec2(pack64(bits.xy), pack64(bits.zw));
}
vec4 load_half4(uint64_t address) {
  uvec2 bits = unpack32(Long(address).v);
  return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
}
void store_half4(uint64_t address, vec4 value) {
  Long(address).v = pack64(uvec2(pack_halves(value.xy), pack_halves(value.zw)));
}

vec4 load_bf16x4(uint64_t address) {
  uvec2 bits = unpack32(Long(address).v);
  return vec4(unpack_bf16(bits.x), unpack_bf16(bits.y));
}
void store_bf16x4(uint64_t address, vec4 value) {
  Long(address).v = pack64(uvec2(pack_bf16(value.xy), pack_bf16(value.zw)));
}

// Sum and maximum over the subgroup in one fixed order: the same bits whatever surrounds it.
// Written out: a loop whose variable doubles is not unrolled by every driver.
float subgroup_sum(float value) {
  value += subgroupShuffleXor(value, 1);
  value += subgroupShuffleXor(value, 2);
  value += subgroupShuffleXor(value, 4);
  if (gl_SubgroupSize > 8) value += subgroupShuffleXor(value, 8);
  if (gl_SubgroupSize > 16) value += subgroupShuffleXor(value, 16);
  if (gl_SubgroupSize > 32) value += subgroupShuffleXor(value, 32);
  return value;
}
float subgroup_max(float value) {
  value = max(value, subgroupShuffleXor(value, 1));
  value = max(value, subgroupShuffleXor(value, 2));
  value = max(value, subgroupShuffleXor(value, 4));
  if (gl_SubgroupSize > 8) value = max(value, subgroupShuffleXor(value, 8));
  if (gl_SubgroupSize > 16) value = max(value, subgroupShuffleXor(value, 16));
  if (gl_SubgroupSize > 32) value = max(value, subgroupShuffleXor(value, 32));
  return value;
}
#endif

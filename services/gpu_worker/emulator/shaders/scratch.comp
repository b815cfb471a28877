// Each invocation fills an array that does not fit into registers and reads it back in another
// order: the compiler puts it into scratch memory.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require

layout(local_size_x = 96) in;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Output { uint words[]; };
layout(push_constant, scalar) uniform Push {
  Output written;
  uvec3 multiplier;  // x: of the order, odd
};

void main() {
  uint values[256];
  const uint own = gl_GlobalInvocationID.x;
  for (uint i = 0; i < 256; ++i) values[(i * multiplier.x + own) & 255] = own * 1000 + i;
  uint sum = 0;
  for (uint i = 0; i < 256; ++i) sum = sum * 31 + values[(i * multiplier.x * 3 + 7) & 255];
  written.words[own] = sum;
}

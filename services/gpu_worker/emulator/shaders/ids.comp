// Each invocation writes who it is: three words of its workgroup, of the number of workgroups and of
// its place in the workgroup.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require

layout(local_size_x = 9, local_size_y = 5, local_size_z = 2) in;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Output { uint words[]; };
layout(push_constant, scalar) uniform Push {
  Output written;
  uvec3 first_group;  // the output has the first row
};

void main() {
  const uvec3 size = gl_NumWorkGroups * gl_WorkGroupSize;
  const uvec3 at =
      (gl_WorkGroupID - first_group) * gl_WorkGroupSize + gl_LocalInvocationID;
  const uint row = 9 * ((at.z * size.y + at.y) * size.x + at.x);
  for (uint i = 0; i < 3; ++i) {
    written.words[row + i] = gl_WorkGroupID[i];
    written.words[row + 3 + i] = gl_NumWorkGroups[i];
    written.words[row + 6 + i] = gl_LocalInvocationID[i];
  }
}

// Order between a recording's dispatches without barriers (stages/phase_recorder.h): a phase's
// counter holds how many of its workgroups have not ended.  A workgroup of the next phase requests
// what no phase writes, weights above all, and then waits for the counter to be zero.  What a phase
// before has written is read past caches that the workgroup has of its own (load_passed_..).
//
// Devices start the workgroups of one dispatch before those of the next, so those that are waited
// for can always run.  Vulkan does not promise that: a wait that takes too long ends, all others
// soon after, and the host sees it and discards the step.
//
// A shader that includes this has PUSH_PHASE among its push constants: the address of its own phase's
// counter, plus kWaits and kCounts.
#ifndef TANDEM_PHASE_GLSL
#define TANDEM_PHASE_GLSL
#include "memory.glsl"
#extension GL_KHR_memory_scope_semantics : require
layout(constant_id = 14) const uint MOST_POLLS = 1u << 22;  // seconds
layout(constant_id = 15) const bool PHASES = false;

layout(buffer_reference, scalar,
       buffer_reference_align = 16) volatile coherent buffer DependencyCounter {
  int left;
  int groups;
  uint64_t given_up;  // address of a PhaseFlag
  uint waits, awaited;
};
layout(buffer_reference, scalar, buffer_reference_align = 4) volatile coherent buffer PhaseFlag {
  uint v;
};

layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer Passed16 { u64vec2 v; };
layout(buffer_reference, scalar, buffer_reference_align = 8) coherent buffer Passed8 { uint64_t v; };

uvec4 load_passed_uvec4(uint64_t address) {
  if (!PHASES) return load_uvec4(address);
  u64vec2 pair = Passed16(address).v;
  return uvec4(unpack32(pair.x), unpack32(pair.y));
}
vec4 load_passed_vec4(uint64_t address) { return uintBitsToFloat(load_passed_uvec4(address)); }
uvec2 load_passed_uvec2(uint64_t address) {
  return unpack32(PHASES ? Passed8(address).v : Long(address).v);
}
vec4 load_passed_half4(uint64_t address) {
  uvec2 bits = load_passed_uvec2(address);
  return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
}
vec4 load_passed_bf16x4(uint64_t address) {
  uvec2 bits = load_passed_uvec2(address);
  return vec4(unpack_bf16(bits.x), unpack_bf16(bits.y));
}

// For memory too.  On an H200 groupMemoryBarrier waits for all loads that are under way, those of
// weights included; this does not.
void workgroup_barrier() {
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup,
                 gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

uint64_t dependency_counter() { return phase - (uint(phase) & (kDependencyCounterBytes - 1)); }

// Waits for the phase before.  All invocations of the workgroup call it once.
void await_phase() {
  if (!PHASES || (uint(phase) & kWaits) == 0) return;
  if (gl_LocalInvocationIndex == 0) {
    DependencyCounter before = DependencyCounter(dependency_counter() - kDependencyCounterBytes);
    uint polls = 0;
    while (before.left > 0) {
      ++polls;
      if (polls % 1024 == 0 && PhaseFlag(before.given_up).v != 0) break;
      if (polls < MOST_POLLS) continue;
      PhaseFlag(before.given_up).v = 1;
      break;
    }
    memoryBarrierBuffer();
  }
  workgroup_barrier();
}

// Ends `groups` workgroups of the phase: this one, and those that return without a call.  A workgroup
// calls it last.  The phase's last workgroup resets the counters that are no longer read.
void end_phase_of(int groups) {
  if (!PHASES || (uint(phase) & kCounts) == 0) return;
  workgroup_barrier();
  if (gl_LocalInvocationIndex != 0) return;
  memoryBarrierBuffer();
  DependencyCounter own = DependencyCounter(dependency_counter());
  if (atomicAdd(own.left, -groups) != groups) return;
  if (own.awaited == 0) own.left = own.groups;
  if (own.waits == 0) return;
  DependencyCounter before = DependencyCounter(dependency_counter() - kDependencyCounterBytes);
  before.left = before.groups;
}
void end_phase() { end_phase_of(1); }

// For workgroups with nothing to do.  One of them waits, because a phase ends after the one before
// it.
void skip_phase() {
  if (gl_WorkGroupID.x == 0 && gl_WorkGroupID.y == 0) await_phase();
  end_phase();
}
#endif

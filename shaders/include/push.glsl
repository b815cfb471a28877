// Push constants: a kernel's block is one file of push/, which its shader includes and
// services/gpu_worker/kernels/push_constants.h too.  So both sides have the same fields in the same
// order; C++ aligns them as the scalar layout does.
//
// PUSH_PHASE: see phase.glsl.  C++ has no field for it: SetPhase (kernels/phases.h) writes it.
#ifndef TANDEM_PUSH_GLSL
#define TANDEM_PUSH_GLSL
#define PUSH_BLOCK(name) layout(push_constant, scalar) uniform name {
#define PUSH_PHASE layout(offset = 120) uint64_t phase;
#define PUSH_END };
#endif

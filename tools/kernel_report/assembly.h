// What a compiled kernel consists of, read from the compiler's disassembly of RDNA code.
#pragma once

#include <cstdint>
#include <string_view>

#include "tools/kernel_report/chip.h"

namespace tandem::report {

// Instructions by class; one of two operations (VOPD) counts once, as vector.
struct InstructionMix {
  uint32_t total = 0;
  uint32_t vector = 0;  // all of the vector unit's, those of the next four among them
  uint32_t dot = 0;     // v_dot4, v_dot2
  uint32_t matrix = 0;  // v_wmma
  uint32_t fma = 0;     // v_fma, v_fmac, v_pk_fma: operations, so up to two an instruction
  uint32_t integer = 0;
  uint32_t multiply = 0;
  uint32_t transcendental = 0;
  uint32_t scalar = 0;
  uint32_t vector_loads = 0, vector_stores = 0;
  uint32_t scalar_loads = 0;
  uint32_t shared = 0;  // LDS
  uint32_t scratch = 0;
  uint32_t waits = 0;
  uint32_t branches = 0;
  uint32_t barriers = 0;
  double vector_bytes = 0;  // of loads and stores of a subgroup of 32
  double shared_bytes = 0;
  double macs = 0;  // multiply-adds of a subgroup, on the unit that makes most of them
  double dot_macs = 0, matrix_macs = 0, fma_macs = 0;

  void Add(const InstructionMix& other);
};

// A kernel's instructions and its main loop's: the smallest loop with most of the multiply-adds.
struct AssemblyReport {
  InstructionMix all;
  InstructionMix loop;  // no instruction: the kernel has none
};

// REQUIRES text as Mesa prints it: a label or an instruction a line.
AssemblyReport ReadAssembly(std::string_view text);

// Clocks of a SIMD that one pass over `mix` takes at best, and what holds it.
struct Clocks {
  double vector = 0, shared = 0, memory = 0, scalar = 0;
  double most() const;
  std::string_view bound() const;  // "vector unit", "matrix unit", "shared memory", "cache"
  bool matrix_bound = false;
};
Clocks ClocksOf(const InstructionMix& mix, const InstructionCosts& costs);

}  // namespace tandem::report

// The chips that kernel_report compiles for and predicts: their published figures, as data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::report {

// Clocks of one SIMD that an instruction of a subgroup of 32 takes.
struct InstructionCosts {
  double vector = 1;          // float32, and whatever is not named below
  double integer = 1;         // 32-bit shifts, logic and additions
  double dot = 1;             // four int8 by four
  double multiply = 4;        // 32-bit integer products, 64-bit shifts
  double transcendental = 4;  // exp, rcp, rsq, sqrt
  double matrix = 32;         // 16 x 16 x 16, float16 into float32
  double lds_bytes = 64;      // of shared memory in a clock
  double vmem_bytes = 64;     // of the nearest cache in a clock
};

struct Chip {
  std::string_view name;     // "phoenix": what --chip takes, and RADV_FORCE_FAMILY
  std::string_view title;    // "Radeon 780M"
  std::string_view family;   // of the compiler that makes its code, or another's in its place
  bool own_compiler = true;  // false: `family` is another chip's; the instructions' mix stands in
  std::string_view device_name;  // what the driver says it is; empty: as the compiler says

  uint32_t processors = 0;  // CUs, or NVIDIA's SMs
  uint32_t simds = 2;       // of a processor
  double clock_hz = 0;
  uint32_t lds_bytes = 0;      // shared memory of a processor
  uint64_t cache_bytes = 0;    // the last cache before memory: L2, or AMD's infinity cache
  double cache_bandwidth = 0;  // bytes a second
  double bandwidth = 0;        // of memory, bytes a second, by its data sheet
  double bandwidth_share = 1;  // of that, what a kernel that only reads reaches
  // From the end of a dispatch to the work of the next, by a dependency counter or by a barrier.
  double counter_seconds = 0, barrier_seconds = 0;
  double memory_latency = 0;  // seconds
  InstructionCosts costs;
  std::string_view source;  // where the figures are from, and which are assumed

  double SimdClocks() const { return clock_hz * processors * simds; }  // in a second
  double ReadBandwidth() const { return bandwidth * bandwidth_share; }
  double MatrixFlops() const { return SimdClocks() / costs.matrix * 2 * 16 * 16 * 16; }
};

std::span<const Chip> AllChips();

// "phoenix (Radeon 780M), ..."
std::string ChipNames();

// By name or by a word of the title, case ignored ("780m").  NOT_FOUND lists them.
absl::StatusOr<Chip> FindChip(std::string_view name);

}  // namespace tandem::report

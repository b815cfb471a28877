// A random number as a function of a seed and a counter.
#pragma once

#include <array>
#include <cstdint>

namespace tandem::gateway {

// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1) with 53 bits: Philox of counter `n` under key `seed`.
double UniformDraw(uint64_t seed, uint64_t n);

}  // namespace tandem::gateway

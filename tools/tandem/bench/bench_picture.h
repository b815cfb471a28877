// Pictures that the bench asks about.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

// A PNG file of `side` x `side` pixels: coloured rectangles on a noisy ground, about a byte for two
// pixels.  Other seeds give other pictures.
std::string MakeBenchPicture(uint32_t side, uint64_t seed);

}  // namespace tandem

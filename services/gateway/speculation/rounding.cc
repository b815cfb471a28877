#include "services/gateway/speculation/rounding.h"

#include <cmath>

namespace tandem::gateway {
namespace {

constexpr double kHalf = 0x1p-11;
constexpr double kInt8 = 2.5 / 254;
constexpr double kRoundings = 13;  // of a layer
constexpr double kProducts = 4;    // of a layer

}  // namespace

double LogitRounding(uint32_t num_layers, bool int8) {
  const double to_int8 = int8 ? kProducts : 0.0;
  const double squares = ((kRoundings - to_int8) * kHalf * kHalf + to_int8 * kInt8 * kInt8) / 3.0;
  double harmonic = 0.0;
  for (uint32_t l = 1; l <= num_layers; ++l) harmonic += 1.0 / l;
  return 2.0 * std::sqrt(squares * harmonic);
}

}  // namespace tandem::gateway

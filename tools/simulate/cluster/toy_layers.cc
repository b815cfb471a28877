#include "tools/simulate/cluster/toy_layers.h"

namespace tandem::simulate {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t ToyEmbed(uint32_t token) { return Mix(token); }

ToyQkv ToyProject(uint32_t layer, uint64_t residual) {
  const uint64_t key = Mix(residual ^ (uint64_t{layer} << 32));
  return {.q = Mix(key + 1), .k = key, .v = Mix(key + 2)};
}

uint64_t ToyCached(const ToyQkv& qkv) { return Mix(qkv.k) ^ qkv.v; }

uint64_t ToyAttend(uint64_t sum, uint64_t cached) {
  return (sum ^ cached) * 0xD1342543DE82EF95u + 1;
}

uint64_t ToyOut(uint32_t layer, uint64_t attention) { return Mix(attention + layer); }

// Odd, because the toy model's logits take zero for a poisoned state.
uint64_t ToyFfn(uint64_t residual, uint64_t projection) { return Mix(residual ^ projection) | 1; }

uint64_t ToyText::Append(uint32_t token) {
  uint64_t residual = ToyEmbed(token);
  for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
    const ToyQkv qkv = ToyProject(layer, residual);
    std::vector<uint64_t>& cached = cached_[layer];
    cached.push_back(ToyCached(qkv));
    const auto last = static_cast<uint32_t>(cached.size() - 1);
    uint64_t sum = qkv.q;
    for (uint32_t p = FirstSeen(config_, layer, last); p <= last; ++p)
      sum = ToyAttend(sum, cached[p]);
    residual = ToyFfn(residual, ToyOut(layer, sum));
  }
  return residual;
}

}  // namespace tandem::simulate

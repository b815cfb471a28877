#include <xxhash.h>

#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/shared_memory.h"
#include "services/loader/packing/packed_cache.h"
#include "services/loader/synthetic/synthetic_model.h"
#include "services/loader/synthetic/synthetic_weights.h"

namespace tandem::loader {
namespace {

// One small model a format, its matrices no multiples of a tile.
uint64_t Compute() {
  uint64_t fingerprint = 0;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!CanSynthesize(dtype)) continue;
    const std::string type(Traits(dtype).name);
    const auto source = OpenSynthetic(absl::StrFormat(
        "synthetic:gemma3-270m?type=%s&embedding=%s&layers=1&hidden=256&ffn=288&heads=1&kv_heads=1"
        "&head_dim=32&vocab=275",
        type, type));
    TANDEM_CHECK(source.ok());
    const auto packed = PackModel(**source, {.num_threads = 1}, nullptr);
    if (!packed.ok()) continue;  // no memory: the model itself will not fit either
    for (const PackedRegion& region : packed->regions) {
      const auto mapping = Mapping::Map(region.fd.get(), region.bytes, Mapping::Access::kReadOnly);
      if (!mapping.ok()) continue;
      fingerprint = XXH3_64bits_withSeed(mapping->data(), mapping->size(), fingerprint);
    }
  }
  return fingerprint;
}

}  // namespace

uint64_t LayoutFingerprint() {
  static const uint64_t fingerprint = Compute();
  return fingerprint;
}

}  // namespace tandem::loader

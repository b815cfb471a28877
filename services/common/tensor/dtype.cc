#include "services/common/tensor/dtype.h"

#include "services/common/base/check.h"

namespace tandem {
namespace {

constexpr DTypeTraits kTraits[kNumDTypes] = {
    {"f32", 1, 4},    {"f16", 1, 2},    {"bf16", 1, 2},
    {"q8_0", 32, 34}, {"q4_0", 32, 18}, {"q6_k", 256, 210},
};

}  // namespace

const DTypeTraits& Traits(DType dtype) {
  const auto index = static_cast<uint32_t>(dtype);
  TANDEM_CHECK(index < kNumDTypes);
  return kTraits[index];
}

size_t RowBytes(DType dtype, size_t num_elements) {
  const DTypeTraits& traits = Traits(dtype);
  TANDEM_CHECK(num_elements % traits.block_elements == 0);
  return num_elements / traits.block_elements * traits.block_bytes;
}

}  // namespace tandem

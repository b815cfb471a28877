#include "services/common/tensor/dtype.h"

#include "services/common/base/check.h"

namespace tandem {
namespace {

constexpr DTypeTraits kTraits[kNumDTypes] = {
    {"f32", 1, 4},    {"f16", 1, 2},      {"bf16", 1, 2},     {"q8_0", 32, 34},
    {"q4_0", 32, 18}, {"q6_k", 256, 210}, {"q4_k", 256, 144}, {"q5_k", 256, 176},
    {"q5_0", 32, 22}, {"iq4_nl", 32, 18},
};

constexpr DType kAll[kNumDTypes] = {
    DType::kF32,  DType::kF16,  DType::kBf16, DType::kQ8_0, DType::kQ4_0,
    DType::kQ6_K, DType::kQ4_K, DType::kQ5_K, DType::kQ5_0, DType::kIq4Nl,
};

}  // namespace

const DTypeTraits& Traits(DType dtype) {
  const auto index = static_cast<uint32_t>(dtype);
  TANDEM_CHECK(index < kNumDTypes);
  return kTraits[index];
}

std::span<const DType> AllDTypes() { return kAll; }

size_t RowBytes(DType dtype, size_t num_elements) {
  const DTypeTraits& traits = Traits(dtype);
  TANDEM_CHECK(num_elements % traits.block_elements == 0);
  return num_elements / traits.block_elements * traits.block_bytes;
}

}  // namespace tandem

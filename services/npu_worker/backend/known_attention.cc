#include "services/npu_worker/backend/known_attention.h"

#include <cmath>

#include "services/common/base/half.h"
#include "services/npu_worker/backend/known_answer.h"

namespace tandem::npu::known_attention {
namespace {

float ToBoth(float value) { return Bf16ToFloat(FloatToBf16(value)); }

uint32_t Entry(uint32_t kv_head, uint32_t sequence, uint32_t position) {
  return (kv_head * 2 + sequence) * 256 + position;
}

}  // namespace

Place PlaceOf(uint32_t row) { return row < kChunkRows ? Place{0, row} : Place{1, kDeepPosition}; }

float Query(uint32_t row, uint32_t head, uint32_t d) {
  return ToBoth(2.0f * KnownNumber(row * 64 + head, d, 1) - 1.0f);
}

float Key(uint32_t kv_head, uint32_t sequence, uint32_t position, uint32_t d) {
  return ToBoth(2.0f * KnownNumber(Entry(kv_head, sequence, position), d, 2) - 1.0f);
}

// A sign by element, a size by block and by position: the answer stays away from zero, and shows which
// blocks were weighed, and which positions of a short sequence.
float Value(uint32_t kv_head, uint32_t sequence, uint32_t position, uint32_t d) {
  const uint32_t entry = Entry(kv_head, sequence, position);
  const float sign = KnownNumber(0, d, 3) < 0.5f ? -1.0f : 1.0f;
  const float of_block = KnownNumber(entry / kBlockTokens, d, 6) < 0.5f ? 0.0f : 0.5f;
  return ToBoth(sign * (0.5f + of_block + 0.5f * KnownNumber(entry, d, 4)));
}

std::vector<float> Expected(uint32_t num_kv_heads, uint32_t head_dim) {
  std::vector<float> expected;
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  for (uint32_t row = 0; row < kNumRows; ++row) {
    const Place at = PlaceOf(row);
    const uint32_t first = at.position + 1 > kWindow ? at.position + 1 - kWindow : 0;
    for (uint32_t head = 0; head < num_kv_heads * kGroupHeads; ++head) {
      const uint32_t kv_head = head / kGroupHeads;
      std::vector<double> sum(head_dim, 0.0);
      double total = 0.0;
      for (uint32_t j = first; j <= at.position; ++j) {
        double score = 0.0;
        for (uint32_t d = 0; d < head_dim; ++d) {
          score += double{Query(row, head, d)} * Key(kv_head, at.sequence, j, d);
        }
        const double weight = std::exp(score * scale);
        total += weight;
        for (uint32_t d = 0; d < head_dim; ++d) {
          sum[d] += weight * Value(kv_head, at.sequence, j, d);
        }
      }
      for (const double s : sum) expected.push_back(static_cast<float>(s / total));
    }
  }
  return expected;
}

}  // namespace tandem::npu::known_attention

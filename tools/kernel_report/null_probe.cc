#include "services/gpu_worker/kernels/fragment_layout.h"
#include "tools/kernel_report/null_objects.h"

namespace tandem::report {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kStride = gpu::kMaxFragmentElements;

// RDNA 3: lanes l and l + 16 hold row l of the left matrix, sixteen elements; of the sums a lane
// holds every second row of column l % 16.
void AnswerRows(uint32_t* words) {
  words[0] = 16;
  words[1] = 8;
  uint32_t* const positions = words + 2;
  uint32_t* const sums = positions + kLanes * kStride;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t e = 0; e < 16; ++e) positions[lane * kStride + e] = lane % 16 * 16 + e;
    for (uint32_t e = 0; e < 8; ++e) {
      sums[lane * kStride + e] = (2 * e + lane / 16) * 16 + lane % 16;
    }
  }
}

// NVIDIA: four lanes share rows l / 4 and l / 4 + 8, in both matrices alike.
void AnswerQuads(uint32_t* words) {
  words[0] = words[1] = 8;
  for (uint32_t matrix = 0; matrix < 2; ++matrix) {
    uint32_t* const positions = words + 2 + matrix * kLanes * kStride;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      for (uint32_t e = 0; e < 8; ++e) {
        const uint32_t pair = e / 2;
        const uint32_t row = lane / 4 + 8 * (pair % 2);
        positions[lane * kStride + e] = 16 * row + lane % 4 * 2 + e % 2 + 8 * (pair / 2);
      }
    }
  }
}

void AnswerNarrow(uint32_t* words) {
  words[0] = words[1] = 4;
  uint32_t* positions = words + 2;
  uint32_t* sums = positions + kLanes * kStride;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t along = lane % 4 * 2 + e % 2, across = lane / 4, upper = 8 * (e / 2);
      positions[lane * kStride + e] = 8 * (along + upper) + across;
      sums[lane * kStride + e] = 8 * (across + upper) + along;
    }
  }
}

}  // namespace

void AnswerProbe(const Chip& chip, gpu::KernelId probe, uint32_t* words) {
  if (probe == gpu::KernelId::kNarrowProbe) {
    AnswerNarrow(words);
  } else if (chip.own_compiler) {
    AnswerRows(words);
  } else {
    AnswerQuads(words);
  }
}

}  // namespace tandem::report

#include "services/gateway/placement/slowdown.h"

#include <algorithm>
#include <bit>

namespace tandem::gateway {
namespace {

// So many steps say what their kind takes.
constexpr uint32_t kEnough = 8;
// Of what was known before: a single step that was held up proves nothing.
constexpr double kMostGrowth = 4.0;
// Steps after which the ratio has followed.
constexpr double kSteps = 16.0;

}  // namespace

uint64_t Slowdown::BucketOf(StepShape shape) {
  const auto octave = [](uint32_t value) { return static_cast<uint64_t>(std::bit_width(value)); };
  // Depths below 128 differ little.
  const uint64_t kind = (shape.overlaps ? 2 : 0) | (shape.decodes ? 1 : 0);
  return (octave(shape.depth / 128) << 16) | (octave(shape.rows) << 8) | kind;
}

void Slowdown::Expect(StepShape shape, double seconds) {
  usual_[BucketOf(shape)] = {.seconds = seconds, .steps = kEnough};
}

void Slowdown::Took(StepShape shape, double seconds) {
  Usual& usual = usual_[BucketOf(shape)];
  if (usual.steps < kEnough) {
    ++usual.steps;
    usual.seconds += (seconds / ratio_ - usual.seconds) / usual.steps;
    return;
  }
  if (usual.seconds <= 0.0) return;
  const double ratio = std::min(seconds / usual.seconds, kMostGrowth * ratio_);
  ratio_ += (ratio - ratio_) / kSteps;
}

}  // namespace tandem::gateway

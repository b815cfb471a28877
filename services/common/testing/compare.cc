#include "services/common/testing/compare.h"

#include <algorithm>
#include <cmath>

#include "services/common/base/check.h"
#include "services/common/base/half.h"

namespace tandem::testing {
namespace {

struct Worst {
  size_t index = 0;
  double excess = -1.0;  // difference / allowed
};

// NaN and infinities are worse than anything.
Worst FindWorst(std::span<const float> actual, std::span<const float> expected, double bound,
                double relative) {
  Worst worst;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::fabs(double{actual[i]} - double{expected[i]});
    const double allowed = bound + relative * std::fabs(double{expected[i]});
    const double excess = std::isfinite(difference)
                              ? (difference == 0.0 ? 0.0 : difference / allowed)
                              : std::numeric_limits<double>::infinity();
    if (excess > worst.excess) worst = {i, excess};
  }
  return worst;
}

::testing::AssertionResult Describe(std::span<const float> actual, std::span<const float> expected,
                                    size_t index) {
  return ::testing::AssertionFailure()
         << "worst of " << actual.size() << " elements is " << index << ": actual " << actual[index]
         << ", expected " << expected[index] << ", difference "
         << std::fabs(double{actual[index]} - double{expected[index]});
}

::testing::AssertionResult SizesDiffer(size_t actual, size_t expected) {
  return ::testing::AssertionFailure() << actual << " elements, expected " << expected;
}

std::vector<double> LogSoftmax(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - top);
  std::vector<double> result(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) result[i] = logits[i] - top - std::log(sum);
  return result;
}

}  // namespace

double Norm(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += double{value} * double{value};
  return std::sqrt(sum);
}

double RelativeError(std::span<const float> actual, std::span<const float> expected) {
  TANDEM_CHECK(actual.size() == expected.size());
  double difference = 0.0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double d = double{actual[i]} - double{expected[i]};
    difference += d * d;
  }
  if (difference == 0.0) return 0.0;
  return std::sqrt(difference) / Norm(expected);
}

double DotBound(size_t n, double norm_a, double norm_b, double input_epsilon) {
  const double growth = 4.0 * std::sqrt(static_cast<double>(n)) * kEpsilonF32;
  return (growth + 2.0 * input_epsilon) * norm_a * norm_b;
}

::testing::AssertionResult IsNear(std::span<const float> actual, std::span<const float> expected,
                                  double bound, double relative) {
  if (actual.size() != expected.size()) return SizesDiffer(actual.size(), expected.size());
  const Worst worst = FindWorst(actual, expected, bound, relative);
  if (worst.excess <= 1.0) return ::testing::AssertionSuccess();
  return Describe(actual, expected, worst.index)
         << ", allowed " << bound + relative * std::fabs(double{expected[worst.index]});
}

::testing::AssertionResult IsNearInNorm(std::span<const float> actual,
                                        std::span<const float> expected, double bound) {
  if (actual.size() != expected.size()) return SizesDiffer(actual.size(), expected.size());
  const double error = RelativeError(actual, expected);
  if (error <= bound) return ::testing::AssertionSuccess();  // false for NaN
  return Describe(actual, expected, FindWorst(actual, expected, 1.0, 0.0).index)
         << "; relative error in norm " << error << ", allowed " << bound;
}

double KlDivergence(std::span<const float> expected_logits, std::span<const float> actual_logits) {
  TANDEM_CHECK(expected_logits.size() == actual_logits.size());
  const std::vector<double> p = LogSoftmax(expected_logits);
  const std::vector<double> q = LogSoftmax(actual_logits);
  double divergence = 0.0;
  for (size_t i = 0; i < p.size(); ++i) divergence += std::exp(p[i]) * (p[i] - q[i]);
  return divergence;
}

std::vector<float> HalvesToFloats(std::span<const uint16_t> halves) {
  std::vector<float> floats(halves.size());
  std::transform(halves.begin(), halves.end(), floats.begin(), HalfToFloat);
  return floats;
}

std::vector<uint16_t> FloatsToHalves(std::span<const float> floats) {
  std::vector<uint16_t> halves(floats.size());
  std::transform(floats.begin(), floats.end(), halves.begin(), FloatToHalf);
  return halves;
}

}  // namespace tandem::testing

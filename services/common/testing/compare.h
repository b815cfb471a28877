// Comparing computed numbers with a reference: bounds that follow from the arithmetic, the worst
// element in the message.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::testing {

// Unit roundoff: largest relative error of rounding to the format.
inline constexpr double kEpsilonF32 = 0x1p-24;
inline constexpr double kEpsilonF16 = 0x1p-11;
inline constexpr double kEpsilonBf16 = 0x1p-8;

// Euclidean norm, accumulated in float64.
double Norm(std::span<const float> values);
// |actual - expected| / |expected| over Euclidean norms; 0 when both are empty or zero.
double RelativeError(std::span<const float> actual, std::span<const float> expected);

// Bound on the error of a dot product of n terms summed in float32 in any order, its factors
// rounded to relative precision `input_epsilon` first (0: exact):
//   |error| <= (c n^1/2 eps32 + 2 input_epsilon) |a| |b|
// The square root of n is the growth of errors that are independent; c = 4 leaves four standard
// deviations.  Source: Higham, Accuracy and Stability of Numerical Algorithms, section 3.1.
double DotBound(size_t n, double norm_a, double norm_b, double input_epsilon = 0.0);

// Success when |actual - expected| <= bound + relative * |expected| for every element, and every
// element is a number.  The failure names the worst element: index, values, difference, bound.
::testing::AssertionResult IsNear(std::span<const float> actual, std::span<const float> expected,
                                  double bound, double relative = 0.0);

// Success when RelativeError(actual, expected) <= bound; the failure names the worst element.
::testing::AssertionResult IsNearInNorm(std::span<const float> actual,
                                        std::span<const float> expected, double bound);

// Kullback-Leibler divergence of softmax(actual) from softmax(expected), nats.
double KlDivergence(std::span<const float> expected_logits, std::span<const float> actual_logits);

std::vector<float> HalvesToFloats(std::span<const uint16_t> halves);
std::vector<uint16_t> FloatsToHalves(std::span<const float> floats);

}  // namespace tandem::testing

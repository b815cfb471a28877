// Sampler: draws that last bits of the logits could decide.
//
// Weights are exp(logit / T).  If the difference of two logits changes by at most `shift`, the
// ratio of two sums of weights changes by at most exp(shift / T).  The token drawn at rank r stays
// the same if
//   - its neighbours by rank are farther away than `shift`: the same tokens stay before it;
//   - the uniform number keeps its distance, by ratio, from both ends of the token's part of the
//     sum;
//   - the same holds for the fewest and the most tokens that top-p and min-p could keep then.
#include <algorithm>
#include <cmath>

#include "services/gateway/sampling/sampler.h"

namespace tandem::gateway {
namespace {

// Float64's own rounding of the sums.
constexpr double kSumSlack = 1e-9;

// Whether `part` of `whole` could lie on the other side of the share `u`.  `ratio`: by which the
// ratio of part and rest may change.
bool CouldPass(double part, double whole, double u, double ratio) {
  const double a = part * (1.0 - u);
  const double b = (whole - part) * u;
  return a <= b * ratio && b <= a * ratio;
}

}  // namespace

bool Sampler::IsNearBest(const OutputResult& result, double shift) {
  if (num_allowed_ > 1) return ranking_.At(0).logit - ranking_.At(1).logit <= shift;
  // One candidate was asked for: no other token has more than what the rest have together.
  const double best = result.candidates[0].logit;
  const double rest = -std::expm1(best - result.log_sum_exp);
  return rest > 0.0 && best - (result.log_sum_exp + std::log(rest)) <= shift;
}

bool Sampler::IsNearDraw(const DrawnRank& drawn, double shift) {
  const size_t rank = drawn.rank;
  const float logit = ranking_.At(rank).logit;
  if (rank > 0 && ranking_.At(rank - 1).logit - logit <= shift) return true;
  if (rank + 1 < num_allowed_) {
    if (logit - ranking_.At(rank + 1).logit <= shift) return true;
  } else if (rank + 1 == params_.top_k) {
    return true;  // the token after it is not known
  }
  const double ratio = std::exp(shift / params_.temperature) * (1.0 + kSumSlack);
  double before = 0.0;
  for (size_t i = 0; i < rank; ++i) before += WeightAt(i);
  const double with_it = before + WeightAt(rank);
  const auto differs = [&](const DrawnRank& kept) {
    if (rank >= kept.num_kept) return true;
    const double target = drawn.uniform * kept.sum;
    if (target < before || (target >= with_it && rank + 1 < kept.num_kept)) return true;
    return (rank > 0 && CouldPass(before, kept.sum, drawn.uniform, ratio)) ||
           (rank + 1 < kept.num_kept && CouldPass(with_it, kept.sum, drawn.uniform, ratio));
  };
  if (differs(drawn)) return true;
  if (params_.top_p >= 1.0f && params_.min_p <= 0.0f) return false;
  const double p = params_.top_p;
  DrawnRank fewest = drawn, most = drawn;
  Truncate(p < 1.0 ? p / (p + (1.0 - p) * ratio) : 1.0, params_.min_p * ratio, fewest);
  Truncate(p < 1.0 ? p / (p + (1.0 - p) / ratio) : 1.0, params_.min_p / ratio, most);
  if (fewest.num_kept == 0) fewest.num_kept = 1, fewest.sum = WeightAt(0);
  return differs(fewest) || differs(most);
}

bool Sampler::IsNearTie(const OutputResult& result, const DrawnRank& drawn) {
  // Logits move by a part of the row's highest, which a mask may hide: so the highest seen counts.
  highest_ = std::max(highest_, std::abs(double{result.candidates[0].logit}));
  const double shift = rounding_ * highest_;
  return params_.temperature > 0.0f ? IsNearDraw(drawn, shift) : IsNearBest(result, shift);
}

}  // namespace tandem::gateway

#include "services/gateway/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/gateway/sampling/random.h"

namespace tandem::gateway {
namespace {

// Rows up to this long are summed in order of rank, so that candidates and all logits give the
// same bits; longer ones in order of id, which needs no sorting.
constexpr size_t kMaxSummedByRank = 256;

absl::Status CheckResult(const OutputResult& result) {
  if (result.num_nonfinite > 0 || !std::isfinite(result.log_sum_exp)) {
    return absl::DataLossError(
        absl::StrFormat("the head reported %d logits that are not finite (log of their sum: %g)",
                        result.num_nonfinite, result.log_sum_exp));
  }
  if (result.num_candidates == 0 || result.num_candidates > kMaxCandidates) {
    return absl::InternalError(absl::StrFormat("the head reported %d candidates: expected 1 to %d",
                                               result.num_candidates, kMaxCandidates));
  }
  for (uint32_t i = 0; i < result.num_candidates; ++i) {
    if (!std::isfinite(result.candidates[i].logit)) {
      return absl::DataLossError(absl::StrFormat("the head's candidate %d has the logit %g", i,
                                                 result.candidates[i].logit));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Sampler::Sampler(SamplingParams params, std::span<const uint32_t> prompt, uint32_t num_alternatives)
    : params_(std::move(params)), num_alternatives_(num_alternatives) {
  for (const auto& [token, bias] : params_.logit_bias) {
    if (bias == 0.0f) continue;
    touched_[token].bias = bias;
    any_raised_by_bias_ |= bias > 0.0f;
  }
  if (!penalises()) return;
  if (prompt.size() > params_.penalty_window) prompt = prompt.last(params_.penalty_window);
  for (const uint32_t token : prompt) See(token, /*in_answer=*/false);
}

void Sampler::Resume(std::span<const uint32_t> answer) {
  TANDEM_CHECK(num_decided_ == 0);
  for (const uint32_t token : answer) Count(token);
}

void Sampler::Count(uint32_t token) {
  ++num_decided_;
  if (penalises()) See(token, /*in_answer=*/true);
}

void Sampler::See(uint32_t token, bool in_answer) {
  if (IsTouched(in_answer)) {
    Touch& touch = touched_[token];
    ++touch.num_seen;
    if (in_answer) ++touch.num_in_answer;
    any_seen_ = true;
  }
  if (params_.penalty_window == kWholeText) return;
  window_.push_back({token, in_answer});
  if (window_.size() <= params_.penalty_window) return;
  const SeenToken left = window_.front();
  window_.pop_front();
  if (!IsTouched(left.in_answer)) return;
  Touch& touch = touched_[left.token];
  --touch.num_seen;
  if (left.in_answer) --touch.num_in_answer;
  if (touch.num_seen == 0 && touch.bias == 0.0f) touched_.erase(left.token);
}

// Lowering S tokens can push at most S of the best candidates down, and an untouched token that is
// no candidate has at least (candidates - S) untouched ones before it.
// Each token ahead touches one more at most.
uint64_t Sampler::NumSufficient(uint32_t ahead) const {
  constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  const bool raised = any_raised_by_bias_ ||
                      ((any_seen_ || ahead > 0) && params_.repetition_penalty < 1.0f) ||
                      (num_decided_ + ahead > 0 &&
                       (params_.presence_penalty < 0.0f || params_.frequency_penalty < 0.0f));
  if (raised) return kNever;
  uint64_t num_kept = 1;
  if (params_.temperature > 0.0f) {
    if (params_.top_k == 0) return kNever;
    num_kept = params_.top_k;
  }
  const uint64_t num_touched = touched_.size() + (penalises() ? ahead : 0);
  return std::max<uint64_t>(num_kept + num_touched, num_alternatives_);
}

bool Sampler::NeedsLogitsWithin(uint32_t ahead) const {
  return NumSufficient(ahead) > kMaxCandidates;
}

uint32_t Sampler::NumCandidatesWithin(uint32_t ahead) const {
  const uint64_t num_sufficient = NumSufficient(ahead);
  if (num_sufficient <= kMaxCandidates) return static_cast<uint32_t>(num_sufficient);
  // Some of the tokens may need every logit, and others not.
  if (ahead > 0) return kMaxCandidates;
  return std::clamp<uint32_t>(num_alternatives_, 1, kMaxCandidates);
}

float Sampler::Adjust(float logit, const Touch& touch) const {
  logit += touch.bias;
  if (touch.num_seen > 0 && params_.repetition_penalty != 1.0f) {
    logit = logit > 0.0f ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
  }
  if (touch.num_in_answer > 0) {
    logit -= params_.presence_penalty +
             params_.frequency_penalty * static_cast<float>(touch.num_in_answer);
  }
  constexpr float kLargest = std::numeric_limits<float>::max();
  return std::clamp(logit, -kLargest, kLargest);
}

void Sampler::RankCandidates(const OutputResult& result) {
  adjusted_candidates_.resize(result.num_candidates);
  for (uint32_t i = 0; i < result.num_candidates; ++i) {
    const Candidate& candidate = result.candidates[i];
    float logit = candidate.logit;
    if (!touched_.empty()) {
      const auto touch = touched_.find(candidate.token);
      if (touch != touched_.end()) logit = Adjust(logit, touch->second);
    }
    adjusted_candidates_[i] = {logit, candidate.token};
  }
  ranking_.Assign(adjusted_candidates_);
  num_allowed_ = ranking_.size();
}

void Sampler::RankLogits(std::span<const float> logits, std::span<const uint32_t> mask) {
  num_allowed_ = logits.size();
  if (touched_.empty() && mask.empty()) {
    ranking_.AssignAll(logits);
    return;
  }
  adjusted_logits_.assign(logits.begin(), logits.end());
  for (const auto& [token, touch] : touched_) {
    if (token < logits.size()) adjusted_logits_[token] = Adjust(logits[token], touch);
  }
  for (size_t token = 0; token < logits.size() && !mask.empty(); ++token) {
    if ((mask[token / 32] >> (token % 32) & 1) != 0) continue;
    adjusted_logits_[token] = -std::numeric_limits<float>::infinity();
    --num_allowed_;
  }
  ranking_.AssignAll(adjusted_logits_);
}

double Sampler::WeightAt(size_t rank) {
  const double best = ranking_.At(0).logit;
  for (size_t i = weights_.size(); i <= rank; ++i) {
    weights_.push_back(std::exp((ranking_.At(i).logit - best) / params_.temperature));
  }
  return weights_[rank];
}

double Sampler::SumOfWeights(size_t num_kept) {
  double sum = 0.0;
  if (num_kept <= kMaxSummedByRank || num_kept < num_allowed_) {
    for (size_t rank = 0; rank < num_kept; ++rank) sum += WeightAt(rank);
    return sum;
  }
  const double best = ranking_.At(0).logit;
  for (const float logit : ranking_.row()) sum += std::exp((logit - best) / params_.temperature);
  return sum;
}

void Sampler::Truncate(double top_p, double min_p, DrawnRank& drawn) {
  drawn.num_kept = drawn.num_top_k;
  drawn.sum = drawn.top_k_sum;
  if (top_p >= 1.0 && min_p <= 0.0) return;
  const double wanted =
      top_p < 1.0 ? top_p * drawn.top_k_sum : std::numeric_limits<double>::infinity();
  double kept = 0.0;
  size_t rank = 0;
  while (rank < drawn.num_top_k && kept < wanted && WeightAt(rank) >= min_p) {
    kept += WeightAt(rank++);
  }
  drawn.num_kept = rank;
  drawn.sum = kept;
}

Sampler::DrawnRank Sampler::Draw() {
  weights_.clear();
  // Every truncation keeps some number of the first ranks.
  DrawnRank drawn{.uniform = UniformDraw(params_.seed, num_decided_), .num_top_k = num_allowed_};
  if (params_.top_k > 0) drawn.num_top_k = std::min<size_t>(num_allowed_, params_.top_k);
  drawn.top_k_sum = SumOfWeights(drawn.num_top_k);
  Truncate(params_.top_p, params_.min_p, drawn);
  const double target = drawn.uniform * drawn.sum;
  double passed = 0.0;
  for (; drawn.rank + 1 < drawn.num_kept; ++drawn.rank) {
    passed += WeightAt(drawn.rank);
    if (passed > target) break;
  }
  return drawn;
}

void Sampler::FillAlternatives(const OutputResult& result, std::span<const float> logits,
                               Decision& decision) {
  if (num_alternatives_ == 0) return;
  std::vector<Alternative>& alternatives = decision.alternatives;
  alternatives.reserve(num_alternatives_);
  const auto add = [&](uint32_t token, float logit) {
    alternatives.push_back({token, logit - result.log_sum_exp});
  };
  if (num_alternatives_ <= result.num_candidates || logits.empty()) {
    const uint32_t count = std::min(num_alternatives_, result.num_candidates);
    for (uint32_t i = 0; i < count; ++i) {
      add(result.candidates[i].token, result.candidates[i].logit);
    }
    return;
  }
  ranking_.AssignAll(logits);
  const size_t count = std::min<size_t>(num_alternatives_, ranking_.size());
  for (size_t rank = 0; rank < count; ++rank) {
    add(ranking_.At(rank).token, ranking_.At(rank).logit);
  }
}

absl::StatusOr<Decision> Sampler::Sample(const OutputResult& result, std::span<const float> logits,
                                         std::span<const uint32_t> mask) {
  const absl::Status usable = CheckResult(result);
  if (!usable.ok()) return usable;
  const bool use_logits = NeedsLogits();
  TANDEM_CHECK(!use_logits || !logits.empty());

  float raw_logit = 0.0f;
  Decision decision;
  if (use_logits) {
    RankLogits(logits, mask);
  } else {
    RankCandidates(result);
  }
  const DrawnRank drawn = params_.temperature > 0.0f ? Draw() : DrawnRank();
  decision.token = ranking_.At(drawn.rank).token;
  near_tie_ = watches_ties() && IsNearTie(result, drawn);
  if (use_logits) {
    raw_logit = logits[decision.token];
  } else {
    for (uint32_t i = 0; i < result.num_candidates; ++i) {
      if (result.candidates[i].token == decision.token) raw_logit = result.candidates[i].logit;
    }
  }
  decision.logprob = raw_logit - result.log_sum_exp;
  // Of a mask the candidates are all that is allowed, or as many as were asked for.
  FillAlternatives(result, mask.empty() ? logits : std::span<const float>(), decision);
  Count(decision.token);
  return decision;
}

}  // namespace tandem::gateway

#include "services/gateway/executor/step_results.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

// A log-sum-exp is at least the largest logit; both are rounded to float32.
constexpr float kLogSumSlack = 1e-3f;

absl::Status Garbled(uint32_t o, const std::string& what) {
  return absl::InternalError(absl::StrFormat("output %d %s", o, what));
}

absl::Status CheckOutput(uint32_t o, const OutputResult& result, const StepHeader& header,
                         uint32_t vocab_size) {
  if (result.num_nonfinite > vocab_size) {
    return Garbled(o, absl::StrFormat("counts %d logits that are not finite, the vocabulary has %d",
                                      result.num_nonfinite, vocab_size));
  }
  if (result.num_candidates > header.num_candidates) {
    return Garbled(o, absl::StrFormat("has %d candidates, %d were asked for", result.num_candidates,
                                      header.num_candidates));
  }
  // A model that gives NaN fails the request, not the worker.
  if (result.num_nonfinite > 0) return absl::OkStatus();
  if (result.num_candidates == 0) return Garbled(o, "has no candidates");
  if (!std::isfinite(result.log_sum_exp) || !std::isfinite(result.target_logit)) {
    return Garbled(o, absl::StrFormat("has log-sum-exp %g and target logit %g", result.log_sum_exp,
                                      result.target_logit));
  }
  float before = result.log_sum_exp + kLogSumSlack * std::max(1.0f, std::abs(result.log_sum_exp));
  for (uint32_t c = 0; c < result.num_candidates; ++c) {
    const Candidate& candidate = result.candidates[c];
    if (candidate.token >= vocab_size) {
      return Garbled(
          o, absl::StrFormat("names token %d, the vocabulary has %d", candidate.token, vocab_size));
    }
    if (!(candidate.logit <= before) || !std::isfinite(candidate.logit)) {
      return Garbled(
          o, absl::StrFormat("has logit %g at candidate %d, above %g", candidate.logit, c, before));
    }
    before = candidate.logit;
  }
  return absl::OkStatus();
}

absl::Status CheckLogits(uint32_t o, std::span<const float> logits) {
  for (size_t t = 0; t < logits.size(); ++t) {
    if (std::isfinite(logits[t])) continue;
    return Garbled(o, absl::StrFormat("has logit %g for token %d", logits[t], t));
  }
  return absl::OkStatus();
}

}  // namespace

void StepResults::Reset(uint32_t num_lanes, const StepLimits& limits) {
  limits_ = limits;
  lanes_.assign(num_lanes, {});
  for (Lane& lane : lanes_) {
    lane.outputs.resize(limits.max_outputs);
    lane.guesses.resize(limits.max_outputs, kNoToken);
  }
}

absl::Status StepResults::Take(const Exchange& exchange, uint32_t lane, const StepHeader& header,
                               bool with_guesses) {
  TANDEM_CHECK(lane < lanes_.size() && header.num_outputs <= limits_.max_outputs &&
               header.num_candidates <= kMaxCandidates);
  Lane& taken = lanes_[lane];
  const ExchangeLayout& layout = exchange.layout;
  const std::byte* results = exchange.Area(lane, layout.candidates).data();
  const size_t result_bytes =
      offsetof(OutputResult, candidates) + header.num_candidates * sizeof(Candidate);
  for (uint32_t o = 0; o < header.num_outputs; ++o) {
    std::memcpy(&taken.outputs[o], results + o * sizeof(OutputResult), result_bytes);
    TANDEM_RETURN_IF_ERROR(CheckOutput(o, taken.outputs[o], header, limits_.vocab_size));
    if (header.want_logits == 0 || taken.outputs[o].num_nonfinite > 0) continue;
    const std::byte* row = exchange.Area(lane, layout.logits).data() + o * layout.logits.row_bytes;
    TANDEM_RETURN_IF_ERROR(
        CheckLogits(o, {reinterpret_cast<const float*>(row), limits_.vocab_size}));
  }
  if (!with_guesses) return absl::OkStatus();
  std::memcpy(taken.guesses.data(), exchange.Area(lane, layout.guesses).data(),
              header.num_outputs * sizeof(uint32_t));
  for (uint32_t o = 0; o < header.num_outputs; ++o) {
    if (taken.guesses[o] < limits_.vocab_size || taken.outputs[o].num_nonfinite > 0) continue;
    return Garbled(o, absl::StrFormat("guesses token %d, the vocabulary has %d", taken.guesses[o],
                                      limits_.vocab_size));
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway

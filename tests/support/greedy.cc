#include "tests/support/greedy.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/testing/step_builder.h"

namespace tandem::testing {
namespace {

struct Decoding {
  size_t prompt = 0;
  uint32_t sequence = 0;
  uint32_t fed = 0;  // prompt tokens that are in the cache
};

class GreedyDecoder {
 public:
  GreedyDecoder(PlanRunner& runner, const std::vector<std::vector<uint32_t>>& prompts,
                const GreedyOptions& options)
      : runner_(runner), prompts_(prompts), options_(options), steps_(runner.limits()) {
    answers_.resize(prompts.size());
    if (options_.max_sequences == 0) options_.max_sequences = runner.limits().max_sequences;
    if (options_.chunk == 0) options_.chunk = runner.limits().max_rows;
  }

  absl::StatusOr<std::vector<std::vector<uint32_t>>> Run() {
    while (next_prompt_ < prompts_.size() || !running_.empty()) {
      while (running_.size() < options_.max_sequences && next_prompt_ < prompts_.size()) {
        running_.push_back({.prompt = next_prompt_++, .sequence = steps_.AddSequence()});
      }
      TANDEM_RETURN_IF_ERROR(Step());
    }
    return std::move(answers_);
  }

 private:
  bool InPrompt(const Decoding& decoding) const {
    return decoding.fed < prompts_[decoding.prompt].size();
  }

  absl::Status Step() {
    steps_.Begin();
    std::vector<Decoding*> sampled;
    for (Decoding& decoding : running_) {
      if (InPrompt(decoding)) continue;
      steps_.AddOutput(steps_.AddRows(decoding.sequence, {answers_[decoding.prompt].back()}));
      sampled.push_back(&decoding);
    }
    for (Decoding& decoding : running_) {
      const uint32_t space = runner_.limits().max_rows - steps_.num_rows();
      if (!InPrompt(decoding) || space == 0) continue;
      const std::vector<uint32_t>& prompt = prompts_[decoding.prompt];
      const uint32_t rows =
          std::min({space, options_.chunk, static_cast<uint32_t>(prompt.size()) - decoding.fed});
      const auto first = prompt.begin() + decoding.fed;
      const uint32_t row = steps_.AddRows(decoding.sequence, {first, first + rows});
      decoding.fed += rows;
      if (InPrompt(decoding)) continue;
      steps_.AddOutput(row + rows - 1);
      sampled.push_back(&decoding);
    }
    TANDEM_RETURN_IF_ERROR(runner_.RunStep(steps_.batch()));
    for (uint32_t o = 0; o < sampled.size(); ++o) {
      const OutputResult& result = runner_.Output(o);
      if (result.num_nonfinite != 0 || result.num_candidates == 0) {
        return absl::DataLossError(absl::StrFormat("prompt %d: %d logits are no numbers",
                                                   sampled[o]->prompt, result.num_nonfinite));
      }
      answers_[sampled[o]->prompt].push_back(result.candidates[0].token);
    }
    std::erase_if(running_, [this](const Decoding& decoding) { return Retire(decoding); });
    return absl::OkStatus();
  }

  // Frees a sequence whose answer is complete.
  bool Retire(const Decoding& decoding) {
    const std::vector<uint32_t>& answer = answers_[decoding.prompt];
    if (answer.empty()) return false;
    const auto& stops = runner_.config().stop_token_ids;
    const bool stopped =
        options_.stop_at_stop_tokens &&
        std::ranges::find(stops, static_cast<int32_t>(answer.back())) != stops.end();
    if (!stopped && answer.size() < options_.max_tokens) return false;
    steps_.RemoveSequence(decoding.sequence);
    return true;
  }

  PlanRunner& runner_;
  const std::vector<std::vector<uint32_t>>& prompts_;
  GreedyOptions options_;
  StepBuilder steps_;
  std::vector<Decoding> running_;
  std::vector<std::vector<uint32_t>> answers_;
  size_t next_prompt_ = 0;
};

// Feeds `tokens` as one sequence in steps of max_outputs rows at most; `wanted(position)` says
// which rows are outputs, `read(position, output)` is called for them in order.
template <typename Wanted, typename Read>
absl::Status Feed(PlanRunner& runner, std::span<const uint32_t> tokens, bool want_logits,
                  Wanted wanted, Read read) {
  StepBuilder steps(runner.limits());
  const uint32_t sequence = steps.AddSequence();
  const StepLimits& limits = runner.limits();
  const uint32_t chunk =
      std::min(limits.max_rows, want_logits ? limits.max_logit_outputs : limits.max_outputs);
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const size_t end = std::min<size_t>(tokens.size(), at + chunk);
    steps.Begin();
    steps.set_want_logits(want_logits);
    const uint32_t row = steps.AddRows(sequence, {tokens.begin() + at, tokens.begin() + end});
    std::vector<size_t> positions;
    for (size_t p = at; p < end; ++p) {
      if (!wanted(p)) continue;
      steps.AddOutput(row + static_cast<uint32_t>(p - at),
                      p + 1 < tokens.size() ? tokens[p + 1] : kNoToken);
      positions.push_back(p);
    }
    TANDEM_RETURN_IF_ERROR(runner.RunStep(steps.batch()));
    for (uint32_t o = 0; o < positions.size(); ++o) read(positions[o], o);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::vector<uint32_t>>> DecodeGreedily(
    PlanRunner& runner, const std::vector<std::vector<uint32_t>>& prompts,
    const GreedyOptions& options) {
  return GreedyDecoder(runner, prompts, options).Run();
}

absl::StatusOr<std::vector<float>> NegativeLogLikelihoods(PlanRunner& runner,
                                                          std::span<const uint32_t> tokens) {
  std::vector<float> nll;
  TANDEM_RETURN_IF_ERROR(Feed(
      runner, tokens, false, [&](size_t p) { return p + 1 < tokens.size(); },
      [&](size_t, uint32_t o) {
        nll.push_back(runner.Output(o).log_sum_exp - runner.Output(o).target_logit);
      }));
  return nll;
}

absl::StatusOr<std::vector<float>> LastLogits(PlanRunner& runner, std::span<const uint32_t> tokens,
                                              uint32_t num_positions) {
  std::vector<float> logits;
  TANDEM_RETURN_IF_ERROR(Feed(
      runner, tokens, true, [&](size_t p) { return p + num_positions >= tokens.size(); },
      [&](size_t, uint32_t o) {
        const std::span<const float> row = runner.Logits(o);
        logits.insert(logits.end(), row.begin(), row.end());
      }));
  return logits;
}

}  // namespace tandem::testing

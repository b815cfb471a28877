// Chooses the next token from the head's results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/step/step_batch.h"
#include "services/gateway/sampling/ranking.h"

namespace tandem::gateway {

inline constexpr size_t kMaxLogitBiases = 1024;
inline constexpr uint32_t kWholeText = std::numeric_limits<uint32_t>::max();

struct SamplingParams {
  float temperature = 1.0f;         // [0, 100]; 0: greedy
  uint32_t top_k = 64;              // 0: all
  float top_p = 0.95f;              // (0, 1]
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // [0.01, 100]
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  uint64_t seed = 0;
  std::map<uint32_t, float> logit_bias;  // by token id, [-100, 100] each; at most kMaxLogitBiases
  uint32_t penalty_window = kWholeText;  // tokens that the three penalties look back at; not 0

  // INVALID_ARGUMENT naming the parameter, its value and its range (NaN is out of every range).
  absl::Status Validate(uint32_t vocab_size) const;
  bool operator==(const SamplingParams&) const = default;
};

struct Alternative {
  uint32_t token = 0;
  float logprob = 0.0f;
};

struct Decision {
  uint32_t token = 0;
  float logprob = 0.0f;                   // before penalties and temperature
  std::vector<Alternative> alternatives;  // most probable first; as many as were asked for
};

// Chooses the tokens of one request.  In order:
//
//   1. logit bias: logit += bias[token]
//   2. repetition penalty r on tokens of the prompt and the answer:
//      logit / r if positive, else logit * r (Keskar et al. 2019, CTRL, section 4.1)
//   3. presence and frequency penalties on tokens of the answer:
//      logit -= presence + frequency * count (OpenAI's)
//      2 and 3 look at the last penalty_window tokens (llama.cpp's repeat_last_n)
//   4. greedy (temperature 0): the largest logit.  Else:
//   5. temperature: logit / T
//   6. top-k: the k largest
//   7. top-p: the fewest of these, most probable first, whose probabilities reach p; the
//      probabilities of step 6's result sum to 1 (Holtzman et al. 2020)
//   8. min-p: those of them that are at least min_p times as probable as the best
//   9. one draw from the rest, with probabilities scaled to sum to 1
//
// This is the order of Hugging Face's generate(): penalties are its logits processors, steps 5 to 8
// its warpers in turn.  (llama.cpp applies the temperature after truncation, so top-p keeps other
// tokens there when T is not 1; top-k and greedy are the same.)  Tokens are ordered by
// probability, equal ones by lower id.
//
// The n-th draw depends on the seed and n alone (counter-based generator), so a resumed or re-run
// request chooses the same tokens whatever else runs.
// Single-thread.
class Sampler {
 public:
  // `prompt`: counted by the repetition penalty only.
  Sampler(SamplingParams params, std::span<const uint32_t> prompt, uint32_t num_alternatives);

  // Takes `answer` as the first tokens decided, of a request that goes on from there.
  // REQUIRES num_decided() == 0.
  void Resume(std::span<const uint32_t> answer);

  // Whether the head's candidates cannot decide the next token exactly, so that all logits must be
  // asked for: no truncation below kMaxCandidates, penalties or biases that can raise a token,
  // more tokens lowered than candidates make up for, more alternatives than candidates.
  bool NeedsLogits() const { return NeedsLogitsWithin(0); }
  // Candidates worth asking for (1 for greedy without penalties or alternatives).  A head with a
  // smaller vocabulary reports them all.
  uint32_t NumCandidates() const { return NumCandidatesWithin(0); }
  // The same for whichever of the next `ahead` + 1 tokens need most, before they are known.
  bool NeedsLogitsWithin(uint32_t ahead) const;
  uint32_t NumCandidatesWithin(uint32_t ahead) const;

  // Decides draw number `num_decided()`, and counts the token.  `logits` is empty or
  // [vocab_size]; REQUIRES it is not empty when NeedsLogits().  DATA_LOSS: the head reported
  // logits that are not finite.  INTERNAL: it reported no candidates, or more than there can be.
  absl::StatusOr<Decision> Sample(const OutputResult& result, std::span<const float> logits) {
    return Sample(result, logits, {});
  }
  // The same among the tokens of a mask, as the head had it: empty, or [MaskWords(vocab_size)] with
  // at least one token (step_batch.h).
  absl::StatusOr<Decision> Sample(const OutputResult& result, std::span<const float> logits,
                                  std::span<const uint32_t> mask);
  // From now on looks at each draw for a near tie: the difference of two logits may change by
  // `rounding` times the highest (speculation/rounding.h).
  void WatchTies(double rounding) { rounding_ = rounding; }
  bool watches_ties() const { return rounding_ > 0.0; }
  // Whether the last draw could have been another token if logits had moved so far.  False where
  // ties are not watched.
  bool near_tie() const { return near_tie_; }
  // Counts a token that was decided without a draw.  The next draw has the next number.
  void Take(uint32_t token) { Count(token); }
  uint64_t num_decided() const { return num_decided_; }

 private:
  // A token whose logit changes.
  struct Touch {
    float bias = 0.0f;
    uint32_t num_in_answer = 0;
    uint32_t num_seen = 0;  // in the prompt or the answer
  };

  bool penalises_answer() const {
    return params_.presence_penalty != 0.0f || params_.frequency_penalty != 0.0f;
  }
  bool penalises() const { return params_.repetition_penalty != 1.0f || penalises_answer(); }
  // A token whose logit changes because it is in the text.
  bool IsTouched(bool in_answer) const { return in_answer || params_.repetition_penalty != 1.0f; }
  void Count(uint32_t token);
  // The next token of the text; the one that leaves the window no longer counts.
  void See(uint32_t token, bool in_answer);
  // Candidates that decide any of the next `ahead` + 1 tokens; more than kMaxCandidates when none do.
  uint64_t NumSufficient(uint32_t ahead) const;
  float Adjust(float logit, const Touch& touch) const;
  void RankCandidates(const OutputResult& result);
  void RankLogits(std::span<const float> logits, std::span<const uint32_t> mask);
  // How a token was drawn from ranking_.
  struct DrawnRank {
    size_t rank = 0;
    double uniform = 0.0;
    size_t num_top_k = 0;  // ranks that top-k keeps
    double top_k_sum = 0.0;
    size_t num_kept = 0;  // of them by top-p and min-p
    double sum = 0.0;     // of their weights
  };
  DrawnRank Draw();
  // How many of the first `num_top_k` ranks, and what sum of weights, top-p and min-p keep.
  void Truncate(double top_p, double min_p, DrawnRank& drawn);
  double SumOfWeights(size_t num_kept);
  double WeightAt(size_t rank);
  // near_tie.cc.  `shift`: by how much the difference of two logits may change.
  bool IsNearTie(const OutputResult& result, const DrawnRank& drawn);
  bool IsNearBest(const OutputResult& result, double shift);
  bool IsNearDraw(const DrawnRank& drawn, double shift);
  // `logits`: empty where candidates are enough.
  void FillAlternatives(const OutputResult& result, std::span<const float> logits,
                        Decision& decision);

  SamplingParams params_;
  uint32_t num_alternatives_;
  uint64_t num_decided_ = 0;
  bool any_seen_ = false;
  bool any_raised_by_bias_ = false;
  absl::flat_hash_map<uint32_t, Touch> touched_;
  struct SeenToken {
    uint32_t token;
    bool in_answer;
  };
  std::deque<SeenToken> window_;  // the last tokens; empty where the whole text counts
  double rounding_ = 0.0;         // WatchTies
  double highest_ = 0.0;          // of the logits of draws that were watched, without signs
  bool near_tie_ = false;

  // Reused between draws.
  Ranking ranking_;
  size_t num_allowed_ = 0;  // its first ranks; tokens that the mask forbids follow
  std::vector<RankedToken> adjusted_candidates_;
  std::vector<float> adjusted_logits_;
  std::vector<double> weights_;  // by rank, as far as computed
};

}  // namespace tandem::gateway

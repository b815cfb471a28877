// A request as the scheduler sees it: tokens, how far they are computed, and blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/common/kv/sequence_blocks.h"
#include "services/gateway/sampling/guess_rule.h"
#include "services/gateway/scheduler/picture.h"
#include "services/gateway/scheduler/tenants.h"

namespace tandem::gateway {

// What the head must output to choose a sequence's next token.
struct OutputNeeds {
  bool logits = false;          // every logit of the vocabulary
  uint32_t num_candidates = 1;  // 1..kMaxCandidates
};

struct SequenceSpec {
  uint64_t id = 0;                    // unique among the scheduler's sequences
  std::vector<uint32_t> prompt;       // the rows of a picture hold its key
  std::vector<PictureSpan> pictures;  // of the prompt, in order; REQUIRES no prompt_logprobs
  bool prompt_logprobs = false;       // an output per prompt token but the first
  // An embedding: the hidden states of all rows are summed, and no token is chosen.  The prefix
  // cache is neither read nor filled, because every row counts.  REQUIRES no prompt_logprobs.
  bool pooled = false;
  OutputNeeds needs;
  // Without a rule the scheduler waits for every token.  With one `needs` must not change.
  std::optional<GuessRule> guess;
  // Its sampled outputs have masks.  Unless its next row may take a speculative token
  // (StepRules::late_mask) its next rows are planned when their tokens are decided; steps without it go
  // on meanwhile.
  bool constrained = false;
  uint32_t max_answer = std::numeric_limits<uint32_t>::max();  // tokens; the last is never computed
  bool use_prefix_cache = true;  // read others' blocks of its prefix, publish its own
  std::string prefix_scope;      // others: those of the same scope alone
  TenantRef tenant;              // the tenant whose share of the device it uses
  int32_t priority = 0;          // the lower number goes first, whosever it is
};

// How far a sequence is that goes on in another scheduler: everything but its KV.
struct SequenceProgress {
  std::vector<uint32_t> answer;  // tokens decided
  uint32_t num_computed = 0;     // positions that were computed
  uint32_t prompt_outputs_done = 0;
  std::optional<OutputNeeds> needs;  // of the next token; nullopt: the specification's
};

// Rows of forced tokens that count as decode rows.
inline constexpr uint32_t kMostForcedRows = 32;

// Where a row's token comes from.  Every row but one with a known token has an output that is
// sampled: that of the row before it says whether its own is valid (Scheduler::Append).
enum class RowKind : uint8_t {
  kKnown,  // decided, or of the prompt
  kFed,    // the device's speculative token, while the step that decides it is under way
  kDraft,  // a drafter's guess; the row before it is in the same step
};

// Rows [num_computed, tokens.size()) remain: one of them when decoding, many while the prompt (or
// the tokens of a preempted sequence) is being computed.  Tokens [num_known, tokens.size()) are
// guesses: the output of the row before each decides whether it is accepted.
struct Sequence {
  // `prefix_cache`: whether there is one.  `scope`: PrefixTree.
  Sequence(SequenceSpec spec, uint64_t arrival_number, Tenant& its_tenant, KvPools& pools,
           bool prefix_cache, uint64_t scope = 0)
      : id(spec.id),
        arrival(arrival_number),
        tenant(its_tenant),
        tokens(std::move(spec.prompt)),
        priority(spec.priority),
        pictures(std::move(spec.pictures)),
        prompt_len(static_cast<uint32_t>(tokens.size())),
        max_answer(spec.max_answer),
        pooled(spec.pooled),
        guess(spec.guess),
        constrained(spec.constrained),
        use_prefix_cache(prefix_cache && spec.use_prefix_cache && !pooled),
        prefix_scope(scope),
        looks_up(use_prefix_cache && !spec.prompt_logprobs),
        num_known(prompt_len),
        next_prompt_output(spec.prompt_logprobs ? 0 : prompt_len),
        prompt_outputs_done(next_prompt_output),
        needs(spec.needs),
        blocks(pools, use_prefix_cache, prefix_scope) {}

  // Whether it waits before `other` of the same tenant.
  bool WaitsBefore(const Sequence& other) const {
    return priority != other.priority ? priority < other.priority : arrival < other.arrival;
  }
  uint32_t num_remaining() const { return static_cast<uint32_t>(tokens.size()) - num_computed; }
  // Forced tokens count as decode rows: a few at a time, and the answer waits for them.
  bool decoding() const {
    return num_remaining() == 1 || (constrained && num_computed >= prompt_len &&
                                    num_remaining() > 0 && num_remaining() <= kMostForcedRows);
  }
  // Whether its next token is being decided; until then it has no rows.
  bool awaits_token() const { return awaits_result || awaits_decision; }
  // Whether a step may not take its next token as a guess, but waits for it.
  bool needs_token() const { return !guess.has_value() || awaits_draft || awaits_take; }

  RowKind KindOf(uint32_t position) const {
    if (position < num_known) return RowKind::kKnown;
    return tokens[position] == kNoToken ? RowKind::kFed : RowKind::kDraft;
  }
  // Drafters' guesses in the step that is planned or under way.
  uint32_t num_drafted() const {
    const auto num_guesses = static_cast<uint32_t>(tokens.size()) - num_known;
    return num_guesses > 0 && KindOf(num_known) == RowKind::kDraft ? num_guesses : 0;
  }
  // Whether the output of the row at `position` decides a token.
  bool IsSampled(uint32_t position) const { return !pooled && position + 1 >= num_known; }

  // Whether the row at `position` reports the log-probability of the prompt token after it.
  bool HasPromptOutput(uint32_t position) const {
    return position >= next_prompt_output && position + 1 < prompt_len;
  }
  // Most positions to take from the prefix cache: all before the last token, and before the first
  // position whose output is still wanted.
  uint32_t MaxReused() const {
    const uint32_t last = static_cast<uint32_t>(tokens.size()) - 1;
    return next_prompt_output + 1 < prompt_len ? std::min(last, next_prompt_output) : last;
  }
  // The picture that has rows on both sides of `position`, or null.
  const PictureSpan* PictureAcross(uint32_t position) const {
    for (const PictureSpan& picture : pictures) {
      if (picture.first < position && position < picture.end()) return &picture;
    }
    return nullptr;
  }
  // The first position that rows from `position` on see whatever their window.
  uint32_t PictureBegin(uint32_t position) const {
    const PictureSpan* const picture = PictureAcross(position);
    return picture == nullptr ? position : picture->first;
  }
  // As many of the next `num_rows` rows as end in no picture: its rows see each other, so that all
  // that the KV cache has not are computed in one step.
  uint32_t WholePictures(uint32_t num_rows) const {
    const PictureSpan* const cut = PictureAcross(num_computed + num_rows);
    return cut == nullptr ? num_rows : std::max(cut->first, num_computed) - num_computed;
  }
  // The pictures that the next `num_rows` rows end, and may begin.
  uint32_t NumPictures(uint32_t num_rows) const {
    uint32_t count = 0;
    for (const PictureSpan& picture : pictures) {
      const uint32_t end = picture.end();
      if (num_computed < end && end <= num_computed + num_rows) ++count;
    }
    return count;
  }
  // The fewest rows that a step can compute next.
  uint32_t LeastRows() const {
    const PictureSpan* const cut = PictureAcross(num_computed + 1);
    return cut == nullptr ? 1 : cut->end() - num_computed;
  }

  // Outputs of the next `num_rows` rows.
  uint32_t NumOutputs(uint32_t num_rows) const {
    const uint32_t end = num_computed + num_rows;
    const uint32_t prompt_begin = std::max(num_computed, next_prompt_output);
    const uint32_t prompt_end = std::min(end, prompt_len - 1);
    return (prompt_end > prompt_begin ? prompt_end - prompt_begin : 0) + NumSampled(num_rows);
  }
  // Of them, those that decide tokens.
  uint32_t NumSampled(uint32_t num_rows) const {
    const uint32_t end = num_computed + num_rows;
    const uint32_t begin = std::max(num_computed, num_known - 1);
    return !pooled && end > begin ? end - begin : 0;
  }

  const uint64_t id;
  const uint64_t arrival;        // order of arrival: the youngest has the highest
  Tenant& tenant;                // of the scheduler's
  std::vector<uint32_t> tokens;  // prompt, then answer, then guesses; kNoToken: the device's
  const int32_t priority;
  const std::vector<PictureSpan> pictures;
  const uint32_t prompt_len;
  const uint32_t max_answer;
  const bool pooled;  // an embedding: pooled in each step, no sampled output
  const std::optional<GuessRule> guess;
  const bool constrained;
  const bool use_prefix_cache;
  const uint64_t prefix_scope;
  const bool looks_up;        // its prompt is looked up in the prefix cache and counted
  uint32_t num_known;         // leading tokens that are decided
  uint32_t num_computed = 0;  // positions whose KV is in the cache, or will be when steps are done
  uint64_t stale_step = 0;    // rows of steps up to this one lie in released blocks
  uint32_t next_prompt_output;   // first position whose prompt log-probability is not yet requested
  uint32_t prompt_outputs_done;  // positions below this have reported
  // If no step can be fed with it: a step under way has the output that decides the next token; such
  // a step is done, and Append is due.
  bool awaits_result = false;
  bool awaits_decision = false;
  // Drafters' guesses for the next step (Scheduler::Draft), and the needs of its outputs with them.
  std::vector<uint32_t> draft;
  OutputNeeds draft_needs;
  bool awaits_draft = false;  // it has no row while its next token is under way: guesses may follow
  bool awaits_take = false;   // it has no more rows here, because it is about to go elsewhere
  // Its window blocks from what a row at this position sees on are kept.
  static constexpr uint32_t kNoPosition = std::numeric_limits<uint32_t>::max();
  uint32_t keep_window = kNoPosition;
  uint32_t fed_output = 0;  // output of the step under way that chooses the speculative token
  // A guess was rejected, or a step failed: rows of steps up to this one, from this position on, are
  // void.
  uint64_t void_step = 0;
  uint32_t void_position = 0;
  uint64_t last_served = 0;    // id of the last step with rows of this sequence
  uint64_t admitted_step = 0;  // id of the step that it was admitted for
  // Most rows that were ever computed.  Another tenant may preempt it again only from safe_until rows
  // on: after a preemption it first advances by as many rows as it computes twice.
  uint32_t furthest = 0;
  uint32_t safe_until = 0;
  // Rows before this were computed and then lost with a worker: computing them again is not charged.
  uint32_t lost_until = 0;
  OutputNeeds needs;
  SequenceBlocks blocks;
};

}  // namespace tandem::gateway

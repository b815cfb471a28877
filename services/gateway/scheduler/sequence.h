// A request as the scheduler sees it: tokens, how far they are computed, and blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "services/common/kv/sequence_blocks.h"

namespace tandem::gateway {

// What choosing a sequence's next token asks of the head.
struct OutputNeeds {
  bool logits = false;          // every logit of the vocabulary
  uint32_t num_candidates = 1;  // 1..kMaxCandidates
};

struct SequenceSpec {
  uint64_t id = 0;  // unique among the scheduler's sequences
  std::vector<uint32_t> prompt;
  bool prompt_logprobs = false;  // an output per prompt token but the first
  OutputNeeds needs;
};

// Rows [num_computed, tokens.size()) remain: one of them when decoding, many while the prompt (or
// the tokens of a preempted sequence) is being computed.  The last one's output chooses a token.
struct Sequence {
  Sequence(SequenceSpec spec, uint64_t arrival_number, KvPools& pools)
      : id(spec.id),
        arrival(arrival_number),
        tokens(std::move(spec.prompt)),
        prompt_len(static_cast<uint32_t>(tokens.size())),
        next_prompt_output(spec.prompt_logprobs ? 0 : prompt_len),
        needs(spec.needs),
        blocks(pools) {}

  uint32_t num_remaining() const { return static_cast<uint32_t>(tokens.size()) - num_computed; }
  bool decoding() const { return num_remaining() == 1; }

  // Whether the row at `position` reports the log-probability of the prompt token after it.
  bool HasPromptOutput(uint32_t position) const {
    return position >= next_prompt_output && position + 1 < prompt_len;
  }
  // Outputs of the next `num_rows` rows.
  uint32_t NumOutputs(uint32_t num_rows) const {
    const uint32_t end = num_computed + num_rows;
    const uint32_t prompt_begin = std::max(num_computed, next_prompt_output);
    const uint32_t prompt_end = std::min(end, prompt_len - 1);
    return (prompt_end > prompt_begin ? prompt_end - prompt_begin : 0) +
           (num_rows == num_remaining() ? 1 : 0);
  }

  const uint64_t id;
  const uint64_t arrival;        // order of arrival: the youngest has the highest
  std::vector<uint32_t> tokens;  // prompt, then answer
  const uint32_t prompt_len;
  uint32_t num_computed = 0;    // positions whose KV is in the cache
  uint32_t next_prompt_output;  // first position whose prompt log-probability is still due
  uint64_t last_served = 0;     // number of the last step with rows of this sequence
  OutputNeeds needs;
  SequenceBlocks blocks;
};

}  // namespace tandem::gateway

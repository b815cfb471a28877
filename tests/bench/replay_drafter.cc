#include "tests/bench/replay_drafter.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem::bench {

void ReplayDrafter::Begin(const gateway::DraftSequence& sequence) {
  const auto known = answers_.find({sequence.prompt.begin(), sequence.prompt.end()});
  sequences_[sequence.id] = {.answer = known == answers_.end() ? nullptr : &known->second,
                             .prompt_len = sequence.prompt.size()};
}

void ReplayDrafter::Ask(std::span<const gateway::DraftRequest> requests) {
  std::bernoulli_distribution is_right(right_);
  for (const gateway::DraftRequest& request : requests) {
    const auto found = sequences_.find(request.sequence);
    if (found == sequences_.end() || found->second.answer == nullptr) continue;
    const std::vector<uint32_t>& answer = *found->second.answer;
    gateway::DraftChain chain{.sequence = request.sequence, .first_position = request.num_decided};
    const size_t first = request.num_decided - found->second.prompt_len;
    const size_t end = std::min<size_t>(answer.size(), first + request.max_guesses);
    for (size_t at = first; at < end; ++at) {
      const uint32_t other = (answer[at] + 1) % vocab_size_;
      chain.tokens.push_back(is_right(random_) ? answer[at] : other);
    }
    ready_.push_back(std::move(chain));
  }
}

void ReplayDrafter::Take(absl::Time /*until*/, std::vector<gateway::DraftChain>& chains) {
  std::ranges::move(ready_, std::back_inserter(chains));
  ready_.clear();
}

}  // namespace tandem::bench

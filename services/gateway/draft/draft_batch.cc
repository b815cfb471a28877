#include "services/gateway/draft/draft_batch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::gateway {
namespace {

// The target's sampling as far as candidates can decide it.  Penalties and biases are left out: the
// guesses agree less often then.
SamplingParams DraftSampling(const SamplingParams& target) {
  SamplingParams params;
  params.temperature = target.temperature;
  params.top_k = target.top_k == 0 ? kMaxCandidates : std::min(target.top_k, kMaxCandidates);
  params.top_p = target.top_p;
  params.min_p = target.min_p;
  params.seed = target.seed;
  return params;
}

}  // namespace

DraftBatch::DraftBatch() : limits_{.block_tokens = 1}, pools_(std::make_unique<KvPools>(limits_)) {}

void DraftBatch::Begin(const DraftSequence& begun) {
  auto sequence = std::make_unique<Sequence>(
      *pools_, Sampler(DraftSampling(*begun.sampling), {}, /*num_alternatives=*/0));
  sequence->prompt_len = static_cast<uint32_t>(begun.prompt.size());
  sequence->tokens.assign(begun.prompt.begin(), begun.prompt.end());
  sequence->last_use = ++num_uses_;
  sequences_[begun.id] = std::move(sequence);
}

void DraftBatch::Decided(uint64_t id, std::span<const uint32_t> tokens) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  Sequence& sequence = *found->second;
  for (const uint32_t token : tokens) {
    sequence.tokens.push_back(token);
    sequence.sampler.Take(token);
  }
  if (sequence.chain.has_value() && !Follow(sequence)) EndChain(id, sequence);
}

bool DraftBatch::Follow(Sequence& sequence) {
  Chain& chain = *sequence.chain;
  const std::span<const uint32_t> decided =
      std::span(sequence.tokens).subspan(chain.first_position);
  const size_t both = std::min(decided.size(), chain.tokens.size());
  const bool agrees = std::ranges::equal(decided.first(both), std::span(chain.tokens).first(both));
  if (!agrees || decided.size() >= chain.max_guesses) {
    chain.tokens.clear();
    chain.probabilities.clear();
    return false;
  }
  for (const uint32_t token : decided.subspan(both)) {
    chain.tokens.push_back(token);
    chain.probabilities.push_back(1.0f);
    chain.sampler.Take(token);
  }
  return true;
}

void DraftBatch::End(uint64_t id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  found->second->chain.reset();
  if (IsPlanned(*found->second)) {
    found->second->ended = true;
  } else {
    sequences_.erase(found);
  }
}

void DraftBatch::Ask(const DraftRequest& request) {
  const auto found = sequences_.find(request.sequence);
  // The question follows the tokens that were decided before it.
  if (found == sequences_.end() || found->second->ended ||
      request.num_decided != found->second->tokens.size()) {
    chains.push_back({.sequence = request.sequence, .first_position = request.num_decided});
    return;
  }
  Sequence& sequence = *found->second;
  sequence.last_use = ++num_uses_;
  Chain chain{.first_position = request.num_decided,
              .max_guesses = std::min(request.max_guesses, kMaxGuesses),
              .sampler = sequence.sampler};
  if (sequence.chain.has_value()) {
    // Guesses of the former chain that lie ahead: Decided has seen that it agrees.
    Chain& former = *sequence.chain;
    const size_t passed = chain.first_position - former.first_position;
    if (passed < former.tokens.size() && former.tokens.size() - passed <= chain.max_guesses) {
      chain.tokens.assign(former.tokens.begin() + passed, former.tokens.end());
      chain.probabilities.assign(former.probabilities.begin() + passed, former.probabilities.end());
      chain.sampler = std::move(former.sampler);
    }
  }
  sequence.chain.emplace(std::move(chain));
  if (sequence.chain->tokens.size() == sequence.chain->max_guesses) {
    EndChain(request.sequence, sequence);
  }
}

uint32_t DraftBatch::num_asked() const {
  return static_cast<uint32_t>(std::ranges::count_if(
      sequences_, [](const auto& entry) { return entry.second->chain.has_value(); }));
}

uint32_t DraftBatch::Length(const Sequence& sequence) {
  const auto decided = static_cast<uint32_t>(sequence.tokens.size());
  if (!sequence.chain.has_value()) return decided;
  const Chain& chain = *sequence.chain;
  return std::max(decided, chain.first_position + static_cast<uint32_t>(chain.tokens.size()));
}

uint32_t DraftBatch::TokenAt(const Sequence& sequence, uint32_t position) const {
  if (position >= sequence.tokens.size()) {
    return sequence.chain->tokens[position - sequence.chain->first_position];
  }
  const uint32_t token = sequence.tokens[position];
  return token < vocabularies_.draft_size ? token : vocabularies_.unknown_token;
}

void DraftBatch::TrimCache(Sequence& sequence) const {
  // Only rows of guesses can differ: those of the last positions.  What lies behind the tokens known
  // so far may yet be right.
  const auto cached = static_cast<uint32_t>(sequence.cached.size());
  const uint32_t from = cached > 2 * kMaxGuesses ? cached - 2 * kMaxGuesses : 0;
  const uint32_t end = std::min(cached, Length(sequence));
  for (uint32_t position = from; position < end; ++position) {
    if (sequence.cached[position] == TokenAt(sequence, position)) continue;
    sequence.cached.resize(position);
    return;
  }
}

bool DraftBatch::has_work() const {
  return std::ranges::any_of(sequences_, [this](const auto& entry) {
    const Sequence& sequence = *entry.second;
    return sequence.chain.has_value() ||
           (!sequence.ended && sequence.cached.size() + 1 < sequence.tokens.size() &&
            sequence.tokens.size() <= limits_.context_len);
  });
}

void DraftBatch::EndChain(uint64_t id, Sequence& sequence) {
  chains.push_back({.sequence = id,
                    .first_position = sequence.chain->first_position,
                    .tokens = std::move(sequence.chain->tokens),
                    .probabilities = std::move(sequence.chain->probabilities)});
  sequence.chain.reset();
}

void DraftBatch::EndChains() {
  for (auto& [id, sequence] : sequences_) {
    if (!sequence->chain.has_value()) continue;
    sequence->chain->tokens.clear();
    sequence->chain->probabilities.clear();
    EndChain(id, *sequence);
  }
}

bool DraftBatch::IsPlanned(const Sequence& sequence) const {
  return std::ranges::any_of(planned_, [&](const Planned& planned) {
    const auto found = sequences_.find(planned.id);
    return found != sequences_.end() && found->second.get() == &sequence;
  });
}

bool DraftBatch::EvictOne(const Sequence& except) {
  Sequence* oldest = nullptr;
  for (auto& [id, sequence] : sequences_) {
    if (sequence.get() == &except || sequence->blocks.num_held(kGlobalGroup) == 0) continue;
    if (IsPlanned(*sequence)) continue;
    if (oldest == nullptr || sequence->last_use < oldest->last_use) oldest = sequence.get();
  }
  if (oldest == nullptr) return false;
  oldest->blocks.FreeAll();
  oldest->cached.clear();
  return true;
}

bool DraftBatch::HasRoom(Sequence& sequence, uint32_t num_positions, bool evict) {
  while (!sequence.blocks.Extend(num_positions)) {
    if (!evict || !EvictOne(sequence)) return false;
  }
  return true;
}

bool DraftBatch::Plan(uint64_t id, Sequence& sequence, uint32_t most_rows, bool output) {
  TrimCache(sequence);
  const uint32_t length = Length(sequence);
  // The row of the last token is computed anew for each chain: its output is wanted.
  const uint32_t computed = std::min(static_cast<uint32_t>(sequence.cached.size()), length - 1);
  const uint32_t wanted = output ? length : length - 1;
  if (wanted <= computed) return true;
  const uint32_t num_rows = std::min(wanted - computed, most_rows);
  // Positions to which a rejected guess can lead back stay visible.
  const auto decided = static_cast<uint32_t>(sequence.tokens.size());
  sequence.blocks.ReleaseBefore(std::min(computed, decided - 1));
  // Computing ahead takes no cache from a sequence that may need it sooner.
  if (!HasRoom(sequence, computed + num_rows, /*evict=*/output)) return false;
  Planned planned{.id = id, .first_position = computed};
  for (uint32_t i = 0; i < num_rows; ++i) {
    planned.tokens.push_back(TokenAt(sequence, computed + i));
  }
  planned.output = output && computed + num_rows == length;
  sequence.cached.resize(computed);
  planned_.push_back(std::move(planned));
  return true;
}

bool DraftBatch::Build(uint64_t step_id, StepBatch& batch) {
  planned_.clear();
  uint32_t num_rows = 0;
  const auto full = [&] {
    return num_rows >= limits_.max_rows || planned_.size() >= limits_.max_sequences;
  };
  std::vector<std::pair<uint64_t, uint64_t>> order;  // last use, id: those asked for longest first
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->chain.has_value()) order.emplace_back(sequence->last_use, id);
  }
  std::ranges::sort(order);
  for (const auto& [use, id] : order) {
    if (full()) break;
    Sequence& sequence = *sequences_.at(id);
    const size_t before = planned_.size();
    if (Length(sequence) > limits_.context_len ||
        !Plan(id, sequence, limits_.max_rows - num_rows, /*output=*/true)) {
      EndChain(id, sequence);
    }
    if (planned_.size() > before) {
      num_rows += static_cast<uint32_t>(planned_.back().tokens.size());
    }
  }
  // Prompts are computed ahead while nothing is asked for.
  for (auto& [id, sequence] : sequences_) {
    if (!order.empty() || full()) break;
    if (sequence->ended || sequence->tokens.size() > limits_.context_len) continue;
    const size_t before = planned_.size();
    if (!Plan(id, *sequence, limits_.max_rows - num_rows, /*output=*/false)) continue;
    if (planned_.size() > before) {
      num_rows += static_cast<uint32_t>(planned_.back().tokens.size());
    }
  }
  if (planned_.empty()) return false;
  Write(step_id, batch);
  return true;
}

std::vector<DraftStep::Rows> DraftBatch::rows() const {
  std::vector<DraftStep::Rows> rows;
  for (const Planned& planned : planned_) {
    rows.push_back({.sequence = planned.id,
                    .first_position = planned.first_position,
                    .num_rows = static_cast<uint32_t>(planned.tokens.size())});
  }
  return rows;
}

void DraftBatch::Write(uint64_t step_id, StepBatch& batch) {
  rows_.clear();
  entries_.clear();
  outputs_.clear();
  table_.clear();
  StepHeader header{.step_id = step_id, .num_candidates = 1};
  for (const Planned& planned : planned_) {
    const Sequence& sequence = *sequences_.at(planned.id);
    const auto num_rows = static_cast<uint32_t>(planned.tokens.size());
    SequenceEntry entry{.first_row = static_cast<uint32_t>(rows_.size()), .num_rows = num_rows};
    // The tables may be longer: they keep the blocks of rejected guesses.
    const uint32_t table_len = pools_->BlocksFor(planned.first_position + num_rows);
    for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
      const std::span<const uint32_t> table = sequence.blocks.table(group).first(table_len);
      entry.table_offset[group] = static_cast<uint32_t>(table_.size());
      table_.insert(table_.end(), table.begin(), table.end());
    }
    for (uint32_t i = 0; i < num_rows; ++i) {
      rows_.push_back({.token = planned.tokens[i],
                       .position = planned.first_position + i,
                       .sequence = static_cast<uint32_t>(entries_.size())});
    }
    entries_.push_back(entry);
    if (!planned.output) continue;
    outputs_.push_back({.row = static_cast<uint32_t>(rows_.size()) - 1});
    header.num_candidates =
        std::max(header.num_candidates, sequence.chain->sampler.NumCandidates());
  }
  header.num_rows = static_cast<uint32_t>(rows_.size());
  header.num_sequences = static_cast<uint32_t>(entries_.size());
  header.num_outputs = static_cast<uint32_t>(outputs_.size());
  header.table_len = static_cast<uint32_t>(table_.size());
  batch = {.header = header,
           .rows = rows_,
           .sequences = entries_,
           .outputs = outputs_,
           .block_table = table_};
}

void DraftBatch::TakeResults(const std::function<const OutputResult&(uint32_t)>& output) {
  std::vector<Planned> planned_rows;
  planned_rows.swap(planned_);
  uint32_t o = 0;
  for (const Planned& planned : planned_rows) {
    const uint32_t own_output = o;
    if (planned.output) ++o;
    const auto found = sequences_.find(planned.id);
    if (found == sequences_.end()) continue;
    Sequence& sequence = *found->second;
    if (sequence.ended) {
      sequences_.erase(found);
      continue;
    }
    sequence.cached.insert(sequence.cached.end(), planned.tokens.begin(), planned.tokens.end());
    // The chain may have ended meanwhile, or another one may have been asked for.
    const uint32_t end = planned.first_position + static_cast<uint32_t>(planned.tokens.size());
    const bool next = planned.output && sequence.chain.has_value() &&
                      end == sequence.chain->first_position + sequence.chain->tokens.size() &&
                      planned.tokens.back() == TokenAt(sequence, end - 1);
    if (next) TakeGuess(planned.id, sequence, output(own_output));
  }
}

void DraftBatch::TakeGuess(uint64_t id, Sequence& sequence, const OutputResult& result) {
  Chain& chain = *sequence.chain;
  const absl::StatusOr<Decision> decision = chain.sampler.Sample(result, {});
  if (!decision.ok() || decision->token >= vocabularies_.target_size) {
    return EndChain(id, sequence);
  }
  chain.tokens.push_back(decision->token);
  chain.probabilities.push_back(std::exp(decision->logprob));
  const bool stops =
      std::ranges::count(vocabularies_.stop_tokens, static_cast<int>(decision->token)) > 0;
  if (stops || chain.tokens.size() >= chain.max_guesses) EndChain(id, sequence);
}

void DraftBatch::Reset(const StepLimits& limits, const DraftVocabularies& vocabularies) {
  LoseCache();
  limits_ = limits;
  vocabularies_ = vocabularies;
  pools_->Reset(limits);
}

void DraftBatch::LoseCache() {
  planned_.clear();
  std::erase_if(sequences_, [](const auto& entry) { return entry.second->ended; });
  for (auto& [id, sequence] : sequences_) {
    sequence->blocks.FreeAll();
    sequence->cached.clear();
  }
}

}  // namespace tandem::gateway

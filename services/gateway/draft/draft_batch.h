// What a draft model computes next: a small scheduler of sequences that follow another model's.
//
// A sequence's rows lie in the draft's KV cache as far as they are computed.  The target's tokens
// are decided elsewhere; guesses go in at the positions behind them.  Rows whose tokens were
// accepted stay, the others are overwritten in place when the next ones are computed:
//
//   decided            p p p p a b c            prompt p, answer a b c
//   guesses                          x y z      asked for at position 7
//   cache              p p p p a b c x y        the row of z is not needed
//   decided then       p p p p a b c x q        x was accepted, y was not
//   next step                            q      at the position where y was; then its guess
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "services/common/kv/kv_pools.h"
#include "services/common/kv/sequence_blocks.h"
#include "services/common/step/step_batch.h"
#include "services/gateway/sampling/sampler.h"
#include "services/gateway/speculation/drafter.h"

namespace tandem::gateway {

struct DraftVocabularies {
  uint32_t target_size = 0;  // a guess from here on ends its chain
  uint32_t draft_size = 0;
  // Stands for the target's tokens that the draft does not have.
  uint32_t unknown_token = 0;
  std::vector<int> stop_tokens;  // nothing follows them
};

// Pure logic: no clock, device or lock.  Single-thread.
class DraftBatch {
 public:
  // Without limits: nothing is computed until Reset.
  DraftBatch();

  // As Drafter's; unknown sequences are ignored.
  void Begin(const DraftSequence& sequence);
  void Decided(uint64_t sequence, std::span<const uint32_t> tokens);
  void End(uint64_t sequence);
  void Ask(const DraftRequest& request);

  // Chains that were asked for and are not in `chains` yet.
  uint32_t num_asked() const;
  // Whether Build has rows.
  bool has_work() const;
  // The next step; false: there is nothing to compute.  Chains that cannot go on end here.  The
  // batch is borrowed until the next Build.  REQUIRES that the step before was taken or lost.
  bool Build(uint64_t step_id, StepBatch& batch);
  // Of the step built last.
  std::vector<DraftStep::Rows> rows() const;
  // Takes the results of the step built last; `output`: by output.
  void TakeResults(const std::function<const OutputResult&(uint32_t)>& output);
  // The KV cache is empty; a step under way is lost too.
  void LoseCache();
  // The same, with the limits and vocabularies of a model that is loaded.
  void Reset(const StepLimits& limits, const DraftVocabularies& vocabularies);
  // Ends every chain that was asked for without guesses.
  void EndChains();

  // Chains that have ended; the caller takes them.
  std::vector<DraftChain> chains;

 private:
  struct Chain {
    uint32_t first_position = 0;
    uint32_t max_guesses = 0;
    std::vector<uint32_t> tokens;
    std::vector<float> probabilities;
    Sampler sampler;  // at the first token that is not guessed yet
  };
  struct Sequence {
    Sequence(KvPools& pools, Sampler first) : blocks(pools), sampler(std::move(first)) {}
    std::vector<uint32_t> tokens;  // decided
    uint32_t prompt_len = 0;
    std::vector<uint32_t> cached;  // by position, the draft's tokens whose rows are computed
    SequenceBlocks blocks;
    Sampler sampler;  // has counted the answer's tokens
    std::optional<Chain> chain;
    uint64_t last_use = 0;
    bool ended = false;  // while a step has its rows
  };
  // Rows of a sequence in the step under way.
  struct Planned {
    uint64_t id = 0;
    uint32_t first_position = 0;
    std::vector<uint32_t> tokens;
    bool output = false;  // of the last row
  };

  // Tokens decided and guessed so far.
  static uint32_t Length(const Sequence& sequence);
  uint32_t TokenAt(const Sequence& sequence, uint32_t position) const;
  // Compares a chain with the tokens decided by now, and takes those that it has not guessed yet.
  // False: it disagrees or has nothing more to guess; its guesses are dropped.
  static bool Follow(Sequence& sequence);
  // Forgets the rows that were computed for other tokens.
  void TrimCache(Sequence& sequence) const;
  void EndChain(uint64_t id, Sequence& sequence);
  // Plans rows; false: they have no room.
  bool Plan(uint64_t id, Sequence& sequence, uint32_t most_rows, bool output);
  bool HasRoom(Sequence& sequence, uint32_t num_positions, bool evict);
  // Frees the cache of the sequence that was used longest ago; returns whether one had any.
  bool EvictOne(const Sequence& except);
  bool IsPlanned(const Sequence& sequence) const;
  void Write(uint64_t step_id, StepBatch& batch);
  void TakeGuess(uint64_t id, Sequence& sequence, const OutputResult& result);

  StepLimits limits_;
  DraftVocabularies vocabularies_;
  std::unique_ptr<KvPools> pools_;
  std::map<uint64_t, std::unique_ptr<Sequence>> sequences_;  // after pools_
  std::vector<Planned> planned_;
  uint64_t num_uses_ = 0;

  std::vector<RowEntry> rows_;
  std::vector<SequenceEntry> entries_;
  std::vector<OutputEntry> outputs_;
  std::vector<uint32_t> table_;
};

}  // namespace tandem::gateway

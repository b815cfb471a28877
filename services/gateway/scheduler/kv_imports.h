// Prefixes whose KV comes from another scheduler's workers (engine/kv_hand_over.h), until the
// sequences that go on from them run here.
//
//   Begin -> what the cache has already is held
//   Extend -> blocks to be filled        Publish -> filled: others can find them too
//   End    -> the blocks stay in the cache, held by those that found them
//
// Imports extend while they hold at most half of the blocks together.  They give way to rows that find
// no others, and to sequences that wait for their blocks alone (Scheduler::DropImportsFor).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "services/common/kv/sequence_blocks.h"

namespace tandem::gateway {

// Blocks of consecutive entries, by KvGroup; the first entries may have no window blocks.
struct ImportedBlocks {
  std::array<std::vector<uint32_t>, kNumKvGroups> ids;
};

// Single-thread.
class KvImports {
 public:
  // Which imports, by sequence.
  using Which = std::function<bool(uint64_t sequence)>;

  // Borrowed; must outlive this.
  explicit KvImports(KvPools& pools) : pools_(pools) {}

  // `tokens`: of whole blocks, from number `first_window` on with window blocks.  `arrival`: the
  // sequence's; it is higher than those of imports before.  Returns how many leading blocks are here
  // already.  REQUIRES a sequence that has no import.
  uint32_t Begin(uint64_t sequence, uint64_t scope, std::vector<uint32_t> tokens,
                 uint32_t first_window, uint64_t arrival);
  // Whether imports may hold so many blocks at all.
  bool CouldHold(uint32_t num_global, uint32_t num_window) const;
  bool contains(uint64_t sequence) const { return imports_.contains(sequence); }
  // As Begin's; nullopt without an import.
  std::optional<uint64_t> ArrivalOf(uint64_t sequence) const;
  // Blocks for the entries up to `end`.  nullopt: none are free now.  REQUIRES an import, and Publish
  // of the blocks before.
  std::optional<ImportedBlocks> Extend(uint64_t sequence, uint32_t end);
  // The blocks of Extend are filled.  REQUIRES an import.
  void Publish(uint64_t sequence);
  // No effect without an import.
  void End(uint64_t sequence) { imports_.erase(sequence); }
  // Blocks that only the imports that `which` names hold, by KvGroup.
  std::array<uint64_t, kNumKvGroups> NumHeldOnlyBy(const Which& which) const;
  // Ends the import that began last, of those that `which` names or, without it, of all.  False if
  // there is none.
  bool DropLatest(const Which& which = nullptr);
  void Clear() { imports_.clear(); }

 private:
  struct Import {
    Import(KvPools& pools, uint64_t scope, std::vector<uint32_t> its_tokens, uint32_t window,
           uint64_t its_arrival)
        : tokens(std::move(its_tokens)),
          first_window(window),
          arrival(its_arrival),
          blocks(pools, true, scope) {}
    const std::vector<uint32_t> tokens;
    const uint32_t first_window;
    const uint64_t arrival;
    SequenceBlocks blocks;
  };
  // By block: how many imports hold it, of those that `which` names or, without it, of all.
  std::vector<uint32_t> HoldersOf(KvGroup group, const Which& which) const;
  // Counts a block that several imports hold once.
  uint64_t NumHeld(KvGroup group) const;

  KvPools& pools_;                      // Borrowed.
  std::map<uint64_t, Import> imports_;  // by sequence
};

}  // namespace tandem::gateway

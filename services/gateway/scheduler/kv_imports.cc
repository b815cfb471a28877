#include "services/gateway/scheduler/kv_imports.h"

#include <algorithm>
#include <utility>

#include "services/common/base/check.h"

namespace tandem::gateway {

uint32_t KvImports::Begin(uint64_t sequence, uint64_t scope, std::vector<uint32_t> tokens,
                          uint32_t first_window, uint64_t arrival) {
  CachedPrefix found;
  pools_.FindBlocks(scope, tokens, first_window, found);
  const auto [import, added] =
      imports_.try_emplace(sequence, pools_, scope, std::move(tokens), first_window, arrival);
  TANDEM_CHECK(added);
  import->second.blocks.Share(found);
  return static_cast<uint32_t>(found.nodes.size());
}

std::optional<ImportedBlocks> KvImports::Extend(uint64_t sequence, uint32_t end) {
  SequenceBlocks& blocks = imports_.at(sequence).blocks;
  const uint32_t first_window = imports_.at(sequence).first_window;
  const auto begin = static_cast<uint32_t>(blocks.table(kGlobalGroup).size());
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    const uint32_t first = group == kWindowGroup ? std::max(begin, first_window) : begin;
    const uint64_t more = end > first ? end - first : 0;
    if (NumHeld(group) + more > pools_.pools[group].num_blocks() / 2) return std::nullopt;
  }
  if (!blocks.ExtendCopied(end, first_window)) return std::nullopt;
  ImportedBlocks added;
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    for (const uint32_t block : blocks.table(group).subspan(begin)) {
      if (block != kNoBlock) added.ids[group].push_back(block);
    }
  }
  return added;
}

void KvImports::Publish(uint64_t sequence) {
  Import& import = imports_.at(sequence);
  const size_t filled = import.blocks.table(kGlobalGroup).size() * pools_.block_tokens;
  import.blocks.Publish(std::span(import.tokens).first(filled));
}

std::optional<uint64_t> KvImports::ArrivalOf(uint64_t sequence) const {
  const auto found = imports_.find(sequence);
  return found == imports_.end() ? std::nullopt : std::optional(found->second.arrival);
}

bool KvImports::DropLatest(const Which& which) {
  auto latest = imports_.end();
  for (auto import = imports_.begin(); import != imports_.end(); ++import) {
    if (which && !which(import->first)) continue;
    if (latest == imports_.end() || import->second.arrival > latest->second.arrival) {
      latest = import;
    }
  }
  if (latest == imports_.end()) return false;
  imports_.erase(latest);
  return true;
}

bool KvImports::CouldHold(uint32_t num_global, uint32_t num_window) const {
  return num_global <= pools_.pools[kGlobalGroup].num_blocks() / 2 &&
         num_window <= pools_.pools[kWindowGroup].num_blocks() / 2;
}

std::array<uint64_t, kNumKvGroups> KvImports::NumHeldOnlyBy(const Which& which) const {
  std::array<uint64_t, kNumKvGroups> num_held = {};
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    const std::vector<uint32_t> holders = HoldersOf(group, which);
    for (uint32_t block = 0; block < holders.size(); ++block) {
      if (holders[block] > 0 && holders[block] == pools_.pools[group].num_holders(block)) {
        ++num_held[group];
      }
    }
  }
  return num_held;
}

std::vector<uint32_t> KvImports::HoldersOf(KvGroup group, const Which& which) const {
  std::vector<uint32_t> holders(pools_.pools[group].num_blocks());
  for (const auto& [sequence, import] : imports_) {
    if (which && !which(sequence)) continue;
    for (const uint32_t block : import.blocks.table(group)) {
      if (block != kNoBlock) ++holders[block];
    }
  }
  return holders;
}

uint64_t KvImports::NumHeld(KvGroup group) const {
  const std::vector<uint32_t> holders = HoldersOf(group, nullptr);
  return holders.size() - static_cast<uint64_t>(std::ranges::count(holders, 0u));
}

}  // namespace tandem::gateway

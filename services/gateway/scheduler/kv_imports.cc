#include "services/gateway/scheduler/kv_imports.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "services/common/base/check.h"

namespace tandem::gateway {

uint32_t KvImports::Begin(uint64_t sequence, uint64_t scope, std::vector<uint32_t> tokens,
                          uint32_t first_window) {
  CachedPrefix found;
  pools_.FindBlocks(scope, tokens, first_window, found);
  const auto [import, added] =
      imports_.try_emplace(sequence, pools_, scope, std::move(tokens), first_window, ++num_begun_);
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

bool KvImports::DropLatest() {
  const auto latest = std::ranges::max_element(
      imports_, [](const auto& a, const auto& b) { return a.second.number < b.second.number; });
  if (latest == imports_.end()) return false;
  imports_.erase(latest);
  return true;
}

bool KvImports::CouldHold(uint32_t num_global, uint32_t num_window) const {
  return num_global <= pools_.pools[kGlobalGroup].num_blocks() / 2 &&
         num_window <= pools_.pools[kWindowGroup].num_blocks() / 2;
}

uint64_t KvImports::NumHeld(KvGroup group) const {
  std::unordered_set<uint32_t> held;
  for (const auto& [sequence, import] : imports_) {
    const std::span<const uint32_t> table = import.blocks.table(group);
    held.insert(table.begin(), table.end());
  }
  held.erase(kNoBlock);
  return held.size();
}

}  // namespace tandem::gateway

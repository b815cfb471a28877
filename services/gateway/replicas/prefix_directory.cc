#include "services/gateway/replicas/prefix_directory.h"

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "services/common/base/check.h"

namespace tandem::gateway {

PrefixKeys PrefixKeysOf(std::string_view scope, std::span<const uint32_t> tokens,
                        uint32_t block_tokens) {
  TANDEM_CHECK(block_tokens > 0);
  PrefixKeys keys;
  keys.reserve(tokens.size() / block_tokens);
  uint64_t before = absl::HashOf(scope);
  for (; tokens.size() >= block_tokens; tokens = tokens.subspan(block_tokens)) {
    before = absl::HashOf(before, absl::Span<const uint32_t>(tokens.data(), block_tokens));
    keys.push_back(before);
  }
  return keys;
}

void PrefixDirectory::SetCapacity(uint32_t replica, size_t num_blocks) {
  Held& held = replicas_[replica];
  held.capacity = num_blocks;
  Trim(held);
}

size_t PrefixDirectory::Find(uint32_t replica, const PrefixKeys& keys) const {
  const auto there = replicas_.find(replica);
  if (there == replicas_.end()) return 0;
  const Held& held = there->second;
  size_t found = 0;
  while (found < keys.size() && held.places.contains(keys[found])) ++found;
  return found;
}

void PrefixDirectory::Add(uint32_t replica, const PrefixKeys& keys) {
  Held& held = replicas_[replica];
  // The last first: the first blocks of prompts are the latest, and leave last.
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    const auto [place, added] = held.places.try_emplace(*key, held.uses.end());
    if (added) {
      held.uses.push_front(*key);
      place->second = held.uses.begin();
    } else {
      held.uses.splice(held.uses.begin(), held.uses, place->second);
    }
  }
  Trim(held);
}

void PrefixDirectory::Forget(uint32_t replica) {
  Held& held = replicas_[replica];
  held.uses.clear();
  held.places.clear();
}

void PrefixDirectory::Trim(Held& held) {
  while (held.uses.size() > held.capacity) {
    held.places.erase(held.uses.back());
    held.uses.pop_back();
  }
}

}  // namespace tandem::gateway

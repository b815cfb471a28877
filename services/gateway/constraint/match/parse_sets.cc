#include "services/gateway/constraint/match/parse_sets.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace tandem::gateway::constraint {

SetId ParseSets::Start() {
  return Make({{grammar_.root, grammar_.parts.body(grammar_.root), kNoSet}});
}

SetId ParseSets::Goto(SetId id, uint32_t tag) {
  for (const auto& [known, to] : sets_[id].gotos) {
    if (known == tag) return to;
  }
  std::vector<Item> kernel;
  const auto& edges = sets_[id].after_tag;
  auto edge = std::lower_bound(edges.begin(), edges.end(), tag,
                               [](const auto& e, uint32_t t) { return e.first < t; });
  for (; edge != edges.end() && edge->first == tag; ++edge) {
    kernel.push_back(edge->second);
  }
  const SetId to = Make(std::move(kernel));
  if (to != kNoSet) {
    sets_[id].gotos.emplace_back(tag, to);
    bytes_ += sizeof(std::pair<uint32_t, SetId>);
  }
  return to;
}

SetId ParseSets::Make(std::vector<Item> kernel) {
  PartArena& parts = grammar_.parts;
  RegexArena& regexes = grammar_.regexes;
  // Ends of rules lead on in those that wait for them.
  absl::flat_hash_set<Item> seen(kernel.begin(), kernel.end());
  bool accepting = false;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const Item item = kernel[i];
    if (!parts.nullable(item.part)) continue;
    if (item.origin == kNoSet) {
      accepting = true;
      continue;
    }
    const auto& waiting = sets_[item.origin].after_rule;
    auto waiter = std::lower_bound(waiting.begin(), waiting.end(), item.rule,
                                   [](const auto& w, RuleId r) { return w.first < r; });
    for (; waiter != waiting.end() && waiter->first == item.rule; ++waiter) {
      if (seen.insert(waiter->second).second) kernel.push_back(waiter->second);
    }
    if (kernel.size() > kMaxItems) {
      overflowed_ = true;
      return kNoSet;
    }
  }
  std::erase_if(kernel, [&](const Item& item) { return parts.IsEnd(item.part, regexes); });
  std::sort(kernel.begin(), kernel.end());
  std::vector<Item> key = kernel;
  if (accepting) key.push_back({kNoSet, 0, 0});
  const auto [found, added] = ids_.try_emplace(std::move(key), static_cast<SetId>(sets_.size()));
  if (!added) return found->second;
  const SetId id = found->second;
  sets_.emplace_back();
  sets_[id].accepting = accepting;
  Close(id, kernel);
  return overflowed_ ? kNoSet : id;
}

// Predicts: adds the rules that items call, and what they scan.
void ParseSets::Close(SetId id, const std::vector<Item>& kernel) {
  PartArena& parts = grammar_.parts;
  RegexArena& regexes = grammar_.regexes;
  Set set;
  set.accepting = sets_[id].accepting;
  std::vector<RegexId> scans;
  absl::flat_hash_set<Item> seen(kernel.begin(), kernel.end());
  std::vector<Item> items = kernel;
  const auto add = [&](const Item& item) {
    if (seen.insert(item).second) items.push_back(item);
  };
  for (size_t i = 0; i < items.size(); ++i) {
    const Item item = items[i];
    const Expansion& expansion = parts.Expand(item.part, regexes);
    if (expansion.scan != kNothing) scans.push_back(expansion.scan);
    for (const auto& [tag, part] : expansion.after_tag) {
      set.after_tag.push_back({tag, {item.rule, part, item.origin}});
    }
    for (const auto& [rule, part] : expansion.after_rule) {
      if (parts.IsEnd(part, regexes)) {
        add({item.rule, parts.body(rule), item.origin});
      } else {
        set.after_rule.push_back({rule, {item.rule, part, item.origin}});
        add({rule, parts.body(rule), id});
      }
    }
    if (items.size() > kMaxItems) {
      overflowed_ = true;
      return;
    }
  }
  const auto tidy = [](auto& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    list.shrink_to_fit();
  };
  tidy(set.after_tag);
  tidy(set.after_rule);
  set.scan = regexes.Or(std::move(scans));
  bytes_ += sizeof(Set) +
            (set.after_tag.size() + set.after_rule.size()) * sizeof(set.after_tag[0]) +
            kernel.size() * sizeof(Item) + 64;
  sets_[id] = std::move(set);
}

}  // namespace tandem::gateway::constraint

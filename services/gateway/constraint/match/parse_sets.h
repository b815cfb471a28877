// The parser over terminals: Earley's sets, made when they are reached and each made once.
//
// An item is a rule, the part of it that is left, and the set in which the rule began (its origin).
// A set's kernel is the items that the last terminal led to.  Sets with equal kernels are one set,
// so a list's second element meets the state of the third, and results about a set
// (masks, ways on) is kept.  Origins are sets, not places in the text: that is what makes sets
// recur.
//
//   Start --terminal--> Set --terminal--> Set ...     Goto(set, tag)
//
// Where a rule's last part is a call, the called rule's items take the caller's place (a tail
// call): right recursion so needs no chain of origins.  Time and memory for a terminal are bounded
// by the items of a set, at most kMaxItems. Sources: Earley (1970); Leo (1991) for right recursion;
// Aycock and Horspool (2002) for empty rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/gateway/constraint/grammar/grammar.h"

namespace tandem::gateway::constraint {

using SetId = uint32_t;
inline constexpr SetId kNoSet = UINT32_MAX;

// Single-thread.
class ParseSets {
 public:
  // Borrowed; must outlive this.
  explicit ParseSets(Grammar& grammar) : grammar_(grammar) {}

  SetId Start();
  // The set after terminal `tag`.  kNoSet when a set grew beyond kMaxItems (see overflowed()).
  SetId Goto(SetId set, uint32_t tag);
  // Terminals that may come, each followed by its tag.
  RegexId scan(SetId set) const { return sets_[set].scan; }
  // Whether the text may end here.
  bool accepting(SetId set) const { return sets_[set].accepting; }

  bool overflowed() const { return overflowed_; }
  size_t size() const { return sets_.size(); }
  size_t memory_bytes() const { return bytes_; }

 private:
  static constexpr size_t kMaxItems = 2000;
  struct Item {
    RuleId rule;
    PartId part;
    SetId origin;
    friend bool operator==(const Item&, const Item&) = default;
    friend auto operator<=>(const Item&, const Item&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Item& item) {
      return H::combine(std::move(hash), item.rule, item.part, item.origin);
    }
  };
  struct Set {
    RegexId scan = kNothing;
    bool accepting = false;
    std::vector<std::pair<uint32_t, Item>> after_tag;  // sorted
    std::vector<std::pair<RuleId, Item>> after_rule;   // sorted: items that wait for a rule to end
    std::vector<std::pair<uint32_t, SetId>> gotos;
  };

  // The set of `kernel`, items at which a rule ends included.
  SetId Make(std::vector<Item> kernel);
  void Close(SetId id, const std::vector<Item>& kernel);

  Grammar& grammar_;
  std::vector<Set> sets_;
  absl::flat_hash_map<std::vector<Item>, SetId> ids_;
  bool overflowed_ = false;
  size_t bytes_ = 0;
};

}  // namespace tandem::gateway::constraint

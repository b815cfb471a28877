// A queue in which senders take turns: the sender that has waited longest is next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <list>
#include <string>
#include <utility>

namespace tandem {

// Thread-compatible.
template <class Item>
class TurnQueue {
 public:
  void Push(const std::string& sender, Item item) {
    auto found = std::find_if(senders_.begin(), senders_.end(),
                              [&](const Sender& other) { return other.name == sender; });
    if (found == senders_.end()) found = senders_.insert(senders_.end(), {sender, {}});
    found->items.push_back(std::move(item));
  }

  // REQUIRES !empty().
  Item Pop() {
    Sender& first = senders_.front();
    Item item = std::move(first.items.front());
    first.items.pop_front();
    if (first.items.empty()) {
      senders_.pop_front();
    } else {
      senders_.splice(senders_.end(), senders_, senders_.begin());
    }
    return item;
  }

  // Drops the items that `matches(item)` is true of.  Returns how many.
  template <class Predicate>
  size_t EraseIf(Predicate matches) {
    size_t num_erased = 0;
    for (auto sender = senders_.begin(); sender != senders_.end();) {
      num_erased += std::erase_if(sender->items, matches);
      sender = sender->items.empty() ? senders_.erase(sender) : std::next(sender);
    }
    return num_erased;
  }

  bool empty() const { return senders_.empty(); }

 private:
  struct Sender {
    std::string name;
    std::deque<Item> items;
  };
  std::list<Sender> senders_;  // each has items; the next one first
};

}  // namespace tandem

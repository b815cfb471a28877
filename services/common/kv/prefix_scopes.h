// Numbers of the scopes that prefixes are cached in (prefix_tree.h), by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace tandem {

// Remembers the names used last.  A name that was forgotten gets a new number, so its prefixes are
// no longer found, and are evicted as others are.  Single-thread.
class PrefixScopes {
 public:
  explicit PrefixScopes(size_t max_names) : max_names_(max_names) {}

  // The same for the same name, never the same for two.  0 for the empty name.
  uint64_t Of(const std::string& name);
  size_t size() const { return by_name_.size(); }

 private:
  using Uses = std::list<std::pair<std::string, uint64_t>>;  // the latest first

  const size_t max_names_;
  uint64_t last_ = 0;
  Uses uses_;
  std::unordered_map<std::string, Uses::iterator> by_name_;
};

}  // namespace tandem

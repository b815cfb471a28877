#include "services/common/kv/prefix_scopes.h"

namespace tandem {

uint64_t PrefixScopes::Of(const std::string& name) {
  if (name.empty()) return 0;
  if (const auto found = by_name_.find(name); found != by_name_.end()) {
    uses_.splice(uses_.begin(), uses_, found->second);
    return found->second->second;
  }
  uses_.emplace_front(name, ++last_);
  by_name_.emplace(name, uses_.begin());
  if (uses_.size() > max_names_) {
    by_name_.erase(uses_.back().first);
    uses_.pop_back();
  }
  return last_;
}

}  // namespace tandem

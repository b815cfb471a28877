#include "services/gateway/constraint/constraint_store.h"

#include <algorithm>
#include <utility>

namespace tandem::gateway::constraint {
namespace {

constexpr size_t kEntryBytes = 300;  // beside key and constraint

}  // namespace

std::optional<ConstraintStore::Result> ConstraintStore::Find(std::string_view key, absl::Time now) {
  std::shared_ptr<Kept> expired;  // destroyed without the lock
  MutexLock lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end()) return std::nullopt;
  const KeptList::iterator kept = found->second;
  if (now >= (*kept)->until) {
    expired = Remove(kept);
    return std::nullopt;
  }
  used_.splice(used_.end(), used_, kept);
  return (*kept)->result;
}

void ConstraintStore::Keep(std::string key, Result result, absl::Time until) {
  auto added = std::make_shared<Kept>();
  added->key = std::move(key);
  added->result = std::move(result);
  added->until = until;
  std::vector<std::shared_ptr<Kept>> dropped;  // destroyed without the lock
  {
    MutexLock lock(mutex_);
    const auto known = index_.find(added->key);
    if (known != index_.end()) dropped.push_back(Remove(known->second));
    const std::string_view name = added->key;
    index_[name] = used_.insert(used_.end(), std::move(added));
  }
  Measure();
  MutexLock lock(mutex_);
  size_t bytes = TotalBytes();
  while (bytes > max_bytes_ && !used_.empty()) {
    dropped.push_back(Remove(used_.begin()));
    bytes -= std::min(bytes, dropped.back()->bytes.load());
  }
}

void ConstraintStore::Clear() {
  KeptList all;  // destroyed without the lock
  MutexLock lock(mutex_);
  index_.clear();
  all.swap(used_);
}

ConstraintStore::Counts ConstraintStore::counts() const {
  Measure();
  MutexLock lock(mutex_);
  return {used_.size(), TotalBytes()};
}

void ConstraintStore::Measure() const {
  std::vector<std::shared_ptr<Kept>> all;
  {
    MutexLock lock(mutex_);
    all.assign(used_.begin(), used_.end());
  }
  for (const auto& kept : all) {
    const Result& result = kept->result;
    kept->bytes = kept->key.size() + kEntryBytes + (result.ok() ? (*result)->memory_bytes() : 0);
  }
}

std::shared_ptr<ConstraintStore::Kept> ConstraintStore::Remove(KeptList::iterator kept) {
  std::shared_ptr<Kept> removed = std::move(*kept);
  index_.erase(removed->key);
  used_.erase(kept);
  return removed;
}

size_t ConstraintStore::TotalBytes() const {
  size_t bytes = 0;
  for (const auto& kept : used_) bytes += kept->bytes;
  return bytes;
}

}  // namespace tandem::gateway::constraint

#include "services/gateway/http/body_budget.h"

#include <algorithm>
#include <utility>

namespace tandem::gateway {

struct BodyBudget::Share::Entry {
  std::string sender;
  std::function<void()> give_way;
  absl::Time moved;        // when it last came a block further
  size_t moved_bytes = 0;  // how far that was
  size_t bytes = 0;
  bool large = false;
  bool complete = false;
  bool given_way = false;
};

BodyBudget::BodyBudget(const BodyBudgetLimits& limits)
    : limits_(limits),
      small_limit_(limits.total_bytes / 8),
      large_limit_(limits.total_bytes - small_limit_),
      sender_limit_(std::max(large_limit_ / 2, std::min(limits.body_bytes, large_limit_))) {}

BodyBudget::~BodyBudget() = default;

std::unique_ptr<BodyBudget::Share> BodyBudget::Begin(std::string sender,
                                                     std::function<void()> give_way,
                                                     absl::Time now) {
  MutexLock lock(mutex_);
  entries_.push_front({.sender = std::move(sender), .give_way = std::move(give_way), .moved = now});
  return std::unique_ptr<Share>(new Share(*this, entries_.begin()));
}

size_t BodyBudget::used_bytes() const {
  MutexLock lock(mutex_);
  return small_bytes_ + large_bytes_;
}

BodyBudget::Share::Share(BodyBudget& budget, std::list<Entry>::iterator entry)
    : budget_(budget), entry_(entry) {}

BodyBudget::Share::~Share() {
  MutexLock lock(budget_.mutex_);
  budget_.Release(*entry_);
  budget_.entries_.erase(entry_);
}

bool BodyBudget::Share::Grow(size_t bytes, absl::Time now) {
  MutexLock lock(budget_.mutex_);
  if (entry_->given_way) return false;
  if (bytes >= entry_->moved_bytes + kSmallBodyBytes) {
    entry_->moved = now;
    entry_->moved_bytes = bytes;
  }
  if (bytes <= entry_->bytes) return true;
  if (!entry_->large && budget_.TakeSmall(*entry_, bytes)) return true;
  return budget_.TakeLarge(*entry_, bytes, now);
}

void BodyBudget::Share::Move(absl::Time now) {
  MutexLock lock(budget_.mutex_);
  entry_->moved = now;
}

void BodyBudget::Share::Complete() {
  MutexLock lock(budget_.mutex_);
  entry_->complete = true;
}

bool BodyBudget::Share::given_way() const {
  MutexLock lock(budget_.mutex_);
  return entry_->given_way;
}

bool BodyBudget::TakeSmall(Share::Entry& entry, size_t bytes) {
  if (bytes > kSmallBodyBytes || small_bytes_ + bytes - entry.bytes > small_limit_) return false;
  small_bytes_ += bytes - entry.bytes;
  entry.bytes = bytes;
  return true;
}

bool BodyBudget::TakeLarge(Share::Entry& entry, size_t bytes, absl::Time now) {
  const size_t more = bytes - (entry.large ? entry.bytes : 0);
  while (large_by_sender_[entry.sender] + more > sender_limit_) {
    if (!MakeRoom(entry, &entry.sender, now)) return false;
  }
  while (large_bytes_ + more > large_limit_) {
    if (!MakeRoom(entry, nullptr, now)) return false;
  }
  if (!entry.large) small_bytes_ -= entry.bytes;
  large_bytes_ += more;
  large_by_sender_[entry.sender] += more;
  entry.large = true;
  entry.bytes = bytes;
  return true;
}

bool BodyBudget::MakeRoom(const Share::Entry& for_whom, const std::string* sender, absl::Time now) {
  Share::Entry* largest = nullptr;
  for (Share::Entry& entry : entries_) {
    const bool stalled = now - entry.moved >= limits_.stall;
    if (&entry == &for_whom || !entry.large || entry.complete || entry.given_way || !stalled) {
      continue;
    }
    if (sender != nullptr && entry.sender != *sender) continue;
    if (largest == nullptr || entry.bytes > largest->bytes) largest = &entry;
  }
  if (largest == nullptr) return false;
  largest->given_way = true;
  Release(*largest);
  largest->give_way();
  return true;
}

void BodyBudget::Release(Share::Entry& entry) {
  (entry.large ? large_bytes_ : small_bytes_) -= entry.bytes;
  const auto found = large_by_sender_.find(entry.sender);
  if (found != large_by_sender_.end()) {
    if (entry.large) found->second -= entry.bytes;
    if (found->second == 0) large_by_sender_.erase(found);
  }
  entry.bytes = 0;
}

}  // namespace tandem::gateway

// A rate with a burst.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem {

// Fills by `per_second` up to `burst`.  May go into debt, by `debt_seconds` worth at most.
// Thread-compatible.
class TokenBucket {
 public:
  TokenBucket(double burst, double per_second, double debt_seconds = 1)
      : burst_(burst),
        per_second_(per_second),
        most_debt_(debt_seconds * per_second),
        tokens_(burst) {}

  // Takes `cost` at `now_ns` of the steady clock; false when the bucket is in debt after it.
  bool Take(double cost, int64_t now_ns) {
    if (last_ns_ != 0 && now_ns > last_ns_) {
      Add(per_second_ * static_cast<double>(now_ns - last_ns_) * 1e-9);
    }
    last_ns_ = std::max(last_ns_, now_ns);
    tokens_ = std::max(tokens_ - cost, -most_debt_);
    return tokens_ >= 0;
  }
  void Add(double tokens) { tokens_ = std::min(tokens_ + tokens, burst_); }
  // How long it takes from the last Take until the debt is paid; 0 without debt.
  int64_t debt_ns() const {
    return tokens_ >= 0 ? 0 : static_cast<int64_t>(-tokens_ / per_second_ * 1e9);
  }
  // Whether nothing is missing at `now_ns`.
  bool full(int64_t now_ns) const {
    const double seconds = 1e-9 * static_cast<double>(std::max<int64_t>(now_ns - last_ns_, 0));
    return tokens_ + per_second_ * seconds >= burst_;
  }

 private:
  double burst_;
  double per_second_;
  double most_debt_;
  double tokens_;
  int64_t last_ns_ = 0;
};

}  // namespace tandem

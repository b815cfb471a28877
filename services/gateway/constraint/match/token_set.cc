#include "services/gateway/constraint/match/token_set.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tandem::gateway::constraint {

void TokenCollector::Add(std::shared_ptr<const TokenMask> mask) {
  if (std::find(masks_.begin(), masks_.end(), mask) == masks_.end()) {
    masks_.push_back(std::move(mask));
  }
}

void TokenCollector::Add(const TokenSet& set) {
  for (const auto& mask : set.masks) Add(mask);
  Add(set.tokens);
}

TokenSet TokenCollector::Take() {
  TokenSet set;
  set.masks = std::exchange(masks_, {});
  const auto used = std::span(used_).first(num_used_);
  if (count_ > words_.size()) {
    set.masks.push_back(std::make_shared<TokenMask>(words_));
  } else {
    set.tokens.reserve(count_);
    for (const uint32_t i : used) {
      for (uint32_t word = words_[i]; word != 0; word &= word - 1) {
        set.tokens.push_back(i * 32 + static_cast<uint32_t>(std::countr_zero(word)));
      }
    }
  }
  for (const uint32_t i : used) words_[i] = 0;
  num_used_ = count_ = 0;
  return set;
}

}  // namespace tandem::gateway::constraint

#include "services/gateway/sampling/ranking.h"

#include <algorithm>
#include <limits>

namespace tandem::gateway {
namespace {

// Ranks that the first pass over a whole row finds.
constexpr size_t kHead = 256;
// Each further step sorts this many times as many.
constexpr size_t kGrowth = 8;

bool Before(const RankedToken& a, const RankedToken& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

}  // namespace

void Ranking::AssignAll(std::span<const float> logits) {
  size_ = logits.size();
  logits_ = logits;
  tokens_.clear();
  num_sorted_ = 0;
}

void Ranking::Assign(std::span<const RankedToken> tokens) {
  size_ = tokens.size();
  logits_ = {};
  tokens_.assign(tokens.begin(), tokens.end());
  std::sort(tokens_.begin(), tokens_.end(), Before);
  num_sorted_ = size_;
}

// Keeps what beats the worst of the best kHead seen so far, and throws the rest out whenever twice
// as many have gathered.
void Ranking::SelectHead() {
  float threshold = -std::numeric_limits<float>::infinity();
  for (uint32_t token = 0; token < size_; ++token) {
    // A later token of equal logit ranks behind the kHead that are there.
    if (!(logits_[token] > threshold) && tokens_.size() >= kHead) continue;
    tokens_.push_back({logits_[token], token});
    if (tokens_.size() < 2 * kHead) continue;
    std::nth_element(tokens_.begin(), tokens_.begin() + (kHead - 1), tokens_.end(), Before);
    tokens_.resize(kHead);
    threshold = tokens_.back().logit;
  }
  const size_t count = std::min(kHead, tokens_.size());
  std::partial_sort(tokens_.begin(), tokens_.begin() + count, tokens_.end(), Before);
  tokens_.resize(count);
  num_sorted_ = count;
}

void Ranking::Sort(size_t count) {
  if (num_sorted_ == 0) SelectHead();
  if (count <= num_sorted_) return;
  if (tokens_.size() < size_) {  // the head was not enough: take the whole row
    tokens_.resize(size_);
    for (uint32_t token = 0; token < size_; ++token) tokens_[token] = {logits_[token], token};
    num_sorted_ = 0;
  }
  const size_t end = std::min(size_, std::max(count, kGrowth * std::max(num_sorted_, kHead)));
  const auto first = tokens_.begin() + num_sorted_;
  if (end < size_) std::nth_element(first, tokens_.begin() + (end - 1), tokens_.end(), Before);
  std::sort(first, tokens_.begin() + end, Before);
  num_sorted_ = end;
}

}  // namespace tandem::gateway

#include "services/gateway/constraint/regex/code_point_set.h"

#include <algorithm>
#include <utility>

namespace tandem::gateway::constraint {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800;
constexpr uint32_t kLastSurrogate = 0xDFFF;

}  // namespace

CodePointSet::CodePointSet(std::initializer_list<CodePointRange> ranges) : ranges_(ranges) {
  Normalize();
}

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) : ranges_(std::move(ranges)) {
  Normalize();
}

CodePointSet CodePointSet::All() { return CodePointSet{{0, kMaxCodePoint}}; }

void CodePointSet::Normalize() {
  std::vector<CodePointRange> parts;
  for (CodePointRange range : ranges_) {
    range.last = std::min(range.last, kMaxCodePoint);
    if (range.first > range.last) continue;
    if (range.last < kFirstSurrogate || range.first > kLastSurrogate) {
      parts.push_back(range);
      continue;
    }
    if (range.first < kFirstSurrogate) parts.push_back({range.first, kFirstSurrogate - 1});
    if (range.last > kLastSurrogate) parts.push_back({kLastSurrogate + 1, range.last});
  }
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  ranges_.clear();
  for (const CodePointRange& range : parts) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePointSet CodePointSet::Union(const CodePointSet& other) const {
  std::vector<CodePointRange> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::move(all));
}

CodePointSet CodePointSet::Intersection(const CodePointSet& other) const {
  std::vector<CodePointRange> common;
  for (auto a = ranges_.begin(), b = other.ranges_.begin();
       a != ranges_.end() && b != other.ranges_.end();) {
    const uint32_t first = std::max(a->first, b->first);
    const uint32_t last = std::min(a->last, b->last);
    if (first <= last) common.push_back({first, last});
    if (a->last < b->last) {
      ++a;
    } else {
      ++b;
    }
  }
  return CodePointSet(std::move(common));
}

CodePointSet CodePointSet::Complement() const {
  std::vector<CodePointRange> rest;
  uint32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) rest.push_back({next, kMaxCodePoint});
  return CodePointSet(std::move(rest));
}

bool CodePointSet::Contains(uint32_t code_point) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code_point,
                       [](uint32_t value, const CodePointRange& r) { return value < r.first; });
  return after != ranges_.begin() && std::prev(after)->last >= code_point;
}

uint32_t CodePointSet::size() const {
  uint32_t count = 0;
  for (const CodePointRange& range : ranges_) count += range.last - range.first + 1;
  return count;
}

}  // namespace tandem::gateway::constraint

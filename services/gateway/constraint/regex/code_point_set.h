// Sets of Unicode code points as sorted ranges.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tandem::gateway::constraint {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

struct CodePointRange {
  uint32_t first;
  uint32_t last;  // inclusive
  friend bool operator==(const CodePointRange&, const CodePointRange&) = default;
};

// A value.  Surrogates are never members: UTF-8 cannot spell them.
class CodePointSet {
 public:
  CodePointSet() = default;
  CodePointSet(std::initializer_list<CodePointRange> ranges);
  explicit CodePointSet(std::vector<CodePointRange> ranges);
  // Every code point that UTF-8 can spell.
  static CodePointSet All();
  static CodePointSet Of(uint32_t code_point) { return CodePointSet{{code_point, code_point}}; }

  CodePointSet Union(const CodePointSet& other) const;
  CodePointSet Intersection(const CodePointSet& other) const;
  CodePointSet Complement() const;
  CodePointSet Minus(const CodePointSet& other) const { return Intersection(other.Complement()); }

  bool empty() const { return ranges_.empty(); }
  bool Contains(uint32_t code_point) const;
  // Number of code points.
  uint32_t size() const;
  // Sorted, disjoint and not adjacent.
  const std::vector<CodePointRange>& ranges() const& { return ranges_; }
  const std::vector<CodePointRange>& ranges() const&& = delete;  // it would dangle
  friend bool operator==(const CodePointSet&, const CodePointSet&) = default;

 private:
  void Normalize();

  std::vector<CodePointRange> ranges_;
};

}  // namespace tandem::gateway::constraint

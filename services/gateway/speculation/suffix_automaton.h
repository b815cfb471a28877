// The longest suffix of a text that occurs earlier in it, kept while the text grows.
//
// A suffix automaton (Blumer et al. 1985): a state stands for all substrings that end at the same
// places, and its link leads to the longest suffix of them that also ends elsewhere.  The link of
// the state of the whole text is therefore the longest suffix that occurs earlier.  A token takes
// amortised constant time, and a text of n tokens at most 2 n states and 3 n edges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::gateway {

// Single-thread.
class SuffixAutomaton {
 public:
  SuffixAutomaton();

  // The next token of the text.  Any value is a token.
  void Append(uint32_t token);
  // Forgets the text; keeps the memory.
  void Clear();

  std::span<const uint32_t> text() const { return text_; }
  // Tokens of the longest suffix that also ends before the text's end; 0: the last token is new.
  uint32_t match_len() const { return match_len_; }
  // One past an earlier occurrence of that suffix, the latest one that was the longest match or
  // else the first: text()[match_end()] followed it.  REQUIRES match_len() > 0.
  uint32_t match_end() const { return match_end_; }
  // Of the automaton, not of the text.
  size_t bytes() const;

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  struct State {
    uint32_t length = 0;
    uint32_t link = kNone;
    uint32_t end = 0;  // one past an occurrence
    uint32_t first_edge = kNone;
  };
  struct Edge {
    uint32_t state = 0;
    uint32_t token = 0;
    uint32_t target = 0;
    uint32_t next = kNone;  // of the same state
  };

  uint32_t AddState(uint32_t length, uint32_t end);
  // Slot of the edge in slots_, or the free slot where it belongs.
  size_t FindSlot(uint32_t state, uint32_t token) const;
  // The edge, or kNone.
  uint32_t FindEdge(uint32_t state, uint32_t token) const;
  void AddEdge(uint32_t state, uint32_t token, uint32_t target);
  // Splits the strings of at most `length` off `state`, and redirects edges by `token` from `from`
  // and its links to the new state.
  uint32_t Split(uint32_t state, uint32_t length, uint32_t from, uint32_t token);
  void GrowSlots();

  std::vector<uint32_t> text_;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> slots_;  // indices of edges by hash, kNone: free; a power of two of them
  uint32_t last_ = 0;            // the state of the whole text
  uint32_t match_len_ = 0;
  uint32_t match_end_ = 0;
};

}  // namespace tandem::gateway

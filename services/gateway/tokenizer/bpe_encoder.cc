#include "services/gateway/tokenizer/bpe_encoder.h"

#include <algorithm>
#include <utility>

#include "services/common/base/utf8.h"

namespace tandem::gateway {

// The symbols of one text and the merges that are still possible.
class BpeEncoder::Merger {
 public:
  Merger(const BpeEncoder& encoder, std::string_view text) : encoder_(encoder), text_(text) {}

  void Run(std::vector<uint32_t>& ids) {
    Split();
    for (uint32_t i = 1; i < symbols_.size(); ++i) {
      if (Pair pair; FindPair(i - 1, i, pair)) agenda_.push_back(pair);
    }
    std::make_heap(agenda_.begin(), agenda_.end(), Later);
    while (!agenda_.empty()) MergeBest();
    for (uint32_t i = 0; i != kEnd && !symbols_.empty(); i = symbols_[i].next) {
      Emit(symbols_[i].begin, symbols_[i].length, symbols_[i].id, ids);
    }
  }

 private:
  static constexpr uint32_t kEnd = 0xFFFFFFFFu;

  // A doubly linked list in an array; a symbol that was merged away has length 0.
  struct Symbol {
    uint32_t begin = 0;
    uint32_t length = 0;
    uint32_t id = kNoPiece;
    uint32_t prev = kEnd;
    uint32_t next = kEnd;
    bool fixed = false;  // matched: takes no part in merges
  };
  struct Pair {
    float score = 0.0f;
    uint32_t left = 0;
    uint32_t right = 0;
    uint32_t length = 0;  // of both when the pair was found
    uint32_t id = kNoPiece;
  };
  static bool Later(const Pair& a, const Pair& b) {
    return a.score < b.score || (a.score == b.score && a.left > b.left);
  }

  void Split() {
    symbols_.reserve(text_.size() / 2);
    uint32_t begin = 0;
    while (begin < text_.size()) {
      Symbol symbol;
      symbol.begin = begin;
      symbol.length = encoder_.LongestMatch(text_.substr(begin), symbol.id);
      symbol.fixed = symbol.length > 0;
      if (!symbol.fixed) {
        symbol.length = static_cast<uint32_t>(Utf8Length(static_cast<uint8_t>(text_[begin])));
        const auto found = encoder_.mergeable_.find(text_.substr(begin, symbol.length));
        if (found != encoder_.mergeable_.end()) symbol.id = found->second.id;
      }
      const uint32_t index = static_cast<uint32_t>(symbols_.size());
      begin += symbol.length;
      symbol.prev = index == 0 ? kEnd : index - 1;
      symbol.next = begin < text_.size() ? index + 1 : kEnd;
      symbols_.push_back(symbol);
    }
  }

  bool FindPair(uint32_t left, uint32_t right, Pair& pair) {
    if (left == kEnd || right == kEnd) return false;
    const Symbol& a = symbols_[left];
    const Symbol& b = symbols_[right];
    if (a.fixed || b.fixed) return false;
    const std::string_view whole = text_.substr(a.begin, a.length + b.length);
    const auto found = encoder_.mergeable_.find(whole);
    if (found == encoder_.mergeable_.end()) return false;
    pair = {found->second.score, left, right, a.length + b.length, found->second.id};
    if (found->second.split) halves_[whole] = {a.length, a.id, b.id};
    return true;
  }

  void MergeBest() {
    std::pop_heap(agenda_.begin(), agenda_.end(), Later);
    const Pair best = agenda_.back();
    agenda_.pop_back();
    Symbol& left = symbols_[best.left];
    Symbol& right = symbols_[best.right];
    // Either may have been merged into something else since the pair was found.
    if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) return;
    left.length = best.length;
    left.id = best.id;
    left.next = right.next;
    if (right.next != kEnd) symbols_[right.next].prev = best.left;
    right.length = 0;
    Push(left.prev, best.left);
    Push(best.left, left.next);
  }

  void Push(uint32_t left, uint32_t right) {
    Pair pair;
    if (!FindPair(left, right, pair)) return;
    agenda_.push_back(pair);
    std::push_heap(agenda_.begin(), agenda_.end(), Later);
  }

  // A kSplit piece becomes the two it was made of, in turn; what is no piece its bytes.  Depth is
  // bounded by the piece's length.
  void Emit(uint32_t begin, uint32_t length, uint32_t id, std::vector<uint32_t>& ids) const {
    const std::string_view text = text_.substr(begin, length);
    if (!halves_.empty()) {
      if (const auto found = halves_.find(text); found != halves_.end()) {
        const Halves& halves = found->second;
        Emit(begin, halves.left_length, halves.left_id, ids);
        Emit(begin + halves.left_length, length - halves.left_length, halves.right_id, ids);
        return;
      }
    }
    if (id != kNoPiece) {
      ids.push_back(id);
      return;
    }
    for (const char byte : text) ids.push_back(encoder_.byte_ids_[static_cast<uint8_t>(byte)]);
  }

  struct Halves {
    uint32_t left_length = 0;
    uint32_t left_id = kNoPiece;
    uint32_t right_id = kNoPiece;
  };

  const BpeEncoder& encoder_;
  const std::string_view text_;
  std::vector<Symbol> symbols_;
  std::vector<Pair> agenda_;  // heap, the next merge in front
  absl::flat_hash_map<std::string_view, Halves> halves_;
};

BpeEncoder::BpeEncoder(const std::vector<BpePiece>& pieces,
                       const std::array<uint32_t, 256>& byte_ids)
    : byte_ids_(byte_ids) {
  mergeable_.reserve(pieces.size());
  for (uint32_t id = 0; id < pieces.size(); ++id) {
    const BpePiece& piece = pieces[id];
    switch (piece.use) {
      case PieceUse::kNone:
        break;
      case PieceUse::kMerge:
      case PieceUse::kSplit:
        mergeable_[piece.text] = {id, piece.score, piece.use == PieceUse::kSplit};
        break;
      case PieceUse::kMatch:
        AddMatch(piece.text, id);
        break;
    }
  }
}

void BpeEncoder::AddMatch(std::string_view text, uint32_t id) {
  uint32_t node = 0;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    uint32_t& child =
        node == 0 ? root_children_[byte] : children_[uint64_t{node} << 8 | uint64_t{byte}];
    if (child == 0) {
      child = static_cast<uint32_t>(node_ids_.size());
      node_ids_.push_back(kNoPiece);
    }
    node = child;
  }
  node_ids_[node] = id;
}

uint32_t BpeEncoder::LongestMatch(std::string_view text, uint32_t& id) const {
  uint32_t node = root_children_[static_cast<uint8_t>(text.front())];
  uint32_t longest = 0;
  for (uint32_t depth = 1; node != 0; ++depth) {
    if (node_ids_[node] != kNoPiece) {
      longest = depth;
      id = node_ids_[node];
    }
    if (depth == text.size()) break;
    const uint8_t byte = static_cast<uint8_t>(text[depth]);
    const auto child = children_.find(uint64_t{node} << 8 | uint64_t{byte});
    node = child == children_.end() ? 0 : child->second;
  }
  return longest;
}

void BpeEncoder::Encode(std::string_view text, std::vector<uint32_t>& ids) const {
  if (!text.empty()) Merger(*this, text).Run(ids);
}

}  // namespace tandem::gateway

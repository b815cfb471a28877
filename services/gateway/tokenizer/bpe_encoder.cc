#include "services/gateway/tokenizer/bpe_encoder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/cancellation.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"

namespace tandem::gateway {

namespace {

constexpr size_t kStepsBetweenChecks = 1 << 14;
// Parts up to this length, and this many of them, are cached.
constexpr size_t kMaxKeptBytes = 32;
constexpr size_t kMaxKeptParts = 1 << 16;

}  // namespace

// The symbols of one part and the merges that are still possible.
class BpeEncoder::Merger {
 public:
  explicit Merger(const BpeEncoder& encoder) : encoder_(encoder) {}

  // Appends the ids of `text`; kSplit pieces are not split yet.
  absl::Status Run(std::string_view text, std::vector<uint32_t>& ids) {
    text_ = text;
    symbols_.clear();
    agenda_.clear();
    found_split_ = false;
    TANDEM_RETURN_IF_ERROR(Split());
    for (uint32_t i = 1; i < symbols_.size(); ++i) {
      if (Pair pair; FindPair(i - 1, i, pair)) agenda_.push_back(pair);
    }
    std::make_heap(agenda_.begin(), agenda_.end(), Later);
    while (!agenda_.empty()) {
      TANDEM_RETURN_IF_ERROR(CountStep());
      MergeBest();
    }
    for (uint32_t i = 0; i != kEnd; i = symbols_[i].next) {
      const Symbol& symbol = symbols_[i];
      Emit(text_.substr(symbol.begin, symbol.length), symbol.id, ids);
    }
    return absl::OkStatus();
  }

  // Whether the last part made kSplit pieces.
  bool found_split() const { return found_split_; }

  // Splits the kSplit pieces in `ids` from `begin` on.
  void TakeApart(size_t begin, std::vector<uint32_t>& ids) const {
    if (halves_.empty()) return;
    const std::vector<uint32_t> whole(ids.begin() + static_cast<ptrdiff_t>(begin), ids.end());
    ids.resize(begin);
    for (const uint32_t id : whole) EmitApart({}, id, ids);
  }

  // Called once for each step of work.
  absl::Status CountStep() {
    return ++num_steps_ % kStepsBetweenChecks == 0 ? CheckCancelled() : absl::OkStatus();
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

  absl::Status Split() {
    uint32_t begin = 0;
    while (begin < text_.size()) {
      TANDEM_RETURN_IF_ERROR(CountStep());
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
    return absl::OkStatus();
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
    if (found->second.split) {
      halves_[found->second.id] = {found->first.substr(0, a.length), a.id,
                                   found->first.substr(a.length), b.id};
      found_split_ = true;
    }
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

  // A symbol that is not a piece becomes its bytes.
  void Emit(std::string_view text, uint32_t id, std::vector<uint32_t>& ids) const {
    if (id != kNoPiece) {
      ids.push_back(id);
      return;
    }
    for (const char byte : text) ids.push_back(encoder_.byte_ids_[static_cast<uint8_t>(byte)]);
  }

  // Replaces a kSplit piece by its two parts, recursively.  Its length bounds the depth.
  void EmitApart(std::string_view text, uint32_t id, std::vector<uint32_t>& ids) const {
    const auto found = halves_.find(id);
    if (found == halves_.end()) return Emit(text, id, ids);
    const Halves& halves = found->second;
    EmitApart(halves.left, halves.left_id, ids);
    EmitApart(halves.right, halves.right_id, ids);
  }

  struct Halves {
    std::string_view left;
    uint32_t left_id = kNoPiece;
    std::string_view right;
    uint32_t right_id = kNoPiece;
  };

  const BpeEncoder& encoder_;
  std::string_view text_;
  std::vector<Symbol> symbols_;
  std::vector<Pair> agenda_;  // heap, the next merge in front
  // The two parts that each kSplit piece was last merged from, by id; over the whole text.
  absl::flat_hash_map<uint32_t, Halves> halves_;
  bool found_split_ = false;
  size_t num_steps_ = 0;
};

// Cuts a text into parts that no piece crosses.
class BpeEncoder::Parts {
 public:
  Parts(const BpeEncoder& encoder, std::string_view text) : encoder_(encoder), rest_(text) {}

  // Puts the next part into `raw`, and with U+2581 for spaces into `text`; both are empty at the end.
  // OUT_OF_RANGE: the part has more than `max_tokens` ids, however it merges.
  absl::Status Next(size_t max_tokens, Merger& steps, std::string_view& raw, std::string& text) {
    text.clear();
    size_t raw_bytes = 0;
    // `end`: where `num_tokens` ids can reach at most; `next_end`: the same of one id more.
    size_t num_tokens = 0, end = 0, next_end = 0;
    while (raw_bytes < rest_.size()) {
      TANDEM_RETURN_IF_ERROR(steps.CountStep());
      const std::string_view from = rest_.substr(raw_bytes);
      const size_t length = Utf8Length(static_cast<uint8_t>(from.front()));
      const char32_t c = CharAt(from, length);
      CharPairs::Pair pair;
      if (length < from.size()) {
        const std::string_view after = from.substr(length);
        const size_t after_length = Utf8Length(static_cast<uint8_t>(after.front()));
        pair = encoder_.pairs_.Find(c, CharAt(after, after_length));
      }
      const std::string_view bytes = from.front() == ' ' ? kPieceSpace : from.substr(0, length);
      next_end = std::max({next_end, text.size() + bytes.size(), text.size() + pair.longest});
      if (text.size() >= end) {
        if (++num_tokens > max_tokens) return TooMany(max_tokens);
        end = next_end;
      }
      text.append(bytes);
      raw_bytes += length;
      if (!pair.joined) break;
    }
    raw = rest_.substr(0, raw_bytes);
    rest_.remove_prefix(raw_bytes);
    return absl::OkStatus();
  }

  static absl::Status TooMany(size_t max_tokens) {
    return absl::OutOfRangeError(absl::StrFormat("the text has more than %d tokens", max_tokens));
  }

 private:
  static char32_t CharAt(std::string_view text, size_t length) {
    return text.front() == ' ' ? kPieceSpaceChar : FirstChar(text, length);
  }

  const BpeEncoder& encoder_;
  std::string_view rest_;
};

BpeEncoder::BpeEncoder(const std::vector<BpePiece>& pieces,
                       const std::array<uint32_t, 256>& byte_ids)
    : byte_ids_(byte_ids) {
  mergeable_.reserve(pieces.size());
  for (uint32_t id = 0; id < pieces.size(); ++id) {
    const BpePiece& piece = pieces[id];
    if (piece.use != PieceUse::kNone) pairs_.Add(piece.text);
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

absl::Status BpeEncoder::Encode(std::string_view text, size_t max_tokens,
                                std::vector<uint32_t>& ids) const {
  const size_t begin = ids.size();
  Merger merger(*this);
  Parts parts(*this, text);
  struct Kept {
    size_t begin, end;  // of its ids, in `ids`
  };
  absl::flat_hash_map<std::string_view, Kept> kept;
  std::string part;
  while (true) {
    std::string_view raw;
    const size_t num_tokens = ids.size() - begin;
    if (num_tokens > max_tokens) return Parts::TooMany(max_tokens);
    TANDEM_RETURN_IF_ERROR(parts.Next(max_tokens - num_tokens, merger, raw, part));
    if (raw.empty()) break;
    if (const auto found = kept.find(raw); found != kept.end()) {
      for (size_t i = found->second.begin; i < found->second.end; ++i) ids.push_back(ids[i]);
      continue;
    }
    const size_t part_begin = ids.size();
    TANDEM_RETURN_IF_ERROR(merger.Run(part, ids));
    if (raw.size() <= kMaxKeptBytes && kept.size() < kMaxKeptParts && !merger.found_split()) {
      kept.try_emplace(raw, Kept{part_begin, ids.size()});
    }
  }
  merger.TakeApart(begin, ids);
  return ids.size() - begin > max_tokens ? Parts::TooMany(max_tokens) : absl::OkStatus();
}

}  // namespace tandem::gateway

// The part of RegexArena that spells code points in bytes.
#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "services/gateway/constraint/regex/expression.h"
#include "services/gateway/constraint/regex/regex_arena.h"

namespace tandem::gateway::constraint {
namespace {

// Code points of equal length in UTF-8 whose spellings are a product of byte ranges, or parts of
// it.
void AddUtf8Range(uint32_t first, uint32_t last, RegexArena& arena, std::vector<RegexId>& out) {
  for (const uint32_t limit : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (first <= limit && last > limit) {
      AddUtf8Range(first, limit, arena, out);
      AddUtf8Range(limit + 1, last, arena, out);
      return;
    }
  }
  const std::string low = Utf8Of(first);
  for (size_t i = 1; i < low.size(); ++i) {
    const uint32_t mask = (1u << (6 * i)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      AddUtf8Range(first, first | mask, arena, out);
      AddUtf8Range((first | mask) + 1, last, arena, out);
      return;
    }
    if ((last & mask) != mask) {
      AddUtf8Range(first, (last & ~mask) - 1, arena, out);
      AddUtf8Range(last & ~mask, last, arena, out);
      return;
    }
  }
  const std::string high = Utf8Of(last);
  RegexId bytes = kEmptyText;
  for (size_t i = low.size(); i-- > 0;) {
    bytes = arena.Concat(
        arena.Bytes(ByteSet::Range(static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i]))),
        bytes);
  }
  out.push_back(bytes);
}

const CodePointSet& EscapedInJson() {
  static const auto* const set = new CodePointSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  return *set;
}

std::string JsonEscape(uint32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return absl::StrFormat("\\u%04x", c);
  }
}

// Every escape of JSON.  Half a surrogate pair is malformed.
RegexId AnyJsonEscape(RegexArena& arena) {
  const auto set = [&](std::string_view bytes) {
    ByteSet members;
    for (const char c : bytes) members.Add(static_cast<uint8_t>(c));
    return arena.Bytes(members);
  };
  const RegexId hex = set("0123456789abcdefABCDEF");
  const RegexId d = set("dD");
  const auto sequence = [&](std::initializer_list<RegexId> parts) {
    RegexId all = kEmptyText;
    for (const RegexId part : parts) all = arena.Concat(all, part);
    return all;
  };
  const RegexId no_surrogate = arena.Or(sequence({set("0123456789abcefABCEF"), hex, hex, hex}),
                                        sequence({d, set("01234567"), hex, hex}));
  const RegexId pair =
      sequence({d, set("89abAB"), hex, hex, arena.Literal("\\u"), d, set("cdefCDEF"), hex, hex});
  return arena.Concat(
      arena.Byte('\\'),
      arena.Or(set("\"\\/bfnrt"), arena.Concat(arena.Byte('u'), arena.Or(no_surrogate, pair))));
}

}  // namespace

std::string Utf8Of(uint32_t c) {
  std::string bytes;
  const auto add = [&](uint32_t byte) { bytes.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6);
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  }
  return bytes;
}

std::string JsonEscaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\') {
      out += JsonEscape(byte);
    } else {
      out += c;
    }
  }
  return out;
}

RegexId Utf8Bytes(const CodePointSet& set, RegexArena& arena) {
  std::vector<RegexId> parts;
  for (const CodePointRange& range : set.ranges()) {
    AddUtf8Range(range.first, range.last, arena, parts);
  }
  return arena.Or(std::move(parts));
}

RegexId RegexArena::BytesOfClass(const CodePointSet& code_points, Spelling spelling) {
  if (spelling == Spelling::kPlain) return Utf8Bytes(code_points, *this);
  const RegexId plain = Utf8Bytes(code_points.Minus(EscapedInJson()), *this);
  if (spelling == Spelling::kJsonAny && code_points == CodePointSet::All()) {
    return Or(plain, AnyJsonEscape(*this));
  }
  std::vector<Entry> escapes;
  const CodePointSet escaped = code_points.Intersection(EscapedInJson());
  for (const CodePointRange& range : escaped.ranges()) {
    for (uint32_t c = range.first; c <= range.last; ++c) escapes.push_back({JsonEscape(c)});
  }
  return Or(plain, LiteralTree(std::move(escapes)));
}

}  // namespace tandem::gateway::constraint

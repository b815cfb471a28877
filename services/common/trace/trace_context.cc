#include "services/common/trace/trace_context.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "services/common/base/random_bits.h"

namespace tandem {
namespace {

constexpr size_t kTraceParentBytes = 55;
constexpr size_t kMaxStateMembers = 32;

// Small letters alone, as the rules want them.
std::optional<uint64_t> ParseHex(std::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) {
    if (c >= '0' && c <= '9') {
      value = value << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

void AppendHex(uint64_t value, std::string& out) {
  for (int shift = 60; shift >= 0; shift -= 4)
    out.push_back("0123456789abcdef"[value >> shift & 15]);
}

bool IsLetter(char c) { return c >= 'a' && c <= 'z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsKeyPart(std::string_view part, size_t max_bytes, bool digit_first) {
  return !part.empty() && part.size() <= max_bytes &&
         (IsLetter(part[0]) || (digit_first && IsDigit(part[0]))) &&
         std::all_of(part.begin(), part.end(), [](char c) {
           return IsLetter(c) || IsDigit(c) || c == '_' || c == '-' || c == '*' || c == '/';
         });
}

// "vendor" or "tenant@system".
bool IsStateKey(std::string_view key) {
  const size_t at = key.find('@');
  if (at == std::string_view::npos) return IsKeyPart(key, 256, /*digit_first=*/false);
  return IsKeyPart(key.substr(0, at), 241, /*digit_first=*/true) &&
         IsKeyPart(key.substr(at + 1), 14, /*digit_first=*/false);
}

bool IsStateValue(std::string_view value) {
  return !value.empty() && value.size() <= 256 && value.back() != ' ' &&
         std::all_of(value.begin(), value.end(),
                     [](char c) { return c >= 0x20 && c <= 0x7e && c != ',' && c != '='; });
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

std::optional<TraceContext> ParseTraceParent(std::string_view header) {
  if (header.size() < kTraceParentBytes || header[2] != '-' || header[35] != '-' ||
      header[52] != '-') {
    return std::nullopt;
  }
  const auto version = ParseHex(header.substr(0, 2));
  if (!version.has_value() || *version == 0xff) return std::nullopt;
  // Version 00 ends here; later ones may go on behind another dash.
  if (header.size() > kTraceParentBytes && (*version == 0 || header[kTraceParentBytes] != '-')) {
    return std::nullopt;
  }
  const auto high = ParseHex(header.substr(3, 16));
  const auto low = ParseHex(header.substr(19, 16));
  const auto span = ParseHex(header.substr(36, 16));
  const auto flags = ParseHex(header.substr(53, 2));
  if (!high.has_value() || !low.has_value() || !span.has_value() || !flags.has_value()) {
    return std::nullopt;
  }
  const TraceContext context{{*high, *low}, *span, (*flags & 1) != 0};
  if (!context.trace_id.valid() || context.span_id == 0) return std::nullopt;
  return context;
}

std::string FormatTraceParent(const TraceContext& context) {
  std::string header;
  header.reserve(kTraceParentBytes);
  header.append("00-");
  AppendHex(context.trace_id.high, header);
  AppendHex(context.trace_id.low, header);
  header.push_back('-');
  AppendHex(context.span_id, header);
  header.append(context.sampled ? "-01" : "-00");
  return header;
}

std::string FormatTraceId(const TraceId& id) {
  std::string digits;
  AppendHex(id.high, digits);
  AppendHex(id.low, digits);
  return digits;
}

std::string FormatSpanId(uint64_t id) {
  std::string digits;
  AppendHex(id, digits);
  return digits;
}

std::string CheckTraceState(std::string_view header) {
  std::string state;
  std::vector<std::string_view> keys;
  while (!header.empty()) {
    const size_t comma = header.find(',');
    const std::string_view member = Trim(header.substr(0, comma));
    header = comma == std::string_view::npos ? "" : header.substr(comma + 1);
    if (member.empty()) continue;  // the rules allow empty members
    const size_t equals = member.find('=');
    if (equals == std::string_view::npos) return "";
    const std::string_view key = member.substr(0, equals);
    if (!IsStateKey(key) || !IsStateValue(member.substr(equals + 1)) ||
        std::find(keys.begin(), keys.end(), key) != keys.end() || keys.size() == kMaxStateMembers) {
      return "";
    }
    keys.push_back(key);
    if (!state.empty()) state.push_back(',');
    state.append(member);
  }
  return state;
}

TraceId RandomTraceId() {
  TraceId id;
  while (!id.valid()) id = {RandomBits(), RandomBits()};
  return id;
}

uint64_t RandomSpanId() {
  uint64_t id = 0;
  while (id == 0) id = RandomBits();
  return id;
}

// SplitMix64 (Steele, Lea and Flood 2014).
uint64_t ChildSpanId(uint64_t span_id, uint64_t number) {
  uint64_t z = span_id + (number + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return z != 0 ? z : 1;
}

RequestTrace RequestTrace::Sibling() const {
  RequestTrace sibling = *this;
  sibling.own.span_id = RandomSpanId();
  return sibling;
}

TraceSampler::TraceSampler(double ratio)
    : threshold_(static_cast<uint64_t>(std::ldexp(std::clamp(ratio, 0.0, 1.0), 63))) {}

RequestTrace TraceSampler::Begin(std::string_view parent, std::string_view state) const {
  RequestTrace trace;
  trace.own.span_id = RandomSpanId();
  if (const auto caller = ParseTraceParent(parent)) {
    trace.own.trace_id = caller->trace_id;
    trace.own.sampled = caller->sampled;
    trace.parent_span_id = caller->span_id;
    trace.state = CheckTraceState(state);
    return trace;
  }
  trace.own.trace_id = RandomTraceId();
  // As OpenTelemetry's TraceIdRatioBased, so that all who see the trace decide alike.
  trace.own.sampled = trace.own.trace_id.low >> 1 < threshold_;
  return trace;
}

}  // namespace tandem

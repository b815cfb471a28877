#include "services/gateway/constraint/grammar/source_reader.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/utf8.h"

namespace tandem::gateway::constraint {

uint32_t SourceReader::TakeCodePoint() {
  const auto lead = static_cast<unsigned char>(text_[at_]);
  const size_t length = Utf8Length(lead);
  uint32_t value = length == 1 ? lead : lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    value = value << 6 | (static_cast<unsigned char>(text_[at_ + i]) & 0x3F);
  }
  at_ += length;
  return value;
}

std::optional<uint32_t> SourceReader::TakeHex(int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const char c = Peek();
    if (c >= '0' && c <= '9') {
      value = value << 4 | static_cast<uint32_t>(c - '0');
    } else if ((c | 32) >= 'a' && (c | 32) <= 'f') {
      value = value << 4 | static_cast<uint32_t>((c | 32) - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

absl::Status SourceReader::ErrorAt(size_t at, std::string_view what) const {
  const std::string_view before = text_.substr(0, std::min(at, text_.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t last = before.rfind('\n');
  const size_t column = before.size() - (last == std::string_view::npos ? 0 : last + 1) + 1;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: line %d, column %d: %s", language_, line, column, what));
}

uint32_t RuleTable::Use(std::string_view name, size_t at) {
  const auto [found, added] =
      numbers_.try_emplace(std::string(name), static_cast<uint32_t>(source_.names.size()));
  if (added) {
    source_.names.emplace_back(name);
    source_.bodies.push_back(source_.pool.Never());
    defined_.push_back(false);
    used_at_.push_back(at);
  }
  return found->second;
}

bool RuleTable::Define(uint32_t rule, ExpressionId body) {
  if (defined_[rule]) return false;
  defined_[rule] = true;
  source_.bodies[rule] = body;
  return true;
}

absl::Status RuleTable::CheckAllDefined(const SourceReader& reader) const {
  for (uint32_t rule = 0; rule < defined_.size(); ++rule) {
    if (defined_[rule]) continue;
    return reader.ErrorAt(used_at_[rule],
                          absl::StrFormat("rule %s is used and not given", name(rule)));
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway::constraint

#include "services/common/base/utf8.h"

namespace tandem {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What may follow a lead byte (The Unicode Standard, table 3-7).
struct Lead {
  uint8_t num_needed = 0;
  uint8_t lower = 0x80;
  uint8_t upper = 0xBF;
  bool valid = false;
};

Lead ClassifyLead(uint8_t byte) {
  if (byte < 0x80) return {0, 0x80, 0xBF, true};
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF, true};
  if (byte == 0xE0) return {2, 0xA0, 0xBF, true};
  if (byte == 0xED) return {2, 0x80, 0x9F, true};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF, true};
  if (byte == 0xF0) return {3, 0x90, 0xBF, true};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF, true};
  if (byte == 0xF4) return {3, 0x80, 0x8F, true};
  return {};
}

}  // namespace

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const Lead lead = ClassifyLead(static_cast<uint8_t>(text[i]));
    if (!lead.valid || lead.num_needed >= text.size() - i) return i;
    for (uint8_t k = 1; k <= lead.num_needed; ++k) {
      const uint8_t byte = static_cast<uint8_t>(text[i + k]);
      const bool first = k == 1;
      if (byte < (first ? lead.lower : 0x80) || byte > (first ? lead.upper : 0xBF)) return i;
    }
    i += 1 + lead.num_needed;
  }
  return std::nullopt;
}

void Utf8Stream::Append(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (num_needed_ > 0) {
      if (byte >= lower_ && byte <= upper_) {
        held_[num_held_++] = c;
        lower_ = 0x80;
        upper_ = 0xBF;
        if (--num_needed_ == 0) {
          out.append(held_, num_held_);
          num_held_ = 0;
        }
        continue;
      }
      Finish(out);  // then this byte starts again
    }
    const Lead lead = ClassifyLead(byte);
    if (!lead.valid) {
      out.append(kReplacement);
    } else if (lead.num_needed == 0) {
      out.push_back(c);
    } else {
      held_[0] = c;
      num_held_ = 1;
      num_needed_ = lead.num_needed;
      lower_ = lead.lower;
      upper_ = lead.upper;
    }
  }
}

void Utf8Stream::Finish(std::string& out) {
  if (num_needed_ == 0) return;
  out.append(kReplacement);
  num_held_ = 0;
  num_needed_ = 0;
}

}  // namespace tandem

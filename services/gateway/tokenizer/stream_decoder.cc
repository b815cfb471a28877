// StreamDecoder: see tokenizer.h.
#include <algorithm>
#include <utility>

#include "services/common/base/utf8.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::gateway {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, std::vector<std::string> stops,
                             std::vector<uint32_t> shown)
    : tokenizer_(tokenizer), shown_(std::move(shown)) {
  for (std::string& text : stops) {
    if (text.empty() || FindInvalidUtf8(text)) continue;
    Stop stop;
    stop.border.resize(text.size());
    for (size_t i = 1; i < text.size(); ++i) {
      uint32_t length = stop.border[i - 1];
      while (length > 0 && text[i] != text[length]) length = stop.border[length - 1];
      stop.border[i] = length + (text[i] == text[length] ? 1 : 0);
    }
    stop.text = std::move(text);
    stops_.push_back(std::move(stop));
  }
}

void StreamDecoder::Search(size_t begin) {
  if (stops_.empty()) return;
  for (size_t i = begin; i < pending_.size(); ++i) {
    size_t longest = 0;
    for (Stop& stop : stops_) {
      while (stop.matched > 0 && stop.text[stop.matched] != pending_[i]) {
        stop.matched = stop.border[stop.matched - 1];
      }
      if (stop.text[stop.matched] == pending_[i]) ++stop.matched;
      if (stop.matched == stop.text.size()) longest = std::max(longest, stop.text.size());
    }
    if (longest > 0) {
      pending_.resize(i + 1 - longest);
      stopped_ = true;
      return;
    }
  }
}

std::string StreamDecoder::TakeFree() {
  size_t held = 0;
  if (!stopped_) {
    for (const Stop& stop : stops_) held = std::max<size_t>(held, stop.matched);
  }
  std::string free = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, free.size());
  return free;
}

StreamDecoder::Piece StreamDecoder::Append(uint32_t token) {
  if (stopped_) return {"", true};
  const size_t begin = pending_.size();
  const bool shown = std::find(shown_.begin(), shown_.end(), token) != shown_.end();
  utf8_.Append(shown ? tokenizer_.Piece(token) : tokenizer_.TokenBytes(token), pending_);
  Search(begin);
  std::string text = TakeFree();
  return {std::move(text), stopped_};
}

std::string StreamDecoder::Finish() {
  if (stopped_) return "";
  const size_t begin = pending_.size();
  utf8_.Finish(pending_);
  Search(begin);
  return std::exchange(pending_, std::string());
}

}  // namespace tandem::gateway

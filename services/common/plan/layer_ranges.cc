#include "services/common/plan/layer_ranges.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"

namespace tandem {
namespace {

bool ToNumber(std::string_view text, uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

absl::StatusOr<LayerRange> ParseLayerRange(std::string_view text) {
  const size_t equals = text.rfind('=');
  const size_t dash = text.rfind('-');
  LayerRange range;
  if (equals != std::string_view::npos && equals > 0 && dash != std::string_view::npos &&
      dash > equals && ToNumber(text.substr(equals + 1, dash - equals - 1), range.first) &&
      ToNumber(text.substr(dash + 1), range.last) && range.first <= range.last) {
    range.worker = std::string(text.substr(0, equals));
    return range;
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "layers \"%s\": must be WORKER=FIRST-LAST, counted from 0", std::string(text)));
}

absl::Status CheckLayerRanges(const std::vector<LayerRange>& ranges, uint32_t num_layers) {
  uint32_t next = 0;
  for (const LayerRange& range : ranges) {
    if (range.first != next || range.last < range.first || range.last >= num_layers) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "layers %s=%d-%d: must begin with layer %d and end by layer %d, the model's last",
          range.worker, range.first, range.last, next, num_layers - 1));
    }
    next = range.last + 1;
  }
  if (next == num_layers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("layers %d-%d are on no worker", next, num_layers - 1));
}

std::vector<uint32_t> ShareLayers(const std::vector<uint64_t>& memory_bytes, uint32_t num_layers) {
  const bool known = std::all_of(memory_bytes.begin(), memory_bytes.end(),
                                 [](uint64_t bytes) { return bytes > 0; });
  const auto weight = [known](uint64_t bytes) { return known ? static_cast<double>(bytes) : 1.0; };
  double total = 0.0;
  for (const uint64_t bytes : memory_bytes) total += weight(bytes);
  std::vector<uint32_t> ends;
  double sum = 0.0;
  for (const uint64_t bytes : memory_bytes) {
    sum += weight(bytes);
    // Short of a whole layer by rounding alone is that layer.
    const auto end = static_cast<uint32_t>(std::ceil(sum / total * num_layers - 1e-9));
    const uint32_t begin = ends.empty() ? 0 : ends.back();
    const auto after = static_cast<uint32_t>(memory_bytes.size() - 1 - ends.size());
    ends.push_back(std::clamp(end, begin + 1, num_layers - after));
  }
  return ends;
}

}  // namespace tandem

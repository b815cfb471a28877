// SamplingParams: see sampler.h.
#include <string>

#include "absl/strings/str_format.h"
#include "services/gateway/sampling/sampler.h"

namespace tandem::gateway {
namespace {

// Also false for NaN.
bool Within(float value, float low, float high) { return value >= low && value <= high; }

absl::Status OutOfRange(const char* name, float value, const char* range) {
  return absl::InvalidArgumentError(
      absl::StrFormat("sampling.%s: %g, must be in %s", name, value, range));
}

}  // namespace

absl::Status SamplingParams::Validate(uint32_t vocab_size) const {
  struct Range {
    const char* name;
    float value;
    float low;
    float high;
    const char* text;
  };
  const Range ranges[] = {
      {"temperature", temperature, 0.0f, 100.0f, "[0, 100]"},
      {"top_p", top_p, 0.0f, 1.0f, "(0, 1]"},
      {"min_p", min_p, 0.0f, 1.0f, "[0, 1]"},
      {"repetition_penalty", repetition_penalty, 0.01f, 100.0f, "[0.01, 100]"},
      {"presence_penalty", presence_penalty, -2.0f, 2.0f, "[-2, 2]"},
      {"frequency_penalty", frequency_penalty, -2.0f, 2.0f, "[-2, 2]"},
  };
  for (const Range& range : ranges) {
    if (!Within(range.value, range.low, range.high)) {
      return OutOfRange(range.name, range.value, range.text);
    }
  }
  if (top_p == 0.0f) return OutOfRange("top_p", top_p, "(0, 1]");
  if (logit_bias.size() > kMaxLogitBiases) {
    return absl::InvalidArgumentError(absl::StrFormat("sampling.logit_bias: %d entries, at most %d",
                                                      logit_bias.size(), kMaxLogitBiases));
  }
  for (const auto& [token, bias] : logit_bias) {
    if (token >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "sampling.logit_bias: token %d, the vocabulary has %d", token, vocab_size));
    }
    if (!Within(bias, -100.0f, 100.0f)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "sampling.logit_bias: token %d has %g, must be in [-100, 100]", token, bias));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway

#include "services/common/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "services/common/base/check.h"

namespace tandem::reference {
namespace {

constexpr size_t kLanes = 8;

// Partial sums in eight lanes, which compilers turn into vectors.
float Dot(const float* a, const float* b, size_t n) {
  float sum[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  }
  float total = 0.0f;
  for (const float lane : sum) total += lane;
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

}  // namespace

void RmsNorm(std::span<const float> x, std::span<const float> weight, float eps,
             std::span<float> out) {
  TANDEM_CHECK(x.size() == weight.size() && x.size() == out.size());
  const float mean = Dot(x.data(), x.data(), x.size()) / static_cast<float>(x.size());
  const float scale = 1.0f / std::sqrt(mean + eps);
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
}

float GeluTanh(float x) {
  constexpr float kSqrt2OverPi = 0.7978845608028654f;
  return 0.5f * x * (1.0f + std::tanh(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
}

Rotary::Rotary(size_t head_dim, float theta, float scale)
    : frequencies_(head_dim / 2), cos_(head_dim / 2), sin_(head_dim / 2) {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    frequencies_[i] = static_cast<float>(1.0 / std::pow(double{theta}, exponent)) / scale;
  }
  SetPosition(0);
}

void Rotary::SetPosition(uint32_t position) {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const float angle = static_cast<float>(position) * frequencies_[i];
    cos_[i] = static_cast<float>(std::cos(double{angle}));
    sin_[i] = static_cast<float>(std::sin(double{angle}));
  }
}

void Rotary::Rotate(std::span<float> head) const {
  const size_t half = head.size() / 2;
  TANDEM_CHECK(half == frequencies_.size());
  for (size_t i = 0; i < half; ++i) {
    const float low = head[i];
    const float high = head[i + half];
    head[i] = low * cos_[i] - high * sin_[i];
    head[i + half] = high * cos_[i] + low * sin_[i];
  }
}

void AttendRow(const ModelConfig& config, std::span<const float> q,
               std::span<const float* const> keys, std::span<const float* const> values,
               std::span<float> out) {
  TANDEM_CHECK(!keys.empty() && keys.size() == values.size());
  TANDEM_CHECK(q.size() == config.q_dim() && out.size() == config.q_dim());
  const uint32_t ratio = config.num_heads / config.num_kv_heads;
  const size_t dim = config.head_dim;
  std::vector<float> weights(keys.size());
  for (uint32_t head = 0; head < config.num_heads; ++head) {
    const size_t kv_offset = head / ratio * dim;
    for (size_t p = 0; p < keys.size(); ++p) {
      weights[p] = config.attention_scale * Dot(&q[head * dim], keys[p] + kv_offset, dim);
    }
    const float top = *std::max_element(weights.begin(), weights.end());
    float sum = 0.0f;
    for (float& weight : weights) {
      weight = std::exp(weight - top);
      sum += weight;
    }
    float* result = &out[head * dim];
    std::fill_n(result, dim, 0.0f);
    for (size_t p = 0; p < values.size(); ++p) {
      const float* value = values[p] + kv_offset;
      for (size_t i = 0; i < dim; ++i) result[i] += weights[p] * value[i];
    }
    for (size_t i = 0; i < dim; ++i) result[i] /= sum;
  }
}

float LogSumExp(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{top});
  return static_cast<float>(double{top} + std::log(sum));
}

OutputResult SummariseLogits(std::span<const float> logits, uint32_t num_candidates,
                             uint32_t target, std::span<const uint32_t> mask) {
  OutputResult result;
  std::vector<uint32_t> tokens;
  std::vector<float> allowed;
  tokens.reserve(logits.size());
  for (uint32_t token = 0; token < logits.size(); ++token) {
    const bool finite = std::isfinite(logits[token]);
    if (!finite) ++result.num_nonfinite;
    if (!mask.empty() && (mask[token / 32] >> (token % 32) & 1) == 0) continue;
    if (!mask.empty()) allowed.push_back(logits[token]);
    if (finite) tokens.push_back(token);
  }
  result.log_sum_exp = mask.empty()      ? LogSumExp(logits)
                       : allowed.empty() ? -std::numeric_limits<float>::infinity()
                                         : LogSumExp(allowed);
  if (target != kNoToken) result.target_logit = logits[target];
  result.num_candidates = std::min(num_candidates, static_cast<uint32_t>(tokens.size()));
  std::partial_sort(tokens.begin(), tokens.begin() + result.num_candidates, tokens.end(),
                    [&logits](uint32_t a, uint32_t b) {
                      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                    });
  for (uint32_t i = 0; i < result.num_candidates; ++i) {
    result.candidates[i] = {tokens[i], logits[tokens[i]]};
  }
  return result;
}

uint32_t GuessToken(const OutputResult& result, const DrawEntry* draw) {
  if (result.num_candidates == 0) return 0;
  if (draw == nullptr) return result.candidates[0].token;
  std::vector<double> weights;
  double sum = 0.0;
  for (uint32_t i = 0; i < std::min(result.num_candidates, draw->top_k); ++i) {
    const double below = double{result.candidates[i].logit} - double{result.candidates[0].logit};
    weights.push_back(std::exp(below / draw->temperature));
    sum += weights.back();
  }
  size_t num_kept = 0;
  double kept = 0.0;
  while (num_kept < weights.size() && (draw->top_p == 1.0f || kept < draw->top_p * sum) &&
         weights[num_kept] >= draw->min_p) {
    kept += weights[num_kept++];
  }
  double passed = 0.0;
  for (size_t i = 0; i + 1 < num_kept; ++i) {
    passed += weights[i];
    if (passed > draw->uniform * kept) return result.candidates[i].token;
  }
  return result.candidates[num_kept - 1].token;
}

}  // namespace tandem::reference

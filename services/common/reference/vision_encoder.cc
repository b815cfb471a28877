#include "services/common/reference/vision_encoder.h"

#include <algorithm>
#include <cmath>

#include "services/common/base/check.h"
#include "services/common/reference/ops.h"

namespace tandem::reference {
namespace {

void Add(std::span<const float> from, std::vector<float>& to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

Matrix Transposed(std::span<const float> values, size_t rows, size_t cols) {
  Matrix out{cols, rows, std::vector<float>(rows * cols)};
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) out.values[c * rows + r] = values[r * cols + c];
  }
  return out;
}

}  // namespace

void LayerNorm(std::span<const float> x, std::span<const float> weight, std::span<const float> bias,
               float eps, std::span<float> out) {
  TANDEM_CHECK(x.size() == weight.size() && x.size() == bias.size() && x.size() == out.size());
  const auto n = static_cast<double>(x.size());
  double mean = 0;
  for (const float value : x) mean += value;
  mean /= n;
  double variance = 0;
  for (const float value : x) variance += (value - mean) * (value - mean);
  variance /= n;
  const auto scale = static_cast<float>(1.0 / std::sqrt(variance + eps));
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] = (x[i] - static_cast<float>(mean)) * scale * weight[i] + bias[i];
  }
}

void AttendAll(std::span<const float> q, std::span<const float> k, std::span<const float> v,
               size_t num_rows, uint32_t num_heads, int num_threads, std::span<float> out) {
  TANDEM_CHECK(q.size() == k.size() && q.size() == v.size() && q.size() == out.size());
  const size_t dim = q.size() / num_rows;
  const size_t head_dim = dim / num_heads;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  // Of one head: keys [num_rows, head_dim], and values transposed, [head_dim, num_rows].
  Matrix keys{num_rows, head_dim, std::vector<float>(num_rows * head_dim)};
  Matrix values{head_dim, num_rows, std::vector<float>(num_rows * head_dim)};
  std::vector<float> queries(num_rows * head_dim);
  std::vector<float> weights(num_rows * num_rows);
  std::vector<float> sums(num_rows * head_dim);
  for (uint32_t head = 0; head < num_heads; ++head) {
    for (size_t row = 0; row < num_rows; ++row) {
      for (size_t i = 0; i < head_dim; ++i) {
        const size_t at = row * dim + head * head_dim + i;
        queries[row * head_dim + i] = q[at] * scale;
        keys.values[row * head_dim + i] = k[at];
        values.values[i * num_rows + row] = v[at];
      }
    }
    MatMul(queries, num_rows, keys, weights, num_threads);
    for (size_t row = 0; row < num_rows; ++row) {
      const std::span<float> line = std::span(weights).subspan(row * num_rows, num_rows);
      const float top = *std::max_element(line.begin(), line.end());
      double total = 0;
      for (float& weight : line) {
        weight = std::exp(weight - top);
        total += weight;
      }
      for (float& weight : line) weight /= static_cast<float>(total);
    }
    MatMul(weights, num_rows, values, sums, num_threads);
    for (size_t row = 0; row < num_rows; ++row) {
      std::copy_n(&sums[row * head_dim], head_dim, &out[row * dim + head * head_dim]);
    }
  }
}

std::vector<float> AveragePool(std::span<const float> x, uint32_t side, uint32_t pool, size_t dim) {
  TANDEM_CHECK(side % pool == 0 && x.size() == size_t{side} * side * dim);
  const uint32_t out_side = side / pool;
  std::vector<float> out(size_t{out_side} * out_side * dim);
  const float share = 1.0f / static_cast<float>(pool * pool);
  for (uint32_t y = 0; y < side; ++y) {
    for (uint32_t x_at = 0; x_at < side; ++x_at) {
      const float* row = &x[(size_t{y} * side + x_at) * dim];
      float* sum = &out[(size_t{y / pool} * out_side + x_at / pool) * dim];
      for (size_t i = 0; i < dim; ++i) sum[i] += row[i];
    }
  }
  for (float& value : out) value *= share;
  return out;
}

VisionEncoder::VisionEncoder(const VisionWeights& weights, int num_threads)
    : config_(weights.config), num_threads_(num_threads), layers_(weights.config.num_layers) {
  const auto linear = [&](VisionRole weight, VisionRole bias, uint32_t layer_idx) {
    const Shape2D shape = VisionShape(weight, config_);
    return Linear{Matrix{shape.rows, shape.cols, weights.at(weight, layer_idx)},
                  weights.at(bias, layer_idx)};
  };
  const auto norm = [&](VisionRole weight, VisionRole bias, uint32_t layer_idx) {
    return Norm{weights.at(weight, layer_idx), weights.at(bias, layer_idx)};
  };
  using enum VisionRole;
  patches_ = linear(kPatchWeight, kPatchBias, 0);
  positions_ = weights.at(kPositions);
  for (uint32_t i = 0; i < config_.num_layers; ++i) {
    layers_[i] = {norm(kNorm1Weight, kNorm1Bias, i), norm(kNorm2Weight, kNorm2Bias, i),
                  linear(kQWeight, kQBias, i),       linear(kKWeight, kKBias, i),
                  linear(kVWeight, kVBias, i),       linear(kOutWeight, kOutBias, i),
                  linear(kUpWeight, kUpBias, i),     linear(kDownWeight, kDownBias, i)};
  }
  post_norm_ = norm(kPostNormWeight, kPostNormBias, 0);
  projection_norm_ = weights.at(kProjectionNorm);
  projection_ = Transposed(weights.at(kProjection), config_.hidden_dim, config_.text_hidden_dim);
}

std::vector<float> VisionEncoder::CutPatches(std::span<const float> pixels) const {
  const size_t side = config_.image_size;
  const size_t patch = config_.patch_size;
  TANDEM_CHECK(pixels.size() == 3 * side * side);
  std::vector<float> rows;
  rows.reserve(pixels.size());
  for (size_t top = 0; top < side; top += patch) {
    for (size_t left = 0; left < side; left += patch) {
      for (size_t c = 0; c < 3; ++c) {
        for (size_t y = 0; y < patch; ++y) {
          const float* line = &pixels[c * side * side + (top + y) * side + left];
          rows.insert(rows.end(), line, line + patch);
        }
      }
    }
  }
  return rows;
}

std::vector<float> VisionEncoder::Apply(const Linear& linear, std::span<const float> x) const {
  const size_t num_rows = x.size() / linear.weight.cols;
  std::vector<float> out(num_rows * linear.weight.rows);
  MatMul(x, num_rows, linear.weight, out, num_threads_);
  for (size_t i = 0; i < out.size(); ++i) out[i] += linear.bias[i % linear.bias.size()];
  return out;
}

std::vector<float> VisionEncoder::Apply(const Norm& norm, std::span<const float> x) const {
  const size_t dim = config_.hidden_dim;
  std::vector<float> out(x.size());
  for (size_t at = 0; at < x.size(); at += dim) {
    LayerNorm(x.subspan(at, dim), norm.weight, norm.bias, config_.layer_norm_eps,
              std::span(out).subspan(at, dim));
  }
  return out;
}

void VisionEncoder::AddAttention(const Layer& layer, std::vector<float>& x) const {
  const std::vector<float> normed = Apply(layer.norm1, x);
  std::vector<float> attention(x.size());
  AttendAll(Apply(layer.q, normed), Apply(layer.k, normed), Apply(layer.v, normed),
            config_.num_patches(), config_.num_heads, num_threads_, attention);
  Add(Apply(layer.out, attention), x);
}

void VisionEncoder::AddFfn(const Layer& layer, std::vector<float>& x) const {
  std::vector<float> up = Apply(layer.up, Apply(layer.norm2, x));
  for (float& value : up) value = GeluTanh(value);
  Add(Apply(layer.down, up), x);
}

std::vector<float> VisionEncoder::Tower(std::span<const float> pixels) const {
  std::vector<float> x = Apply(patches_, CutPatches(pixels));
  Add(positions_, x);
  for (const Layer& layer : layers_) {
    AddAttention(layer, x);
    AddFfn(layer, x);
  }
  return Apply(post_norm_, x);
}

std::vector<float> VisionEncoder::Project(std::span<const float> tower) const {
  const size_t dim = config_.hidden_dim;
  std::vector<float> pooled =
      AveragePool(tower, config_.patches_per_side(), config_.pool_size(), dim);
  for (size_t at = 0; at < pooled.size(); at += dim) {
    const std::span<float> row = std::span(pooled).subspan(at, dim);
    RmsNorm(row, projection_norm_, config_.layer_norm_eps, row);
  }
  const size_t num_tokens = config_.tokens_per_image;
  std::vector<float> out(num_tokens * config_.text_hidden_dim);
  MatMul(pooled, num_tokens, projection_, out, num_threads_);
  return out;
}

}  // namespace tandem::reference

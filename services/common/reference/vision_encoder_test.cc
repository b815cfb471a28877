#include "services/common/reference/vision_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "services/common/testing/compare.h"

namespace tandem::reference {
namespace {

VisionConfig SmallConfig() {
  VisionConfig config;
  config.image_size = 12;
  config.patch_size = 2;
  config.num_layers = 2;
  config.hidden_dim = 10;
  config.ffn_dim = 14;
  config.num_heads = 2;
  config.tokens_per_image = 9;
  config.text_hidden_dim = 7;
  config.layer_norm_eps = 1e-5f;
  return config;
}

VisionWeights RandomWeights(const VisionConfig& config) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  VisionWeights weights;
  weights.config = config;
  for (const VisionRole role : AllVisionRoles()) {
    const Shape2D shape = VisionShape(role, config);
    for (uint32_t layer = 0; layer < (IsPerLayer(role) ? config.num_layers : 1); ++layer) {
      std::vector<float>& values = weights.tensors[{role, layer}];
      for (uint64_t i = 0; i < shape.rows * shape.cols; ++i)
        values.push_back(0.4f * normal(random));
    }
  }
  return weights;
}

// The equations of vision_encoder.h, a row at a time in float64.
class Plain {
 public:
  explicit Plain(const VisionWeights& weights) : w_(weights), c_(weights.config) {}

  using Row = std::vector<double>;

  std::vector<Row> Encode(std::span<const float> pixels) {
    std::vector<Row> x;
    for (uint32_t p = 0; p < c_.num_patches(); ++p) {
      Row patch;
      for (uint32_t i = 0; i < c_.patch_dim(); ++i) {
        const uint32_t area = c_.patch_size * c_.patch_size;
        const uint32_t y = p / c_.patches_per_side() * c_.patch_size + i % area / c_.patch_size;
        const uint32_t at = p % c_.patches_per_side() * c_.patch_size + i % c_.patch_size;
        patch.push_back(pixels[(i / area * c_.image_size + y) * c_.image_size + at]);
      }
      x.push_back(Linear(patch, VisionRole::kPatchWeight, VisionRole::kPatchBias, 0));
      for (uint32_t i = 0; i < c_.hidden_dim; ++i) {
        x.back()[i] += w_.at(VisionRole::kPositions)[p * c_.hidden_dim + i];
      }
    }
    for (uint32_t layer = 0; layer < c_.num_layers; ++layer) Layer(layer, x);
    for (Row& row : x) row = Norm(row, VisionRole::kPostNormWeight, VisionRole::kPostNormBias, 0);
    std::vector<Row> tokens;
    for (uint32_t t = 0; t < c_.tokens_per_image; ++t) tokens.push_back(Token(t, x));
    return tokens;
  }

 private:
  Row Linear(const Row& x, VisionRole weight, VisionRole bias, uint32_t layer) {
    Row out;
    const std::vector<float>& w = w_.at(weight, layer);
    for (const float b : w_.at(bias, layer)) {
      double sum = b;
      for (size_t i = 0; i < x.size(); ++i) sum += double{w[out.size() * x.size() + i]} * x[i];
      out.push_back(sum);
    }
    return out;
  }

  Row Norm(const Row& x, VisionRole weight, VisionRole bias, uint32_t layer) {
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / static_cast<double>(x.size());
    for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
    Row out;
    for (size_t i = 0; i < x.size(); ++i) {
      out.push_back((x[i] - mean) / std::sqrt(variance + c_.layer_norm_eps) *
                        w_.at(weight, layer)[i] +
                    w_.at(bias, layer)[i]);
    }
    return out;
  }

  void Layer(uint32_t layer, std::vector<Row>& x) {
    using enum VisionRole;
    std::vector<Row> q, k, v;
    for (const Row& row : x) {
      const Row normed = Norm(row, kNorm1Weight, kNorm1Bias, layer);
      q.push_back(Linear(normed, kQWeight, kQBias, layer));
      k.push_back(Linear(normed, kKWeight, kKBias, layer));
      v.push_back(Linear(normed, kVWeight, kVBias, layer));
    }
    for (size_t r = 0; r < x.size(); ++r) {
      Row attention(c_.hidden_dim);
      for (uint32_t head = 0; head < c_.num_heads; ++head) AttendHead(head, q[r], k, v, attention);
      const Row out = Linear(attention, kOutWeight, kOutBias, layer);
      for (size_t i = 0; i < out.size(); ++i) x[r][i] += out[i];
    }
    for (Row& row : x) {
      Row up = Linear(Norm(row, kNorm2Weight, kNorm2Bias, layer), kUpWeight, kUpBias, layer);
      for (double& u : up) {
        u = 0.5 * u * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
      }
      const Row down = Linear(up, kDownWeight, kDownBias, layer);
      for (size_t i = 0; i < down.size(); ++i) row[i] += down[i];
    }
  }

  void AttendHead(uint32_t head, const Row& q, const std::vector<Row>& k, const std::vector<Row>& v,
                  Row& attention) {
    const uint32_t dim = c_.head_dim();
    Row weights;
    double total = 0;
    for (const Row& key : k) {
      double dot = 0;
      for (uint32_t i = head * dim; i < (head + 1) * dim; ++i) dot += q[i] * key[i];
      weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(dim))));
      total += weights.back();
    }
    for (size_t p = 0; p < v.size(); ++p) {
      for (uint32_t i = head * dim; i < (head + 1) * dim; ++i) {
        attention[i] += weights[p] / total * v[p][i];
      }
    }
  }

  Row Token(uint32_t token, const std::vector<Row>& x) {
    Row mean(c_.hidden_dim);
    const uint32_t pool = c_.pool_size();
    for (uint32_t y = 0; y < pool; ++y) {
      for (uint32_t at = 0; at < pool; ++at) {
        const uint32_t row = token / c_.tokens_per_side() * pool + y;
        const uint32_t column = token % c_.tokens_per_side() * pool + at;
        for (size_t i = 0; i < mean.size(); ++i) {
          mean[i] += x[row * c_.patches_per_side() + column][i] / (pool * pool);
        }
      }
    }
    double square = 0;
    for (const double v : mean) square += v * v / static_cast<double>(mean.size());
    Row out(c_.text_hidden_dim);
    for (size_t i = 0; i < mean.size(); ++i) {
      const double normed =
          mean[i] / std::sqrt(square + c_.layer_norm_eps) * w_.at(VisionRole::kProjectionNorm)[i];
      for (size_t o = 0; o < out.size(); ++o) {
        out[o] += normed * w_.at(VisionRole::kProjection)[i * out.size() + o];
      }
    }
    return out;
  }

  const VisionWeights& w_;
  const VisionConfig& c_;
};

std::vector<float> RandomPixels(const VisionConfig& config) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> level(-1, 1);
  std::vector<float> pixels(size_t{3} * config.image_size * config.image_size);
  for (float& value : pixels) value = level(random);
  return pixels;
}

// A dozen products of at most 14 terms and as many norms, each a few units of 2^-24.
constexpr double kBound = 64 * tandem::testing::kEpsilonF32;

TEST(VisionEncoderTest, ComputesItsEquations) {
  const VisionConfig config = SmallConfig();
  ASSERT_TRUE(config.Validate().ok()) << config.Validate();
  const VisionWeights weights = RandomWeights(config);
  const std::vector<float> pixels = RandomPixels(config);
  const std::vector<float> actual = VisionEncoder(weights).Encode(pixels);
  std::vector<float> expected;
  for (const auto& row : Plain(weights).Encode(pixels)) {
    for (const double value : row) expected.push_back(static_cast<float>(value));
  }
  EXPECT_EQ(actual.size(), 9u * 7);
  EXPECT_TRUE(tandem::testing::IsNearInNorm(actual, expected, kBound));
}

TEST(VisionEncoderTest, ThreadsDoNotChangeBits) {
  const VisionConfig config = SmallConfig();
  const VisionWeights weights = RandomWeights(config);
  const std::vector<float> pixels = RandomPixels(config);
  EXPECT_EQ(VisionEncoder(weights, 1).Encode(pixels), VisionEncoder(weights, 3).Encode(pixels));
}

TEST(VisionEncoderTest, LayerNormSubtractsTheMean) {
  const std::vector<float> x = {1001, 1003}, weight = {2, 3}, bias = {10, 20};
  std::vector<float> out(2);
  LayerNorm(x, weight, bias, 0.0f, out);
  EXPECT_EQ(out, (std::vector<float>{8, 23}));
}

TEST(VisionEncoderTest, PoolsSquares) {
  // Rows of one number, 0 to 15, on a 4 x 4 square.
  std::vector<float> x(16);
  for (size_t i = 0; i < 16; ++i) x[i] = static_cast<float>(i);
  EXPECT_EQ(AveragePool(x, 4, 2, 1), (std::vector<float>{2.5f, 4.5f, 10.5f, 12.5f}));
  EXPECT_EQ(AveragePool(x, 4, 1, 1), x);
}

}  // namespace
}  // namespace tandem::reference

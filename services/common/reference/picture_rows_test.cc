// Rows of pictures in the whole model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "services/common/reference/reference_model.h"
#include "services/common/reference/stages.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"

namespace tandem::reference {
namespace {

class PictureRowsTest : public ::testing::Test {
 protected:
  PictureRowsTest() {
    for (uint32_t i = 0; i < 40; ++i) tokens_.push_back((i * 37 + 11) % config_.vocab_size);
    // What the first layer takes for the same tokens.
    Activations rows;
    Embed(model_.parameters(), tokens_, rows);
    embedded_ = rows.residual;
  }

  std::vector<float> Embedding(size_t first, size_t count) const {
    const auto begin = embedded_.begin() + static_cast<int64_t>(first * config_.hidden_dim);
    return {begin, begin + static_cast<int64_t>(count * config_.hidden_dim)};
  }
  std::vector<float> Logits(size_t first, const std::vector<float>& embedding) const {
    const PictureRows picture{first, embedding};
    return model_.Logits(tokens_, std::span(&picture, 1));
  }
  // Rows whose logits differ.
  std::vector<size_t> Changed(const std::vector<float>& a, const std::vector<float>& b) const {
    std::vector<size_t> rows;
    for (size_t row = 0; row < tokens_.size(); ++row) {
      const auto at = static_cast<int64_t>(row * config_.vocab_size);
      const bool same =
          std::equal(a.begin() + at, a.begin() + at + config_.vocab_size, b.begin() + at);
      if (!same) rows.push_back(row);
    }
    return rows;
  }
  static std::vector<size_t> Rows(size_t begin, size_t end) {
    std::vector<size_t> rows;
    for (size_t row = begin; row < end; ++row) rows.push_back(row);
    return rows;
  }

  // Windows of 8, narrower than the picture: only the pictures' rule lets its ends see each other.
  const ModelConfig config_ =
      tandem::testing::MakeConfig({.num_layers = 1, .sliding_window = 8, .global_every = 0});
  const ReferenceModel model_{*tandem::testing::RandomWeightSet(config_)};
  std::vector<uint32_t> tokens_;
  std::vector<float> embedded_;
};

TEST_F(PictureRowsTest, APictureOfOneRowIsAGivenEmbedding) {
  EXPECT_EQ(Logits(5, Embedding(5, 1)), model_.Logits(tokens_));
  std::vector<float> other = Embedding(6, 1);
  EXPECT_EQ(Changed(Logits(5, other), model_.Logits(tokens_)), Rows(5, 13));
}

TEST_F(PictureRowsTest, RowsOfAPictureSeeEachOtherBothWays) {
  const std::vector<float> embedding = Embedding(10, 16);
  std::vector<float> last_changed = embedding;
  last_changed.back() += 1.0f;
  std::vector<float> first_changed = embedding;
  first_changed.front() += 1.0f;
  const std::vector<float> logits = Logits(10, embedding);
  // The picture, and text whose window reaches the changed row.
  EXPECT_EQ(Changed(logits, Logits(10, last_changed)), Rows(10, 33));
  EXPECT_EQ(Changed(logits, Logits(10, first_changed)), Rows(10, 26));
}

TEST_F(PictureRowsTest, TextStaysCausal) {
  const std::vector<float> embedding = Embedding(10, 16);
  const std::vector<float> logits = Logits(10, embedding);
  tokens_[30] = (tokens_[30] + 1) % config_.vocab_size;
  EXPECT_EQ(Changed(logits, Logits(10, embedding)), Rows(30, 38));
}

TEST_F(PictureRowsTest, PicturesDoNotSeeLaterPictures) {
  const std::vector<float> first = Embedding(2, 6);
  std::vector<float> second = Embedding(8, 6);
  const auto logits = [&] {
    const PictureRows pictures[] = {{2, first}, {8, second}};
    return model_.Logits(tokens_, pictures);
  };
  const std::vector<float> before = logits();
  second.back() += 1.0f;
  EXPECT_EQ(Changed(before, logits()), Rows(8, 21));
}

}  // namespace
}  // namespace tandem::reference

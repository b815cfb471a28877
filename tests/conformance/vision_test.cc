// Vision: pixels in, soft tokens out; and decoders whose rows are a picture's.
#include <random>

#include "services/common/reference/reference_model.h"
#include "services/common/reference/vision_encoder.h"
#include "services/common/weights/vision_weights.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

struct VisionCase {
  std::string name;
  VisionConfig vision;
};

void PrintTo(const VisionCase& c, std::ostream* out) { *out << c.name; }

VisionConfig MakeVision(uint32_t image_size, uint32_t patch_size, uint32_t tokens_per_image,
                        uint32_t hidden_dim, uint32_t ffn_dim, uint32_t num_heads) {
  VisionConfig vision;
  vision.image_size = image_size;
  vision.patch_size = patch_size;
  vision.num_layers = 4;  // more than the decoder has
  vision.hidden_dim = hidden_dim;
  vision.ffn_dim = ffn_dim;
  vision.num_heads = num_heads;
  vision.tokens_per_image = tokens_per_image;
  vision.text_hidden_dim = 64;
  return vision;
}

// Sides of a prime number of patches, heads and FFNs that are no multiple of a tile, a picture that
// is one soft token, and SigLIP's head size.  The last three are no multiple of a kernel's block: a
// worker may refuse them.
std::vector<VisionCase> VisionCases() {
  return {{"OnePatch", MakeVision(3, 3, 1, 32, 32, 1)},
          {"PrimeSide", MakeVision(14, 2, 49, 64, 52, 8)},
          {"PooledToOne", MakeVision(16, 4, 1, 96, 68, 3)},
          {"SiglipHeads", MakeVision(56, 14, 4, 288, 272, 4)},
          {"SiglipSide", MakeVision(80, 2, 100, 32, 36, 2)},
          {"OddSide", MakeVision(14, 2, 49, 40, 52, 5)},
          {"OddPool", MakeVision(15, 5, 1, 36, 68, 3)},
          {"OddHeads", MakeVision(24, 4, 9, 66, 90, 3)}};
}

ModelConfig ConfigWith(const VisionConfig& vision, const testing::SmallModel& model = {}) {
  ModelConfig config = testing::MakeConfig(model);
  config.vision = vision;
  return config;
}

std::vector<float> RandomNumbers(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> RandomPixels(const VisionConfig& vision, uint32_t seed) {
  return RandomNumbers(size_t{3} * vision.image_size * vision.image_size, seed);
}

StepBatch PictureStep(std::vector<PictureEntry>& entries, uint32_t num_pictures, uint32_t rows) {
  static uint64_t step_id = 0;
  entries.clear();
  for (uint32_t p = 0; p < num_pictures; ++p) entries.push_back({p * rows, rows});
  StepBatch step;
  step.header.step_id = ++step_id;
  step.header.num_pictures = num_pictures;
  step.pictures = entries;
  return step;
}

class VisionTest : public WorkerSuite, public ::testing::WithParamInterface<VisionCase> {
 protected:
  static constexpr uint32_t kMaxPictures = 3;

  void SetUp() override {
    WorkerSuite::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!Offers(StageKind::kVision)) GTEST_SKIP() << "no Vision";
    const absl::Status loads = MakeEncoder(0).status();
    const bool odd = GetParam().name.starts_with("Odd");
    if (odd && absl::IsFailedPrecondition(loads)) {
      ASSERT_THAT(std::string(loads.message()), ::testing::HasSubstr("is no multiple of"));
      GTEST_SKIP() << loads;
    }
    ASSERT_OK(loads);
  }
  absl::StatusOr<std::unique_ptr<PlanRunner>> MakeEncoder(uint32_t plan) {
    return PlanRunner::Create(weights_, {&worker()}, testing::VisionPlan(config_),
                              {.plan = plan, .max_pictures = kMaxPictures});
  }
  const VisionConfig& vision() const { return *config_.vision; }
  // Soft tokens of pictures of these seeds, encoded in one step.
  std::vector<float> Encode(PlanRunner& runner, const std::vector<uint32_t>& seeds) {
    std::vector<PictureEntry> entries;
    runner.FillGuards();
    for (uint32_t p = 0; p < seeds.size(); ++p) {
      runner.WritePixels(p, RandomPixels(vision(), seeds[p]));
    }
    const auto count = static_cast<uint32_t>(seeds.size());
    EXPECT_OK(runner.RunStep(PictureStep(entries, count, vision().tokens_per_image)));
    EXPECT_TRUE(runner.GuardsIntact());
    return runner.SoftTokens(count * vision().tokens_per_image);
  }

  const ModelConfig config_ = ConfigWith(GetParam().vision);
  const std::shared_ptr<const WeightSet> weights_ =
      testing::RandomWeightSet(config_, {.dtype = DType::kF16});
};

TEST_P(VisionTest, SoftTokensMatchTheReference) {
  ASSERT_OK_AND_ASSIGN(const auto runner, MakeEncoder(0));
  const reference::VisionEncoder encoder(DequantizeVision(*weights_));
  // Patches, twelve products and attentions a layer, pooling and projection.
  const double bound = NormBound(epsilon(), 12.0 * vision().num_layers + 4);
  for (const std::vector<uint32_t>& seeds :
       {std::vector<uint32_t>{1}, std::vector<uint32_t>{2, 3, 4}}) {
    const std::vector<float> encoded = Encode(*runner, seeds);
    for (uint32_t p = 0; p < seeds.size(); ++p) {
      const std::vector<float> expected = encoder.Encode(RandomPixels(vision(), seeds[p]));
      EXPECT_TRUE(testing::IsNearInNorm(
          std::span(encoded).subspan(p * expected.size(), expected.size()), expected, bound))
          << "picture " << p << " of " << seeds.size();
    }
  }
}

TEST_P(VisionTest, APicturesBitsDoNotDependOnItsNeighbours) {
  ASSERT_OK_AND_ASSIGN(const auto runner, MakeEncoder(0));
  const std::vector<float> alone = Encode(*runner, {7});
  const std::vector<float> last = Encode(*runner, {8, 9, 7});
  EXPECT_EQ(std::vector<float>(last.end() - alone.size(), last.end()), alone);
  EXPECT_EQ(Encode(*runner, {7}), alone);
}

// A decoder and its encoder are two plans of one model on one device.
TEST_P(VisionTest, TheDecodersCacheIsLeftAlone) {
  if (!OffersEverything()) GTEST_SKIP() << "no decoder";
  const std::vector<uint32_t> tokens = MakeTokens(config_, 12);
  ASSERT_OK_AND_ASSIGN(const auto alone, RunWhole(weights_, {}));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, LogitsOfSequence(*alone, tokens, 5));
  ASSERT_OK_AND_ASSIGN(const auto decoder, RunWhole(weights_, {}));
  ASSERT_OK_AND_ASSIGN(const auto encoder, MakeEncoder(1));
  const std::vector<float> picture = Encode(*encoder, {7});
  ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, LogitsOfSequence(*decoder, tokens, 5));
  EXPECT_EQ(logits, expected);
  EXPECT_EQ(Encode(*encoder, {7}), picture);
  worker().Unload(1);
}

INSTANTIATE_TEST_SUITE_P(Shapes, VisionTest, ::testing::ValuesIn(VisionCases()),
                         [](const auto& c) { return c.param.name; });

class PictureRowsTest : public WorkerSuite {
 protected:
  void SetUp() override {
    WorkerSuite::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!worker().description().takes_pictures || !OffersEverything()) {
      GTEST_SKIP() << "takes no pictures";
    }
  }

  // Pictures of 9 rows at these positions, wider than the window of 5.
  static constexpr uint32_t kPictureRows = 9;
  static constexpr uint32_t kFirst[] = {3, 12, 30};
  static constexpr uint32_t kNumTokens = 45;

  const ModelConfig config_ = ConfigWith(MakeVision(24, 4, kPictureRows, 32, 32, 2),
                                         {.num_layers = 4, .sliding_window = 5});
  const std::shared_ptr<const WeightSet> weights_ = testing::RandomWeightSet(config_);
  const std::vector<uint32_t> tokens_ = MakeTokens(config_, kNumTokens);
  const std::vector<float> soft_tokens_ =
      RandomNumbers(std::size(kFirst) * kPictureRows * config_.hidden_dim, 3);

  std::span<const float> SoftTokens(size_t picture) const {
    const size_t n = kPictureRows * config_.hidden_dim;
    return std::span(soft_tokens_).subspan(picture * n, n);
  }
  std::vector<float> Expected() const {
    std::vector<reference::PictureRows> pictures;
    for (size_t p = 0; p < std::size(kFirst); ++p) pictures.push_back({kFirst[p], SoftTokens(p)});
    return reference::ReferenceModel(*weights_, {.half_precision_exchange = true})
        .Logits(tokens_, pictures);
  }
  // Feeds a step the rows [begin, end) of the tokens, where `end` cuts no picture.
  void AddRows(PlanRunner& runner, StepBuilder& steps, uint32_t sequence, uint32_t begin,
               uint32_t end) const {
    const uint32_t first =
        steps.AddRows(sequence, {tokens_.begin() + begin, tokens_.begin() + end});
    for (size_t p = 0; p < std::size(kFirst); ++p) {
      if (kFirst[p] + kPictureRows <= begin || kFirst[p] >= end) continue;
      const uint32_t begun = begin > kFirst[p] ? begin - kFirst[p] : 0;  // rows of earlier steps
      const uint32_t row = first + kFirst[p] + begun - begin;
      steps.AddPicture(row, kPictureRows - begun);
      runner.WriteSoftTokens(row, SoftTokens(p).subspan(begun * config_.hidden_dim));
    }
    for (uint32_t row = 0; row < end - begin; ++row) steps.AddOutput(first + row);
  }
  static std::vector<float> LogitsOf(const PlanRunner& runner, uint32_t first, uint32_t count) {
    std::vector<float> logits;
    for (uint32_t row = first; row < first + count; ++row) {
      logits.insert(logits.end(), runner.Logits(row).begin(), runner.Logits(row).end());
    }
    return logits;
  }
};

TEST_F(PictureRowsTest, LogitsMatchTheReferenceWhereverTheChunksEnd) {
  const std::vector<float> expected = Expected();
  const double bound = NormBound(epsilon(), kRoundingsPerLayer * config_.num_layers);
  for (const std::vector<uint32_t>& ends : {std::vector<uint32_t>{kNumTokens},
                                            {3, 12, 21, 30, 39, kNumTokens},
                                            {2, 21, 25, 39, 44, kNumTokens}}) {
    ASSERT_OK_AND_ASSIGN(const auto runner, RunWhole(weights_, {.max_pictures = 3}));
    StepBuilder steps(runner->limits());
    const uint32_t sequence = steps.AddSequence();
    std::vector<float> logits;
    for (uint32_t begin = 0; const uint32_t end : ends) {
      steps.Begin();
      steps.set_want_logits(true);
      AddRows(*runner, steps, sequence, begin, end);
      ASSERT_OK(runner->RunStep(steps.batch()));
      const std::vector<float> chunk = LogitsOf(*runner, 0, end - begin);
      logits.insert(logits.end(), chunk.begin(), chunk.end());
      begin = end;
    }
    EXPECT_TRUE(testing::IsNearInNorm(logits, expected, bound)) << ends.size() << " chunks";
  }
}

// The KV cache has the first rows of a picture, the step the last ones, behind another sequence's.
TEST_F(PictureRowsTest, AChunkMayBeginWithinAPicture) {
  ASSERT_OK_AND_ASSIGN(const auto runner, RunWhole(weights_, {.max_pictures = 3}));
  StepBuilder steps(runner->limits());
  const double bound = NormBound(epsilon(), kRoundingsPerLayer * config_.num_layers);
  for (const auto& [picture, begin] :
       {std::pair(0, 4), {0, 8}, {0, 11}, {1, 13}, {1, 20}, {2, 31}, {2, 36}, {2, 38}}) {
    const uint32_t sequence = steps.AddSequence();
    const auto run = [&](uint32_t first) {
      const uint32_t neighbour = steps.AddSequence();
      steps.Begin();
      steps.set_want_logits(true);
      steps.AddOutput(steps.AddRows(neighbour, {5, 6, 7}));
      AddRows(*runner, steps, sequence, first, kNumTokens);
      EXPECT_OK(runner->RunStep(steps.batch()));
      steps.RemoveSequence(neighbour);
      return LogitsOf(*runner, 1, kNumTokens - first);
    };
    const std::vector<float> uncut = run(0);
    steps.Rewind(sequence, begin, kFirst[picture]);
    EXPECT_TRUE(testing::IsNearInNorm(
        run(begin), std::span(uncut).subspan(size_t(begin) * config_.vocab_size), bound))
        << "from position " << begin;
    steps.RemoveSequence(sequence);
  }
}

// Rows of another sequence before and behind, which must see nothing of the picture.
TEST_F(PictureRowsTest, NeighboursStayAsTheyAre) {
  const std::vector<uint32_t> text = MakeTokens(config_, 7, 5);
  ASSERT_OK_AND_ASSIGN(const auto runner, RunWhole(weights_, {.max_pictures = 3}));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> alone, LogitsOfSequence(*runner, text, 7));
  StepBuilder steps(runner->limits());
  const uint32_t before = steps.AddSequence(), seeing = steps.AddSequence();
  const uint32_t after = steps.AddSequence();
  steps.Begin();
  steps.set_want_logits(true);
  const auto add_text = [&](uint32_t sequence) {
    const uint32_t first = steps.AddRows(sequence, text);
    for (uint32_t row = 0; row < text.size(); ++row) steps.AddOutput(first + row);
  };
  add_text(before);
  AddRows(*runner, steps, seeing, 0, kNumTokens);
  add_text(after);
  ASSERT_OK(runner->RunStep(steps.batch()));
  const auto length = static_cast<uint32_t>(text.size());
  const double bound = NormBound(epsilon(), kRoundingsPerLayer * config_.num_layers);
  EXPECT_TRUE(testing::IsNearInNorm(LogitsOf(*runner, 0, length), alone, bound));
  EXPECT_TRUE(testing::IsNearInNorm(LogitsOf(*runner, length + kNumTokens, length), alone, bound));
  EXPECT_TRUE(testing::IsNearInNorm(LogitsOf(*runner, length, kNumTokens), Expected(), bound));
}

}  // namespace
}  // namespace tandem::conformance

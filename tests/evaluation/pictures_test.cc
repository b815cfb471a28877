// A model that sees, from a picture's file to the answer: the decoder's process, preparation, the
// vision encoder and the decoder, all in reference arithmetic, compared with transformers' results.
//
// The model and the results are too large for the repository.  They are looked for at
// $TANDEM_PICTURE_MODEL and in ../shared/models/demo2; without them the tests are skipped.
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "services/common/picture/pan_and_scan.h"
#include "services/common/picture/prepare.h"
#include "services/common/reference/reference_model.h"
#include "services/common/reference/vision_encoder.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "services/gateway/picture/picture_decoder.h"
#include "services/gateway/tokenizer/chat_template.h"
#include "services/loader/vision/vision_source.h"
#include "tests/support/checkpoint.h"
#include "tests/support/tensor_file.h"

namespace tandem {
namespace {

constexpr int kThreads = 2;
constexpr uint32_t kSoftToken = 5056;
// Both sides are float32; six layers' products of some hundred terms and their norms.
constexpr double kEncoderError = 1e-5;
// The mmproj file's f16 holds bf16's numbers but for the smallest, which lose bits.
constexpr double kHalfError = 1e-3;
constexpr float kDecidedMargin = 0.05f;

std::string ModelFolder() {
  const char* named = std::getenv("TANDEM_PICTURE_MODEL");
  return named != nullptr ? named : SourcePath("../shared/models/demo2");
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Where the tokens have rows of pictures.
std::vector<reference::PictureRows> RowsOf(const std::vector<uint32_t>& tokens,
                                           const std::vector<std::vector<float>>& soft_tokens,
                                           const VisionConfig& config) {
  std::vector<reference::PictureRows> pictures;
  for (size_t at = 0; at < tokens.size(); ++at) {
    if (tokens[at] != kSoftToken) continue;
    if (pictures.size() < soft_tokens.size()) {
      pictures.push_back({at, soft_tokens[pictures.size()]});
    }
    at += config.tokens_per_image - 1;
  }
  EXPECT_EQ(pictures.size(), soft_tokens.size());
  return pictures;
}

// What it takes for pixels.
class DecoderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    gateway::PictureDecoderOptions options;
    options.program = BuildPath("bin/tandem-image-decoder");
    ASSERT_OK_AND_ASSIGN(decoder_, gateway::PictureDecoder::Create(options));
  }
  // The picture, then its crops.
  std::vector<std::vector<float>> Views(const std::string& path, const VisionConfig& config) {
    std::vector<std::vector<float>> views;
    const auto decoded = decoder_->Decode("", ReadFile(path));
    EXPECT_OK(decoded.status());
    if (!decoded.ok()) return views;
    const PictureView whole = {decoded->width(), decoded->height(), decoded->pixels()};
    views.push_back(PreparePicture(whole, config));
    for (const CropRect& crop : PanAndScan(whole.width, whole.height)) {
      const std::vector<uint8_t> pixels = CropPixels(whole, crop);
      views.push_back(PreparePicture({crop.width, crop.height, pixels}, config));
    }
    return views;
  }

  std::unique_ptr<gateway::PictureDecoder> decoder_;
};

class PicturesTest : public DecoderTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(ModelFolder() + "/reference.safetensors")) {
      GTEST_SKIP() << "no model that sees at " << ModelFolder() << " (set TANDEM_PICTURE_MODEL)";
    }
    ASSERT_OK_AND_ASSIGN(reference_, OpenReference());
    json_ = nlohmann::json::parse(ReadFile(ModelFolder() + "/reference.json"));
    DecoderTest::SetUp();
  }

  static absl::StatusOr<std::unique_ptr<testing::TensorFile>> OpenReference() {
    auto file = testing::TensorFile::Open(ModelFolder() + "/reference.safetensors");
    if (!file.ok()) return file.status();
    return std::make_unique<testing::TensorFile>(*std::move(file));
  }

  static std::unique_ptr<reference::VisionEncoder> Encoder(const std::string& path) {
    const auto source = loader::OpenVisionSource(path);
    EXPECT_OK(source.status());
    if (!source.ok()) return nullptr;
    const auto weights = loader::ReadVisionWeights(**source);
    EXPECT_OK(weights.status());
    return std::make_unique<reference::VisionEncoder>(*weights, kThreads);
  }

  std::vector<float> Pixels(const std::string& image, const VisionConfig& config) {
    return Views(ModelFolder() + "/images/" + image, config).at(0);
  }
  std::vector<float> Expected(const std::string& name) const {
    const auto values = reference_->Read<float>(name);
    return values.ok() ? *values : std::vector<float>();
  }
  // Of all conversations, once each.
  std::vector<std::string> Images() const {
    std::vector<std::string> images;
    for (const auto& conversation : json_.at("conversations")) {
      for (const auto& image : conversation.at("images")) images.push_back(image);
    }
    return images;
  }

  std::unique_ptr<testing::TensorFile> reference_;
  nlohmann::json json_;
};

TEST_F(PicturesTest, PixelsHaveTheReferencesBits) {
  const auto encoder = Encoder(ModelFolder());
  int compared = 0;
  for (const std::string& image : Images()) {
    const std::vector<float> expected = Expected("image." + image + ".pixel_values");
    if (expected.empty()) continue;
    EXPECT_EQ(Pixels(image, encoder->config()), expected) << image;
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

// PNG, JPEG and WebP files; all 17 pictures.
TEST_F(PicturesTest, TowerAndSoftTokensAgree) {
  const auto encoder = Encoder(ModelFolder());
  double worst_tower = 0, worst_tokens = 0;
  for (const std::string& image : Images()) {
    const std::vector<float> tower = encoder->Tower(Pixels(image, encoder->config()));
    const std::vector<float> expected = Expected("image." + image + ".tower");
    if (!expected.empty()) {
      EXPECT_TRUE(testing::IsNearInNorm(tower, expected, kEncoderError)) << image;
      worst_tower = std::max(worst_tower, testing::RelativeError(tower, expected));
    }
    const std::vector<float> tokens = encoder->Project(tower);
    const std::vector<float> expected_tokens = Expected("image." + image + ".soft_tokens");
    ASSERT_EQ(tokens.size(), expected_tokens.size());
    EXPECT_TRUE(testing::IsNearInNorm(tokens, expected_tokens, kEncoderError)) << image;
    worst_tokens = std::max(worst_tokens, testing::RelativeError(tokens, expected_tokens));
  }
  std::printf("worst relative error: tower %.2e, soft tokens %.2e\n", worst_tower, worst_tokens);
}

TEST_F(PicturesTest, TheMmprojFileIsTheSameEncoder) {
  const std::string model = ModelFolder() + ".Q8_0.gguf";
  const auto found = loader::FindVision(model);
  ASSERT_TRUE(found.has_value()) << "no mmproj file beside " << model;
  const auto from_folder = Encoder(ModelFolder());
  const auto from_file = Encoder(*found);
  EXPECT_EQ(from_file->config(), from_folder->config());
  for (const std::string image : {"00.png", "04.jpg", "07.webp"}) {
    const std::vector<float> tokens = from_file->Encode(Pixels(image, from_file->config()));
    EXPECT_TRUE(
        testing::IsNearInNorm(tokens, Expected("image." + image + ".soft_tokens"), kHalfError))
        << image;
  }
}

// One or two pictures and up to three turns each: logits, and the answer token by token.
TEST_F(PicturesTest, ConversationsAreAnsweredAsTheReferenceDoes) {
  const auto encoder = Encoder(ModelFolder());
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, testing::LoadCheckpoint(ModelFolder()));
  const reference::ReferenceModel model(*checkpoint.weights, {.num_threads = kThreads});
  const uint32_t vocab = model.config().vocab_size;
  double worst = 0;
  size_t compared = 0, i = 0;
  for (const auto& conversation : json_.at("conversations")) {
    std::vector<uint32_t> tokens = conversation.at("tokens");
    const size_t prompt = tokens.size();
    std::vector<std::vector<float>> soft_tokens;
    for (const std::string image : conversation.at("images")) {
      soft_tokens.push_back(encoder->Encode(Pixels(image, encoder->config())));
    }
    const auto pictures = RowsOf(tokens, soft_tokens, encoder->config());
    const std::vector<uint32_t> answer = conversation.at("continuation");
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    const std::vector<float> logits = model.Logits(tokens, pictures);
    const auto row = [&](size_t position) {
      return std::span(logits).subspan(position * vocab, vocab);
    };
    const std::vector<float> expected = Expected(absl::StrFormat("picture.%d.logits", i++));
    const size_t num_rows = expected.size() / vocab;
    for (size_t r = 0; r < num_rows; ++r) {
      const std::span<const float> one = std::span(expected).subspan(r * vocab, vocab);
      worst = std::max(worst, testing::RelativeError(row(prompt - num_rows + r), one));
    }
    const std::vector<float> margins = conversation.at("margin");
    for (size_t step = 0; step < answer.size() && margins[step] >= kDecidedMargin; ++step) {
      const auto one = row(prompt - 1 + step);
      ASSERT_EQ(std::max_element(one.begin(), one.end()) - one.begin(), answer[step])
          << "conversation " << i - 1 << " step " << step;
      ++compared;
    }
  }
  std::printf("worst relative error of logits %.2e, %zu tokens equal\n", worst, compared);
  EXPECT_LE(worst, kEncoderError);
  EXPECT_GT(compared, 100u);
}

// tests/data/README.md says where the expected values come from.
nlohmann::json WideReference() {
  return nlohmann::json::parse(ReadFile(TestDataPath("pictures/wide.json")));
}

std::string Sha256(const std::vector<float>& values) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  ::SHA256(reinterpret_cast<const unsigned char*>(values.data()), values.size() * sizeof(float),
           digest);
  std::string hex;
  for (const unsigned char byte : digest) hex += absl::StrFormat("%02x", byte);
  return hex;
}

TEST_F(DecoderTest, CropsHaveTheReferencesBits) {
  VisionConfig config;
  config.image_size = 224;
  std::vector<std::string> digests;
  for (const auto& view : Views(TestDataPath("pictures/wide.png"), config)) {
    digests.push_back(Sha256(view));
  }
  EXPECT_EQ(digests, WideReference().at("views").get<std::vector<std::string>>());
}

TEST(PanAndScanPromptTest, HasTheReferencesTokens) {
  ASSERT_OK_AND_ASSIGN(const auto checkpoint,
                       testing::LoadCheckpoint(TestDataPath("demo2.Q8_0.gguf")));
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, gateway::Tokenizer::Create(checkpoint.vocabulary));
  for (const auto& conversation : WideReference().at("conversations")) {
    gateway::PicturePlaces places = {.num_rows = 16, .num_crops = {2}};
    const std::vector<gateway::Message> messages = {
        {.role = "user", .content = conversation.at("question"), .marks = {}, .pictures = {0}}};
    ASSERT_OK_AND_ASSIGN(std::vector<uint32_t> tokens,
                         gateway::RenderChat(*tokenizer, checkpoint.weights->config().bos_token_id,
                                             messages, gateway::kAnyNumTokens, &places));
    ASSERT_EQ(places.first.size(), 3u);
    for (const uint32_t first : places.first) {
      std::fill_n(tokens.begin() + first, places.num_rows, kSoftToken);
    }
    EXPECT_EQ(tokens, conversation.at("tokens").get<std::vector<uint32_t>>());
  }
}

TEST_F(PicturesTest, CropsAreAnsweredAsTheReferenceDoes) {
  const auto encoder = Encoder(ModelFolder());
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, testing::LoadCheckpoint(ModelFolder()));
  const reference::ReferenceModel model(*checkpoint.weights, {.num_threads = kThreads});
  const uint32_t vocab = model.config().vocab_size;
  std::vector<std::vector<float>> soft_tokens;
  for (const auto& view : Views(TestDataPath("pictures/wide.png"), encoder->config())) {
    soft_tokens.push_back(encoder->Encode(view));
  }
  for (const auto& conversation : WideReference().at("conversations")) {
    std::vector<uint32_t> tokens = conversation.at("tokens");
    const size_t prompt = tokens.size();
    const auto pictures = RowsOf(tokens, soft_tokens, encoder->config());
    const std::vector<uint32_t> answer = conversation.at("continuation");
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    const std::vector<float> logits = model.Logits(tokens, pictures);
    for (size_t step = 0; step < answer.size(); ++step) {
      ASSERT_GT(conversation.at("margin")[step].get<float>(), kDecidedMargin);
      const auto row = std::span(logits).subspan((prompt - 1 + step) * vocab, vocab);
      ASSERT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), answer[step])
          << conversation.at("question") << " step " << step;
    }
  }
}

}  // namespace
}  // namespace tandem

// Pictures over the wire: pixels to soft tokens by the vision plan of a worker process, and answers
// about them by the engine over the same worker, compared with the reference arithmetic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "nlohmann/json.hpp"
#include "services/common/picture/prepare.h"
#include "services/common/reference/reference_model.h"
#include "services/common/reference/vision_encoder.h"
#include "services/common/rpc/polling.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/stream_reader.h"
#include "services/gateway/executor/vision_executor.h"
#include "services/gateway/picture/picture_decoder.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/formats/testing/vision_builder.h"
#include "services/loader/vision/vision_source.h"
#include "tests/integration/cluster.h"
#include "tests/support/checkpoint.h"

namespace tandem::gateway {
namespace {

using tandem::testing::ChildProcess;
using tandem::testing::InProcessLoader;
using tandem::testing::LoadCheckpoint;
using tandem::testing::StatusIs;
using ::testing::HasSubstr;
using testing::StreamReader;

constexpr uint32_t kPictureRows = 16;

std::vector<std::vector<float>> One(std::vector<float> pixels) {
  std::vector<std::vector<float>> all;
  all.push_back(std::move(pixels));
  return all;
}

// A folder with the demo model, and an encoder that has learnt nothing beside it.
class VisionClusterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { PollForLatency(); }  // as the gateway does

  void SetUp() override {
    std::filesystem::create_directory(root_);
    std::filesystem::copy_file(SourcePath("models/demo/demo.Q8_0.gguf"), model_);
    ASSERT_OK_AND_ASSIGN(const auto source, loader::OpenModelSource(model_));
    VisionConfig config = loader::testing::SmallVisionConfig();
    config.image_size = 24;
    config.patch_size = 3;
    config.tokens_per_image = kPictureRows;
    config.text_hidden_dim = source->config().hidden_dim;
    std::ofstream(root_ + "/demo.mmproj.gguf", std::ios::binary)
        << loader::testing::Mmproj(config).Build();
    vision_ = config;
    loader_ = std::make_unique<InProcessLoader>(Socket("loader"), root_);
    StartWorker("gpu0");
  }

  std::string Socket(const std::string& name) const {
    return directory_.path() + "/" + name + ".sock";
  }
  void StartWorker(const std::string& name) {
    worker_ = std::make_unique<ChildProcess>(
        BuildPath("bin/reference_worker"),
        std::vector<std::string>{"--listen", "unix:" + Socket(name), "--name", name, "--kind",
                                 name.substr(0, 3)});
  }
  ExecutorOptions Options(uint32_t max_rows = 64) const {
    ExecutorOptions options;
    options.loader_target = "unix:" + Socket("loader");
    options.worker_targets = {"unix:" + Socket("gpu0")};
    options.model_name = "demo.Q8_0.gguf";
    options.plan_token = "a token of 16 by";
    options.policy.npu = NpuPolicy::kOff;
    options.max_rows = max_rows;
    options.max_sequences = 4;
    options.context_len = 256;
    options.worker_grace = absl::Milliseconds(300);
    return options;
  }
  std::unique_ptr<VisionExecutor> Vision() const {
    auto vision = VisionExecutor::Create(Options());
    EXPECT_OK(vision.status());
    return vision.ok() ? *std::move(vision) : nullptr;
  }
  std::vector<float> Pixels(uint32_t seed) const {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float> pixels(size_t{3} * vision_.image_size * vision_.image_size);
    for (float& pixel : pixels) pixel = uniform(random);
    return pixels;
  }
  // What the encoder makes of them in this process.
  std::vector<float> Encoded(uint32_t seed) const {
    const auto source = loader::OpenVisionSource(root_ + "/demo.mmproj.gguf");
    EXPECT_OK(source.status());
    const auto weights = loader::ReadVisionWeights(**source);
    EXPECT_OK(weights.status());
    return reference::VisionEncoder(*weights).Encode(Pixels(seed));
  }

  const TemporaryDirectory directory_;
  const std::string root_ = directory_.path() + "/models";
  const std::string model_ = root_ + "/demo.Q8_0.gguf";
  VisionConfig vision_;
  std::unique_ptr<InProcessLoader> loader_;
  std::unique_ptr<ChildProcess> worker_;
};

TEST_F(VisionClusterTest, PixelsBecomeTheEncodersSoftTokens) {
  const auto vision = Vision();
  // More than a step takes.
  std::vector<std::vector<float>> pixels;
  for (uint32_t seed = 1; seed <= VisionExecutor::kPicturesOfStep + 2; ++seed) {
    pixels.push_back(Pixels(seed));
  }
  ASSERT_OK_AND_ASSIGN(const auto encoded, vision->Encode(pixels));
  ASSERT_EQ(encoded.size(), pixels.size());
  for (uint32_t p = 0; p < encoded.size(); ++p) EXPECT_EQ(encoded[p], Encoded(p + 1)) << p;
}

TEST_F(VisionClusterTest, AWorkerThatDiesIsUsedAgainWhenItIsBack) {
  const auto vision = Vision();
  const std::vector<std::vector<float>> pixels = {Pixels(1)};
  ASSERT_OK(vision->Encode(pixels).status());
  worker_->Signal(SIGKILL);
  worker_->Wait();
  StartWorker("gpu0");
  ASSERT_OK_AND_ASSIGN(const auto encoded, vision->Encode(pixels));
  EXPECT_EQ(encoded[0], Encoded(1));
}

// Soft tokens of another encoder would not be this decoder's.
TEST_F(VisionClusterTest, AnotherModelThanTheDecodersIsRefused) {
  ASSERT_OK_AND_ASSIGN(const auto vision, VisionExecutor::Create(Options(), "another id"));
  EXPECT_THAT(vision->Encode(One(Pixels(1))).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("have changed")));
}

TEST_F(VisionClusterTest, PixelsOfAnotherSizeAreRefused) {
  const auto vision = Vision();
  std::vector<std::vector<float>> pixels = {Pixels(1)};
  pixels[0].pop_back();
  EXPECT_THAT(vision->Encode(pixels).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("1727 pixel values, the encoder takes 1728")));
}

TEST_F(VisionClusterTest, ATextModelHasNoVision) {
  std::filesystem::remove(root_ + "/demo.mmproj.gguf");
  EXPECT_THAT(Vision()->Encode(One(Pixels(1))).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the model has no vision encoder")));
}

// The engine over one executor, as a gateway has it.
class VisionAnswersTest : public VisionClusterTest {
 protected:
  static std::unique_ptr<Tokenizer> MakeTokenizer(const Executor& executor) {
    return Tokenizer::Create(executor.vocabulary()).value();
  }
  static std::shared_ptr<const Picture> MakePicture(uint32_t number, std::vector<float> tokens) {
    return std::make_shared<Picture>(
        Picture{.key = kFirstPictureKey + number, .soft_tokens = std::move(tokens)});
  }
  // 60 tokens with pictures 1, 2 ... at these positions.
  EngineRequest Request(const std::vector<uint32_t>& first) const {
    EngineRequest request;
    for (uint32_t i = 0; i < 60; ++i) request.prompt.push_back(2 + (i * 37 + 11) % 300);
    for (uint32_t i = 0; i < first.size(); ++i) {
      request.pictures.push_back({first[i], kPictureRows, MakePicture(i, Encoded(i + 1))});
    }
    request.sampling.temperature = 0.0f;
    request.max_tokens = 12;
    request.ignore_eos = true;
    return request;
  }
  std::vector<uint32_t> Expected(const EngineRequest& request) const {
    const auto checkpoint = LoadCheckpoint(model_);
    EXPECT_OK(checkpoint.status());
    const reference::ReferenceModel model(*checkpoint->weights, {.half_precision_exchange = true});
    std::vector<uint32_t> tokens = request.prompt, answer;
    while (answer.size() < request.max_tokens) {
      const std::vector<float> logits = LastLogits(model, tokens, request);
      answer.push_back(static_cast<uint32_t>(std::ranges::max_element(logits) - logits.begin()));
      tokens.push_back(answer.back());
    }
    return answer;
  }
  static std::vector<float> LastLogits(const reference::ReferenceModel& model,
                                       const std::vector<uint32_t>& tokens,
                                       const EngineRequest& request) {
    std::vector<reference::PictureRows> pictures;
    for (const PictureSpan& span : request.pictures) {
      pictures.push_back({span.first, span.picture->soft_tokens});
    }
    const std::vector<float> logits = model.Logits(tokens, pictures);
    return {logits.end() - model.config().vocab_size, logits.end()};
  }
  // By how much the pictures change the logits behind the prompt, relative.
  double Difference(const EngineRequest& request) const {
    const auto checkpoint = LoadCheckpoint(model_);
    EXPECT_OK(checkpoint.status());
    const reference::ReferenceModel model(*checkpoint->weights, {.half_precision_exchange = true});
    return tandem::testing::RelativeError(LastLogits(model, request.prompt, request),
                                          LastLogits(model, request.prompt, {}));
  }
  static std::vector<uint32_t> Answer(Engine& engine, const EngineRequest& request) {
    StreamReader reader;
    EXPECT_OK(engine.Submit(request, reader.stream()));
    EXPECT_OK(reader.ReadToEnd().status);
    return reader.tokens();
  }
};

TEST_F(VisionAnswersTest, AnswersAreTheReferencesForEveryChunkAndWithTheCache) {
  const EngineRequest one = Request({41}), three = Request({2, 20, 38});
  const std::vector<uint32_t> expected_one = Expected(one), expected_three = Expected(three);
  EXPECT_GT(Difference(one), 0.01);
  for (const uint32_t chunk_rows : {kPictureRows, 24u, 64u}) {
    ASSERT_OK_AND_ASSIGN(auto executor, Executor::Start(Options(), nullptr));
    const auto tokenizer = MakeTokenizer(*executor);
    ASSERT_OK_AND_ASSIGN(
        const auto engine,
        Engine::Create(std::move(executor), *tokenizer,
                       {.max_sequences = 4, .max_rows = 64, .chunk_rows = chunk_rows}));
    EXPECT_EQ(Answer(*engine, one), expected_one) << chunk_rows;
    EXPECT_EQ(Answer(*engine, three), expected_three) << chunk_rows;
    EXPECT_EQ(Answer(*engine, one), expected_one) << chunk_rows << ", cached";
  }
}

// Two plans of one worker: a picture is encoded while an answer about another is decoded.
TEST_F(VisionAnswersTest, EncodingLeavesAnswersAlone) {
  const EngineRequest request = Request({7});
  const std::vector<uint32_t> expected = Expected(request);
  ASSERT_OK_AND_ASSIGN(auto executor, Executor::Start(Options(), nullptr));
  const auto tokenizer = MakeTokenizer(*executor);
  ASSERT_OK_AND_ASSIGN(const auto engine,
                       Engine::Create(std::move(executor), *tokenizer, {.max_sequences = 4}));
  const auto vision = Vision();
  ASSERT_OK(vision->Load());
  StreamReader reader;
  ASSERT_OK(engine->Submit(request, reader.stream()));
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    ASSERT_OK_AND_ASSIGN(const auto encoded, vision->Encode(One(Pixels(seed))));
    EXPECT_EQ(encoded[0], Encoded(seed));
  }
  ASSERT_OK(reader.ReadToEnd().status);
  EXPECT_EQ(reader.tokens(), expected);
}

TEST_F(VisionAnswersTest, AnAnswerGoesOnAfterItsWorkerDies) {
  EngineRequest request = Request({7});
  const std::vector<uint32_t> expected = Expected(request);
  ASSERT_OK_AND_ASSIGN(auto executor, Executor::Start(Options(), nullptr));
  const auto tokenizer = MakeTokenizer(*executor);
  ASSERT_OK_AND_ASSIGN(
      const auto engine,
      Engine::Create(std::move(executor), *tokenizer,
                     {.max_sequences = 4, .min_recovery_pause = absl::Milliseconds(10)}));
  StreamReader reader;
  ASSERT_OK(engine->Submit(request, reader.stream()));
  while (reader.tokens().size() < 3) reader.Read();
  worker_->Signal(SIGKILL);
  worker_->Wait();
  StartWorker("gpu0");
  ASSERT_OK(reader.ReadToEnd().status);
  EXPECT_EQ(reader.tokens(), expected);
}

// Pictures of more rows than a step has.
TEST_F(VisionAnswersTest, SmallStepsRefusePictures) {
  ASSERT_OK_AND_ASSIGN(auto executor, Executor::Start(Options(kPictureRows - 1), nullptr));
  const auto tokenizer = MakeTokenizer(*executor);
  ASSERT_OK_AND_ASSIGN(const auto engine,
                       Engine::Create(std::move(executor), *tokenizer, {.max_sequences = 4}));
  StreamReader reader;
  ASSERT_OK(engine->Submit(Request({7}), reader.stream()));
  EXPECT_THAT(std::string(reader.ReadToEnd().status.message()),
              HasSubstr("a picture takes 16 rows of one step"));
}

// The trained model that sees, file to answer, against transformers' conversations.  It is too large
// for the repository: without ../shared/models/demo2 (or $TANDEM_PICTURE_MODEL) the test is skipped.
class TrainedVisionTest : public VisionAnswersTest {
 protected:
  void SetUp() override {
    const char* named = std::getenv("TANDEM_PICTURE_MODEL");
    folder_ = std::filesystem::weakly_canonical(
        named != nullptr ? named : SourcePath("../shared/models/demo2"));
    if (!std::filesystem::exists(folder_ / "reference.json")) {
      GTEST_SKIP() << "no model that sees at " << folder_ << " (set TANDEM_PICTURE_MODEL)";
    }
    loader_ = std::make_unique<InProcessLoader>(Socket("loader"), folder_.parent_path().string());
    StartWorker("gpu0");
  }
  ExecutorOptions TrainedOptions() const {
    ExecutorOptions options = Options();
    options.model_name = folder_.filename().string();
    return options;
  }
  // Soft tokens of an image by the decoder's process, preparation and the worker.
  std::shared_ptr<const Picture> Seen(const std::string& image, const VisionConfig& config) {
    std::shared_ptr<const Picture>& picture = pictures_[image];
    if (picture != nullptr) return picture;
    std::ifstream file(folder_ / "images" / image, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto decoded = decoder_->Decode("", bytes);
    EXPECT_OK(decoded.status());
    const std::vector<float> pixels =
        PreparePicture({decoded->width(), decoded->height(), decoded->pixels()}, config);
    auto encoded = vision_executor_->Encode(One(pixels));
    EXPECT_OK(encoded.status());
    picture = MakePicture(static_cast<uint32_t>(pictures_.size()), std::move((*encoded)[0]));
    return picture;
  }

  std::filesystem::path folder_;
  std::map<std::string, std::shared_ptr<const Picture>> pictures_;
  std::unique_ptr<PictureDecoder> decoder_;
  std::unique_ptr<VisionExecutor> vision_executor_;
};

TEST_F(TrainedVisionTest, ConversationsAreAnsweredAsTheReferenceDoes) {
  constexpr float kDecidedMargin = 0.05f;  // the reference's own rounding decides below
  ASSERT_OK_AND_ASSIGN(decoder_,
                       PictureDecoder::Create({.program = BuildPath("bin/tandem-image-decoder")}));
  ASSERT_OK_AND_ASSIGN(vision_executor_, VisionExecutor::Create(TrainedOptions()));
  std::ifstream file(folder_ / "reference.json");
  const nlohmann::json reference = nlohmann::json::parse(file);
  size_t num_compared = 0;
  for (const uint32_t chunk_rows : {20u, 64u}) {
    ASSERT_OK_AND_ASSIGN(auto executor, Executor::Start(TrainedOptions(), nullptr));
    const VisionConfig config = *executor->config().vision;
    const auto tokenizer = MakeTokenizer(*executor);
    ASSERT_OK_AND_ASSIGN(
        const auto engine,
        Engine::Create(std::move(executor), *tokenizer,
                       {.max_sequences = 4, .max_rows = 64, .chunk_rows = chunk_rows}));
    // All at once, so that they are each other's neighbours.
    const auto& conversations = reference.at("conversations");
    std::vector<StreamReader> readers(conversations.size());
    for (size_t i = 0; i < readers.size(); ++i) {
      EngineRequest request;
      request.prompt = conversations[i].at("tokens").get<std::vector<uint32_t>>();
      const uint32_t soft_token = tokenizer->FindPiece("<image_soft_token>").value_or(5056);
      auto at = request.prompt.begin();
      for (const std::string image : conversations[i].at("images")) {
        at = std::find(at, request.prompt.end(), soft_token);
        ASSERT_NE(at, request.prompt.end());
        request.pictures.push_back({static_cast<uint32_t>(at - request.prompt.begin()),
                                    config.tokens_per_image, Seen(image, config)});
        at += config.tokens_per_image;
      }
      request.sampling.temperature = 0.0f;
      request.max_tokens = static_cast<uint32_t>(conversations[i].at("continuation").size());
      request.ignore_eos = true;
      ASSERT_OK(engine->Submit(request, readers[i].stream()));
    }
    for (size_t i = 0; i < readers.size(); ++i) {
      ASSERT_OK(readers[i].ReadToEnd().status);
      const std::vector<uint32_t> expected = conversations[i].at("continuation");
      const std::vector<float> margins = conversations[i].at("margin");
      const std::vector<uint32_t> tokens = readers[i].tokens();
      for (size_t t = 0; t < expected.size() && margins[t] >= kDecidedMargin; ++t) {
        ASSERT_EQ(tokens[t], expected[t]) << "conversation " << i << " token " << t;
        ++num_compared;
      }
    }
  }
  std::printf("%zu tokens equal\n", num_compared);
  EXPECT_GT(num_compared, 200u);
}

}  // namespace
}  // namespace tandem::gateway

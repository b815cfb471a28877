#include "services/gateway/model/picture_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>

#include "services/common/testing/status_matchers.h"
#include "services/gateway/api/testing/toy_pictures.h"
#include "services/gateway/engine/testing/stream_reader.h"
#include "services/gateway/model/prepare_request.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/tokenizer/chat_template.h"

namespace tandem::gateway {
namespace {

using tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kToyPictureRows;
using testing::ToyBmp;
using testing::ToyPixel;
using testing::ToySoftTokens;
using testing::WideToyBmp;
using Pictures = PictureEncoder::Pictures;

VisionConfig ToyVision() {
  VisionConfig config;
  config.image_size = 6;
  return config;
}

class PictureEncoderTest : public ::testing::Test {
 protected:
  void Make(PictureEncoderOptions options = testing::ToyPictureOptions()) {
    options.on_stage = [this](PictureStage stage, absl::Duration time) {
      EXPECT_GE(time, absl::ZeroDuration());
      ++stages_[static_cast<int>(stage)];
    };
    options.on_picture = [this](PictureOutcome outcome) { ++outcomes_[static_cast<int>(outcome)]; };
    auto made = PictureEncoder::Create(std::move(options), ToyVision(),
                                       [this](std::span<const std::vector<float>> pixels) {
                                         num_encoded_ += static_cast<int>(pixels.size());
                                         ++num_calls_;
                                         if (encode_) return encode_(pixels);
                                         return testing::ToyEncode(pixels);
                                       });
    ASSERT_OK(made.status());
    encoder_ = *std::move(made);
  }
  static PictureJob Job(std::vector<std::string> files, std::string scope = "") {
    return {.sender = "somebody",
            .scope = std::move(scope),
            .files = std::make_shared<const std::vector<std::string>>(std::move(files))};
  }
  absl::StatusOr<Pictures> Get(PictureJob job) {
    std::promise<absl::StatusOr<Pictures>> result;
    encoder_->Get(std::move(job), [&](absl::StatusOr<Pictures> pictures) {
      result.set_value(std::move(pictures));
    });
    return result.get_future().get();
  }
  absl::StatusOr<Pictures> GetFiles(std::vector<std::string> files) {
    return Get(Job(std::move(files)));
  }
  int Count(PictureOutcome outcome) { return outcomes_[static_cast<int>(outcome)]; }
  int Count(PictureStage stage) { return stages_[static_cast<int>(stage)]; }

  std::atomic<int> num_encoded_ = 0;
  std::atomic<int> num_calls_ = 0;
  std::atomic<int> stages_[kNumPictureStages] = {};
  std::atomic<int> outcomes_[kNumPictureOutcomes] = {};
  PictureEncoder::Encode encode_;
  std::unique_ptr<PictureEncoder> encoder_;
};

TEST_F(PictureEncoderTest, FilesBecomeSoftTokensOnce) {
  Make();
  ASSERT_OK_AND_ASSIGN(const Pictures first, GetFiles({ToyBmp(10), ToyBmp(200), ToyBmp(10)}));
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0][0]->soft_tokens, ToySoftTokens(ToyPixel(10)));
  EXPECT_EQ(first[1][0]->soft_tokens, ToySoftTokens(ToyPixel(200)));
  EXPECT_EQ(first[2], first[0]);
  EXPECT_NE(first[0][0]->key, first[1][0]->key);
  EXPECT_TRUE(IsPictureKey(first[0][0]->key) && IsPictureKey(first[1][0]->key));
  EXPECT_EQ(num_encoded_, 2);
  ASSERT_OK_AND_ASSIGN(const Pictures again, GetFiles({ToyBmp(200), ToyBmp(10)}));
  EXPECT_EQ(again[0], first[1]);
  EXPECT_EQ(again[1], first[0]);
  EXPECT_EQ(num_encoded_, 2);
  const PictureEncoder::Counts counts = encoder_->counts();
  EXPECT_EQ(counts.cached, 2u);
  EXPECT_EQ(counts.waiting, 0u);
  EXPECT_THAT(counts.outcomes, ElementsAre(3, 2, 0, 0));
  for (int i = 0; i < kNumPictureStages; ++i) {
    const bool fetch = i == static_cast<int>(PictureStage::kFetch);
    EXPECT_EQ(counts.stage_times[i] > absl::ZeroDuration(), !fetch);
  }
  EXPECT_EQ(Count(PictureOutcome::kEncoded), 2);
  EXPECT_EQ(Count(PictureOutcome::kCached), 3);
  EXPECT_EQ(Count(PictureStage::kDecode), 2);
  EXPECT_EQ(Count(PictureStage::kPrepare), 2);
  EXPECT_EQ(Count(PictureStage::kEncode), 1);
}

TEST_F(PictureEncoderTest, WhatIsDoneForAJobIsNotedWithItsTimes) {
  Make();
  PictureJob job = Job({ToyBmp(1), ToyBmp(2), ToyBmp(1)});
  job.times = std::make_shared<PictureTimes>();
  const absl::Time begin = absl::Now();
  ASSERT_OK(Get(job).status());
  std::vector<std::pair<PictureStage, uint32_t>> stages;
  absl::Time before = begin;
  for (const PictureTime& time : *job.times) {
    stages.emplace_back(time.stage, time.picture);
    EXPECT_LE(before, time.begin);
    EXPECT_LE(time.begin, time.end);
    before = time.end;
  }
  EXPECT_THAT(stages,
              ElementsAre(std::pair(PictureStage::kDecode, 0), std::pair(PictureStage::kPrepare, 0),
                          std::pair(PictureStage::kDecode, 1), std::pair(PictureStage::kPrepare, 1),
                          std::pair(PictureStage::kEncode, 0)));
  EXPECT_EQ(job.times->back().num_pictures, 2u);
  EXPECT_LE(before, absl::Now());
  job.times->clear();
  ASSERT_OK(Get(job).status());
  EXPECT_TRUE(job.times->empty()) << "all are cached";
}

TEST_F(PictureEncoderTest, TheCacheIsBoundedAndAForgottenPictureHasAnotherKey) {
  PictureEncoderOptions options = testing::ToyPictureOptions();
  options.max_cached_bytes = 2 * ToySoftTokens(0).size() * sizeof(float);
  Make(options);
  ASSERT_OK_AND_ASSIGN(const Pictures first, GetFiles({ToyBmp(1)}));
  ASSERT_OK(GetFiles({ToyBmp(2)}).status());
  ASSERT_OK(GetFiles({ToyBmp(1)}).status());  // used last
  ASSERT_OK(GetFiles({ToyBmp(3)}).status());  // in the place of 2
  EXPECT_EQ(num_encoded_, 3);
  EXPECT_LE(encoder_->counts().cached_bytes, options.max_cached_bytes);
  ASSERT_OK_AND_ASSIGN(const Pictures kept, GetFiles({ToyBmp(1)}));
  EXPECT_EQ(kept[0], first[0]);
  ASSERT_OK(GetFiles({ToyBmp(2)}).status());
  ASSERT_OK(GetFiles({ToyBmp(3)}).status());
  ASSERT_OK_AND_ASSIGN(const Pictures later, GetFiles({ToyBmp(1)}));
  EXPECT_NE(later[0][0]->key, first[0][0]->key);
  EXPECT_EQ(later[0][0]->soft_tokens, first[0][0]->soft_tokens);
}

// The time of an answer must not show that another client has sent the same picture.
TEST_F(PictureEncoderTest, AScopeKeepsItsPicturesToItself) {
  Make();
  ASSERT_OK_AND_ASSIGN(const Pictures one, Get(Job({ToyBmp(1)}, "one")));
  ASSERT_OK_AND_ASSIGN(const Pictures other, Get(Job({ToyBmp(1)}, "other")));
  EXPECT_EQ(num_encoded_, 2);
  EXPECT_NE(one[0][0]->key, other[0][0]->key);
  EXPECT_EQ(one[0][0]->soft_tokens, other[0][0]->soft_tokens);
  ASSERT_OK_AND_ASSIGN(const Pictures again, Get(Job({ToyBmp(1)}, "one")));
  EXPECT_EQ(again[0], one[0]);
  EXPECT_EQ(num_encoded_, 2);
}

TEST_F(PictureEncoderTest, ManyPicturesAreEncodedInBatches) {
  PictureEncoderOptions options = testing::ToyPictureOptions();
  options.batch_pictures = 4;
  Make(options);
  std::vector<std::string> files;
  for (uint8_t grey = 0; grey < 10; ++grey) files.push_back(ToyBmp(grey));
  files.push_back(ToyBmp(3));
  ASSERT_OK_AND_ASSIGN(const Pictures pictures, GetFiles(files));
  ASSERT_EQ(pictures.size(), 11u);
  for (uint8_t grey = 0; grey < 10; ++grey) {
    EXPECT_EQ(pictures[grey][0]->soft_tokens, ToySoftTokens(ToyPixel(grey)));
  }
  EXPECT_EQ(pictures[10], pictures[3]);
  EXPECT_EQ(num_encoded_, 10);
  EXPECT_EQ(num_calls_, 3);
}

TEST_F(PictureEncoderTest, CropsAreViewsOfTheirFile) {
  PictureEncoderOptions options = testing::ToyPictureOptions();
  options.pan_and_scan = true;
  Make(options);
  const std::vector<std::string> files = {ToyBmp(7), WideToyBmp(10, 200), WideToyBmp(30, 40)};
  ASSERT_OK_AND_ASSIGN(const Pictures pictures, GetFiles(files));
  ASSERT_EQ(pictures.size(), 3u);
  ASSERT_EQ(pictures[0].size(), 1u);
  EXPECT_EQ(pictures[0][0]->soft_tokens, ToySoftTokens(ToyPixel(7)));
  for (size_t i = 1; i < 3; ++i) {
    ASSERT_EQ(pictures[i].size(), 3u);
    const uint8_t left = i == 1 ? 10 : 30, right = i == 1 ? 200 : 40;
    EXPECT_EQ(pictures[i][0]->soft_tokens, ToySoftTokens(ToyPixel(left)));
    EXPECT_EQ(pictures[i][1]->soft_tokens, ToySoftTokens(ToyPixel(left)));
    EXPECT_EQ(pictures[i][2]->soft_tokens, ToySoftTokens(ToyPixel(right)));
  }
  std::set<uint32_t> keys;
  for (const auto& views : pictures) {
    for (const auto& view : views) keys.insert(view->key);
  }
  EXPECT_EQ(keys.size(), 7u);
  EXPECT_EQ(num_encoded_, 7);
  ASSERT_OK_AND_ASSIGN(const Pictures again, GetFiles({files[1]}));
  EXPECT_EQ(again[0], pictures[1]);
  EXPECT_EQ(num_encoded_, 7);
  EXPECT_EQ(encoder_->counts().cached, 3u);
  EXPECT_EQ(encoder_->counts().cached_bytes, 7 * ToySoftTokens(0).size() * sizeof(float));
  EXPECT_THAT(encoder_->counts().outcomes, ElementsAre(1, 3, 0, 0));
}

TEST_F(PictureEncoderTest, ErrorsNameThePicture) {
  Make();
  EXPECT_THAT(GetFiles({ToyBmp(1), "no picture"}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("images[1]: ")));
  EXPECT_EQ(Count(PictureOutcome::kRefused), 1);
  PictureJob late = Job({ToyBmp(1)});
  late.deadline = absl::InfinitePast();
  EXPECT_THAT(Get(late).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("deadline")));
  encode_ = [](const auto&) { return absl::UnavailableError("no worker"); };
  EXPECT_THAT(GetFiles({ToyBmp(1)}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no worker")));
  encode_ = nullptr;
  EXPECT_OK(GetFiles({ToyBmp(1)}).status());
}

TEST_F(PictureEncoderTest, JobsAreBoundedCancelledAndStopped) {
  PictureEncoderOptions options = testing::ToyPictureOptions();
  options.decoder.max_decoders = 1;
  options.max_jobs_per_sender = 1;
  std::promise<void> begun, go_on;
  encode_ = [&](std::span<const std::vector<float>> pixels) {
    begun.set_value();
    go_on.get_future().wait();
    return testing::ToyEncode(pixels);
  };
  Make(options);
  const auto get = [&](uint8_t grey, absl::Status& status) {
    return encoder_->Get(Job({ToyBmp(grey)}), [&status](const absl::StatusOr<Pictures>& pictures) {
      status = pictures.status();
    });
  };
  absl::Status running = absl::UnknownError("open"), waiting = running, refused = running;
  get(1, running);
  begun.get_future().wait();
  const PictureEncoder::Ticket ticket = get(2, waiting);
  EXPECT_EQ(get(3, refused), PictureEncoder::kNoTicket);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  encoder_->Cancel(ticket);
  EXPECT_TRUE(absl::IsCancelled(waiting)) << waiting;
  encoder_->Stop(absl::UnavailableError("the end"));
  EXPECT_TRUE(absl::IsUnavailable(running)) << running;
  get(4, refused);
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  go_on.set_value();
  encoder_ = nullptr;
}

// A request of many pictures delays another sender's by a batch, not by all of them.
TEST_F(PictureEncoderTest, SendersTakeTurnsByBatches) {
  PictureEncoderOptions options = testing::ToyPictureOptions();
  options.decoder.max_decoders = 1;
  options.batch_pictures = 2;
  std::promise<void> begun, go_on;
  encode_ = [&](std::span<const std::vector<float>> pixels) {
    if (num_calls_ == 1) {
      begun.set_value();
      go_on.get_future().wait();
    }
    return testing::ToyEncode(pixels);
  };
  Make(options);
  std::vector<std::string> many;
  for (uint8_t grey = 0; grey < 12; ++grey) many.push_back(ToyBmp(grey));
  std::promise<int> of_many, of_one;  // calls of the encoder so far
  encoder_->Get(Job(many), [&](const absl::StatusOr<Pictures>& pictures) {
    EXPECT_OK(pictures.status());
    of_many.set_value(num_calls_);
  });
  begun.get_future().wait();
  PictureJob one = Job({ToyBmp(100)});
  one.sender = "another";
  encoder_->Get(one, [&](const absl::StatusOr<Pictures>& pictures) {
    EXPECT_OK(pictures.status());
    of_one.set_value(num_calls_);
  });
  go_on.set_value();
  EXPECT_EQ(of_one.get_future().get(), 2);
  EXPECT_EQ(of_many.get_future().get(), 7);
  EXPECT_THAT(encoder_->counts().outcomes, ElementsAre(0, 13, 0, 0));
}

TEST_F(PictureEncoderTest, ACancelledJobLeavesItsPlaceAtOnce) {
  PictureEncoderOptions options = testing::ToyPictureOptions();
  options.decoder.max_decoders = 1;
  options.max_jobs_per_sender = 1;
  std::promise<void> begun, go_on;
  encode_ = [&](std::span<const std::vector<float>> pixels) {
    if (num_calls_ == 1) {
      begun.set_value();
      go_on.get_future().wait();
    }
    return testing::ToyEncode(pixels);
  };
  Make(options);
  std::promise<void> first, last;
  encoder_->Get(Job({ToyBmp(1)}), [&](const auto&) { first.set_value(); });
  begun.get_future().wait();
  for (uint8_t grey = 2; grey < 20; ++grey) {
    absl::Status status = absl::UnknownError("open");
    const PictureEncoder::Ticket ticket = encoder_->Get(
        Job({ToyBmp(grey)}), [&](const absl::StatusOr<Pictures>& done) { status = done.status(); });
    ASSERT_NE(ticket, PictureEncoder::kNoTicket) << status;
    encoder_->Cancel(ticket);
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    EXPECT_EQ(encoder_->counts().waiting, 0u);
  }
  encoder_->Get(Job({ToyBmp(30)}), [&](const absl::StatusOr<Pictures>& pictures) {
    EXPECT_OK(pictures.status());
    last.set_value();
  });
  go_on.set_value();
  first.get_future().wait();
  last.get_future().wait();
  EXPECT_EQ(num_encoded_, 2);
}

TEST_F(PictureEncoderTest, FilesMayBeLookedAtByAnotherThread) {
  Make();
  PictureJob job = Job({ToyBmp(1), ToyBmp(2), ToyBmp(1)});
  job.look_later = true;
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const Pictures pictures, Get(job));
    EXPECT_EQ(pictures[1][0]->soft_tokens, ToySoftTokens(ToyPixel(2)));
    EXPECT_EQ(pictures[0], pictures[2]);
  }
  EXPECT_EQ(num_encoded_, 2);
  EXPECT_THAT(encoder_->counts().outcomes, ElementsAre(4, 2, 0, 0));
}

TEST_F(PictureEncoderTest, WaitingFilesAreBoundedByTheirBytes) {
  PictureEncoderOptions options = testing::ToyPictureOptions();
  options.decoder.max_decoders = 1;
  options.max_bytes_per_sender = 2 * ToyBmp(0).size();
  std::promise<void> begun, go_on;
  const std::shared_future<void> may_go_on = go_on.get_future().share();
  encode_ = [&](std::span<const std::vector<float>> pixels) {
    if (num_calls_ == 1) begun.set_value();
    may_go_on.wait();
    return testing::ToyEncode(pixels);
  };
  Make(options);
  std::vector<absl::Status> statuses(4, absl::UnknownError("open"));
  std::atomic<int> num_ended = 0;
  const auto get = [&](int i, std::vector<std::string> files) {
    encoder_->Get(Job(std::move(files)), [&, i](const absl::StatusOr<Pictures>& pictures) {
      statuses[i] = pictures.status();
      ++num_ended;
    });
  };
  get(0, {ToyBmp(0)});
  begun.get_future().wait();
  get(1, {ToyBmp(1)});
  EXPECT_EQ(encoder_->counts().waiting, 1u);
  get(2, {ToyBmp(2), ToyBmp(3)});
  EXPECT_TRUE(absl::IsResourceExhausted(statuses[2])) << statuses[2];
  get(3, {ToyBmp(4)});
  go_on.set_value();
  while (num_ended < 4) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_OK(statuses[0]);
  EXPECT_OK(statuses[1]);
  EXPECT_OK(statuses[3]);
}

// A request for Chat with pictures, to its answer.
class PictureRequestTest : public ::testing::Test {
 protected:
  static void AddImage(v1::ChatMessage& message, uint8_t grey, uint32_t offset) {
    v1::Image* image = message.add_images();
    image->set_data(ToyBmp(grey));
    image->set_content_offset(offset);
  }
  v1::ChatRequest Request() const {
    v1::ChatRequest request;
    v1::ChatMessage* message = request.add_messages();
    message->set_role("user");
    message->set_content("the hat");
    request.mutable_sampling()->set_temperature(0.0f);
    request.mutable_limits()->set_max_tokens(5);
    request.mutable_limits()->set_ignore_eos(true);
    return request;
  }
  const std::unique_ptr<ServedModel> model_ = testing::MakeSeeingToyModel();
};

TEST_F(PictureRequestTest, PicturesStandWhereTheContentHasThem) {
  v1::ChatRequest request = Request();
  AddImage(*request.mutable_messages(0), 10, 0);
  AddImage(*request.mutable_messages(0), 20, 4);
  ASSERT_OK_AND_ASSIGN(const EngineRequest parsed, ParseChat(request, *model_));
  const Tokenizer& tokenizer = model_->tokenizer();
  const auto piece = [&](const char* name) { return *tokenizer.FindPiece(name); };
  std::vector<uint32_t> expected = {testing::kToyBos, piece("<start_of_turn>")};
  const auto text = [&](const char* of) {
    const auto ids = *tokenizer.Encode(of);
    expected.insert(expected.end(), ids.begin(), ids.end());
  };
  const auto picture = [&] {
    expected.push_back(piece("<start_of_image>"));
    expected.insert(expected.end(), kToyPictureRows, kPictureToken);
    expected.push_back(piece("<end_of_image>"));
  };
  text("user\n\n\n");
  picture();
  text("\n\nthe\n\n");
  picture();
  text("\n\nhat");
  expected.push_back(piece("<end_of_turn>"));
  text("\n");
  expected.push_back(piece("<start_of_turn>"));
  text("model\n");
  EXPECT_EQ(parsed.prompt, expected);
  ASSERT_EQ(parsed.pictures.size(), 2u);
  for (const PictureSpan& span : parsed.pictures) {
    EXPECT_EQ(span.num_rows, kToyPictureRows);
    EXPECT_EQ(parsed.prompt[span.first - 1], piece("<start_of_image>"));
    EXPECT_EQ(parsed.prompt[span.end()], piece("<end_of_image>"));
  }
}

// In the words and with the blanks of Gemma's processor.
TEST_F(PictureRequestTest, CropsFollowTheirPicture) {
  const auto model = testing::MakeSeeingToyModel({}, /*pan_and_scan=*/true);
  v1::ChatRequest request = Request();
  AddImage(*request.mutable_messages(0), 10, 4);
  v1::Image* wide = request.mutable_messages(0)->add_images();
  wide->set_data(WideToyBmp(20, 30));
  wide->set_content_offset(4);
  ASSERT_OK_AND_ASSIGN(const EngineRequest parsed, ParseChat(request, *model));
  std::promise<absl::StatusOr<std::vector<EngineRequest>>> result;
  PrepareRequests(*model, {parsed, parsed}, [&](absl::StatusOr<std::vector<EngineRequest>> done) {
    result.set_value(std::move(done));
  });
  ASSERT_OK_AND_ASSIGN(const std::vector<EngineRequest> requests, result.get_future().get());
  const Tokenizer& tokenizer = model->tokenizer();
  const auto piece = [&](const char* name) { return *tokenizer.FindPiece(name); };
  std::vector<uint32_t> expected = {testing::kToyBos, piece("<start_of_turn>")};
  std::vector<float> pixels;
  const auto text = [&](const char* of) {
    const auto ids = *tokenizer.Encode(of);
    expected.insert(expected.end(), ids.begin(), ids.end());
  };
  const auto picture = [&](const char* before, uint8_t grey) {
    text(before);
    expected.push_back(piece("<start_of_image>"));
    expected.insert(expected.end(), kToyPictureRows, kPictureToken);
    expected.push_back(piece("<end_of_image>"));
    pixels.push_back(ToyPixel(grey));
  };
  picture("user\nthe\n\n", 10);
  picture("\n\nHere is the original image \n\n", 20);
  picture("\n\n and here are some crops to help you see better \n\n", 20);
  picture("\n\n \n\n", 30);
  text("\n\nhat");
  expected.push_back(piece("<end_of_turn>"));
  text("\n");
  expected.push_back(piece("<start_of_turn>"));
  text("model\n");
  ASSERT_EQ(requests.size(), 2u);
  for (const EngineRequest& prepared : requests) {
    EXPECT_EQ(prepared.prompt, expected);
    ASSERT_EQ(prepared.pictures.size(), pixels.size());
    for (size_t i = 0; i < pixels.size(); ++i) {
      const PictureSpan& span = prepared.pictures[i];
      EXPECT_EQ(span.num_rows, kToyPictureRows);
      EXPECT_EQ(prepared.prompt[span.first - 1], piece("<start_of_image>"));
      EXPECT_EQ(prepared.prompt[span.end()], piece("<end_of_image>"));
      EXPECT_EQ(span.picture->soft_tokens, ToySoftTokens(pixels[i]));
    }
    EXPECT_EQ(prepared.picture_files, nullptr);
    EXPECT_EQ(prepared.conversation, nullptr);
  }
}

// The crops of a request that fits without them.
TEST_F(PictureRequestTest, CropsThatDoNotFitTheContextAreRefused) {
  const auto model = testing::MakeSeeingToyModel({}, /*pan_and_scan=*/true);
  v1::ChatRequest request = Request();
  const uint32_t context = model->replicas().max_sequence_len();
  while (true) {
    v1::ChatRequest more = request;
    more.mutable_messages(0)->add_images()->set_data(WideToyBmp(20, 30));
    if (!ParseChat(more, *model).ok()) break;
    request = more;
  }
  ASSERT_OK_AND_ASSIGN(const EngineRequest parsed, ParseChat(request, *model));
  EXPECT_LT(parsed.prompt.size(), context);
  std::promise<absl::Status> result;
  PrepareRequests(*model, {parsed}, [&](const absl::StatusOr<std::vector<EngineRequest>>& done) {
    result.set_value(done.status());
  });
  EXPECT_THAT(result.get_future().get(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("context_length_exceeded")));
}

TEST_F(PictureRequestTest, NothingIsEncodedForARequestThatHasNoPlace) {
  v1::ChatRequest request = Request();
  AddImage(*request.mutable_messages(0), 10, 0);
  ASSERT_OK_AND_ASSIGN(const EngineRequest parsed, ParseChat(request, *model_));
  model_->replicas().Stop();
  absl::Status status;
  PrepareRequests(*model_, {parsed}, [&](const absl::StatusOr<std::vector<EngineRequest>>& done) {
    status = done.status();
  });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(model_->pictures()->counts().outcomes, ElementsAre(0, 0, 0, 0));
}

TEST_F(PictureRequestTest, AnswersDependOnThePicture) {
  const auto answer = [&](uint8_t grey) {
    v1::ChatRequest request = Request();
    AddImage(*request.mutable_messages(0), grey, 0);
    auto parsed = ParseChat(request, *model_);
    EXPECT_OK(parsed.status());
    testing::StreamReader reader;
    PrepareRequests(*model_, {*parsed}, [&](absl::StatusOr<std::vector<EngineRequest>> prepared) {
      EXPECT_OK(prepared.status());
      EXPECT_OK(model_->replicas().Submit(std::move(prepared->front()), reader.stream()));
    });
    const StreamEnd& end = reader.ReadToEnd();
    EXPECT_OK(end.status);
    EXPECT_EQ(end.usage.image_tokens(), kToyPictureRows);
    EXPECT_EQ(end.usage.prompt_tokens(), parsed->prompt.size());
    return reader.tokens();
  };
  const std::vector<uint32_t> dark = answer(10);
  EXPECT_NE(dark, answer(200));
  EXPECT_EQ(dark, answer(10));
}

TEST_F(PictureRequestTest, WrongPicturesAreNamed) {
  const auto message_of = [&](const v1::ChatRequest& request, const ServedModel& model) {
    const absl::Status status = ParseChat(request, model).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  v1::ChatRequest request = Request();
  AddImage(*request.mutable_messages(0), 10, 99);
  EXPECT_THAT(message_of(request, *model_), HasSubstr("messages[0].images[0].content_offset"));
  request = Request();
  AddImage(*request.mutable_messages(0), 10, 4);
  AddImage(*request.mutable_messages(0), 10, 3);
  EXPECT_THAT(message_of(request, *model_), HasSubstr("messages[0].images[1].content_offset"));
  request = Request();
  request.mutable_messages(0)->add_images();
  EXPECT_THAT(message_of(request, *model_), HasSubstr("messages[0].images[0].data: is empty"));
  request = Request();
  request.mutable_messages(0)->set_role("system");
  AddImage(*request.mutable_messages(0), 10, 0);
  EXPECT_THAT(message_of(request, *model_), HasSubstr("only a user's message has pictures"));
  request.mutable_messages(0)->set_role("user");
  for (int i = 0; i < 60; ++i) AddImage(*request.mutable_messages(0), 10, 7);
  EXPECT_THAT(message_of(request, *model_), HasSubstr("context_length_exceeded"));
}

}  // namespace
}  // namespace tandem::gateway

// Prompts with pictures: every row takes its soft tokens and sees the whole picture, whatever
// happens meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/engine_harness.h"

namespace tandem::gateway {
namespace {

using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::MakeEngine;
using testing::StreamReader;

constexpr uint32_t kPictureRows = 12;
constexpr uint32_t kHiddenDim = 32;  // of the toy model

StepLimits PictureLimits(uint32_t sliding_window = 20) {
  StepLimits limits = testing::ToyLimits();
  limits.sliding_window = sliding_window;
  limits.picture_rows = kPictureRows;
  limits.max_pictures = limits.max_rows / kPictureRows;
  return limits;
}

EngineOptions SmallChunks() {
  EngineOptions options;
  options.max_sequences = 8;
  options.max_rows = 64;
  options.chunk_rows = 16;
  options.max_waiting = 1000;
  options.min_recovery_pause = absl::Milliseconds(1);
  return options;
}

std::shared_ptr<const Picture> MakePicture(uint32_t number) {
  auto picture = std::make_shared<Picture>();
  picture->key = kFirstPictureKey + number;
  for (uint32_t i = 0; i < kPictureRows * kHiddenDim; ++i) {
    picture->soft_tokens.push_back(static_cast<float>(number * 1000 + i));
  }
  return picture;
}

// Puts pictures at these positions of the prompt.
EngineRequest WithPictures(EngineRequest request, const std::vector<uint32_t>& first,
                           const std::vector<uint32_t>& numbers) {
  for (size_t i = 0; i < first.size(); ++i) {
    std::fill_n(request.prompt.begin() + first[i], kPictureRows, 7);
    request.pictures.push_back({first[i], kPictureRows, MakePicture(numbers[i])});
  }
  return request;
}

// The model's answer, without an engine.
std::vector<uint32_t> Expected(const EngineRequest& request, uint32_t sliding_window = 20) {
  EngineRequest seen = request;
  for (const PictureSpan& span : request.pictures) {
    std::fill_n(seen.prompt.begin() + span.first, span.num_rows,
                testing::ToyPictureToken(span.picture->soft_tokens, kHiddenDim));
  }
  return ExpectedTokens(seen, PictureLimits(sliding_window));
}

v1::Usage UsageOf(Engine& engine, const EngineRequest& request, uint32_t sliding_window = 20) {
  StreamReader reader;
  EXPECT_TRUE(engine.Submit(request, reader.stream()).ok());
  const StreamEnd& end = reader.ReadToEnd();
  EXPECT_TRUE(end.status.ok()) << end.status;
  EXPECT_EQ(reader.tokens(), Expected(request, sliding_window));
  return end.usage;
}

// All at once.
void ExpectAnswers(Engine& engine, const std::vector<EngineRequest>& requests,
                   uint32_t sliding_window = 20) {
  std::vector<StreamReader> readers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(engine.Submit(requests[i], readers[i].stream()).ok());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const StreamEnd& end = readers[i].ReadToEnd();
    ASSERT_TRUE(end.status.ok()) << end.status;
    EXPECT_EQ(readers[i].tokens(), Expected(requests[i], sliding_window)) << "request " << i;
  }
}

TEST(EnginePictureTest, RowsTakeSoftTokensWhereverThePictureLies) {
  auto engine = MakeEngine({.limits = PictureLimits()}, SmallChunks());
  // At the start, across ends of chunks and blocks, next to each other, before the last token.
  for (const std::vector<uint32_t>& first :
       {std::vector<uint32_t>{1}, {5}, {15}, {16}, {17}, {10, 22}, {3, 20, 37}, {47}}) {
    const EngineRequest request = WithPictures(GreedyRequest(first[0], 60, 9), first, {1, 2, 3});
    EXPECT_EQ(UsageOf(*engine, request).prompt_tokens(), 60u);
  }
}

TEST(EnginePictureTest, WithoutAPrefixAPictureIsOneStep) {
  std::atomic<int> num_pictures = 0;
  FakeExecutorOptions fake{.limits = PictureLimits()};
  fake.on_step = [&](const StepBatch& step) {
    for (const PictureEntry& picture : step.pictures) {
      num_pictures += picture.num_rows == kPictureRows ? 1 : 1000;
    }
    return absl::OkStatus();
  };
  auto engine = MakeEngine(fake, SmallChunks());
  std::vector<EngineRequest> requests;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    EngineRequest request =
        WithPictures(GreedyRequest(seed, 50 + seed, 12), {seed, seed + 13}, {seed, seed + 20});
    request.use_prefix_cache = false;
    requests.push_back(std::move(request));
  }
  ExpectAnswers(*engine, requests);
  EXPECT_EQ(num_pictures, 40);
}

TEST(EnginePictureTest, PreemptedPicturesAreComputedAgain) {
  FakeExecutorOptions fake{.limits = PictureLimits()};
  fake.limits.num_blocks[kGlobalGroup] = 24;
  fake.limits.num_blocks[kWindowGroup] = 24;
  auto engine = MakeEngine(fake, SmallChunks());
  std::vector<EngineRequest> requests;
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    requests.push_back(WithPictures(GreedyRequest(seed, 40, 60), {seed + 9}, {seed}));
  }
  ExpectAnswers(*engine, requests);
  EXPECT_GT(engine->counters().preemptions, 0u);
}

TEST(EnginePictureTest, ThePrefixCacheTellsPicturesApart) {
  auto engine = MakeEngine({.limits = PictureLimits()}, SmallChunks());
  const EngineRequest text = GreedyRequest(1, 60, 3);
  const EngineRequest first = WithPictures(text, {21}, {1});
  EXPECT_EQ(UsageOf(*engine, first).cached_tokens(), 0u);
  EXPECT_EQ(UsageOf(*engine, first).cached_tokens(), 56u);
  // Another picture, or its tokens as text: what lies before is found.
  EXPECT_EQ(UsageOf(*engine, WithPictures(text, {21}, {2})).cached_tokens(), 16u);
  EngineRequest as_text = first;
  as_text.pictures.clear();
  EXPECT_EQ(UsageOf(*engine, as_text).cached_tokens(), 16u);
}

// Text that differs behind the picture: its last rows are computed again, up to a whole block less
// one.  The window is wider than the picture, or narrower.
TEST(EnginePictureTest, AnotherQuestionBeginsWithinThePicture) {
  for (const uint32_t window : {20u, 3u}) {
    std::atomic<uint32_t> picture_rows = 0;
    FakeExecutorOptions fake{.limits = PictureLimits(window)};
    fake.on_step = [&](const StepBatch& step) {
      for (const PictureEntry& picture : step.pictures) picture_rows += picture.num_rows;
      return absl::OkStatus();
    };
    auto engine = MakeEngine(fake, SmallChunks());
    for (uint32_t at = 1; at <= 24; ++at) {
      const EngineRequest first = WithPictures(GreedyRequest(at, 50, 5), {at}, {at});
      EXPECT_EQ(UsageOf(*engine, first, window).cached_tokens(), 0u);
      EngineRequest other = first;
      const uint32_t end = at + kPictureRows;
      other.prompt[end] = other.prompt[end] == 262 ? 263 : 262;
      picture_rows = 0;
      EXPECT_EQ(UsageOf(*engine, other, window).cached_tokens(), end / 8 * 8)
          << "picture at " << at;
      EXPECT_EQ(picture_rows, std::min(end % 8, kPictureRows)) << "picture at " << at;
    }
  }
}

// Five pictures in a few blocks: their prefixes come and go, whole and in part, while workers die.
TEST(EnginePictureTest, PrefixesWithinPicturesSurvivePressureAndLosses) {
  for (const uint32_t window : {3u, 20u}) {
    std::atomic<int> steps = 0, tails = 0;
    FakeExecutorOptions fake{.limits = PictureLimits(window)};
    fake.limits.num_blocks[kGlobalGroup] = 40;
    fake.limits.num_blocks[kWindowGroup] = 24;
    fake.on_step = [&](const StepBatch& step) {
      for (const PictureEntry& picture : step.pictures) tails += picture.num_rows < kPictureRows;
      return ++steps % 40 == 0 ? absl::UnavailableError("gone") : absl::OkStatus();
    };
    EngineOptions options = SmallChunks();
    options.max_attempts = 100;
    auto engine = MakeEngine(fake, options);
    std::vector<EngineRequest> requests;
    for (uint32_t i = 0; i < 60; ++i) {
      const uint32_t at = 9 + 3 * (i % 5);
      EngineRequest request = WithPictures(GreedyRequest(i % 5, 52, 20), {at, at + 14}, {i % 5, 7});
      request.prompt[at + (i % 2 == 0 ? 12 : 26)] = 261 + i / 5;
      requests.push_back(std::move(request));
    }
    ExpectAnswers(*engine, requests, window);
    EXPECT_GT(tails, 0);
    EXPECT_GT(engine->counters().preemptions, 0u);
  }
}

TEST(EnginePictureTest, APictureIsSharedAtAnyTurn) {
  auto engine = MakeEngine({.limits = PictureLimits()}, SmallChunks());
  EngineRequest request = WithPictures(GreedyRequest(1, 40, 13), {20}, {1});
  UsageOf(*engine, request);
  const size_t computed = request.prompt.size() + request.max_tokens - 1;
  const std::vector<uint32_t> answer = Expected(request);
  request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
  request.prompt.push_back(270);
  EXPECT_EQ(UsageOf(*engine, request).cached_tokens(), computed / 8 * 8);
}

TEST(EnginePictureTest, ALostWorkersPicturesAreComputedAgain) {
  std::atomic<int> steps = 0;
  FakeExecutorOptions fake{.limits = PictureLimits()};
  fake.on_step = [&](const StepBatch&) {
    const int step = ++steps;
    return step == 4 || step == 10 ? absl::UnavailableError("gone") : absl::OkStatus();
  };
  auto engine = MakeEngine(fake, SmallChunks());
  UsageOf(*engine, WithPictures(GreedyRequest(3, 60, 12), {5, 30}, {1, 2}));
  EXPECT_GT(steps, 10);
}

TEST(EnginePictureTest, WhatDoesNotFitAStepIsRefused) {
  const auto error_of = [](FakeExecutorOptions fake, EngineOptions options) {
    auto engine = MakeEngine(std::move(fake), std::move(options));
    StreamReader reader;
    const EngineRequest request = WithPictures(GreedyRequest(1, 40, 3), {10}, {1});
    EXPECT_TRUE(engine->Submit(request, reader.stream()).ok());
    return reader.ReadToEnd().status;
  };
  EngineOptions narrow = SmallChunks();
  narrow.max_rows = kPictureRows + 6;  // and seven others decode
  EXPECT_THAT(std::string(error_of({.limits = PictureLimits()}, narrow).message()),
              HasSubstr("a picture takes 12 rows of one step, and steps here have room for 11"));
  narrow.max_rows = kPictureRows + 7;
  EXPECT_TRUE(error_of({.limits = PictureLimits()}, narrow).ok());
  EXPECT_THAT(std::string(error_of({}, SmallChunks()).message()), HasSubstr("room for 0"));
}

}  // namespace
}  // namespace tandem::gateway

// Prompts with pictures: every row takes its soft tokens, in one step, whatever happens meanwhile.
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

StepLimits PictureLimits() {
  StepLimits limits = testing::ToyLimits();
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
  static const uint32_t hidden_dim = testing::ToyConfig(256, 20).hidden_dim;
  auto picture = std::make_shared<Picture>();
  picture->key = kFirstPictureKey + number;
  for (uint32_t i = 0; i < kPictureRows * hidden_dim; ++i) {
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
std::vector<uint32_t> Expected(const EngineRequest& request) {
  EngineRequest seen = request;
  for (const PictureSpan& span : request.pictures) {
    std::fill_n(seen.prompt.begin() + span.first, span.num_rows,
                testing::ToyPictureToken(span.picture->soft_tokens));
  }
  return ExpectedTokens(seen, PictureLimits());
}

v1::Usage UsageOf(Engine& engine, const EngineRequest& request) {
  StreamReader reader;
  EXPECT_TRUE(engine.Submit(request, reader.stream()).ok());
  const StreamEnd& end = reader.ReadToEnd();
  EXPECT_TRUE(end.status.ok()) << end.status;
  EXPECT_EQ(reader.tokens(), Expected(request));
  return end.usage;
}

// All at once.
void ExpectAnswers(Engine& engine, const std::vector<EngineRequest>& requests) {
  std::vector<StreamReader> readers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(engine.Submit(requests[i], readers[i].stream()).ok());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const StreamEnd& end = readers[i].ReadToEnd();
    ASSERT_TRUE(end.status.ok()) << end.status;
    EXPECT_EQ(readers[i].tokens(), Expected(requests[i])) << "request " << i;
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

TEST(EnginePictureTest, NoStepCutsAPicture) {
  std::atomic<int> num_pictures = 0;
  FakeExecutorOptions fake{.limits = PictureLimits()};
  fake.on_step = [&](const StepBatch& step) {
    num_pictures += static_cast<int>(step.pictures.size());
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
  // Its blocks are found up to position 32, in the midst of the picture: all of it is computed.
  EngineRequest leaves = first;
  leaves.prompt[34] = leaves.prompt[34] == 262 ? 263 : 262;
  EXPECT_EQ(UsageOf(*engine, leaves).cached_tokens(), 16u);
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

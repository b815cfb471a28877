#include "services/gateway/engine/token_stream.h"

#include <gtest/gtest.h>

#include "services/gateway/engine/stream_notifier.h"

namespace tandem::gateway {
namespace {

StreamUpdate Update(std::string text, uint32_t token) {
  StreamUpdate update;
  update.text = std::move(text);
  update.tokens.push_back({.token = token});
  return update;
}

TEST(TokenStreamTest, MergesWhatIsUnread) {
  TokenStream stream(10, [] {});
  EXPECT_EQ(stream.Push(Update("a", 1)), TokenStream::PushResult::kNotify);
  EXPECT_EQ(stream.Push(Update("b", 2)), TokenStream::PushResult::kMerged);
  const TokenStream::Batch batch = stream.Take();
  EXPECT_EQ(batch.update.text, "ab");
  EXPECT_EQ(batch.update.tokens.size(), 2u);
  EXPECT_FALSE(batch.end.has_value());
  EXPECT_TRUE(stream.Take().update.empty());
}

TEST(TokenStreamTest, AReaderTooFarBehindIsFullAndReadingMakesRoom) {
  TokenStream stream(2, [] {});
  stream.Push(Update("a", 1));
  stream.Push(Update("b", 2));
  EXPECT_EQ(stream.Push(Update("c", 3)), TokenStream::PushResult::kFull);
  EXPECT_EQ(stream.Take().update.text, "ab");
  EXPECT_NE(stream.Push(Update("c", 3)), TokenStream::PushResult::kFull);
}

TEST(TokenStreamTest, NotifiesAgainAfterANotificationAndNeverAfterTheEnd) {
  int calls = 0;
  TokenStream stream(10, [&calls] { ++calls; });
  EXPECT_EQ(stream.Push(Update("a", 1)), TokenStream::PushResult::kNotify);
  stream.Notify();
  EXPECT_EQ(stream.Push(Update("b", 2)), TokenStream::PushResult::kNotify);
  stream.End({.status = absl::OkStatus(), .reason = v1::FINISH_REASON_STOP});
  stream.Notify();
  stream.Notify();
  EXPECT_EQ(calls, 2);
  const TokenStream::Batch batch = stream.Take();
  EXPECT_EQ(batch.update.text, "ab");
  ASSERT_TRUE(batch.end.has_value());
  EXPECT_EQ(batch.end->reason, v1::FINISH_REASON_STOP);
  EXPECT_FALSE(stream.Take().end.has_value());
}

TEST(TokenStreamTest, TheCallbackIsDestroyedWithTheEndSoThatReadersMayHoldThemselves) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  TokenStream stream(10, [held] {});
  held.reset();
  stream.Push(Update("a", 1));
  stream.Notify();
  EXPECT_FALSE(watched.expired());
  stream.End({});
  stream.Notify();
  EXPECT_TRUE(watched.expired());
}

TEST(StreamNotifierTest, CallsWhatWasPostedBeforeItEnds) {
  int calls = 0;
  auto stream = std::make_shared<TokenStream>(10, [&calls] { ++calls; });
  {
    StreamNotifier notifier;
    for (int i = 0; i < 5; ++i) notifier.Post(stream);
  }
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace tandem::gateway

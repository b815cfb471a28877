// How many requests, resets and empty frames a client may send.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "services/common/rpc/edge/testing/h2_guard_fixture.h"

namespace tandem {
namespace {

using testing::Data;
using testing::Frame;
using testing::Headers;
using testing::Preface;
using testing::Rst;

TEST_F(H2GuardTest, OnlySoManyRequestsAreOpen) {
  Client(Preface() + Frame(H2FrameType::kSettings, kH2Ack, 0));
  uint32_t id = 1;
  for (uint32_t i = 0; i < limits_.max_streams; ++i, id += 2) {
    ASSERT_EQ(Client(Headers(id, true)), H2Fault::kNone);
  }
  Answer(1);
  ASSERT_EQ(Client(Headers(id, true)), H2Fault::kNone) << "one has ended";
  EXPECT_EQ(Client(Headers(id + 2, true)), H2Fault::kStreams);
  EXPECT_EQ(verdict_.error, H2Error::kEnhanceYourCalm);
}

TEST_F(H2GuardTest, ARequestBeyondTheLimitIsRefusedToAClientThatCannotKnowIt) {
  limits_.max_streams = 2;
  Begin();
  ASSERT_EQ(Client(Preface() + Headers(1, true) + Headers(3, true) + Headers(5, true)),
            H2Fault::kNone);
  const auto resets = guard_->TakeResets();
  ASSERT_EQ(resets.size(), 1u);
  EXPECT_EQ(resets[0].stream, 5u);
  EXPECT_EQ(resets[0].error, H2Error::kRefusedStream);
  // It counts as a reset: sooner or later the connection ends.
  uint32_t id = 7;
  for (; id < 10'000 && Client(Headers(id, true)) == H2Fault::kNone; id += 2) continue;
  EXPECT_EQ(verdict_.fault, H2Fault::kResets);
  EXPECT_LE(id / 2, limits_.reset_burst + 3);
}

TEST_F(H2GuardTest, WhoIsShedOverAndOverLosesTheConnection) {
  Client(Preface());
  uint32_t id = 1;
  for (; id < 10'000 && Client(Headers(id)) == H2Fault::kNone; id += 2) guard_->ShedNewest();
  EXPECT_EQ(verdict_.fault, H2Fault::kResets);
  EXPECT_LE(id / 2, limits_.reset_burst + 1);
}

TEST_F(H2GuardTest, RefusedRequestsOfManyConnectionsCountTogether) {
  std::vector<std::unique_ptr<H2Guard>> others;
  uint32_t last = 0;
  for (int i = 0; i < 10; ++i) {
    others.push_back(std::make_unique<H2Guard>(limits_, *totals_, *group_, now_));
    H2Guard& guard = *others.back();
    guard.OnClient(Preface(), now_);
    uint32_t id = 1;
    while (guard.OnClient(Headers(id), now_).ok()) id += 2;
    last = id / 2 + 1;
    guard.Drop();
  }
  EXPECT_LE(last, limits_.max_streams + 10);
  now_ += 3600 * kSecond;
  Client(Preface());
  uint32_t id = 1;
  while (Client(Headers(id)) == H2Fault::kNone) id += 2;
  EXPECT_GT(id / 2, limits_.max_streams + 900) << "the debt is paid by time";
}

TEST_F(H2GuardTest, PayloadThatNobodyReadsIsDear) {
  for (const auto type : {static_cast<H2FrameType>(200), H2FrameType::kGoaway}) {
    Begin();
    Client(Preface() + Headers(1));
    int frames = 0;
    while (frames < 1000 &&
           Client(Data(1, 24) + Frame(type, 0, 0, std::string(16384, 'x'))) == H2Fault::kNone) {
      ++frames;
    }
    EXPECT_EQ(verdict_.fault, H2Fault::kControl);
    EXPECT_LT(frames, 20);
  }
}

TEST_F(H2GuardTest, RapidResetEndsTheConnection) {
  Client(Preface());
  uint32_t count = 0;
  for (uint32_t id = 1; Client(Headers(id) + Rst(id)) == H2Fault::kNone; id += 2) ++count;
  EXPECT_EQ(verdict_.fault, H2Fault::kResets);
  EXPECT_EQ(count, static_cast<uint32_t>(limits_.reset_burst));
  EXPECT_EQ(totals_->num_streams, 0u);
}

TEST_F(H2GuardTest, ResetsOverTimeAndOfAnsweredRequestsAreAllowed) {
  Client(Preface());
  uint32_t id = 1;
  for (int i = 0; i < 5000; ++i, id += 2) {
    now_ += kSecond / 50;
    ASSERT_EQ(Client(Headers(id) + Rst(id)), H2Fault::kNone) << i;
  }
  for (int i = 0; i < 5000; ++i, id += 2) {
    Client(Headers(id));
    Answer(id);  // before the request was complete
    ASSERT_EQ(Client(Rst(id)), H2Fault::kNone) << i;
  }
}

TEST_F(H2GuardTest, ResetsThatTheServerIsMadeToSendCountToo) {
  Client(Preface());
  uint32_t count = 0;
  for (uint32_t id = 1; count < 5000; id += 2, ++count) {
    ASSERT_EQ(Client(Headers(id)), H2Fault::kNone);
    if (Server(Rst(id)) != H2Fault::kNone) break;
  }
  EXPECT_EQ(verdict_.fault, H2Fault::kResets);
  EXPECT_EQ(count, static_cast<uint32_t>(limits_.reset_burst));
}

TEST_F(H2GuardTest, ManyConnectionsThatResetHaveFewEach) {
  // The whole burst of all is used up by some.
  std::vector<std::unique_ptr<H2Guard>> others;
  const auto resets = [this](H2Guard& guard) {
    guard.OnClient(Preface(), now_);
    uint32_t count = 0;
    for (uint32_t id = 1; guard.OnClient(Headers(id) + Rst(id), now_).ok(); id += 2) ++count;
    return count;
  };
  uint32_t last = 0;
  for (int i = 0; i < 10; ++i) {
    others.push_back(std::make_unique<H2Guard>(limits_, *totals_, *group_, now_));
    last = resets(*others.back());
  }
  EXPECT_LE(last, 8u);
}

TEST_F(H2GuardTest, FramesThatCarryNothingAreLimited) {
  for (const std::string& flood :
       {Frame(H2FrameType::kPing, 0, 0, "12345678"), Frame(H2FrameType::kSettings, 0, 0),
        Frame(H2FrameType::kSettings, kH2Ack, 0), Frame(H2FrameType::kPriority, 0, 7, "12345"),
        Frame(H2FrameType::kWindowUpdate, 0, 0, "1234"), Data(1, 0),
        Frame(static_cast<H2FrameType>(77), 0, 0), Data(3, 5), Rst(3), Headers(3)}) {
    Begin();
    Client(Preface() + Headers(1) + Headers(3) + Rst(3));
    int count = 0;
    while (Client(flood) == H2Fault::kNone && count < 10000) ++count;
    EXPECT_EQ(verdict_.fault, H2Fault::kControl) << static_cast<int>(flood[3]);
    EXPECT_LE(count, limits_.control_burst);
  }
}

TEST_F(H2GuardTest, AReaderOfALongAnswerMaySendWindowsAndPings) {
  Client(Preface() + Headers(1, true));
  Server(Headers(1));
  for (int i = 0; i < 100000; ++i) {
    Server(Data(1, 50));
    ASSERT_EQ(Client(Frame(H2FrameType::kWindowUpdate, 0, 0, "1234") +
                     Frame(H2FrameType::kWindowUpdate, 0, 1, "1234") +
                     Frame(H2FrameType::kPing, 0, 0, "12345678")),
              H2Fault::kNone)
        << i;
  }
}

}  // namespace
}  // namespace tandem

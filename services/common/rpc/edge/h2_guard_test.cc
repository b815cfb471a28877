// Bytes and requests that the guard before gRPC lets through, and their bounds in bytes and time.
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

TEST_F(H2GuardTest, AnOrdinaryCallPassesWhole) {
  EXPECT_EQ(Client(Preface()), H2Fault::kNone);
  EXPECT_TRUE(guard_->established());
  EXPECT_EQ(Client(Headers(1) + Data(1, 100, true)), H2Fault::kNone);
  EXPECT_TRUE(AllReleased());
  EXPECT_EQ(guard_->num_streams(), 1u);
  EXPECT_EQ(guard_->num_bytes(), 100 + kH2FrameCharge);
  Answer(1);
  EXPECT_EQ(guard_->num_streams(), 0u);
  EXPECT_EQ(guard_->num_bytes(), 0u);
  EXPECT_EQ(totals_->num_streams, 0u);
  EXPECT_EQ(totals_->num_bytes, 0u);
}

TEST_F(H2GuardTest, AnAnswerWithoutAWindowIsResetInTime) {
  using ::testing::ElementsAre;
  using ::testing::Field;
  const std::string no_window("\0\x4\0\0\0\0", 6);
  Client(Preface() + Headers(1, true));
  for (const char c : Frame(H2FrameType::kSettings, 0, 0, no_window)) Client(std::string(1, c));
  now_ += 1000 * kSecond;  // the server may think for as long as it likes
  guard_->OnTime(now_);
  Server(Headers(1));
  guard_->OnTime(now_);
  now_ += 29 * kSecond;
  guard_->OnTime(now_);
  EXPECT_THAT(guard_->TakeResets(), ::testing::IsEmpty());
  now_ += 2 * kSecond;
  guard_->OnTime(now_);
  EXPECT_THAT(guard_->TakeResets(), ElementsAre(Field(&H2Reset::fault, H2Fault::kSlow)));
  EXPECT_EQ(guard_->num_streams(), 0u);
}

TEST_F(H2GuardTest, AWindowThatOpensAgainGivesTimeAnew) {
  const std::string one("\0\0\0\x1", 4);
  Client(Preface() + Headers(1, true) + Headers(3, true));
  const auto pass = [this](int seconds) {
    now_ += seconds * kSecond;
    guard_->OnTime(now_);
    return guard_->TakeResets().size();
  };
  // The connection's window is used up by one answer, and so the other one's is.
  Server(Headers(1) + Data(1, 16384) + Data(1, 16384) + Data(1, 16384) + Data(1, 16383) +
         Headers(3));
  EXPECT_EQ(pass(0) + pass(20), 0u);
  Client(Frame(H2FrameType::kWindowUpdate, 0, 0, one));
  EXPECT_EQ(pass(5), 0u);  // stream 3 may go on, stream 1 has no window of its own
  Client(Frame(H2FrameType::kWindowUpdate, 0, 1, one));
  EXPECT_EQ(pass(100), 0u);
  Server(Data(3, 1));
  EXPECT_EQ(pass(0), 0u);
  EXPECT_EQ(pass(31), 2u);
}

TEST_F(H2GuardTest, CutsMakeNoDifference) {
  const std::string settings = Preface();
  const std::string block = Frame(H2FrameType::kHeaders, kH2EndStream, 3, "first") +
                            Frame(H2FrameType::kContinuation, kH2EndHeaders, 3, "second");
  const std::string all = settings + Headers(1) + Data(1, 40) + block + Data(1, 0, true) +
                          Frame(H2FrameType::kPing, 0, 0, "12345678") + Rst(3);
  // After how many bytes gRPC may have how many.
  std::vector<uint64_t> released;
  for (const char c : all) {
    ASSERT_EQ(Client(std::string(1, c)), H2Fault::kNone);
    released.push_back(guard_->released_bytes());
    EXPECT_LE(released.back(), sent_);
  }
  EXPECT_TRUE(AllReleased());
  EXPECT_EQ(guard_->num_streams(), 1u);
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    Begin();
    ASSERT_EQ(Client(all.substr(0, cut)), H2Fault::kNone);
    EXPECT_EQ(guard_->released_bytes(), cut == 0 ? 0 : released[cut - 1]) << cut;
    ASSERT_EQ(Client(all.substr(cut)), H2Fault::kNone);
    EXPECT_TRUE(AllReleased()) << cut;
    EXPECT_EQ(guard_->num_streams(), 1u) << cut;
  }
}

TEST_F(H2GuardTest, NothingGoesOnBeforeThePrefaceIsWhole) {
  const std::string preface = Preface();
  EXPECT_EQ(Client(preface.substr(0, preface.size() - 1)), H2Fault::kNone);
  EXPECT_EQ(guard_->released_bytes(), 0u);
  EXPECT_FALSE(guard_->established());
  EXPECT_EQ(Client(preface.substr(preface.size() - 1)), H2Fault::kNone);
  EXPECT_TRUE(AllReleased());
}

TEST_F(H2GuardTest, OtherProtocolsAreRefused) {
  EXPECT_EQ(Client("GET / HTTP/1.1\r\n"), H2Fault::kPreface);
  Begin();
  EXPECT_EQ(Client("PRI * HTTP/2.0\r\n\r\nSM\r\n\rX"), H2Fault::kPreface);
  Begin();
  EXPECT_EQ(Client(std::string(kH2Preface) + Headers(1)), H2Fault::kProtocol);
}

TEST_F(H2GuardTest, AHeaderBlockIsHeldUntilItIsWholeAndBounded) {
  Client(Preface());
  const uint64_t before = guard_->released_bytes();
  EXPECT_EQ(Client(Frame(H2FrameType::kHeaders, 0, 1, std::string(16384, 'h'))), H2Fault::kNone);
  EXPECT_EQ(guard_->released_bytes(), before);
  EXPECT_EQ(guard_->num_streams(), 0u);
  EXPECT_EQ(Client(Frame(H2FrameType::kContinuation, 0, 1, std::string(16384, 'h'))),
            H2Fault::kNone);
  EXPECT_EQ(Client(Frame(H2FrameType::kContinuation, 0, 1, "h")), H2Fault::kHeaderBytes);
  EXPECT_EQ(verdict_.error, H2Error::kEnhanceYourCalm);
  EXPECT_EQ(guard_->released_bytes(), before);
}

TEST_F(H2GuardTest, EmptyContinuationsAreBounded) {
  Client(Preface() + Frame(H2FrameType::kHeaders, 0, 1));
  uint32_t count = 0;
  while (Client(Frame(H2FrameType::kContinuation, 0, 1)) == H2Fault::kNone && count < 100) ++count;
  EXPECT_EQ(count, limits_.max_continuations);
  EXPECT_EQ(verdict_.fault, H2Fault::kHeaderBytes);
}

TEST_F(H2GuardTest, FramesOutOfOrderAreProtocolErrors) {
  for (const std::string& bad :
       {Headers(2), Headers(0), Data(1, 1), Data(0, 1), Rst(1), Rst(0),
        Frame(H2FrameType::kContinuation, kH2EndHeaders, 1),
        Frame(H2FrameType::kPushPromise, kH2EndHeaders, 1),
        Frame(H2FrameType::kHeaders, 0, 1) + Frame(H2FrameType::kPing, 0, 0, "12345678"),
        Frame(H2FrameType::kHeaders, 0, 1) + Frame(H2FrameType::kContinuation, 0, 3),
        Headers(1, true) + Data(1, 1)}) {
    Begin();
    Client(Preface());
    EXPECT_EQ(Client(bad), H2Fault::kProtocol);
    EXPECT_EQ(verdict_.error, H2Error::kProtocolError);
  }
  Begin();
  Client(Preface());
  EXPECT_EQ(Client(Headers(1) + Data(1, kH2MaxFrameBytes)), H2Fault::kNone);
  EXPECT_EQ(Client(Data(1, kH2MaxFrameBytes + 1)), H2Fault::kFrameBytes);
}

TEST_F(H2GuardTest, ATooLongRequestLosesItsStream) {
  Client(Preface() + Headers(1) + Headers(3));
  std::vector<H2Reset> resets;
  for (uint64_t sent = 0; sent <= limits_.max_request_bytes && resets.empty(); sent += 16384) {
    ASSERT_EQ(Client(Data(1, 16384)), H2Fault::kNone);
    resets = guard_->TakeResets();
  }
  ASSERT_EQ(resets.size(), 1u);
  EXPECT_EQ(resets[0].stream, 1u);
  EXPECT_EQ(resets[0].fault, H2Fault::kRequestBytes);
  EXPECT_EQ(guard_->num_bytes(), 0u);
  EXPECT_EQ(guard_->num_streams(), 1u);
  EXPECT_EQ(Client(Data(1, 16384)), H2Fault::kNone) << "was on its way";
  EXPECT_EQ(guard_->num_bytes(), 0u);
}

TEST_F(H2GuardTest, ManyTinyFramesCountMoreThanTheirBytes) {
  Client(Preface() + Headers(1));
  uint64_t count = 0;
  while (guard_->TakeResets().empty()) {
    ASSERT_EQ(Client(Data(1, 1)), H2Fault::kNone);
    ++count;
  }
  EXPECT_LE(count, limits_.max_request_bytes / kH2FrameCharge);
}

TEST_F(H2GuardTest, RequestsOfAConnectionAreBoundedTogether) {
  Client(Preface());
  for (uint32_t id = 1; id < 200; id += 2) {
    ASSERT_EQ(Client(Headers(id)), H2Fault::kNone);
    for (int i = 0; i < 64; ++i) ASSERT_EQ(Client(Data(id, 16384)), H2Fault::kNone);
    EXPECT_LE(guard_->num_bytes(), limits_.max_requests_bytes);
  }
  EXPECT_FALSE(guard_->TakeResets().empty());
}

TEST_F(H2GuardTest, OfWhatAllHoldTheGreatestRequestIsShed) {
  Client(Preface() + Headers(1) + Data(1, 10) + Headers(3) + Data(3, 1000) + Headers(5));
  Client(Headers(7, /*end_stream=*/true));
  EXPECT_TRUE(guard_->ShedLargest());
  EXPECT_TRUE(guard_->ShedNewest());
  EXPECT_EQ(guard_->num_unfinished(), 1u);
  const auto resets = guard_->TakeResets();
  ASSERT_EQ(resets.size(), 2u);
  EXPECT_EQ(resets[0].stream, 3u);
  EXPECT_EQ(resets[1].stream, 5u) << "7 is newer, but complete";
  EXPECT_EQ(totals_->num_bytes, 10 + kH2FrameCharge);
}

TEST_F(H2GuardTest, WhatIsNotCompleteInTimeEnds) {
  now_ += 11 * kSecond;
  EXPECT_EQ(guard_->OnTime(now_).fault, H2Fault::kSlow) << "no preface";

  Begin();
  Client(Preface() + Headers(1) + Data(1, 100).substr(0, 50));
  now_ += 19 * kSecond;
  EXPECT_TRUE(guard_->OnTime(now_).ok());
  now_ += 2 * kSecond;
  EXPECT_EQ(guard_->OnTime(now_).fault, H2Fault::kSlow) << "half a frame";

  Begin();
  Client(Preface() + Headers(1) + Headers(3) + Headers(5, true));
  Server(Headers(3));  // answers as it is asked: a stream of both directions
  now_ += 61 * kSecond;
  EXPECT_TRUE(guard_->OnTime(now_).ok());
  const auto resets = guard_->TakeResets();
  ASSERT_EQ(resets.size(), 1u) << "a request without an end, alone";
  EXPECT_EQ(resets[0].stream, 1u);
  EXPECT_EQ(resets[0].fault, H2Fault::kSlow);
}

TEST_F(H2GuardTest, AnIdleConnectionEndsWithoutBlame) {
  Client(Preface() + Headers(1, true));
  now_ += 3600 * kSecond;
  EXPECT_TRUE(guard_->OnTime(now_).ok()) << "a request runs";
  Answer(1);
  now_ += 899 * kSecond;
  EXPECT_TRUE(guard_->OnTime(now_).ok());
  now_ += 2 * kSecond;
  verdict_ = guard_->OnTime(now_);
  EXPECT_EQ(verdict_.fault, H2Fault::kIdle);
  EXPECT_EQ(verdict_.error, H2Error::kNoError);
}

TEST_F(H2GuardTest, FramesOfOursFitBetweenTheServers) {
  EXPECT_TRUE(guard_->server_between_frames());
  const std::string answer = Frame(H2FrameType::kHeaders, 0, 1, "abc") +
                             Frame(H2FrameType::kContinuation, kH2EndHeaders, 1, "def");
  for (const char c : answer.substr(0, answer.size() - 1)) {
    Server(std::string(1, c));
    EXPECT_FALSE(guard_->server_between_frames());
  }
  Server(answer.substr(answer.size() - 1));
  EXPECT_TRUE(guard_->server_between_frames());
}

TEST_F(H2GuardTest, ManyRequestsASecondPauseTheReading) {
  Client(Preface());
  EXPECT_EQ(guard_->pause_ns(), 0);
  uint32_t id = 1;
  for (int i = 0; i < 2100; ++i, id += 2) {
    ASSERT_EQ(Client(Headers(id, true)), H2Fault::kNone);
    Answer(id);
  }
  EXPECT_GT(guard_->pause_ns(), 0);
  EXPECT_LE(guard_->pause_ns(), kSecond);
  now_ += kSecond;
  Client(Headers(id, true));
  EXPECT_EQ(guard_->pause_ns(), 0);
}

TEST_F(H2GuardTest, RequestsWithoutAnAnswerAreCountedOverAllConnectionsOfAClient) {
  limits_.opening_burst = 100;
  limits_.openings_per_second = 10;
  limits_.total_reset_burst = 1e6;
  Begin();
  // Each connection is used until its reading pauses, and then made anew.
  const auto connect_and_open = [this](H2Group& group) {
    H2Guard guard(limits_, *totals_, group, now_);
    guard.OnClient(Preface(), now_);
    uint32_t count = 0;
    while (guard.pause_ns() == 0 && count < 200 &&
           guard.OnClient(Headers(2 * count + 1), now_).ok()) {
      ++count;
    }
    EXPECT_EQ(guard.group_in_debt(), guard.pause_ns() > 0);
    return count;
  };
  EXPECT_EQ(connect_and_open(*group_), limits_.own_openings + 100 + 1);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(connect_and_open(*group_), limits_.own_openings + 1);
  H2Group other(limits_);
  EXPECT_GT(connect_and_open(other), 100u) << "another client's";
  now_ += 10 * kSecond;
  EXPECT_GT(connect_and_open(*group_), limits_.own_openings + 70) << "the debt is paid by time";
}

TEST_F(H2GuardTest, RequestsThatAreAnsweredAreNotCounted) {
  limits_.opening_burst = 100;
  limits_.openings_per_second = 1;
  limits_.stream_burst = 1e6;
  Begin();
  Client(Preface());
  uint32_t id = 1;
  for (int i = 0; i < 50; ++i) {  // 100 at a time; 84 are the group's
    const uint32_t first = id;
    for (int k = 0; k < 100; ++k, id += 2) ASSERT_EQ(Client(Headers(id, true)), H2Fault::kNone);
    EXPECT_EQ(guard_->pause_ns(), 0) << i;
    for (uint32_t answered = first; answered < id; answered += 2) Answer(answered);
  }
  for (int i = 0; i < 100; ++i, id += 2) Client(Headers(id) + Rst(id));
  EXPECT_EQ(guard_->pause_ns(), 0);
  for (int i = 0; i < 100; ++i, id += 2) Client(Headers(id) + Rst(id));
  EXPECT_GT(guard_->pause_ns(), 0) << "resets are not answers";
}

TEST_F(H2GuardTest, AClientWithAnswersIsNotHeldBackByAnotherConnectionOfItsGroup) {
  limits_.opening_burst = 10;
  Begin();
  Client(Preface());
  H2Guard flood(limits_, *totals_, *group_, now_);
  flood.OnClient(Preface(), now_);
  for (uint32_t id = 1; id < 400; id += 2) flood.OnClient(Headers(id), now_);
  EXPECT_GT(flood.pause_ns(), 0);
  for (uint32_t id = 1; id < 2000; id += 2) {
    ASSERT_EQ(Client(Headers(id, true)), H2Fault::kNone);
    EXPECT_EQ(guard_->pause_ns(), 0) << id;
    Answer(id);
  }
}

TEST_F(H2GuardTest, WhatAConnectionHeldIsFreeWhenItEnds) {
  Client(Preface() + Headers(1) + Data(1, 1000));
  EXPECT_GT(totals_->num_bytes, 0u);
  guard_.reset();
  EXPECT_EQ(totals_->num_bytes, 0u);
  EXPECT_EQ(totals_->num_streams, 0u);
}

TEST(H2FrameTest, GoawayAndResetReadAsTheyWereWritten) {
  const std::string bytes =
      H2Goaway(7, H2Error::kEnhanceYourCalm, "why") + H2RstStream(9, H2Error::kCancel);
  H2FrameScanner scanner;
  auto step = scanner.Next(bytes);
  EXPECT_TRUE(step.header);
  EXPECT_EQ(scanner.frame().type, H2FrameType::kGoaway);
  EXPECT_EQ(scanner.frame().length, 11u);
  step = scanner.Next(std::string_view(bytes).substr(9));
  EXPECT_TRUE(step.end);
  EXPECT_EQ(step.used, 11u);
  step = scanner.Next(std::string_view(bytes).substr(20));
  EXPECT_EQ(scanner.frame().stream, 9u);
  EXPECT_EQ(scanner.frame().length, 4u);
}

}  // namespace
}  // namespace tandem

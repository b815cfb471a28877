#include "services/gateway/api/answer_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/testing/eventually.h"
#include "services/gateway/api/testing/recording_responder.h"
#include "services/gateway/api/testing/toy_served_model.h"
#include "services/gateway/constraint/testing/held_threads.h"
#include "services/gateway/engine/testing/engine_harness.h"
#include "services/gateway/engine/testing/unfinished.h"
#include "services/gateway/http/api_keys.h"

namespace tandem::gateway {
namespace {

using tandem::testing::Eventually;

using testing::CountingClient;
using testing::FakeExecutorOptions;
using testing::Gate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::MakeToyModel;
using testing::RecordingResponder;
using testing::Unfinished;

// Writes "B", "u<run>:<tokens>", "e<run>" and "F" or "!", each followed by a space.
class PlainWriter : public AnswerWriter {
 public:
  explicit PlainWriter(bool streams) : streams_(streams) {}
  bool streams() const override { return streams_; }
  void Begin(std::string& out) override { Say("B", out); }
  void Update(size_t run, const StreamUpdate& update, std::string& out) override {
    Say(absl::StrFormat("u%d:%d", run, update.tokens.size()), out);
  }
  void End(size_t run, const StreamEnd&, std::string& out) override {
    Say(absl::StrFormat("e%d", run), out);
  }
  void Finish(std::string& out) override {
    Say("F", out);
    if (!streams_) out = kept_;
  }
  void Fail(const absl::Status&, std::string& out) override { out += "! "; }

 private:
  void Say(const std::string& text, std::string& out) { (streams_ ? out : kept_) += text + " "; }
  const bool streams_;
  std::string kept_;
};

// Requests that follow `regex`.
std::vector<EngineRequest> Constrained(size_t number, const std::string& regex) {
  const auto source = std::make_shared<constraint::ConstraintSource>(
      constraint::ConstraintSource{.kind = constraint::SourceKind::kRegex, .text = regex});
  std::vector<EngineRequest> requests(number, GreedyRequest(1, 5, 20));
  for (EngineRequest& request : requests) request.constraint_source = source;
  return requests;
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

class AnswerRunTest : public ::testing::Test {
 protected:
  void Start(std::vector<EngineRequest> runs, bool streams,
             const AnswerRunOptions& options = AnswerRunOptions()) {
    StartAnswer(*model_, {std::move(runs), std::make_unique<PlainWriter>(streams)}, client_,
                responder_, options);
  }
  v1::SchedulerStatus Scheduler() {
    v1::GetStatusResponse status;
    model_->replicas().FillStatus(status);
    return status.scheduler();
  }
  // When this returns, the reader of every run that left the scheduler before has seen its end: the
  // engine works in order, and this request comes after.
  void RunAnother() {
    const auto responder = std::make_shared<RecordingResponder>();
    std::vector<EngineRequest> runs = {GreedyRequest(2, 3, 1)};
    StartAnswer(*model_, {std::move(runs), std::make_unique<PlainWriter>(/*streams=*/false)},
                std::make_shared<CountingClient>(), responder, AnswerRunOptions());
    responder->WaitForEnd();
  }
  void WaitUntilIdle() {
    ASSERT_TRUE(Eventually([&] { return Unfinished(Scheduler()) == 0; }));
    // The end of a run is charged when it is taken.
    ASSERT_TRUE(Eventually([&] { return responder_.use_count() == 1; }));
  }

  std::unique_ptr<ServedModel> model_ = MakeToyModel();
  std::shared_ptr<CountingClient> client_ = std::make_shared<CountingClient>();
  std::shared_ptr<RecordingResponder> responder_ = std::make_shared<RecordingResponder>();
};

TEST_F(AnswerRunTest, AStreamBeginsOnceEndsOnceAndLetsGoOfEverything) {
  Start({GreedyRequest(1, 5, 20), GreedyRequest(2, 7, 9)}, /*streams=*/true);
  responder_->WaitForEnd();
  WaitUntilIdle();
  const std::string written = responder_->written();
  EXPECT_TRUE(written.starts_with("B ")) << written;
  EXPECT_TRUE(written.ends_with("F ")) << written;
  for (const char* once : {"B ", "e0 ", "e1 ", "F "}) EXPECT_EQ(Count(written, once), 1u) << once;
  EXPECT_EQ(client_->charged(), 5u + 20u + 7u + 9u);
  EXPECT_EQ(responder_->start()->content_type, "text/event-stream");
}

// 128 sequences of up to 600 tokens are more than 200 tokens a minute: none of them runs.
TEST_F(AnswerRunTest, AKeysLimitsHoldBeforeItsRequestRuns) {
  const std::string one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
  for (const char* limit : {"tokens=200", "concurrency=1", "requests=1"}) {
    const auto keys = ApiKeys::Parse("a sha256:" + one + " " + limit);
    ASSERT_TRUE(keys.ok()) << keys.status();
    auto lease = (*keys)->Admit("one", absl::Now());
    ASSERT_TRUE(std::holds_alternative<KeyLease>(lease));
    const auto responder = std::make_shared<RecordingResponder>();
    std::vector<EngineRequest> runs(128, GreedyRequest(1, 4, 600));
    StartAnswer(*model_, {std::move(runs), std::make_unique<PlainWriter>(/*streams=*/false)},
                std::get<KeyLease>(lease).client(), responder, AnswerRunOptions());
    responder->WaitForEnd();
    EXPECT_EQ(responder->response()->status, 400) << limit << ": it never fits";
    EXPECT_THAT(responder->response()->body, HasSubstr(limit));
    EXPECT_EQ(Scheduler().completion_tokens(), 0u);
  }
}

TEST_F(AnswerRunTest, AnAnswerWithoutMaxTokensGetsWhatTheKeyHasLeft) {
  const std::string one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
  const auto keys = ApiKeys::Parse("a sha256:" + one + " tokens=12");
  ASSERT_TRUE(keys.ok()) << keys.status();
  auto lease = (*keys)->Admit("one", absl::Now());
  ASSERT_TRUE(std::holds_alternative<KeyLease>(lease));
  EngineRequest request = GreedyRequest(1, 4, 600);
  request.max_tokens = kNoTokenLimit;
  StartAnswer(*model_, {{request}, std::make_unique<PlainWriter>(/*streams=*/false)},
              std::get<KeyLease>(lease).client(), responder_, AnswerRunOptions());
  responder_->WaitForEnd();
  WaitUntilIdle();
  EXPECT_EQ((*keys)->Usage()[0].prompt_tokens, 4u);
  EXPECT_EQ((*keys)->Usage()[0].completion_tokens, 8u);
}

TEST_F(AnswerRunTest, AWholeAnswerIsOneResponse) {
  Start({GreedyRequest(1, 5, 20)}, /*streams=*/false);
  responder_->WaitForEnd();
  WaitUntilIdle();
  EXPECT_EQ(responder_->num_writes(), 0);
  EXPECT_FALSE(responder_->start().has_value());
  ASSERT_TRUE(responder_->response().has_value());
  EXPECT_TRUE(responder_->response()->body.ends_with("e0 F "));
}

TEST_F(AnswerRunTest, AWrongConstraintIsRefusedByTheNameOfItsMember) {
  StartAnswer(*model_,
              {.runs = Constrained(2, "a("),
               .writer = std::make_unique<PlainWriter>(/*streams=*/true),
               .constraint_names = {.member = "guided_regex"}},
              client_, responder_, AnswerRunOptions());
  responder_->WaitForEnd();
  WaitUntilIdle();
  ASSERT_TRUE(responder_->response().has_value());
  EXPECT_EQ(responder_->response()->status, 400);
  EXPECT_THAT(responder_->response()->body, HasSubstr("Invalid 'guided_regex': "));
  EXPECT_EQ(client_->charged(), 0u);
}

TEST_F(AnswerRunTest, WhatComesDuringAWriteIsMergedIntoTheNext) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch& step) {
    if (step.header.step_id > 5) go->Wait();
    return absl::OkStatus();
  };
  model_ = MakeToyModel(fake);
  responder_->Hold();
  Start({GreedyRequest(1, 5, 50)}, /*streams=*/true);
  responder_->WaitForWrite();
  go->Open();
  ASSERT_TRUE(Eventually([&] { return Scheduler().running() == 0; }));
  RunAnother();
  EXPECT_EQ(responder_->num_writes(), 1);
  responder_->Drain();
  responder_->WaitForEnd();
  WaitUntilIdle();
  EXPECT_EQ(responder_->num_writes(), 2);
  EXPECT_TRUE(responder_->written().ends_with("e0 F "));
}

TEST_F(AnswerRunTest, AClientThatGoesAwayFreesItsPlacesAndIsCharged) {
  FakeExecutorOptions fake;
  fake.limits.context_len = 1 << 14;
  fake.limits.num_blocks[kGlobalGroup] = 1 << 12;
  fake.limits.max_table_len = 1 << 15;
  model_ = MakeToyModel(fake);
  Start({GreedyRequest(1, 5, kNoTokenLimit), GreedyRequest(2, 5, kNoTokenLimit)}, true);
  responder_->WaitForWrite();
  responder_->Leave();
  WaitUntilIdle();
  EXPECT_GT(client_->charged(), 10u);
  EXPECT_EQ(Scheduler().kv_blocks_used(0), 0u);
}

TEST_F(AnswerRunTest, ARequestThatDoesNotFitIsRefusedWhole) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch&) {
    go->Wait();
    return absl::OkStatus();
  };
  model_ = MakeToyModel(fake, {.max_sequences = 1, .max_waiting = 1});
  Start({GreedyRequest(1, 5, 3), GreedyRequest(2, 5, 3), GreedyRequest(3, 5, 3)}, true);
  responder_->WaitForEnd();
  EXPECT_EQ(responder_->response()->status, 429);
  EXPECT_THAT(responder_->response()->body, HasSubstr("queue is full"));
  go->Open();
  WaitUntilIdle();
}

TEST_F(AnswerRunTest, AFailureBeforeTheFirstByteIsAResponse) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) { return absl::InternalError("segment 0: refused"); };
  model_ = MakeToyModel(fake);
  Start({GreedyRequest(1, 5, 3)}, /*streams=*/true);
  responder_->WaitForEnd();
  EXPECT_EQ(responder_->response()->status, 500);
  EXPECT_EQ(responder_->written(), "");
  WaitUntilIdle();
}

TEST_F(AnswerRunTest, AFailureAfterTheFirstByteIsSaidInTheStream) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch& step) -> absl::Status {
    if (step.header.step_id <= 10) return absl::OkStatus();
    go->Wait();
    return absl::InternalError("segment 0: refused");
  };
  model_ = MakeToyModel(fake);
  Start({GreedyRequest(1, 5, 30), GreedyRequest(2, 5, 3)}, /*streams=*/true);
  responder_->WaitForWrite();
  go->Open();
  responder_->WaitForEnd();
  WaitUntilIdle();
  const std::string written = responder_->written();
  EXPECT_TRUE(written.ends_with("! ")) << written;
  EXPECT_EQ(Count(written, "F "), 0u) << written;
}

TEST_F(AnswerRunTest, AFailureAfterAKeepAliveIsSaidInTheStream) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) { return absl::InternalError("segment 0: refused"); };
  model_ = MakeToyModel(fake);
  responder_->SendHead();
  Start({GreedyRequest(1, 5, 3)}, /*streams=*/true);
  responder_->WaitForEnd();
  EXPECT_EQ(responder_->written(), "! ");
  WaitUntilIdle();
}

TEST_F(AnswerRunTest, SeveralAnswersCompileTheirConstraintOnce) {
  for (const bool streams : {false, true}) {
    responder_ = std::make_shared<RecordingResponder>();
    Start(Constrained(3, "[a-c]{4}"), streams);
    responder_->WaitForEnd();
    WaitUntilIdle();
    const std::string text = streams ? responder_->written() : responder_->response()->body;
    for (const char* end : {"e0 ", "e1 ", "e2 "}) EXPECT_EQ(Count(text, end), 1u) << text;
    EXPECT_TRUE(text.ends_with("F ")) << text;
  }
  EXPECT_EQ(model_->constraints().counts().compiled, 1u);
}

TEST_F(AnswerRunTest, AWrongConstraintIsRefusedWhole) {
  Start(Constrained(2, "a("), /*streams=*/true);
  responder_->WaitForEnd();
  WaitUntilIdle();
  EXPECT_EQ(responder_->response()->status, 400);
  EXPECT_THAT(responder_->response()->body, ::testing::StartsWith("regular expression: "));
}

TEST_F(AnswerRunTest, AClientThatGoesAwayCancelsItsCompilation) {
  constraint::HeldThreads held(model_->constraints());
  Start(Constrained(2, "[a-c]{4}"), /*streams=*/true);
  EXPECT_EQ(model_->constraints().counts().waiting, 1u) << "one for both runs";
  responder_->Leave();
  EXPECT_EQ(model_->constraints().counts().waiting, 0u);
  WaitUntilIdle();
  held.Release();
  EXPECT_EQ(client_->charged(), 0u);
  EXPECT_EQ(Scheduler().completion_tokens(), 0u);
}

class RefusalCounter : public EngineObserver {
 public:
  void RequestRefused(Api /*api*/, const absl::Status& /*status*/) override { ++count; }
  std::atomic<int> count = 0;
};

// The engine is there until then: it tells its observers.
TEST_F(AnswerRunTest, AModelThatEndsAnswersWhatWaitsForACompilation) {
  RefusalCounter refusals;
  model_ = MakeToyModel({}, {.observers = {&refusals}});
  auto held = std::make_unique<constraint::HeldThreads>(model_->constraints());
  Start(Constrained(1, "[a-c]{4}"), /*streams=*/false);
  std::thread end([&] { model_.reset(); });
  responder_->WaitForEnd();
  EXPECT_EQ(responder_->response()->status, 499);
  held.reset();
  end.join();
  EXPECT_EQ(refusals.count, 1);
}

TEST_F(AnswerRunTest, AReaderThatStandsStillIsGivenUp) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch& step) {
    if (step.header.step_id > 5) go->Wait();
    return absl::OkStatus();
  };
  model_ = MakeToyModel(fake);
  responder_->Hold();
  Start({GreedyRequest(1, 5, 200)}, /*streams=*/true, {.max_unread_tokens = 10});
  responder_->WaitForWrite();
  go->Open();
  ASSERT_TRUE(Eventually([&] { return Scheduler().running() == 0; }));
  RunAnother();
  responder_->Drain();
  responder_->WaitForEnd();
  EXPECT_TRUE(responder_->written().ends_with("! "));
  WaitUntilIdle();
}

}  // namespace
}  // namespace tandem::gateway

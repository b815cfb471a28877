// Observers see what happened, in order.
#include "services/gateway/engine/engine_observer.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "services/gateway/engine/testing/engine_harness.h"

namespace tandem::gateway {
namespace {

using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using testing::MakeEngine;
using testing::StreamReader;
using testing::ToyLimits;

// Read after the engine's end alone.
class Recorder final : public EngineObserver {
 public:
  struct Request {
    std::string id;
    std::string calls;  // a letter each
    uint32_t prompt_rows = 0, decode_rows = 0;
    absl::Time submitted, started, first_token;
    RequestReport end;
  };
  void RequestAccepted(RequestNumber number, const EngineRequest& request,
                       absl::Time submitted) override {
    requests[number] = {.id = request.request_id, .calls = "a", .submitted = submitted};
  }
  void RequestStarted(RequestNumber number, Api /*api*/, absl::Time submitted,
                      absl::Time now) override {
    EXPECT_EQ(submitted, requests.at(number).submitted);
    requests.at(number).calls += "s";
    requests.at(number).started = now;
  }
  void RequestFirstToken(RequestNumber number, Api /*api*/, absl::Time submitted,
                         absl::Time now) override {
    EXPECT_EQ(submitted, requests.at(number).submitted);
    requests.at(number).calls += "f";
    requests.at(number).first_token = now;
  }
  void RequestEnded(const RequestReport& report) override {
    Request& request = requests.at(report.number);
    EXPECT_EQ(report.request->request_id, request.id);
    request.calls += "e";
    request.end = report;
  }
  void StepEnded(const StepReport& report) override {
    steps.push_back(report);
    EXPECT_LE(report.begin, report.turn);
    EXPECT_LE(report.turn, report.end);
    uint32_t num_rows = 0;
    for (const RequestRows& rows : report.requests) {
      num_rows += rows.num_rows;
      Request& request = requests.at(rows.request);
      if (report.status.ok()) {
        (rows.decode ? request.decode_rows : request.prompt_rows) += rows.num_rows;
      }
    }
    EXPECT_EQ(num_rows, report.prompt_rows + report.decode_rows);
    if (!report.status.ok()) return;
    ASSERT_EQ(report.segments.size(), report.plan->segments.size());
    EXPECT_EQ(report.segments[0].device_ns, 1000u);
  }

  std::map<RequestNumber, Request> requests;
  std::vector<StepReport> steps;
};

EngineOptions Observed(EngineObserver& observer) {
  return {.max_sequences = 4,
          .max_rows = 64,
          .chunk_rows = 16,
          .max_waiting = 100,
          .min_recovery_pause = absl::Milliseconds(1),
          .observers = {&observer}};
}

TEST(EngineObserverTest, ARequestIsToldOfFromItsArrivalToItsLastToken) {
  Recorder recorder;
  auto engine = MakeEngine({}, Observed(recorder));
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (uint32_t i = 0; i < 7; ++i) {  // more than run together
    readers.push_back(std::make_unique<StreamReader>());
    ASSERT_TRUE(engine->Submit(GreedyRequest(i, 5 + 11 * i, 9), readers.back()->stream()).ok());
  }
  for (const auto& reader : readers) ASSERT_TRUE(reader->ReadToEnd().status.ok());
  engine.reset();
  ASSERT_EQ(recorder.requests.size(), 7u);
  for (const auto& [number, request] : recorder.requests) {
    const uint32_t i = static_cast<uint32_t>(number) - 1;
    EXPECT_EQ(request.id, "r" + std::to_string(i));
    EXPECT_EQ(request.calls, "asfe");
    EXPECT_EQ(request.prompt_rows, 5 + 11 * i);
    EXPECT_EQ(request.decode_rows, 8u) << "the prompt's last row makes the first token";
    EXPECT_EQ(request.end.completion_tokens, 9u);
    EXPECT_EQ(request.end.reason, v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(request.end.started, request.started);
    EXPECT_EQ(request.end.first_token, request.first_token);
    EXPECT_LE(request.submitted, request.started);
    EXPECT_LE(request.started, request.first_token);
    EXPECT_LE(request.first_token, request.end.last_token);
    EXPECT_LE(request.end.last_token, request.end.end);
  }
  uint64_t last_id = 0;
  absl::Time last_end = absl::InfinitePast();
  bool any_queued = false;
  for (const StepReport& step : recorder.steps) {
    EXPECT_GT(step.key.step_id, last_id);
    EXPECT_GE(step.turn, last_end);
    last_id = step.key.step_id;
    last_end = step.end;
    any_queued |= step.queued;
  }
  EXPECT_TRUE(any_queued);
}

TEST(EngineObserverTest, StepsThatFailAndRowsComputedAnewAreToldOfAsSuch) {
  Recorder recorder;
  FakeExecutorOptions fake;
  fake.queue_steps = false;
  bool failed = false;
  fake.on_step = [&failed](const StepBatch& step) {
    if (failed || step.header.step_id != 4) return absl::OkStatus();
    failed = true;
    return absl::UnavailableError("gpu0 is gone");
  };
  auto engine = MakeEngine(fake, Observed(recorder));
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 10, 6), reader.stream()).ok());
  ASSERT_TRUE(reader.ReadToEnd().status.ok());
  engine.reset();
  ASSERT_EQ(recorder.requests.size(), 1u);
  const Recorder::Request& request = recorder.requests.begin()->second;
  EXPECT_EQ(request.calls, "asfe") << "its start and first token are reported once";
  // Step 1: the prompt; 2 and 3: a token each; 4 is lost; 5: prompt and three tokens again.
  EXPECT_EQ(request.prompt_rows, 10u + 13u);
  EXPECT_EQ(request.decode_rows, 4u);
  uint32_t num_failed = 0;
  for (const StepReport& step : recorder.steps) num_failed += step.status.ok() ? 0 : 1;
  EXPECT_EQ(num_failed, 1u);
}

TEST(EngineObserverTest, ARequestThatNeverRunsIsToldOfItsEndAlone) {
  Recorder recorder;
  auto engine = MakeEngine({}, Observed(recorder));
  StreamReader reader;
  EngineRequest request = GreedyRequest(1, 10, 6);
  request.deadline = absl::InfinitePast();
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(reader.ReadToEnd().status));
  engine.reset();
  const Recorder::Request& seen = recorder.requests.at(1);
  EXPECT_EQ(seen.calls, "ae");
  EXPECT_EQ(seen.end.started, absl::InfiniteFuture());
  EXPECT_TRUE(absl::IsDeadlineExceeded(seen.end.status));
}

}  // namespace
}  // namespace tandem::gateway

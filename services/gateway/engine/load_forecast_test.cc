// Forecasts against the scheduler on a device whose steps take a known time: no clock.
#include "services/gateway/engine/load_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {
namespace {

constexpr uint32_t kMaxRunning = 8;
constexpr uint32_t kMaxRows = 64;

SchedulerOptions Options() {
  SchedulerOptions options;
  options.limits = {.max_rows = kMaxRows,
                    .max_sequences = kMaxRunning,
                    .max_outputs = kMaxRows,
                    .max_logit_outputs = kMaxRunning,
                    .max_table_len = kMaxRunning * 2 * 512,
                    .vocab_size = 1u << 30,
                    .context_len = 2048,
                    .block_tokens = 4,
                    .sliding_window = 32,
                    .num_blocks = {kMaxRunning * 512, kMaxRunning * 28}};
  options.max_sequences = kMaxRunning;
  options.max_rows = options.chunk_rows = kMaxRows;
  return options;
}

// 8 ms a step, 0.4 ms a decode row, 0.1 ms a prompt row.
double SecondsOf(uint32_t decode_rows, uint32_t prompt_rows) {
  return 0.008 + 0.0004 * decode_rows + 0.0001 * prompt_rows;
}

struct Request {
  std::string tenant;
  uint32_t prompt_len = 1;
  uint32_t answer_len = 1;
  uint32_t max_answer = kOpenAnswer;  // that RequestSize says
  int32_t priority = 0;
};

// Runs requests on the scheduler, and tells the forecast what the engine would.
class Device {
 public:
  uint64_t Add(const Request& request) {
    const uint64_t id = ++last_id_;
    SequenceSpec spec{.id = id};
    spec.prompt.resize(request.prompt_len);
    std::iota(spec.prompt.begin(), spec.prompt.end(), static_cast<uint32_t>(4096 * id));
    spec.tenant = {request.tenant, 1};
    spec.priority = request.priority;
    EXPECT_TRUE(scheduler_->Add(std::move(spec)).ok());
    live_[id] = {request};
    forecast_.Admitted(id, SizeOf(request));
    return id;
  }
  static RequestSize SizeOf(const Request& request) {
    return {.tenant = request.tenant,
            .priority = request.priority,
            .prompt_tokens = request.prompt_len,
            .max_answer = request.max_answer};
  }

  // Steps with decode rows take no longer where their prompt rows can be cut; 0: they are not.
  void SetTarget(double seconds) { target_ = seconds; }

  // Runs one step, and returns whether there was one to run.
  bool Step() {
    const auto fits = [this](uint32_t decode_rows) {
      return forecast_.costs().PromptRowsWithin(decode_rows, target_, kMaxRows);
    };
    const ScheduledStep* const step =
        target_ > 0.0 ? scheduler_->Schedule({.prompt_rows = fits}) : scheduler_->Schedule();
    if (step == nullptr) return false;
    uint32_t decode = 0, prompt = 0;
    for (const ScheduledRows& rows : step->rows) {
      Live& live = live_.at(rows.sequence);
      live.started = true;
      live.computed = rows.first_position + rows.num_rows;
      (rows.num_rows == 1 ? decode : prompt) += rows.num_rows;
    }
    const double seconds = SecondsOf(decode, prompt);
    now_ += seconds;
    if (decode > 0 && prompt > 0) mixed_.emplace_back(seconds, prompt);
    scheduler_->StepDone();
    for (const ScheduledOutput& output : step->outputs) Take(output.sequence);
    forecast_.costs().StepTook(decode, prompt, seconds);
    std::vector<RequestProgress> running;
    for (const auto& [id, live] : live_) {
      if (!live.started) continue;
      const uint32_t left =
          live.request.prompt_len - std::min(live.request.prompt_len, live.computed);
      running.push_back({id, live.decided > 0 ? 0 : left, live.decided});
    }
    forecast_.Progress(running, kMaxRunning);
    return true;
  }
  void Run(int num_steps) {
    for (int i = 0; i < num_steps; ++i) ASSERT_TRUE(Step());
  }

  double now() const { return now_; }
  // What the steps with both kinds of rows took, and their prompt rows.
  const std::vector<std::pair<double, uint32_t>>& mixed() const { return mixed_; }
  LoadForecast& forecast() { return forecast_; }
  // When each request ended, in order.
  const std::vector<std::pair<double, uint64_t>>& ends() const { return ends_; }
  double EndOf(uint64_t id) const {
    for (const auto& [time, ended] : ends_) {
      if (ended == id) return time;
    }
    return -1.0;
  }

 private:
  struct Live {
    Request request;
    uint32_t computed = 0;
    uint32_t decided = 0;
    bool started = false;
  };
  void Take(uint64_t id) {
    Live& live = live_.at(id);
    if (++live.decided < live.request.answer_len) return scheduler_->Append(id, 7, {});
    scheduler_->Remove(id);
    forecast_.AnswerEnded(live.decided, live.decided == live.request.max_answer);
    forecast_.Remove(id);
    ends_.emplace_back(now_, id);
    live_.erase(id);
  }

  std::unique_ptr<Scheduler> scheduler_ = Scheduler::Create(Options()).value();
  LoadForecast forecast_{kMaxRunning, kMaxRows};
  std::map<uint64_t, Live> live_;
  std::vector<std::pair<double, uint64_t>> ends_;
  std::vector<std::pair<double, uint32_t>> mixed_;
  uint64_t last_id_ = 0;
  double now_ = 0.0;
  double target_ = 0.0;
};

// Runs the device dry and compares its ends with those that were forecast: within 30%, but for the
// first, which may be a step away.
void ExpectEnds(Device& device, const std::vector<LoadForecast::End>& forecast) {
  const double began = device.now();
  const size_t before = device.ends().size();
  while (device.Step()) {
  }
  ASSERT_EQ(device.ends().size() - before, forecast.size());
  for (size_t i = 0; i < forecast.size(); ++i) {
    const double took = device.ends()[before + i].first - began;
    EXPECT_NEAR(forecast[i].seconds, took, 0.3 * took + SecondsOf(kMaxRunning, 0)) << i;
  }
}

TEST(LoadForecastTest, KnowsNothingBeforeTheFirstStep) {
  LoadForecast forecast(8, 64);
  forecast.Admitted(1, {.tenant = "a", .prompt_tokens = 5, .max_answer = 10});
  EXPECT_TRUE(forecast.Ends(10).empty());
  EXPECT_FALSE(forecast.Predict({.tenant = "a", .prompt_tokens = 5}).has_value());
}

TEST(LoadForecastTest, ForetellsEndsBehindAQueue) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    Device device;
    for (int i = 0; i < 60; ++i) {
      const uint32_t answer = 20 + random() % 100;
      device.Add({"a", 1 + static_cast<uint32_t>(random() % 200), answer, answer});
    }
    device.Run(50);
    SCOPED_TRACE(seed);
    const auto ends = device.forecast().Ends(1000);
    ASSERT_GE(ends.size(), 50u);
    ExpectEnds(device, ends);
  }
}

TEST(LoadForecastTest, ForetellsEndsWhileALongPromptIsComputed) {
  Device device;
  for (int i = 0; i < 4; ++i) device.Add({"a", 10, 100, 100});
  device.Run(10);
  device.Add({"a", 1500, 10, 10});
  device.Step();
  ExpectEnds(device, device.forecast().Ends(1000));
}

TEST(LoadForecastTest, LearnsHowLongOpenAnswersAre) {
  std::mt19937 random(5);
  Device device;
  for (int i = 0; i < 200; ++i) {
    device.Add({"a", 20, 60 + static_cast<uint32_t>(random() % 40)});
  }
  while (device.ends().size() < 100) device.Step();
  const double began = device.now();
  const auto ends = device.forecast().Ends(1000);
  ASSERT_EQ(ends.size(), 100u);
  while (device.Step()) {
  }
  // Single answers differ; the queue as a whole is foretold.
  for (const size_t i : {40u, 70u, 99u}) {
    const double took = device.ends()[100 + i].first - began;
    EXPECT_NEAR(ends[i].seconds, took, 0.3 * took) << i;
  }
}

TEST(LoadForecastTest, PredictsTheEndOfOneMoreRequest) {
  std::mt19937 random(9);
  Device device;
  for (int i = 0; i < 40; ++i) device.Add({"a", 50, 40, 40});
  device.Run(100);
  const Request more{"a", 80, 30, 30};
  const auto predicted = device.forecast().Predict(Device::SizeOf(more));
  ASSERT_TRUE(predicted.has_value());
  EXPECT_TRUE(device.forecast().knows_answers());
  const double alone = *device.forecast().PredictAlone(Device::SizeOf(more));
  const double began = device.now();
  const uint64_t id = device.Add(more);
  while (device.Step()) {
  }
  const double took = device.EndOf(id) - began;
  EXPECT_NEAR(*predicted, took, 0.3 * took);
  EXPECT_LT(alone, 0.6 * took);
  EXPECT_NEAR(alone, SecondsOf(0, 64) + SecondsOf(0, 16) + 29 * SecondsOf(1, 0), 0.1);
}

TEST(LoadForecastTest, AnotherTenantsRequestDoesNotWaitForTheWholeQueue) {
  Device device;
  for (int i = 0; i < 100; ++i) device.Add({"a", 50, 40, 40});
  device.Run(100);
  const Request more{"b", 50, 40, 40};
  const auto predicted = device.forecast().Predict(Device::SizeOf(more));
  const auto of_same = device.forecast().Predict(Device::SizeOf({"a", 50, 40, 40}));
  ASSERT_TRUE(predicted.has_value() && of_same.has_value());
  EXPECT_LT(3 * *predicted, *of_same);
  const double began = device.now();
  const uint64_t id = device.Add(more);
  while (device.EndOf(id) < 0) ASSERT_TRUE(device.Step());
  const double took = device.EndOf(id) - began;
  EXPECT_NEAR(*predicted, took, 0.3 * took);
}

TEST(LoadForecastTest, APriorityPassesTheQueueAndTakesAPlace) {
  for (const int32_t priority : {-1, 1}) {
    Device device;
    for (int i = 0; i < 40; ++i) device.Add({"a", 50, 40, 40});
    device.Run(100);
    const Request more{"a", 50, 40, 40, priority};
    const auto predicted = device.forecast().Predict(Device::SizeOf(more));
    ASSERT_TRUE(predicted.has_value());
    const double began = device.now();
    const uint64_t id = device.Add(more);
    while (device.Step()) {
    }
    const double took = device.EndOf(id) - began;
    EXPECT_NEAR(*predicted, took, 0.3 * took) << priority;
  }
}

TEST(TokenTargetTest, StepsWithPromptRowsTakeAboutTheTarget) {
  const double target = 0.0135;  // 4 decode rows and 39 prompt rows
  for (const bool has_target : {false, true}) {
    Device device;
    if (has_target) device.SetTarget(target);
    for (int i = 0; i < 4; ++i) device.Add({"a", 10, 400, 400});
    device.Run(20);
    for (int i = 0; i < 4; ++i) device.Add({"a", 1000, 1, 1});
    const size_t before = device.mixed().size();
    while (device.ends().size() < 4) ASSERT_TRUE(device.Step());
    const auto& mixed = device.mixed();
    double longest = 0.0;
    uint32_t rows = 0;
    for (size_t i = before; i < mixed.size(); ++i) longest = std::max(longest, mixed[i].first);
    for (size_t i = before + 10; i < mixed.size(); ++i) rows = std::max(rows, mixed[i].second);
    if (!has_target) {
      EXPECT_GT(longest, 0.0155);
    } else {
      EXPECT_LE(longest, 1.05 * target) << "last rows of prompts count as decode rows";
      EXPECT_GE(rows, 36u) << "as many as fit";
    }
  }
}

TEST(LoadForecastTest, FewerPlacesThanSequencesMeanLaterEnds) {
  LoadForecast forecast(8, 64);
  forecast.costs().StepTook(1, 0, 0.010);
  forecast.costs().StepTook(0, 64, 0.010);
  for (uint64_t id = 1; id <= 4; ++id) {
    forecast.Admitted(id, {.tenant = "a", .prompt_tokens = 10, .max_answer = 101});
  }
  EXPECT_NEAR(forecast.Ends(9).back().seconds, 1.0, 0.2);
  forecast.Progress({}, 1);  // KV blocks hold one at a time
  EXPECT_NEAR(forecast.Ends(9).back().seconds, 4.0, 0.4);
  forecast.Remove(1);
  EXPECT_EQ(forecast.Ends(9).size(), 3u);
}

TEST(LoadForecastTest, AcceptedGuessesShortenAnswers) {
  LoadForecast forecast(8, 64);
  forecast.costs().StepTook(1, 0, 0.010);
  forecast.Admitted(1, {.tenant = "a", .prompt_tokens = 1, .max_answer = 201});
  const double plain = forecast.Ends(1).front().seconds;
  for (int i = 0; i < 40; ++i) forecast.SetPace(2.0);
  EXPECT_NEAR(forecast.Ends(1).front().seconds, plain / 2, 0.05 * plain);
}

}  // namespace
}  // namespace tandem::gateway

// What an engine under load tells those that it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/rpc/error_details.h"
#include "services/gateway/engine/testing/engine_harness.h"
#include "services/gateway/engine/testing/gate.h"

namespace tandem::gateway {
namespace {

using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using testing::MakeEngine;
using testing::StreamReader;

constexpr uint32_t kAnswer = 80;

FakeExecutorOptions StepsOf10Ms(const std::function<void()>& step_ends = [] {}) {
  FakeExecutorOptions fake;
  fake.on_step = [step_ends](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(10));
    step_ends();
    return absl::OkStatus();
  };
  return fake;
}

const EngineOptions kFourRunAndFourWait = {
    .max_sequences = 4, .max_rows = 64, .chunk_rows = 64, .max_waiting = 4};

// One more than has a place asks after each step, from the 25th on, until it is taken.
class OneTooMany {
 public:
  void SetEngine(Engine* engine) { engine_ = engine; }
  void StepEnds() {
    all_asked.Wait();
    const absl::Time now = absl::Now();
    if (++num_steps_ > 1 && num_steps_ <= kFirst) step_times.push_back(now - last_);
    last_ = now;
    if (num_steps_ < kFirst || taken_after > 0) return;
    const absl::Status status = engine_->Submit(GreedyRequest(9, 10, kAnswer), reader_.stream());
    if (num_steps_ == kFirst) {
      refused = status;
    } else if (status.ok()) {
      taken_after = num_steps_ - kFirst;
      taken.Open();
    }
  }

  testing::Gate all_asked, taken;
  absl::Status refused;
  uint32_t taken_after = 0;                // steps
  std::vector<absl::Duration> step_times;  // before it was refused

 private:
  static constexpr uint32_t kFirst = 25;

  Engine* engine_ = nullptr;
  StreamReader reader_;
  uint32_t num_steps_ = 0;
  absl::Time last_;
};

// Counts steps: a machine that stalls makes some of them longer, and the forecast with them.
TEST(EngineLoadTest, TheTimeThatARefusedRequestIsToldIsRightWithin30Percent) {
  OneTooMany more;
  StreamReader readers[8];
  auto engine = MakeEngine(StepsOf10Ms([&] { more.StepEnds(); }), kFourRunAndFourWait);
  more.SetEngine(engine.get());
  for (uint32_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(engine->Submit(GreedyRequest(i, 10, kAnswer), readers[i].stream()).ok());
  }
  more.all_asked.Open();
  more.taken.Wait();
  ASSERT_EQ(more.refused.code(), absl::StatusCode::kResourceExhausted);
  const auto told = RetryAfterOf(more.refused);
  ASSERT_TRUE(told.has_value()) << more.refused;
  EXPECT_GT(more.taken_after, 30u) << "or there is nothing to tell";
  const auto [shortest, longest] = std::ranges::minmax(more.step_times);
  EXPECT_GT(*told, 0.7 * more.taken_after * shortest) << more.taken_after << " steps";
  EXPECT_LT(*told, 1.3 * more.taken_after * longest) << more.taken_after << " steps";
}

TEST(EngineLoadTest, ADeadlineIsRefusedByWhatStepsTook) {
  auto engine = MakeEngine(StepsOf10Ms(), kFourRunAndFourWait);
  StreamReader first, reader;
  ASSERT_TRUE(engine->Submit(GreedyRequest(1, 10, 30), first.stream()).ok());
  ASSERT_TRUE(first.ReadToEnd().status.ok());
  EngineRequest request = GreedyRequest(2, 10, 90);
  request.deadline = absl::Now() + absl::Milliseconds(300);
  EXPECT_EQ(engine->Submit(request, reader.stream()).code(), absl::StatusCode::kDeadlineExceeded);
  request.deadline = absl::Now() + absl::Seconds(60);
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  EXPECT_TRUE(reader.ReadToEnd().status.ok());
}

// Prompt rows of the steps that have decode rows too.
class PromptRows : public EngineObserver {
 public:
  void StepEnded(const StepReport& report) override {
    if (report.decode_rows > 0 && report.prompt_rows > 0) rows.push_back(report.prompt_rows);
  }
  std::vector<uint32_t> rows;
};

// An answer goes on while long prompts come: 5 ms a step, and 0.2 ms a prompt row.
std::vector<uint32_t> RowsWith(absl::Duration target) {
  FakeExecutorOptions fake;
  fake.limits.context_len = 1 << 12;
  fake.limits.max_rows = 512;
  fake.limits.max_table_len = 1 << 14;
  fake.limits.num_blocks[kGlobalGroup] = 1 << 12;
  fake.limits.num_blocks[kWindowGroup] = 1 << 12;
  fake.on_step = [](const StepBatch& step) {
    const uint32_t prompt_rows = step.header.num_rows - step.header.num_outputs;
    absl::SleepFor(absl::Milliseconds(5) + prompt_rows * absl::Microseconds(200));
    return absl::OkStatus();
  };
  PromptRows observer;
  EngineOptions options{.max_sequences = 4, .max_rows = 512, .chunk_rows = 512, .max_waiting = 4};
  options.token_target = target;
  options.observers = {&observer};
  auto engine = MakeEngine(fake, options);
  StreamReader answer, prompts[3];
  EXPECT_TRUE(engine->Submit(GreedyRequest(1, 10, 3000), answer.stream()).ok());
  while (answer.decisions.size() < 10) answer.Read();
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(engine->Submit(GreedyRequest(10 + i, 1000, 1), prompts[i].stream()).ok());
    EXPECT_TRUE(prompts[i].ReadToEnd().status.ok());
  }
  answer.stream()->Cancel();
  answer.ReadToEnd();
  engine.reset();
  EXPECT_GE(std::accumulate(observer.rows.begin(), observer.rows.end(), 0u), 2900u);
  std::ranges::sort(observer.rows);
  return observer.rows;
}

// What steps take then is in load_forecast_test.cc, on a device that takes its time exactly.
TEST(TokenTargetTest, PromptsAreCutByWhatStepsTook) {
  const std::vector<uint32_t> without = RowsWith(absl::ZeroDuration());
  EXPECT_GT(without.back(), 400u);
  // 0.9 of the target leaves 110 rows, less where this machine is slow.
  const std::vector<uint32_t> with = RowsWith(absl::Milliseconds(30));
  EXPECT_LT(with.back(), 200u);
  EXPECT_GT(with.back(), 40u) << "chunks are no smaller than they must be";
}

}  // namespace
}  // namespace tandem::gateway

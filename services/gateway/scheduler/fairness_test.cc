// What a request of one tenant waits beside the load of another: counted in steps and rows of a
// simulated device, without a clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {
namespace {

constexpr uint32_t kToken = 7;

SchedulerOptions FairOptions() {
  SchedulerOptions options;
  options.limits = {.max_rows = 64,
                    .max_sequences = 8,
                    .max_outputs = 64,
                    .max_logit_outputs = 8,
                    .max_table_len = 8 * 2 * 128,
                    .vocab_size = 1u << 20,
                    .context_len = 512,
                    .block_tokens = 4,
                    .sliding_window = 32,
                    .num_blocks = {8 * 128, 8 * 28}};
  options.max_sequences = 8;
  options.max_rows = 64;
  options.chunk_rows = 64;
  return options;
}

struct Request {
  uint32_t prompt_len = 1;
  uint32_t answer_len = 1;
  bool pooled = false;
  uint32_t story = 0;  // requests of one story have the same prompt; 0: a prompt of its own
};

// A device that runs steps, one or two under way, and appends tokens until requests end.
class Device {
 public:
  explicit Device(const SchedulerOptions& options, int depth = 1)
      : scheduler_(Scheduler::Create(options).value()), depth_(depth) {}

  // The id, or 0 if the queue is full.
  uint64_t Add(const std::string& tenant, const Request& request, uint32_t weight = 1) {
    SequenceSpec spec{.id = ++last_id_};
    const uint32_t first = 1 + (request.story != 0 ? request.story : 1000 + 600 * last_id_);
    spec.prompt.resize(request.prompt_len);
    std::iota(spec.prompt.begin(), spec.prompt.end(), first);
    spec.pooled = request.pooled;
    spec.max_answer = request.answer_len;
    spec.guess = GuessRule::For({.temperature = 0.0f});
    spec.tenant = {tenant, weight};
    if (!scheduler_->Add(std::move(spec)).ok()) return 0;
    live_[last_id_] = {request, tenant, 0};
    return last_id_;
  }
  void Cancel(uint64_t id) {
    scheduler_->Remove(id);
    live_.erase(id);
  }

  // Hands over a step if there is room for one under way, and ends one if not.
  void Turn() {
    const ScheduledStep* step =
        static_cast<int>(flights_.size()) < depth_ ? scheduler_->Schedule() : nullptr;
    if (step != nullptr) flights_.push_back(step);
    if (step == nullptr || static_cast<int>(flights_.size()) == depth_) Finish();
  }
  // Steps are handed over until as many as may be are under way.
  void Fill() {
    while (static_cast<int>(flights_.size()) < depth_) {
      const ScheduledStep* step = scheduler_->Schedule();
      if (step == nullptr) return;
      flights_.push_back(step);
    }
  }
  void Finish() {
    if (flights_.empty()) return;
    const ScheduledStep& step = *flights_.front();
    flights_.pop_front();
    ++num_steps_;
    num_rows_ += step.batch.header.num_rows;
    for (const ScheduledRows& rows : step.rows) {
      const auto found = live_.find(rows.sequence);
      if (found != live_.end()) rows_by_tenant_[found->second.tenant] += rows.num_rows;
    }
    scheduler_->StepDone();
    for (const ScheduledRows& rows : step.rows) {
      const auto found = live_.find(rows.sequence);
      if (found == live_.end() || !found->second.request.pooled) continue;
      if (rows.first_position + rows.num_rows == found->second.request.prompt_len) {
        Cancel(rows.sequence);
      }
    }
    for (const ScheduledOutput& output : step.outputs) {
      if (!scheduler_->IsValid(step.batch.header.step_id, output.sequence, output.position)) {
        continue;
      }
      Live& live = live_.at(output.sequence);
      if (++live.num_decided == live.request.answer_len) {
        Cancel(output.sequence);
      } else {
        scheduler_->Append(output.sequence, kToken, {}, kToken);
      }
    }
  }

  // All that was computed is lost with a worker.
  void Lose() {
    flights_.clear();
    ASSERT_TRUE(scheduler_->RecomputeAll(FairOptions().limits).ok());
  }

  bool done(uint64_t id) const { return !live_.contains(id); }
  uint32_t num_decided(uint64_t id) const { return live_.at(id).num_decided; }
  uint64_t num_steps() const { return num_steps_; }
  uint64_t num_rows() const { return num_rows_; }
  uint64_t rows_of(const std::string& tenant) { return rows_by_tenant_[tenant]; }
  const SchedulerCounters& counters() const { return scheduler_->counters(); }
  SchedulerLoad load() const { return scheduler_->load(); }

 private:
  struct Live {
    Request request;
    std::string tenant;
    uint32_t num_decided = 0;
  };
  std::unique_ptr<Scheduler> scheduler_;
  const int depth_;
  std::deque<const ScheduledStep*> flights_;
  std::map<uint64_t, Live> live_;
  std::map<std::string, uint64_t> rows_by_tenant_;
  uint64_t last_id_ = 0;
  uint64_t num_steps_ = 0;
  uint64_t num_rows_ = 0;
};

struct Shape {
  std::string name;
  SchedulerOptions options = FairOptions();
  std::vector<Request> load;  // kept in the queue, again and again
  size_t at_a_time = 128;
  bool scarce = false;  // places or blocks: a request of several steps may wait for its room
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  shapes.push_back({.name = "n=128 of one prompt", .load = {{20, 400, false, 1}}});
  shapes.push_back({.name = "long prompts", .load = {{500, 4}}});
  shapes.push_back({.name = "many short requests", .load = {{10, 1}, {60, 1}, {1, 1}, {33, 2}}});
  shapes.push_back({.name = "long generations", .load = {{1, 500}}, .at_a_time = 8});
  shapes.push_back({.name = "embeddings", .load = {{60, 1, true}, {500, 1, true}}});
  shapes.push_back({.name = "all of it", .load = {{500, 3}, {60, 1, true}, {1, 300}, {9, 1}}});
  Shape few_blocks{.name = "KV full", .load = {{100, 400}}, .scarce = true};
  few_blocks.options.limits.num_blocks[kGlobalGroup] = 130;
  shapes.push_back(few_blocks);
  Shape one_holds_all{
      .name = "KV full of one request", .load = {{500, 12}, {100, 400}}, .scarce = true};
  one_holds_all.options.limits.num_blocks[kGlobalGroup] = 128;
  shapes.push_back(one_holds_all);
  Shape window{.name = "window KV full", .load = {{100, 400}}, .scarce = true};
  window.options.limits.num_blocks[kWindowGroup] = 60;
  shapes.push_back(window);
  Shape one_place{.name = "one place", .load = {{1, 500}}, .scarce = true};
  one_place.options.max_sequences = one_place.options.limits.max_sequences = 1;
  shapes.push_back(one_place);
  Shape small_chunks{.name = "small chunks", .load = {{500, 4}, {10, 60}}};
  small_chunks.options.chunk_rows = 16;
  shapes.push_back(small_chunks);
  const size_t with_cache = shapes.size();
  for (size_t i = 0; i < with_cache; ++i) {
    // Without a cache a preempted sequence loses much, and is then protected for long.
    if (shapes[i].scarce) continue;
    shapes.push_back(shapes[i]);
    shapes.back().name += ", no prefix cache";
    shapes.back().options.prefix_cache = false;
  }
  return shapes;
}

// A load of one tenant, and requests of another that come one after the other, each while a step is
// under way.
class Beside {
 public:
  Beside(const Shape& shape, int depth) : shape_(shape), device_(shape.options, depth) {}

  void Load() {
    std::erase_if(load_, [this](uint64_t id) { return device_.done(id); });
    while (load_.size() < shape_.at_a_time) {
      const uint64_t id = device_.Add("load", shape_.load[next_++ % shape_.load.size()]);
      if (id == 0) break;
      load_.push_back(id);
    }
  }
  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      Load();
      device_.Turn();
    }
  }
  struct Wait {
    uint64_t steps = 0;  // those under way included
    uint64_t rows = 0;
  };
  Wait Ask(const Request& request, const std::string& tenant = "other") {
    Load();
    device_.Fill();
    const Wait begin{device_.num_steps(), device_.num_rows()};
    const uint64_t id = device_.Add(tenant, request);
    EXPECT_NE(id, 0u) << "the load has filled the queue";
    device_.Finish();
    while (id != 0 && !device_.done(id)) {
      Load();
      device_.Turn();
      if (device_.num_steps() - begin.steps > 5000) {
        ADD_FAILURE() << "no answer";
        break;
      }
    }
    return {device_.num_steps() - begin.steps, device_.num_rows() - begin.rows};
  }
  Device& device() { return device_; }

 private:
  const Shape& shape_;
  Device device_;
  std::vector<uint64_t> load_;
  size_t next_ = 0;
};

class FairnessTest : public testing::TestWithParam<int> {};

// The promise: beside any load of one other tenant, a request for one token takes at most twice as
// long as alone, and the steps that the device has already.
TEST_P(FairnessTest, ARequestForOneTokenWaitsTwiceItsOwnTimeAndTheStepsUnderWay) {
  const int depth = GetParam();
  for (const Shape& shape : Shapes()) {
    const SchedulerOptions& options = shape.options;
    for (const uint32_t prompt_len : {1u, 3u, 30u, 50u, 150u}) {
      if (shape.scarce && prompt_len > options.chunk_rows) continue;
      SCOPED_TRACE(testing::Message() << shape.name << ", prompt of " << prompt_len);
      Beside beside(shape, depth);
      beside.Run(37);
      const uint64_t own_steps = (prompt_len + options.chunk_rows - 1) / options.chunk_rows;
      const uint64_t free_rows = options.max_sequences + options.chunk_rows / 16;
      Beside::Wait worst;
      for (int i = 0; i < 25; ++i) {
        beside.Run(i % 7);
        const Beside::Wait wait = beside.Ask({prompt_len, 1});
        worst = {std::max(worst.steps, wait.steps), std::max(worst.rows, wait.rows)};
      }
      EXPECT_LE(worst.steps, 2 * own_steps + depth);
      EXPECT_LE(worst.rows, 2 * prompt_len + own_steps * free_rows + depth * options.max_rows);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(StepsUnderWay, FairnessTest, testing::Values(1, 2));

TEST(FairShareTest, TwoTenantsWithPromptsGetRowsByTheirWeights) {
  for (const uint32_t weight : {1u, 3u}) {
    Device device(FairOptions());
    for (int i = 0; i < 90; ++i) {
      device.Add("a", {500, 1}, weight);
      device.Add("b", {500, 1}, 1);
    }
    for (int i = 0; i < 300; ++i) device.Turn();
    const double ratio = static_cast<double>(device.rows_of("a")) / device.rows_of("b");
    EXPECT_NEAR(ratio, weight, 0.1 * weight);
  }
}

TEST(FairShareTest, PlacesAreSharedByWeight) {
  Device device(FairOptions());
  for (int i = 0; i < 90; ++i) device.Add("a", {1, 500});
  for (int i = 0; i < 5; ++i) device.Turn();
  for (int i = 0; i < 90; ++i) device.Add("b", {1, 500}, 3);
  for (int i = 0; i < 5; ++i) device.Turn();
  const uint64_t a = device.rows_of("a"), b = device.rows_of("b");
  for (int i = 0; i < 100; ++i) device.Turn();
  EXPECT_EQ(device.rows_of("a") - a, 200u);
  EXPECT_EQ(device.rows_of("b") - b, 600u);
  EXPECT_EQ(device.counters().fair_preemptions, 6u) << "places change hands too often";
}

TEST(FairShareTest, ATenantAloneIsServedAsEver) {
  Device device(FairOptions());
  for (int i = 0; i < 90; ++i) device.Add("a", {100, 60});
  for (int i = 0; i < 500; ++i) device.Turn();
  EXPECT_EQ(device.counters().preemptions, 0u);
  EXPECT_EQ(device.load().running, 8u);
}

// A client that sends one request after another finds its place free and takes one only once.
TEST(FairShareTest, APlaceThatWasUsedLatelyIsKept) {
  Shape shape{.name = "long generations", .load = {{1, 500}}, .at_a_time = 20};
  Beside beside(shape, 1);
  beside.Run(20);
  for (int i = 0; i < 30; ++i) {
    beside.Run(5);
    beside.Ask({3, 20});
  }
  EXPECT_LE(beside.device().counters().fair_preemptions, 1u);
  EXPECT_EQ(beside.device().load().running, 7u);
  beside.Run(Tenants::kKeepSteps + 5);
  EXPECT_EQ(beside.device().load().running, 8u) << "an idle tenant's place is not given back";
}

TEST(FairShareTest, MoreTenantsThanPlacesTakeTurns) {
  SchedulerOptions options = FairOptions();
  options.limits.max_sequences = options.max_sequences = 2;
  Device device(options);
  std::vector<uint64_t> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(device.Add("t" + std::to_string(i), {4, 500}));
  for (int i = 0; i < 600; ++i) device.Turn();
  for (const uint64_t id : ids) EXPECT_GE(device.num_decided(id), 60u) << "id " << id;
}

TEST(FairShareTest, IdleTimeEarnsNoCredit) {
  Device device(FairOptions());
  for (int i = 0; i < 60; ++i) device.Add("busy", {500, 1});
  device.Add("idle", {1, 1});
  for (int i = 0; i < 100; ++i) device.Turn();
  for (int i = 0; i < 60; ++i) device.Add("idle", {500, 1});
  const uint64_t busy = device.rows_of("busy"), idle = device.rows_of("idle");
  for (int i = 0; i < 40; ++i) device.Turn();
  const double ratio = static_cast<double>(device.rows_of("idle") - idle) /
                       static_cast<double>(device.rows_of("busy") - busy);
  EXPECT_NEAR(ratio, 1.0, 0.1);
}

// A request that needs more than its share of the KV cache is served in turns with the others, and
// the rows computed twice stay bounded.
TEST(FairShareTest, RequestsThatFillTheKvCacheAloneAllFinish) {
  for (const bool prefix_cache : {true, false}) {
    SchedulerOptions options = FairOptions();
    options.limits.num_blocks[kGlobalGroup] = 128;
    options.prefix_cache = prefix_cache;
    Device device(options);
    std::vector<uint64_t> ids;
    uint64_t needed = 0;
    for (int i = 0; i < 9; ++i) {
      const Request request{300 + 10 * static_cast<uint32_t>(i), 120};
      ids.push_back(device.Add("t" + std::to_string(i % 3), request));
      needed += request.prompt_len + request.answer_len;
    }
    int turns = 0;
    for (const uint64_t id : ids) {
      while (!device.done(id)) {
        device.Turn();
        ASSERT_LT(++turns, 20000) << "id " << id << " does not finish";
      }
    }
    EXPECT_LE(device.num_rows(), 4 * needed) << (prefix_cache ? "with" : "without") << " cache";
  }
}

// What a long answer computes again after a loss is no load of its tenant: or its turn would come
// ever later, after those of short answers, and losses would come before it.
TEST(FairnessTest, ALongAnswerGoesOnWhenWorkersAreLostAgainAndAgain) {
  Device device(FairOptions());
  const uint64_t story = device.Add("long", {.prompt_len = 8, .answer_len = 400});
  while (device.num_decided(story) < 100) device.Turn();
  const auto is_short = [](int i) { return "short " + std::to_string(i); };
  std::vector<uint64_t> brief(7);
  uint32_t decided = device.num_decided(story);
  int without_progress = 0, longest_without = 0;
  for (int loss = 0; loss < 60; ++loss) {
    bool answered = false;
    for (int turn = 0; turn < 100 && !answered; ++turn) {
      for (size_t i = 0; i < brief.size(); ++i) {
        if (brief[i] != 0 && !device.done(brief[i])) continue;
        answered |= brief[i] != 0;
        brief[i] = device.Add(is_short(static_cast<int>(i)), {.prompt_len = 8, .answer_len = 4});
      }
      device.Turn();
    }
    EXPECT_TRUE(answered) << "loss " << loss;
    without_progress = device.num_decided(story) > decided ? 0 : without_progress + 1;
    longest_without = std::max(longest_without, without_progress);
    decided = device.num_decided(story);
    device.Lose();
  }
  EXPECT_LE(longest_without, 8);  // as many as there are tenants
}

}  // namespace
}  // namespace tandem::gateway

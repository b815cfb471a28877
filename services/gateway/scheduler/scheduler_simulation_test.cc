// Random requests against random limits.  The simulated worker keeps, per block and slot, what was
// computed there: a hash of the position's token and of all before it; every step is checked
// against it.  Many requests begin alike, and share cached blocks.  Steps are queued behind the one
// under way at random, and fed with guesses that are often wrong; others verify chains of guesses
// that go wrong somewhere.  Of every third seed no step is fed, and sequences that decode are halved
// now and then, as over several workers.  What cancelled requests and wrong guesses leave under way is run too,
// into whatever the blocks have become.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {
namespace {

constexpr size_t kMaxWaiting = 5;  // sequences beyond those that can run

// Of a position, given that of the one before (1 before the first).
uint64_t StateAfter(uint64_t before, uint32_t token) {
  return (before ^ token) * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u;
}

struct Expected {
  std::vector<uint32_t> tokens;  // prompt and whole answer
  uint32_t num_decided = 0;
  uint32_t prompt_len = 0;
  uint32_t final_len = 0;
  bool prompt_logprobs = false;
  bool needs_logits = false;
  bool pooled = false;
  uint32_t num_pooled = 0;  // rows, since row 0 was pooled last
  bool use_prefix_cache = true;
  std::set<uint32_t> prompt_outputs;

  // After positions [0, n).
  uint64_t State(uint32_t n) {
    if (states.empty()) states.push_back(1);
    while (states.size() <= n) {
      states.push_back(StateAfter(states.back(), tokens[states.size() - 1]));
    }
    return states[n];
  }
  std::vector<uint64_t> states;
};

// A step as the worker has it.
struct Flight {
  const ScheduledStep* step = nullptr;
  std::vector<std::byte> storage;
  StepBatch batch;
};

class Simulation {
 public:
  explicit Simulation(uint32_t seed) : random_(seed) {
    StepLimits& limits = options_.limits;
    limits.block_tokens = 1 + random_() % 9;
    limits.context_len = 40 + random_() % 60;
    limits.sliding_window = 1 + random_() % 30;
    limits.max_rows = 1 + random_() % 40;
    limits.max_sequences = 1 + random_() % 9;
    limits.max_outputs = 1 + random_() % 12;
    limits.max_logit_outputs = 1 + random_() % limits.max_outputs;
    limits.vocab_size = 1000;
    const uint32_t entries = limits.context_len / limits.block_tokens + 1;
    limits.max_table_len = 2 * entries * (1 + random_() % limits.max_sequences);
    limits.num_blocks[0] = 3 + random_() % (3 * entries);
    limits.num_blocks[1] = 3 + random_() % (3 * entries);
    options_.max_sequences = limits.max_sequences;
    options_.max_rows = limits.max_rows;
    options_.chunk_rows = 1 + random_() % 20;
    options_.prefix_cache = seed % 8 != 0;
    num_tenants_ = 1 + seed % 4;
    feeds_ = seed % 3 != 0;
    lanes_ = 2 + seed / 3 % (kMostUnderWay - 1);
    for (uint32_t i = 0; i < 3 * limits.context_len; ++i) stories_.push_back(random_() % 1000);
    Wipe();
  }

  void Run() {
    auto created = Scheduler::Create(options_);
    ASSERT_TRUE(created.ok()) << created.status();
    scheduler_ = *std::move(created);
    uint32_t to_add = 60;
    for (int turn = 0; to_add > 0 || !live_.empty(); ++turn) {
      ASSERT_LT(turn, 200000) << "requests do not finish";
      if (to_add > 0 && random_() % 3 == 0) to_add -= AddOne() ? 1 : 0;
      if (!live_.empty() && random_() % 50 == 0) Cancel();
      if (random_() % 100 == 0) LoseWorker();
      const bool room = flights_.size() < (feeds_ ? 2 : lanes_);
      if (room) Draft();
      const ScheduledStep* step = room ? scheduler_->Schedule(Rules()) : nullptr;
      if (step != nullptr) Queue(*step);
      if (flights_.empty()) {
        ASSERT_TRUE(live_.empty()) << "nothing scheduled with requests left";
        continue;
      }
      if (random_() % 60 == 0 && (!feeds_ || flights_.size() == 1)) {
        FailOldest();
      } else if (step == nullptr || !room || random_() % 3 == 0) {
        FinishOldest();
      }
      if (testing::Test::HasFatalFailure()) return;
    }
    while (!flights_.empty()) FinishOldest();
    const SchedulerLoad load = scheduler_->load();
    EXPECT_EQ(load.blocks_used[0], 0u);
    EXPECT_EQ(load.blocks_used[1], 0u);
    EXPECT_TRUE(scheduler_->empty());
    EXPECT_EQ(scheduler_->counters().prefix_tokens_found, found_);
    EXPECT_EQ(scheduler_->counters().prefix_tokens_looked_up, looked_up_);
    if (!options_.prefix_cache) {
      EXPECT_EQ(load.blocks_cached[0] + load.blocks_cached[1], 0u);
      EXPECT_EQ(found_, 0u);
    }
  }

  const SchedulerCounters& counters() const { return scheduler_->counters(); }
  uint64_t num_drafted() const { return num_drafted_; }
  uint64_t num_right() const { return num_right_; }
  SchedulerLoad load() const { return scheduler_->load(); }

 private:
  StepRules Rules() {
    StepRules rules = {.feeds = feeds_};
    if (!feeds_ && random_() % 2 == 0) {
      rules.decoding = [this](uint32_t decoding) { return (decoding + lanes_ - 1) / lanes_; };
      rules.prompt_steps = 1 + random_() % lanes_;
    }
    return rules;
  }
  bool AddOne() {
    if (live_.size() >= options_.max_sequences + kMaxWaiting) return false;
    const uint64_t id = next_id_++;
    Expected expected;
    const uint32_t longest = scheduler_->max_sequence_len() - 1;
    expected.prompt_len = 1 + random_() % longest;
    // One of three stories up to somewhere, then something of its own.
    const uint32_t story = random_() % 3 * options_.limits.context_len;
    const uint32_t alike = random_() % 4 == 0 ? 0 : random_() % (expected.prompt_len + 1);
    for (uint32_t i = 0; i < expected.prompt_len; ++i) {
      expected.tokens.push_back(i < alike ? stories_[story + i] : random_() % 1000);
    }
    expected.final_len = expected.prompt_len + 1 +
                         random_() % (scheduler_->max_sequence_len() - expected.prompt_len);
    const std::vector<uint32_t> prompt = expected.tokens;
    while (expected.tokens.size() < expected.final_len) expected.tokens.push_back(random_() % 1000);
    expected.num_decided = expected.prompt_len;
    expected.pooled = random_() % 5 == 0;
    expected.prompt_logprobs = !expected.pooled && random_() % 4 == 0;
    expected.needs_logits = random_() % 4 == 0;
    expected.use_prefix_cache = random_() % 8 != 0;
    const absl::Status status = scheduler_->Add(
        {.id = id,
         .prompt = prompt,
         .prompt_logprobs = expected.prompt_logprobs,
         .pooled = expected.pooled,
         .needs = {.logits = expected.needs_logits},
         .guess = random_() % 5 == 0 ? std::nullopt : GuessRule::For({.seed = id}),
         .max_answer = random_() % 2 == 0 ? expected.final_len - expected.prompt_len : 1u << 30,
         .use_prefix_cache = expected.use_prefix_cache,
         .tenant = {std::string(1, static_cast<char>('a' + random_() % num_tenants_)),
                    1 + static_cast<uint32_t>(random_() % 3)},
         .priority = num_tenants_ % 2 == 0 ? static_cast<int32_t>(id % 3) - 1 : 0});
    EXPECT_TRUE(status.ok()) << status;
    live_.emplace(id, std::move(expected));
    return true;
  }

  // Chains of guesses for some of the sequences that can have them.
  void Draft() {
    DraftPlaces found;
    scheduler_->FindDraftPlaces(found);
    for (const DraftPlace& place : found.places) {
      scheduler_->AwaitDraft(place.sequence, random_() % 4 == 0);
      if (place.under_way || random_() % 2 == 0) continue;
      const Expected& expected = live_.at(place.sequence);
      const uint32_t count = 1 + random_() % std::min(place.max_guesses, 6u);
      std::vector<uint32_t> guesses;
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t p = expected.num_decided + i;
        const bool right = p < expected.final_len && random_() % 5 != 0;
        guesses.push_back(right ? expected.tokens[p] : random_() % 1000);
      }
      scheduler_->Draft(place.sequence, guesses, {.logits = expected.needs_logits});
    }
  }

  void Cancel() {
    auto it = live_.begin();
    std::advance(it, random_() % live_.size());
    scheduler_->Remove(it->first);
    live_.erase(it);
  }

  void LoseWorker() {
    flights_.clear();  // steps under way are lost
    guesses_.clear();
    const auto misfits = scheduler_->RecomputeAll(options_.limits);
    ASSERT_TRUE(misfits.ok());
    ASSERT_TRUE(misfits->empty());
    Wipe();
  }

  void Wipe() {
    for (int group = 0; group < kNumKvGroups; ++group) {
      cells_[group].assign(options_.limits.num_blocks[group] * options_.limits.block_tokens, {});
    }
  }

  uint64_t& At(int group, std::span<const uint32_t> table, uint32_t position) {
    const uint32_t block_tokens = options_.limits.block_tokens;
    return cells_[group][table[position / block_tokens] * block_tokens + position % block_tokens];
  }

  void Queue(const ScheduledStep& step) {
    std::vector<std::byte> area(StepAreaBytes(options_.limits));
    WriteStep(step.batch, area);
    Flight& flight = flights_.emplace_back();
    flight.step = &step;
    const auto parsed = ParseStep(area, options_.limits, flight.storage);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    flight.batch = *parsed;
    if (step.batch.header.after_step != 0) {
      ASSERT_EQ(flights_.size(), 2u);
      ASSERT_EQ(step.batch.header.after_step, flights_[0].batch.header.step_id);
    }
    CheckWrites(step, flight.batch);
    for (const ScheduledRows& rows : step.rows) CountFound(rows);
  }

  // The first rows of a request leave out exactly the cached prefix.
  void CountFound(const ScheduledRows& rows) {
    Expected& expected = live_.at(rows.sequence);
    if (!started_.insert(rows.sequence).second) return;
    ASSERT_LT(rows.first_position, expected.prompt_len);
    ASSERT_EQ(rows.first_position % options_.limits.block_tokens, 0u);
    if (!options_.prefix_cache || !expected.use_prefix_cache || expected.prompt_logprobs ||
        expected.pooled) {
      ASSERT_EQ(rows.first_position, 0u);
    } else {
      looked_up_ += expected.prompt_len;
      found_ += rows.first_position;
    }
  }

  void FailOldest() {
    flights_.pop_front();
    guesses_.clear();
    scheduler_->StepFailed();
  }

  void FinishOldest() {
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    for (uint32_t s = 0; s < flight.batch.sequences.size(); ++s) {
      RunSequence(flight.batch, s, flight.step->rows[s]);
    }
    if (testing::Test::HasFatalFailure()) return;
    std::vector<uint32_t> decided;
    guesses_.clear();
    for (uint32_t o = 0; o < flight.step->outputs.size(); ++o) {
      const ScheduledOutput& output = flight.step->outputs[o];
      const auto found = live_.find(output.sequence);
      const bool known = found != live_.end() && output.position + 1 < found->second.final_len;
      decided.push_back(known ? found->second.tokens[output.position + 1] : random_() % 1000);
      guesses_.push_back(random_() % 3 == 0 ? random_() % 1000 : decided[o]);
    }
    scheduler_->StepDone();
    for (uint32_t o = 0; o < decided.size(); ++o) {
      const ScheduledOutput& output = flight.step->outputs[o];
      if (!scheduler_->IsValid(flight.batch.header.step_id, output.sequence, output.position)) {
        continue;
      }
      TakeOutput(output, decided[o], guesses_[o]);
    }
    for (const uint32_t s : flight.batch.pooled) {
      const ScheduledRows& rows = flight.step->rows[s];
      if (scheduler_->IsValid(flight.batch.header.step_id, rows.sequence, rows.first_position)) {
        TakePooled(rows);
      }
    }
  }

  // A block that rows are written to is that of one sequence alone, and nobody can find it.
  void CheckWrites(const ScheduledStep& step, const StepBatch& batch) {
    for (int group = 0; group < kNumKvGroups; ++group) {
      const KvBlockPool& pool = scheduler_->pools().pools[group];
      for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
        const uint32_t first = step.rows[s].first_position;
        const uint32_t last = first + step.rows[s].num_rows - 1;
        for (uint32_t p = first; p <= last; ++p) {
          const uint32_t entry = p / options_.limits.block_tokens;
          const uint32_t block = batch.block_table[batch.sequences[s].table_offset[group] + entry];
          ASSERT_EQ(pool.num_holders(block), 1u) << "block " << block << " has two owners";
          ASSERT_FALSE(pool.kept(block)) << "block " << block << " can be found";
        }
      }
    }
  }

  // What attention would do: append at the row's position, then see every earlier position.
  void RunSequence(const StepBatch& batch, uint32_t s, const ScheduledRows& scheduled) {
    bool counts =
        scheduler_->IsValid(batch.header.step_id, scheduled.sequence, scheduled.first_position);
    const uint32_t first_drafted =
        scheduled.first_position + scheduled.num_rows - scheduled.num_drafted;
    const SequenceEntry& entry = batch.sequences[s];
    for (uint32_t r = entry.first_row; r < entry.first_row + entry.num_rows; ++r) {
      const RowEntry& row = batch.rows[r];
      const uint32_t token = row.feed == 0 ? row.token : guesses_.at(row.feed - 1);
      if (counts && row.position >= first_drafted) {
        const Expected& expected = live_.at(scheduled.sequence);
        ++num_drafted_;
        // Nothing counts from the first wrong guess on.
        counts = row.position < expected.final_len && token == expected.tokens[row.position];
        if (counts) ++num_right_;
      } else if (counts) {
        ASSERT_EQ(token, live_.at(scheduled.sequence).tokens[row.position]);
        ASSERT_LT(row.position, live_.at(scheduled.sequence).num_decided);
      }
      const auto global = batch.block_table.subspan(entry.table_offset[kGlobalGroup]);
      for (int group = 0; group < kNumKvGroups; ++group) {
        const auto table = batch.block_table.subspan(entry.table_offset[group]);
        const uint64_t before = row.position == 0 ? 1 : At(kGlobalGroup, global, row.position - 1);
        At(group, table, row.position) = StateAfter(before, token);
        if (!counts) continue;
        Expected& expected = live_.at(scheduled.sequence);
        uint32_t first = 0;
        if (group == kWindowGroup && row.position + 1 > options_.limits.sliding_window) {
          first = row.position + 1 - options_.limits.sliding_window;
        }
        for (uint32_t p = first; p <= row.position; ++p) {
          ASSERT_EQ(At(group, table, p), expected.State(p + 1))
              << "group " << group << " position " << p;
        }
      }
    }
  }

  void TakePooled(const ScheduledRows& rows) {
    Expected& expected = live_.at(rows.sequence);
    ASSERT_TRUE(expected.pooled);
    if (rows.first_position == 0) expected.num_pooled = 0;
    ASSERT_EQ(rows.first_position, expected.num_pooled) << "a row is left out or summed twice";
    expected.num_pooled += rows.num_rows;
    if (expected.num_pooled < expected.prompt_len) return;
    scheduler_->Remove(rows.sequence);
    live_.erase(rows.sequence);
  }

  void TakeOutput(const ScheduledOutput& output, uint32_t token, uint32_t guess) {
    Expected& expected = live_.at(output.sequence);
    ASSERT_FALSE(expected.pooled);
    if (!output.sample) {
      EXPECT_TRUE(expected.prompt_logprobs);
      EXPECT_TRUE(expected.prompt_outputs.insert(output.position).second) << "reported twice";
      return;
    }
    ASSERT_EQ(output.position + 1, expected.num_decided);
    ASSERT_EQ(token, expected.tokens[expected.num_decided]);
    if (++expected.num_decided < expected.final_len) {
      scheduler_->Append(output.sequence, token, {.logits = expected.needs_logits}, guess);
      return;
    }
    if (expected.prompt_logprobs) {
      EXPECT_EQ(expected.prompt_outputs.size(), expected.prompt_len - 1);
    }
    scheduler_->Remove(output.sequence);
    live_.erase(output.sequence);
  }

  std::mt19937 random_;
  SchedulerOptions options_;
  uint32_t num_tenants_ = 1;
  bool feeds_ = true;
  uint32_t lanes_ = 2;  // without feeds_
  std::unique_ptr<Scheduler> scheduler_;
  std::map<uint64_t, Expected> live_;
  std::set<uint64_t> started_;
  std::vector<uint32_t> stories_;
  uint64_t looked_up_ = 0;
  uint64_t found_ = 0;
  uint64_t num_drafted_ = 0;  // drafted rows up to the first wrong one
  uint64_t num_right_ = 0;    // of them
  std::vector<uint64_t> cells_[kNumKvGroups];
  std::deque<Flight> flights_;
  std::vector<uint32_t> guesses_;  // of the step run last
  uint64_t next_id_ = 1;
};

TEST(SchedulerSimulationTest, EveryRequestFinishesWithEveryPositionComputedInOrder) {
  uint64_t preemptions = 0;
  uint64_t fair_preemptions = 0;
  uint64_t speculative_rows = 0;
  uint64_t rejected_tokens = 0;
  uint64_t drafted = 0;
  uint64_t right = 0;
  uint64_t tokens_found = 0;
  uint64_t evictions = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation simulation(seed);
    simulation.Run();
    if (HasFatalFailure()) return;
    preemptions += simulation.counters().preemptions;
    fair_preemptions += simulation.counters().fair_preemptions;
    speculative_rows += simulation.counters().speculative_rows;
    rejected_tokens += simulation.counters().rejected_tokens;
    drafted += simulation.num_drafted();
    right += simulation.num_right();
    tokens_found += simulation.counters().prefix_tokens_found;
    evictions += simulation.load().blocks_evicted[0] + simulation.load().blocks_evicted[1];
  }
  EXPECT_GT(preemptions, 100u) << "the simulation no longer exercises preemption";
  EXPECT_GT(fair_preemptions, 100u);
  EXPECT_GT(speculative_rows, 1000u);
  EXPECT_GT(rejected_tokens, 100u);
  EXPECT_GT(tokens_found, 2000u) << "the simulation no longer shares prefixes";
  EXPECT_GT(evictions, 1000u);
  EXPECT_LT(rejected_tokens, speculative_rows);
  EXPECT_GT(right, 1000u) << "the simulation no longer verifies guesses";
  EXPECT_GT(drafted - right, 200u);
}

}  // namespace
}  // namespace tandem::gateway

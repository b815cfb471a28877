// Conversations that take turns in a cache that they nearly fill: each finds its own again.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "services/common/kv/sequence_blocks.h"

namespace tandem {
namespace {

using Tokens = std::vector<uint32_t>;

struct Load {
  const char* name = "";
  uint32_t num_sessions = 32;
  double fill = 0.8;          // of each pool, by the sessions' last turns
  uint32_t instructions = 0;  // tokens that all sessions begin with
  bool random_order = false;  // of turns; false: one session after the other, over and over
  uint32_t window = 512;
  uint32_t chunk = 256;
  uint32_t num_running = 4;
  uint32_t num_turns = 12;
};

constexpr uint32_t kBlock = 16;
constexpr uint32_t kQuestion = 100;  // about, as the following
constexpr uint32_t kAnswer = 80;

// Runs turns of conversations over the pools alone, as a scheduler would.
class Conversations {
 public:
  Conversations(const Load& load, uint32_t seed)
      : load_(load), random_(seed), pools_(LimitsOf(load)), sessions_(load.num_sessions) {
    for (uint32_t s = 0; s < load.num_sessions; ++s) {
      for (uint32_t i = 0; i < load.instructions; ++i) sessions_[s].tokens.push_back(1 + i);
    }
  }

  // The share of the earlier turns' tokens, in whole blocks, that turns found.
  double HitRate() {
    for (uint32_t turn = 0; turn < load_.num_turns; ++turn) {
      std::vector<uint32_t> order(load_.num_sessions);
      for (uint32_t s = 0; s < load_.num_sessions; ++s) order[s] = s;
      if (load_.random_order) std::shuffle(order.begin(), order.end(), random_);
      for (const uint32_t s : order) {
        waiting_.push_back(s);
        while (waiting_.size() > 0 && running_.size() < load_.num_running) Begin();
        while (running_.size() == load_.num_running) Advance();
      }
    }
    while (!running_.empty()) Advance();
    return static_cast<double>(found_) / static_cast<double>(looked_up_);
  }

 private:
  struct Session {
    Tokens tokens;
    uint32_t past = 0;  // tokens of earlier turns
  };
  struct Running {
    uint32_t session = 0;
    std::unique_ptr<SequenceBlocks> blocks;
    uint32_t computed = 0;
    uint32_t prompt = 0;
    uint32_t end = 0;
  };

  static StepLimits LimitsOf(const Load& load) {
    const double tokens = load.instructions + load.num_turns * (kQuestion + kAnswer);
    const auto blocks = [&](double of_each) {
      return static_cast<uint32_t>(load.num_sessions * of_each / load.fill);
    };
    return {.block_tokens = kBlock,
            .sliding_window = load.window,
            .num_blocks = {blocks(tokens / kBlock + 1), blocks(load.window / kBlock + 1)}};
  }

  void Append(Session& session, uint32_t about) {
    const uint32_t n = about / 2 + random_() % about;
    for (uint32_t i = 0; i < n; ++i) session.tokens.push_back(1000 + random_() % 100000);
  }

  void Begin() {
    const uint32_t s = waiting_.front();
    waiting_.pop_front();
    Session& session = sessions_[s];
    session.past = static_cast<uint32_t>(session.tokens.size());
    Append(session, kQuestion);
    Running run{.session = s, .blocks = std::make_unique<SequenceBlocks>(pools_, true)};
    run.prompt = static_cast<uint32_t>(session.tokens.size());
    Append(session, kAnswer);
    // The last token of an answer is never computed.
    run.end = static_cast<uint32_t>(session.tokens.size()) - 1;
    CachedPrefix found;
    pools_.Find(0, std::span(session.tokens).first(run.prompt), run.prompt - 1, found);
    run.blocks->Share(found);
    run.computed = static_cast<uint32_t>(found.nodes.size()) * kBlock;
    if (session.past > load_.instructions) {
      const uint32_t possible = (session.past - 1) / kBlock * kBlock;
      looked_up_ += possible;
      found_ += std::min(run.computed, possible);
    }
    running_.push_back(std::move(run));
  }

  // One step: a chunk of a prompt or a token of an answer, of each that runs.
  void Advance() {
    for (Running& run : running_) {
      const uint32_t next = run.computed < run.prompt
                                ? std::min(run.prompt, run.computed + load_.chunk)
                                : run.computed + 1;
      run.blocks->ReleaseBefore(run.computed);
      ASSERT_TRUE(run.blocks->Extend(next));
      run.computed = next;
      run.blocks->Publish(std::span(sessions_[run.session].tokens).first(next));
    }
    std::erase_if(running_, [](const Running& run) { return run.computed == run.end; });
  }

  const Load load_;
  std::mt19937 random_;
  KvPools pools_;
  std::vector<Session> sessions_;
  std::deque<uint32_t> waiting_;
  std::vector<Running> running_;
  uint64_t looked_up_ = 0;
  uint64_t found_ = 0;
};

class PrefixPressureTest : public ::testing::TestWithParam<Load> {};

TEST_P(PrefixPressureTest, SessionsFindTheirPrefixesAgain) {
  const double rate = Conversations(GetParam(), 1).HitRate();
  RecordProperty("hit_rate", std::to_string(rate));
  std::printf("hit rate of %s: %.3f\n", GetParam().name, rate);
  EXPECT_GE(rate, 0.97);
}

INSTANTIATE_TEST_SUITE_P(
    Loads, PrefixPressureTest,
    ::testing::Values(Load{.name = "in_turn"}, Load{.name = "in_any_order", .random_order = true},
                      Load{.name = "long_windows", .window = 1024, .chunk = 512, .num_turns = 30},
                      Load{.name = "many_at_once", .num_running = 12},
                      Load{.name = "same_instructions", .instructions = 700},
                      Load{.name = "half", .fill = 0.5}),
    [](const auto& load) { return std::string(load.param.name); });

}  // namespace
}  // namespace tandem

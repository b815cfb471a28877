#include "services/gateway/constraint/constraint_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/base/cancellation.h"
#include "services/common/testing/eventually.h"
#include "services/gateway/constraint/testing/held_threads.h"
#include "services/gateway/constraint/testing/vocabularies.h"
#include "services/gateway/constraint/work_time.h"

namespace tandem::gateway::constraint {
namespace {

ConstraintSource Regex(std::string text) {
  return {.kind = SourceKind::kRegex, .text = std::move(text)};
}

struct Asked {
  std::future<ConstraintCache::Result> result;
  ConstraintCache::Ticket ticket;
};
Asked AskFor(ConstraintCache& cache, ConstraintSource source, const ConstraintCaller& caller = {}) {
  auto promise = std::make_shared<std::promise<ConstraintCache::Result>>();
  Asked asked{promise->get_future(), ConstraintCache::kNoTicket};
  asked.ticket = cache.Get(
      std::move(source), [promise](const auto& result) { promise->set_value(result); }, caller);
  return asked;
}
std::future<ConstraintCache::Result> Ask(ConstraintCache& cache, ConstraintSource source,
                                         const ConstraintCaller& caller = {}) {
  return AskFor(cache, std::move(source), caller).result;
}

TEST(ConstraintCacheTest, CompilesEachContentOnce) {
  ConstraintCache cache(ByteVocabulary(), {});
  std::vector<std::future<ConstraintCache::Result>> all;
  for (int i = 0; i < 20; ++i) all.push_back(Ask(cache, Regex("a+")));
  const auto first = all[0].get();
  ASSERT_TRUE(first.ok()) << first.status();
  for (size_t i = 1; i < all.size(); ++i) EXPECT_EQ(*all[i].get(), *first);
  EXPECT_EQ(*Ask(cache, Regex("a+")).get(), *first);
  EXPECT_EQ(cache.counts().compiled, 1u);
  EXPECT_EQ(cache.counts().hits, 20u);
  // The same text as something else is another constraint.
  EXPECT_NE(*Ask(cache, {.kind = SourceKind::kChoices, .choices = {"a+"}}).get(), *first);
  ConstraintSource schema{.kind = SourceKind::kJsonSchema, .text = "{}"};
  const auto flexible = Ask(cache, schema).get();
  schema.layout.whitespace = JsonWhitespace::kCompact;
  EXPECT_NE(*Ask(cache, schema).get(), *flexible);
  EXPECT_EQ(cache.counts().compiled, 4u);
}

TEST(ConstraintCacheTest, KeepsWhatFailsToo) {
  ConstraintCache cache(ByteVocabulary(), {});
  EXPECT_EQ(Ask(cache, Regex("(")).get().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Ask(cache, Regex("(")).get().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.counts().compiled, 1u);
}

TEST(ConstraintCacheTest, DropsTheLeastUsedWhenItIsFull) {
  ConstraintCacheOptions options;
  options.max_bytes = 100'000;
  ConstraintCache cache(ByteVocabulary(), options);
  const auto first = Ask(cache, Regex("first")).get();
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Ask(cache, Regex("other" + std::to_string(i))).get().ok());
    if (i % 5 == 0) {
      EXPECT_EQ(*Ask(cache, Regex("first")).get(), *first) << i;
    }
  }
  EXPECT_LE(cache.counts().bytes, options.max_bytes);
  EXPECT_LT(cache.counts().num_kept, 200u);
  const uint64_t compiled = cache.counts().compiled;
  ASSERT_TRUE(Ask(cache, Regex("other0")).get().ok());
  EXPECT_EQ(cache.counts().compiled, compiled + 1);
}

TEST(ConstraintCacheTest, RefusesMoreThanItsQueueHolds) {
  ConstraintCacheOptions options;
  options.num_threads = 1;
  options.max_waiting = 4;
  options.max_waiting_of_tenant = 3;
  ConstraintCache cache(ByteVocabulary(), options);
  HeldThreads held(cache, 1);
  auto second = Ask(cache, Regex("b"));
  auto third = Ask(cache, Regex("c"));
  auto same = Ask(cache, Regex("c"));
  EXPECT_EQ(cache.counts().waiting, 3u);
  EXPECT_EQ(Ask(cache, Regex("d")).get().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Ask(cache, Regex("held0")).get().ok()) << "a known constraint needs no thread";
  // Another tenant has a place still, and then the queue is full for everybody.
  auto other = Ask(cache, Regex("d"), {.tenant = "other"});
  EXPECT_EQ(Ask(cache, Regex("e"), {.tenant = "third"}).get().status().code(),
            absl::StatusCode::kResourceExhausted);
  held.Release();
  EXPECT_TRUE(second.get().ok());
  EXPECT_EQ(*third.get(), *same.get());
  EXPECT_TRUE(other.get().ok());
  EXPECT_TRUE(Ask(cache, Regex("e")).get().ok()) << "places are free again";
  EXPECT_EQ(cache.counts().waiting, 0u);
}

// Requests of tenants whose sources one thread compiles, in this order.
class Turns {
 public:
  explicit Turns(ConstraintCache& cache) : cache_(cache), held_(cache, 1) {}
  void Ask(const std::string& tenant, const std::string& text) {
    auto promise = std::make_shared<std::promise<ConstraintCache::Result>>();
    all_.push_back(promise->get_future());
    cache_.Get(Regex(text),
               [this, promise, text](const auto& result) {
                 order_.push_back(text);  // by the only thread
                 promise->set_value(result);
               },
               {.tenant = tenant});
  }
  std::vector<std::string> Order() {
    held_.Release();
    for (auto& future : all_) EXPECT_TRUE(future.get().ok());
    return order_;
  }

 private:
  ConstraintCache& cache_;  // Borrowed.
  HeldThreads held_;
  std::vector<std::future<ConstraintCache::Result>> all_;
  std::vector<std::string> order_;
};

TEST(ConstraintCacheTest, TenantsTakeTurns) {
  ConstraintCacheOptions options;
  options.num_threads = 1;
  ConstraintCache cache(ByteVocabulary(), options);
  Turns turns(cache);
  for (const char* text : {"a1", "a2", "a3"}) turns.Ask("a", text);
  for (const char* text : {"b1", "b2"}) turns.Ask("b", text);
  EXPECT_EQ(turns.Order(), (std::vector<std::string>{"a1", "b1", "a2", "b2", "a3"}));
}

TEST(ConstraintCacheTest, WhatSeveralTenantsWaitForComesWithTheFirstOfTheirTurns) {
  ConstraintCacheOptions options;
  options.num_threads = 1;
  ConstraintCache cache(ByteVocabulary(), options);
  Turns turns(cache);
  for (const char* text : {"a1", "a2", "a3", "shared"}) turns.Ask("a", text);
  turns.Ask("b", "shared");
  EXPECT_EQ(turns.Order(), (std::vector<std::string>{"a1", "shared", "shared", "a2", "a3"}));
  EXPECT_EQ(cache.counts().compiled, 5u) << "with the one that held the thread";
}

// Sources that begin with "slow" take until they are cancelled or their time is over.
class SlowCompiler {
 public:
  ConstraintCacheOptions Options() {
    ConstraintCacheOptions options;
    options.compile_time = absl::Hours(1);
    options.compile = [this](const ConstraintSource& source, const CompileLimits& limits) {
      return Compile(source, limits);
    };
    return options;
  }
  void WaitUntilBegun(int number) const {
    ASSERT_TRUE(tandem::testing::Eventually([&] { return begun_ >= number; }));
  }
  void WaitUntilCancelled(int number) const {
    ASSERT_TRUE(tandem::testing::Eventually([&] { return cancelled_ >= number; }));
  }
  // Slow sources become quick.
  void Hurry() { hurry_ = true; }

 private:
  absl::StatusOr<Grammar> Compile(const ConstraintSource& source, const CompileLimits& limits) {
    ++begun_;
    while (source.text.starts_with("slow") && !hurry_) {
      absl::Status status = CheckCancelled();
      if (!status.ok()) {
        ++cancelled_;
        return status;
      }
      if (WorkTime() > limits.deadline) return absl::ResourceExhaustedError("it takes too long");
      std::this_thread::yield();
    }
    return CompileSource(source, limits);
  }

  std::atomic<int> begun_ = 0;
  std::atomic<int> cancelled_ = 0;
  std::atomic<bool> hurry_ = false;
};

bool Ready(const std::future<ConstraintCache::Result>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

TEST(ConstraintCacheTest, ACompilationStopsWhenItsLastClientHasGone) {
  SlowCompiler compiler;
  ConstraintCache cache(ByteVocabulary(), compiler.Options());
  Asked first = AskFor(cache, Regex("slow"));
  Asked second = AskFor(cache, Regex("slow"));
  compiler.WaitUntilBegun(1);
  cache.Cancel(first.ticket);
  ASSERT_TRUE(Ready(first.result));
  EXPECT_EQ(first.result.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(Ready(second.result)) << "somebody waits still";
  EXPECT_EQ(cache.counts().waiting, 1u);
  cache.Cancel(second.ticket);
  EXPECT_EQ(second.result.get().status().code(), absl::StatusCode::kCancelled);
  compiler.WaitUntilCancelled(1);
  cache.Cancel(second.ticket);  // does nothing
  // Asked for again it is another compilation.
  Asked third = AskFor(cache, Regex("slow"));
  compiler.Hurry();
  EXPECT_TRUE(third.result.get().ok());
  EXPECT_EQ(cache.counts().waiting, 0u);
}

TEST(ConstraintCacheTest, ASourceWhoseClientHasGoneIsNotCompiled) {
  ConstraintCacheOptions options;
  options.num_threads = 1;
  ConstraintCache cache(ByteVocabulary(), options);
  HeldThreads held(cache, 1);
  const Asked gone = AskFor(cache, Regex("gone"));
  Asked last = AskFor(cache, Regex("last"));
  cache.Cancel(gone.ticket);
  EXPECT_TRUE(Ready(gone.result));
  held.Release();
  EXPECT_TRUE(last.result.get().ok());
  EXPECT_EQ(cache.counts().compiled, 2u) << "held and last";
}

TEST(ConstraintCacheTest, ADeadlineEndsAWaitInTheQueueAndACompilation) {
  SlowCompiler compiler;
  ConstraintCacheOptions options = compiler.Options();
  options.num_threads = 1;
  ConstraintCache cache(ByteVocabulary(), options);
  Asked running = AskFor(cache, Regex("slow"), {.deadline = absl::Now() + absl::Milliseconds(50)});
  Asked queued = AskFor(cache, Regex("slow, too"), {.deadline = absl::Now()});
  EXPECT_EQ(queued.result.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(running.result.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  compiler.WaitUntilCancelled(1);
}

TEST(ConstraintCacheTest, StopEndsWhatWaitsAndWhatIsCompiled) {
  SlowCompiler compiler;
  ConstraintCacheOptions options = compiler.Options();
  options.num_threads = 1;
  ConstraintCache cache(ByteVocabulary(), options);
  ASSERT_TRUE(AskFor(cache, Regex("known")).result.get().ok());
  Asked running = AskFor(cache, Regex("slow"));
  Asked queued = AskFor(cache, Regex("queued"));
  compiler.WaitUntilBegun(2);
  cache.Stop(absl::UnavailableError("shutting down"));
  compiler.WaitUntilCancelled(1);
  for (Asked* asked : {&running, &queued}) {
    ASSERT_TRUE(Ready(asked->result));
    EXPECT_EQ(asked->result.get().status(), absl::UnavailableError("shutting down"));
  }
  EXPECT_EQ(AskFor(cache, Regex("known")).result.get().status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(cache.counts().num_kept, 0u);
}

// Sources that take their whole time leave a thread for the others, whoever sent them.
TEST(ConstraintCacheTest, SlowSourcesDoNotHoldUpQuickOnes) {
  SlowCompiler compiler;
  ConstraintCacheOptions options = compiler.Options();
  options.quick_time = absl::Milliseconds(20);  // quick ones take less on the slowest machine
  ConstraintCache cache(ByteVocabulary(), options);
  std::vector<Asked> slow;
  for (int i = 0; i < 20; ++i) slow.push_back(AskFor(cache, Regex("slow" + std::to_string(i))));
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(AskFor(cache, Regex("quick" + std::to_string(i))).result.get().ok());
  }
  for (const Asked& asked : slow) EXPECT_FALSE(Ready(asked.result));
  compiler.Hurry();
  for (Asked& asked : slow) EXPECT_TRUE(asked.result.get().ok());
}

TEST(ConstraintCacheTest, ASourceThatTakesTooLongIsRefusedForAWhile) {
  for (const absl::Duration keep : {absl::Hours(1), absl::ZeroDuration()}) {
    SlowCompiler compiler;
    ConstraintCacheOptions options = compiler.Options();
    options.quick_time = absl::Milliseconds(1);
    options.compile_time = absl::Milliseconds(5);
    options.keep_timeouts = keep;
    std::vector<absl::Status> reported;
    options.on_compiled = [&](const absl::Status& status, absl::Duration time) {
      reported.push_back(status);
      EXPECT_GE(time, absl::Milliseconds(6)) << "as a quick one and as a slow one";
    };
    ConstraintCache cache(ByteVocabulary(), options);
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = AskFor(cache, Regex("slow")).result.get().status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << "trying again does not help";
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("5ms"));
    }
    EXPECT_EQ(reported.size(), keep == absl::ZeroDuration() ? 2u : 1u);
  }
}

TEST(ConstraintCacheTest, HugeSourcesAreRefusedWithoutAThread) {
  ConstraintCacheOptions options;
  options.num_threads = 1;
  ConstraintCache cache(ByteVocabulary(), options);
  HeldThreads held(cache, 1);
  EXPECT_EQ(Ask(cache, Regex(std::string(2 << 20, 'a'))).get().status().code(),
            absl::StatusCode::kInvalidArgument);
  ConstraintSource many{.kind = SourceKind::kChoices};
  many.choices.resize(10'001);
  EXPECT_EQ(Ask(cache, many).get().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.counts().num_kept, 1u) << "the held one";
  held.Release();
}

TEST(ConstraintCacheTest, CancelsWhoWaitsWhenItEnds) {
  SlowCompiler compiler;
  ConstraintCacheOptions options = compiler.Options();
  options.num_threads = 1;
  auto cache = std::make_unique<ConstraintCache>(ByteVocabulary(), options);
  Asked running = AskFor(*cache, Regex("slow"));
  Asked queued = AskFor(*cache, Regex("queued"));
  compiler.WaitUntilBegun(1);
  cache.reset();
  EXPECT_EQ(running.result.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(queued.result.get().status().code(), absl::StatusCode::kCancelled);
}

TEST(ConstraintCacheTest, GivesUpAtItsDeadline) {
  ConstraintCacheOptions options;
  options.compile_time = absl::ZeroDuration();
  ConstraintCache cache(ByteVocabulary(), options);
  for (const ConstraintSource& source :
       {Regex("a"), ConstraintSource{.kind = SourceKind::kJsonSchema, .text = "{}"}}) {
    EXPECT_EQ(Ask(cache, source).get().status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tandem::gateway::constraint

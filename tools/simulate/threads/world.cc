#include "tools/simulate/threads/world.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/exit_codes.h"
#include "tools/simulate/threads/world_threads.h"

namespace tandem::simulate {
namespace {

constexpr int64_t kLookNanos = 1000;
// A thread that looks at the clock so often waits for another in a loop.
constexpr uint32_t kMaxLooks = 1000;

struct Thread {
  uint32_t number = 0;
  std::string name;
  bool ended = false;
  bool waiting = false;
  const void* object = nullptr;   // while waiting
  const char* what = "";          // likewise
  int64_t deadline = kNever;      // likewise
  bool timed_out = false;         // of the last wait
  std::atomic<uint32_t> turn{0};  // 1: it may run
  void* (*start)(void*) = nullptr;
  void* argument = nullptr;
  pthread_t handle = {};
  int rounds = 0;  // of destructors of thread-specific data
};

thread_local Thread* self = nullptr;

void Futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

void AwaitTurn(Thread& thread) {
  while (thread.turn.exchange(0, std::memory_order_acquire) == 0) {
    Futex(thread.turn, FUTEX_WAIT_PRIVATE, 0);
  }
}

void GiveTurn(Thread& thread) {
  thread.turn.store(1, std::memory_order_release);
  Futex(thread.turn, FUTEX_WAKE_PRIVATE, 1);
}

// Used by the thread whose turn it is, and so without locks.
class World {
 public:
  explicit World(WorldOptions options) : options_(std::move(options)), random_(options_.seed) {}

  Thread& Add(std::string name) {
    Thread& thread = *threads_.emplace_back(std::make_unique<Thread>());
    thread.number = static_cast<uint32_t>(threads_.size());
    thread.name = std::move(name);
    return thread;
  }
  Thread* Find(pthread_t handle) {
    // The last one: handles are used again.
    const auto found = std::find_if(threads_.rbegin(), threads_.rend(), [handle](const auto& t) {
      return t->start != nullptr && pthread_equal(t->handle, handle) != 0;
    });
    return found == threads_.rend() ? nullptr : found->get();
  }
  int64_t now() const { return now_; }
  int64_t Look() {
    now_ += kLookNanos;
    if (++looks_ >= kMaxLooks) Switch();
    return now_;
  }
  bool Draw(uint32_t one_in) { return random_() % one_in == 0; }
  uint32_t switch_one_in() const { return options_.switch_one_in; }

  // Lets a thread go on that can: the caller, if it does not wait, or another.
  void Switch() {
    Thread& caller = *self;
    Thread& next = Next();
    if (&next == &caller) return;
    GiveTurn(next);
    AwaitTurn(caller);
  }
  // The caller will not run again.
  void End() {
    self->ended = true;
    Wake(self, true);
    GiveTurn(Next());
  }
  void Wake(const void* object, bool all) {
    std::vector<Thread*> waiting;
    for (const auto& thread : threads_) {
      if (thread->waiting && thread->object == object) waiting.push_back(thread.get());
    }
    if (waiting.empty()) return;
    if (!all) waiting = {waiting[random_() % waiting.size()]};
    for (Thread* thread : waiting) thread->waiting = false;
  }
  [[noreturn]] void Stuck(const std::string& why) {
    std::string report = why;
    for (const auto& thread : threads_) {
      if (thread->ended) continue;
      absl::StrAppendFormat(&report, "\n  thread %d %s: %s", thread->number, thread->name,
                            thread->waiting ? thread->what : "can run");
    }
    if (options_.on_stuck) options_.on_stuck(report);
    ::_exit(kExitFailure);
  }
  void CheckAllEnded() {
    for (const auto& thread : threads_) {
      if (thread.get() != self && !thread->ended) Stuck("threads are left at the end");
    }
  }

 private:
  Thread& Next() {
    looks_ = 0;
    while (true) {
      if (now_ > absl::ToInt64Nanoseconds(options_.time_limit)) Stuck("the time limit has passed");
      std::vector<Thread*> can_run;
      int64_t next_deadline = kNever;
      for (const auto& thread : threads_) {
        if (thread->ended) continue;
        if (thread->waiting && thread->deadline <= now_) {
          thread->waiting = false;
          thread->timed_out = true;
        }
        if (!thread->waiting) can_run.push_back(thread.get());
        if (thread->waiting) next_deadline = std::min(next_deadline, thread->deadline);
      }
      if (!can_run.empty()) return *can_run[random_() % can_run.size()];
      if (next_deadline == kNever) Stuck("every thread waits, none with a deadline");
      now_ = next_deadline;
    }
  }

  const WorldOptions options_;
  std::mt19937_64 random_;
  int64_t now_ = 0;
  uint32_t looks_ = 0;
  std::vector<std::unique_ptr<Thread>> threads_;
};

World* world = nullptr;

// Destructors of thread-specific data run in rounds; the last round is a thread's end.
pthread_key_t LastRoundKey();
void OnDestructors(void* thread) {
  if (++static_cast<Thread*>(thread)->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(LastRoundKey(), thread);
    return;
  }
  world->End();
  self = nullptr;
}
pthread_key_t LastRoundKey() {
  static const pthread_key_t key = [] {
    pthread_key_t made = {};
    TANDEM_CHECK(pthread_key_create(&made, OnDestructors) == 0);
    return made;
  }();
  return key;
}

void* Begin(void* argument) {
  auto* const thread = static_cast<Thread*>(argument);
  self = thread;
  AwaitTurn(*thread);
  pthread_setspecific(LastRoundKey(), thread);
  return thread->start(thread->argument);
}

}  // namespace

void Run(const WorldOptions& options, const std::function<void()>& body) {
  TANDEM_CHECK(world == nullptr && options.switch_one_in > 0);
  World one(options);
  world = &one;
  self = &one.Add("main");
  LastRoundKey();
  body();
  one.CheckAllEnded();
  self = nullptr;
  world = nullptr;
}

absl::Duration Elapsed() { return absl::Nanoseconds(world->now()); }

std::string ElapsedText() { return absl::StrFormat("%.6f", absl::ToDoubleSeconds(Elapsed())); }

void NameThread(std::string name) { self->name = std::move(name); }

bool InWorld() { return self != nullptr; }

int64_t LookAtClock() { return world->Look(); }

void MaySwitch() {
  if (world->Draw(world->switch_one_in())) world->Switch();
}

void Yield() { world->Switch(); }

bool WaitFor(const void* object, const char* what, int64_t deadline) {
  self->waiting = true;
  self->timed_out = false;
  self->object = object;
  self->what = what;
  self->deadline = deadline;
  world->Switch();
  return !self->timed_out;
}

void WakeOne(const void* object) { world->Wake(object, false); }
void WakeAll(const void* object) { world->Wake(object, true); }

int Create(CreateThread create, pthread_t* handle, const pthread_attr_t* attributes,
           void* (*start)(void*), void* argument) {
  Thread& thread = world->Add("of " + self->name);
  thread.start = start;
  thread.argument = argument;
  const int error = create(handle, attributes, Begin, &thread);
  thread.ended = error != 0;
  thread.handle = *handle;
  return error;
}

int Join(JoinThread join, pthread_t handle, void** result) {
  Thread* const thread = world->Find(handle);
  while (thread != nullptr && !thread->ended) WaitFor(thread, "the end of a thread", kNever);
  return join(handle, result);
}

}  // namespace tandem::simulate

// Functions of the C library and of absl that wait or tell the time, as a simulation has them.
//
// A program's own definitions come before those of the libraries it is linked with, for the
// libraries too.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <unordered_map>

#include "absl/base/config.h"
#include "absl/base/internal/thread_identity.h"
#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/kernel_timeout.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/base/check.h"
#include "tools/simulate/threads/world_threads.h"

namespace {

using tandem::simulate::InWorld;
using tandem::simulate::kBeginNanos;
using tandem::simulate::kNever;
using tandem::simulate::LookAtClock;
using tandem::simulate::WaitFor;

constexpr int64_t kNanosPerSecond = 1'000'000'000;

int64_t Nanos(const timespec& time) {
  return time.tv_sec >= kNever / kNanosPerSecond ? kNever
                                                 : time.tv_sec * kNanosPerSecond + time.tv_nsec;
}

// Realtime counts from 1970, the other clocks from the world's beginning.
int64_t Offset(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? kBeginNanos : 0;
}

// Now and `nanos`; kNever where that is too far.
int64_t After(int64_t nanos) {
  const int64_t now = LookAtClock();
  return nanos >= kNever - now ? kNever : now + nanos;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}
#define TANDEM_NEXT(name) Next<decltype(&(name))>(#name)

int Unlock(pthread_mutex_t* mutex) {
  static const auto next = TANDEM_NEXT(pthread_mutex_unlock);
  const int error = next(mutex);
  if (InWorld()) tandem::simulate::WakeAll(mutex);
  return error;
}

int Lock(pthread_mutex_t* mutex) {
  while (true) {
    const int error = pthread_mutex_trylock(mutex);
    if (error != EBUSY) return error;
    WaitFor(mutex, "a mutex", kNever);
  }
}

int Wait(pthread_cond_t* condition, pthread_mutex_t* mutex, int64_t deadline) {
  Unlock(mutex);
  const bool woken = WaitFor(condition, "a condition", deadline);
  const int error = Lock(mutex);
  return error == 0 && !woken ? ETIMEDOUT : error;
}

int Sleep(const timespec* time) {
  if (time->tv_nsec < 0 || time->tv_nsec >= kNanosPerSecond || time->tv_sec < 0) return EINVAL;
  WaitFor(nullptr, "the end of a sleep", After(Nanos(*time)));
  return 0;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (!InWorld()) return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  const int64_t now = LookAtClock() + Offset(clock);
  *time = {.tv_sec = now / kNanosPerSecond, .tv_nsec = now % kNanosPerSecond};
  return 0;
}

int gettimeofday(timeval* __restrict time, void* __restrict /*zone*/) noexcept {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  *time = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* seconds) noexcept {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (seconds != nullptr) *seconds = now.tv_sec;
  return now.tv_sec;
}

int nanosleep(const timespec* time, timespec* rest) {
  if (!InWorld()) return static_cast<int>(::syscall(SYS_nanosleep, time, rest));
  const int error = Sleep(time);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* rest) {
  if (!InWorld()) {
    const long result = ::syscall(SYS_clock_nanosleep, clock, flags, time, rest);
    return result == 0 ? 0 : errno;
  }
  if ((flags & TIMER_ABSTIME) == 0) return Sleep(time);
  WaitFor(nullptr, "the end of a sleep", Nanos(*time) - Offset(clock));
  return 0;
}

int usleep(useconds_t microseconds) {
  const timespec time = {.tv_sec = microseconds / 1'000'000,
                         .tv_nsec = (microseconds % 1'000'000) * 1000};
  return nanosleep(&time, nullptr);
}

int sched_yield() noexcept {
  if (!InWorld()) return static_cast<int>(::syscall(SYS_sched_yield));
  tandem::simulate::Yield();
  return 0;
}

int pthread_create(pthread_t* __restrict handle, const pthread_attr_t* __restrict attributes,
                   void* (*start)(void*), void* __restrict argument) noexcept {
  static const auto next = TANDEM_NEXT(pthread_create);
  return InWorld() ? tandem::simulate::Create(next, handle, attributes, start, argument)
                   : next(handle, attributes, start, argument);
}

int pthread_join(pthread_t handle, void** result) {
  static const auto next = TANDEM_NEXT(pthread_join);
  return InWorld() ? tandem::simulate::Join(next, handle, result) : next(handle, result);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const auto next = TANDEM_NEXT(pthread_mutex_lock);
  if (!InWorld()) return next(mutex);
  tandem::simulate::MaySwitch();
  return Lock(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept { return Unlock(mutex); }

int pthread_cond_wait(pthread_cond_t* __restrict condition, pthread_mutex_t* __restrict mutex) {
  static const auto next = TANDEM_NEXT(pthread_cond_wait);
  return InWorld() ? Wait(condition, mutex, kNever) : next(condition, mutex);
}

int pthread_cond_timedwait(pthread_cond_t* __restrict condition, pthread_mutex_t* __restrict mutex,
                           const timespec* __restrict until) {
  static const auto next = TANDEM_NEXT(pthread_cond_timedwait);
  return InWorld() ? Wait(condition, mutex, Nanos(*until) - Offset(CLOCK_REALTIME))
                   : next(condition, mutex, until);
}

int pthread_cond_clockwait(pthread_cond_t* __restrict condition, pthread_mutex_t* __restrict mutex,
                           clockid_t clock, const timespec* __restrict until) {
  static const auto next = TANDEM_NEXT(pthread_cond_clockwait);
  return InWorld() ? Wait(condition, mutex, Nanos(*until) - Offset(clock))
                   : next(condition, mutex, clock, until);
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  static const auto next = TANDEM_NEXT(pthread_cond_signal);
  if (!InWorld()) return next(condition);
  tandem::simulate::WakeOne(condition);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  static const auto next = TANDEM_NEXT(pthread_cond_broadcast);
  if (!InWorld()) return next(condition);
  tandem::simulate::WakeAll(condition);
  return 0;
}

// What absl::Mutex waits on: the semaphore of a thread.  No thread of these programs waits on an
// absl::Mutex outside of a world.
static std::unordered_map<const void*, uint32_t>& Semaphores() {
  static auto* const semaphores = new std::unordered_map<const void*, uint32_t>;
  return *semaphores;
}

void ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemPost)(
    absl::base_internal::ThreadIdentity* identity) {
  ++Semaphores()[identity];
  if (InWorld()) tandem::simulate::WakeAll(identity);
}

bool ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(
    absl::synchronization_internal::KernelTimeout timeout) {
  TANDEM_CHECK(InWorld());
  const void* const identity = absl::synchronization_internal::GetOrCreateCurrentThreadIdentity();
  const int64_t deadline =
      timeout.has_timeout() ? Nanos(timeout.MakeAbsTimespec()) - kBeginNanos : kNever;
  while (Semaphores()[identity] == 0) {
    if (!WaitFor(identity, "an absl::Mutex", deadline)) return false;
  }
  --Semaphores()[identity];
  return true;
}

void ABSL_INTERNAL_C_SYMBOL(AbslInternalMutexYield)() { ::sched_yield(); }

void ABSL_INTERNAL_C_SYMBOL(AbslInternalSleepFor)(absl::Duration duration) {
  const timespec time = absl::ToTimespec(duration);
  ::nanosleep(&time, nullptr);
}

}  // extern "C"

// absl's own takes the time from the processor's counter.
namespace absl {
ABSL_NAMESPACE_BEGIN

int64_t GetCurrentTimeNanos() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return Nanos(now);
}

Time Now() { return FromUnixNanos(GetCurrentTimeNanos()); }

ABSL_NAMESPACE_END
}  // namespace absl

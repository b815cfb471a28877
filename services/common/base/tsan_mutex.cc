// ThreadSanitizer builds only: makes absl::Mutex and absl::Notification visible to the sanitizer.
//
// Distributions build abseil without the sanitizer's annotations, so the sanitizer would report
// every variable that an absl::Mutex or absl::Notification orders.  These definitions replace the
// shared library's, for this project and for gRPC: each calls the library's own and announces what it
// orders.  The library evaluates one thread's conditions in another thread's Unlock, under the mutex; the sanitizer
// ignores those reads, because there is no moment at which to announce them.
#include <absl/base/options.h>
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

#define TANDEM_STRING_INNER(x) #x
#define TANDEM_STRING(x) TANDEM_STRING_INNER(x)
constexpr char kNamespace[] = TANDEM_STRING(ABSL_OPTION_INLINE_NAMESPACE_NAME);

// The library's definition of "absl::NAMESPACE::REST", REST being mangled.  A const member function
// has the qualifiers "K".
template <typename Function>
Function* Real(std::atomic<void*>& cache, const char* rest, const char* qualifiers = "") {
  void* address = cache.load(std::memory_order_relaxed);
  if (address == nullptr) {
    char name[256];
    std::snprintf(name, sizeof(name), "_ZN%s4absl%zu%s%s", qualifiers, std::strlen(kNamespace),
                  kNamespace, rest);
    address = ::dlsym(RTLD_NEXT, name);
    if (address == nullptr) std::abort();
    cache.store(address, std::memory_order_relaxed);
  }
  return reinterpret_cast<Function*>(address);
}

// "N4absl8debian39ConditionE" in a parameter list is a substitution: S_ is absl, S0_ the namespace,
// S1_ the class of the member function.
#define TANDEM_REAL(signature, ...)         \
  static std::atomic<void*> cache{nullptr}; \
  auto* const real = Real<signature>(cache, __VA_ARGS__)

class IgnoreReads {
 public:
  IgnoreReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~IgnoreReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

// A wait that takes the mutex at its end.
class Locks {
 public:
  explicit Locks(void* mutex) : mutex_(mutex) { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~Locks() {
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    __tsan_acquire(mutex_);
  }

 private:
  void* const mutex_;
};

// A wait that releases the mutex at its beginning and takes it at its end.
class Waits {
 public:
  explicit Waits(void* mutex) : locks_(Released(mutex)) {}

 private:
  static void* Released(void* mutex) {
    __tsan_release(mutex);
    return mutex;
  }
  const Locks locks_;
};

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  TANDEM_REAL(void(Mutex*), "5Mutex4LockEv");
  real(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  TANDEM_REAL(bool(Mutex*), "5Mutex7TryLockEv");
  const bool locked = real(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  TANDEM_REAL(void(Mutex*), "5Mutex6UnlockEv");
  __tsan_release(this);
  const IgnoreReads ignore;
  real(this);
}

void Mutex::ReaderLock() {
  TANDEM_REAL(void(Mutex*), "5Mutex10ReaderLockEv");
  real(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  TANDEM_REAL(void(Mutex*), "5Mutex12ReaderUnlockEv");
  __tsan_release(this);
  const IgnoreReads ignore;
  real(this);
}

#if ABSL_LTS_RELEASE_VERSION >= 20240116
// Debian 13: every wait ends in one of three private functions.
using synchronization_internal::KernelTimeout;

bool Mutex::LockWhenCommon(const Condition& condition, KernelTimeout timeout, bool write) {
  TANDEM_REAL(
      bool(Mutex*, const Condition&, KernelTimeout, bool),
      "5Mutex14LockWhenCommonERKNS0_9ConditionENS0_24synchronization_internal13KernelTimeoutEb");
  const Locks locks(this);
  return real(this, condition, timeout, write);
}

bool Mutex::AwaitCommon(const Condition& condition, KernelTimeout timeout) {
  TANDEM_REAL(
      bool(Mutex*, const Condition&, KernelTimeout),
      "5Mutex11AwaitCommonERKNS0_9ConditionENS0_24synchronization_internal13KernelTimeoutE");
  const Waits waits(this);
  return real(this, condition, timeout);
}

bool CondVar::WaitCommon(Mutex* mutex, KernelTimeout timeout) {
  TANDEM_REAL(bool(CondVar*, Mutex*, KernelTimeout),
              "7CondVar10WaitCommonEPNS0_5MutexENS0_24synchronization_internal13KernelTimeoutE");
  const Waits waits(mutex);
  return real(this, mutex, timeout);
}
#else  // Debian 12
void Mutex::LockWhen(const Condition& condition) {
  TANDEM_REAL(void(Mutex*, const Condition&), "5Mutex8LockWhenERKNS0_9ConditionE");
  const Locks locks(this);
  real(this, condition);
}

void Mutex::Await(const Condition& condition) {
  TANDEM_REAL(void(Mutex*, const Condition&), "5Mutex5AwaitERKNS0_9ConditionE");
  const Waits waits(this);
  real(this, condition);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  TANDEM_REAL(bool(Mutex*, const Condition&, Duration),
              "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  const Waits waits(this);
  return real(this, condition, timeout);
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  TANDEM_REAL(bool(Mutex*, const Condition&, Time),
              "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  const Waits waits(this);
  return real(this, condition, deadline);
}

void CondVar::Wait(Mutex* mutex) {
  TANDEM_REAL(void(CondVar*, Mutex*), "7CondVar4WaitEPNS0_5MutexE");
  const Waits waits(mutex);
  real(this, mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  TANDEM_REAL(bool(CondVar*, Mutex*, Duration),
              "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  const Waits waits(mutex);
  return real(this, mutex, timeout);
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  TANDEM_REAL(bool(CondVar*, Mutex*, Time), "7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  const Waits waits(mutex);
  return real(this, mutex, deadline);
}
#endif

// HasBeenNotified is inline and reads notified_yet_, so the order is announced there.
void Notification::Notify() {
  TANDEM_REAL(void(Notification*), "12Notification6NotifyEv");
  __tsan_release(&notified_yet_);
  real(this);
}

void Notification::WaitForNotification() const {
  TANDEM_REAL(void(const Notification*), "12Notification19WaitForNotificationEv", "K");
  real(this);
  __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  TANDEM_REAL(bool(const Notification*, Duration),
              "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE", "K");
  const bool notified = real(this, timeout);
  if (notified) __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  TANDEM_REAL(bool(const Notification*, Time),
              "12Notification31WaitForNotificationWithDeadlineENS0_4TimeE", "K");
  const bool notified = real(this, deadline);
  if (notified) __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl

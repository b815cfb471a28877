// ThreadSanitizer builds only: makes absl::Mutex visible to the sanitizer.
//
// Distributions ship abseil without the sanitizer's annotations, so that to it nothing guarded by
// an absl::Mutex is ordered.  These definitions stand before those of the shared library, for this
// project and for gRPC alike: each calls the library's own and says what it orders. The library
// evaluates one thread's conditions in another's Unlock, under the mutex; those reads are ignored,
// for there is no moment at which to announce them.
#include <absl/base/options.h>
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/synchronization/mutex.h"

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

#define TANDEM_STRING_INNER(x) #x
#define TANDEM_STRING(x) TANDEM_STRING_INNER(x)
constexpr char kNamespace[] = TANDEM_STRING(ABSL_OPTION_INLINE_NAMESPACE_NAME);

// The library's definition of "absl::NAMESPACE::REST", REST being mangled.
template <typename Function>
Function* Real(std::atomic<void*>& cache, const char* rest) {
  void* address = cache.load(std::memory_order_relaxed);
  if (address == nullptr) {
    char name[256];
    std::snprintf(name, sizeof(name), "_ZN4absl%zu%s%s", std::strlen(kNamespace), kNamespace, rest);
    address = ::dlsym(RTLD_NEXT, name);
    if (address == nullptr) std::abort();
    cache.store(address, std::memory_order_relaxed);
  }
  return reinterpret_cast<Function*>(address);
}

// "N4absl8debian39ConditionE" in a parameter list is a substitution: S_ is absl, S0_ the namespace,
// S1_ the class of the member function.
#define TANDEM_REAL(signature, rest)        \
  static std::atomic<void*> cache{nullptr}; \
  auto* const real = Real<signature>(cache, rest)

class IgnoreReads {
 public:
  IgnoreReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~IgnoreReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
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

void Mutex::LockWhen(const Condition& condition) {
  TANDEM_REAL(void(Mutex*, const Condition&), "5Mutex8LockWhenERKNS0_9ConditionE");
  {
    const IgnoreReads ignore;
    real(this, condition);
  }
  __tsan_acquire(this);
}

void Mutex::Await(const Condition& condition) {
  TANDEM_REAL(void(Mutex*, const Condition&), "5Mutex5AwaitERKNS0_9ConditionE");
  __tsan_release(this);
  {
    const IgnoreReads ignore;
    real(this, condition);
  }
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  TANDEM_REAL(bool(Mutex*, const Condition&, Duration),
              "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  __tsan_release(this);
  bool result;
  {
    const IgnoreReads ignore;
    result = real(this, condition, timeout);
  }
  __tsan_acquire(this);
  return result;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  TANDEM_REAL(bool(Mutex*, const Condition&, Time),
              "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  __tsan_release(this);
  bool result;
  {
    const IgnoreReads ignore;
    result = real(this, condition, deadline);
  }
  __tsan_acquire(this);
  return result;
}

void CondVar::Wait(Mutex* mutex) {
  TANDEM_REAL(void(CondVar*, Mutex*), "7CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  {
    const IgnoreReads ignore;
    real(this, mutex);
  }
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  TANDEM_REAL(bool(CondVar*, Mutex*, Duration),
              "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  bool result;
  {
    const IgnoreReads ignore;
    result = real(this, mutex, timeout);
  }
  __tsan_acquire(mutex);
  return result;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  TANDEM_REAL(bool(CondVar*, Mutex*, Time), "7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mutex);
  bool result;
  {
    const IgnoreReads ignore;
    result = real(this, mutex, deadline);
  }
  __tsan_acquire(mutex);
  return result;
}

ABSL_NAMESPACE_END
}  // namespace absl

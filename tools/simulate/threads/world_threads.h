// What interposed.cc needs of a world.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <limits>

namespace tandem::simulate {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// Realtime of a world's beginning: 2026-01-01T00:00:00Z.
inline constexpr int64_t kBeginNanos = int64_t{1'767'225'600} * 1'000'000'000;

// Whether the calling thread is one of a world's.  The other functions REQUIRE it.
bool InWorld();
// Nanoseconds since the world's beginning; moves it on a little.
int64_t LookAtClock();
// Another thread may go on.
void MaySwitch();
// Another thread goes on, if one can.
void Yield();
// Waits until Wake(object), or `deadline`, in nanoseconds since the beginning; false then.  `what`:
// static text for reports.
bool WaitFor(const void* object, const char* what, int64_t deadline);
void WakeOne(const void* object);
void WakeAll(const void* object);

using CreateThread = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
using JoinThread = int (*)(pthread_t, void**);
// The C library's, given by the caller, around the world's bookkeeping.
int Create(CreateThread create, pthread_t* handle, const pthread_attr_t* attributes,
           void* (*start)(void*), void* argument);
int Join(JoinThread join, pthread_t handle, void** result);

}  // namespace tandem::simulate

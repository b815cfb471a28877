// How gRPC's threads wait for their sockets.
#pragma once

namespace tandem {

// Chooses gRPC's `poll` strategy, unless GRPC_POLL_STRATEGY is set: a thread that waits on a
// completion queue polls that queue's connections itself.  Under the default, `epoll1`, one thread
// of the process polls for all, and hands what comes to whoever waits for it: two changes of
// thread more in a round trip (docs/decisions/0005-execution-polls.md has the figures).
// Idle channels, which then nobody polls, are looked at four times a second, so that a peer's
// end is noticed and its orderly shutdown not held up.
// Threads that wait by WakeAhead are awake when their message comes.
// It also turns off abseil's watch over the order of locks, which distributions build in and gRPC
// pays for at every lock.
// Call first thing in main, before any thread starts: it sets environment variables that gRPC reads
// when it is first used.
void PollForLatency();

}  // namespace tandem

// How gRPC's threads wait for their sockets.
#pragma once

namespace tandem {

// Sets gRPC up for short round trips:
// - The `poll` strategy, unless GRPC_POLL_STRATEGY is set: a thread that waits on a completion
//   queue polls that queue's connections itself.  With the default, `epoll1`, one thread of the
//   process polls for all of them, which adds two thread switches to a round trip
//   (docs/decisions/0005-execution-polls.md has the figures).
// - Adaptive polling (adaptive_polling.h).
// - A check of idle channels four times a second, because no thread polls them: the process
//   notices that a peer has ended, and the peer's shutdown does not wait.
// - No deadlock detection in abseil's mutexes: distributions build it in, and each lock pays.
// Call this first in main, before any thread starts: it sets environment variables that gRPC reads
// at its first use.
void PollForLatency();

}  // namespace tandem

// Long work that stops when nobody waits for its result any more.
//
//   CancellationScope scope([&responder] { return responder->gone(); });
//   const auto ids = tokenizer.Encode(text);  // CANCELLED soon after the client has gone
//
// The scope belongs to the thread, so that work deep below a handler needs no parameter for it.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace tandem {

// Work on this thread is cancelled when `cancelled` says so, until the scope ends.  Scopes nest;
// the innermost one counts.  `cancelled` is called on this thread, once for some 10,000 steps of
// work, and must not block.
class CancellationScope {
 public:
  explicit CancellationScope(std::function<bool()> cancelled);
  ~CancellationScope();
  CancellationScope(const CancellationScope&) = delete;
  CancellationScope& operator=(const CancellationScope&) = delete;

 private:
  friend absl::Status CheckCancelled();
  const std::function<bool()> cancelled_;
  CancellationScope* const outer_;
};

// CANCELLED if the innermost scope of this thread says so, else OK.  For loops over what a client
// sent: call it every few thousand steps.
absl::Status CheckCancelled();

}  // namespace tandem

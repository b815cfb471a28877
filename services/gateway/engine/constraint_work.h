// What a constrained answer needs between two of its tokens: the state after a token, the tokens
// that are forced then, and the mask of the next one.
//
//   token decided -> Run: at once, as long as it is quick  -> mask -> the sequence goes on
//                 \-> Post: a thread of the pool, for longer work, and for grammars that were slow
//                     a short time ago -> Take -/
//
// Most masks take microseconds.  A grammar whose masks take long delays its own answers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/common/base/turn_queue.h"
#include "services/gateway/constraint/constraint.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::gateway {

struct ConstraintWork {
  uint64_t request = 0;
  // Where the answer is; nullopt: before its first token.
  std::optional<constraint::ConstraintState> state;
  std::shared_ptr<constraint::Constraint> grammar;  // of all answers that follow it
  std::optional<uint32_t> token;                    // decided; nullopt before the first
  std::string sender;                               // whose turn in the pool it takes
  // Nodes that quick work visits (ConstraintState::work).
  uint64_t most_quick = 0;
  bool only_quick = false;  // it ends beyond them, with `cut_off`

  // INVALID_ARGUMENT: following the grammar takes more than MatcherLimits.  FAILED_PRECONDITION: no
  // token of the vocabulary can come next.  INTERNAL: `token` may not come next.
  absl::Status status;
  std::vector<uint32_t> forced;  // tokens that follow without a choice
  bool done = false;             // after them nothing may follow
  std::vector<uint32_t> mask;  // of the token after them, [TokenTrie::mask_words()]; empty if done
  absl::Duration time;         // of the mask
  bool cut_off = false;        // not quick, or over the limits: the results are of no use
};

// Text to tokens without control tokens.
using ForcedEncoder = constraint::ConstraintState::Encoder;
// `tokenizer`: Borrowed; must outlive the encoder.
ForcedEncoder ForcedEncoderOf(const Tokenizer& tokenizer);

void RunConstraintWork(const ForcedEncoder& encode, ConstraintWork& work);

// Masks of the tokens after guesses, which follow `state` one by one: of each guess in the case that
// it is the token that is chosen.  `mask`: of the first.  As many as can be verified in one step:
// guesses end before one that may not come, that ends the answer, or that forces tokens.  Guesses
// also end where an error would, and after one that is not quick.
std::vector<std::vector<uint32_t>> GuessMasks(const ForcedEncoder& encode,
                                              constraint::Constraint& grammar, uint64_t most_quick,
                                              constraint::ConstraintState state,
                                              std::span<const uint32_t> mask,
                                              std::span<const uint32_t> guesses);

// Threads for work that may be slow, in which senders take turns.  Thread-safe.
class ConstraintPool {
 public:
  ConstraintPool(size_t num_threads, ForcedEncoder encode);
  // Work that has not begun is dropped.
  ~ConstraintPool();
  ConstraintPool(const ConstraintPool&) = delete;
  ConstraintPool& operator=(const ConstraintPool&) = delete;

  void Post(std::unique_ptr<ConstraintWork> work);
  // What has ended since the last call.  Waits until `deadline` at most: for all that was posted,
  // or with `any` for one.
  std::vector<std::unique_ptr<ConstraintWork>> Take(absl::Time deadline, bool any);
  // Drops the request's work, unless it has begun.
  void Forget(uint64_t request);
  // Whether there is posted work that was not taken.
  bool busy() const;

 private:
  void Run();

  const ForcedEncoder encode_;
  mutable Mutex mutex_;
  CondVar posted_;
  CondVar ended_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  size_t num_open_ ABSL_GUARDED_BY(mutex_) = 0;  // posted and not taken
  TurnQueue<std::unique_ptr<ConstraintWork>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<ConstraintWork>> done_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;  // last: run on everything above
};

}  // namespace tandem::gateway

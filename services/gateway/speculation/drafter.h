// Drafters: what guesses the next tokens of a sequence before the model computes them.
//
// A guess never decides a token.  The step that decodes has a row for each guess (scheduler.h), the
// sampler draws at every row as it would have drawn without guesses, and a guess is *accepted* if
// it is the token that was drawn.  So a drafter can be wrong, late or lost: it costs time only.
//
//   engine  |  Decided(tokens) Ask | step ... outcome: Decided(tokens) Ask | step ...
//   drafter |             guesses...Take                          guesses...Take
//
// Positions: a sequence is its prompt followed by its answer, position 0 is the prompt's first
// token.  A chain that starts at position p guesses the tokens at p, p + 1, ...; the first position
// that is not decided is the number of decided tokens.
//
// Same noise: the draw at position p of a sequence depends on (seed, p - prompt length) only:
// UniformDraw(sampling.seed, p - prompt length) (sampling/random.h), as in GuessRule::At.  A drafter
// with a distribution of its own draws from it with the same number, under the same parameters;
// then it agrees with the model as often as the two distributions allow.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "services/common/plan/planner.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/sampling/sampler.h"

namespace tandem::gateway {

// Most guesses in a chain.
inline constexpr uint32_t kMaxGuesses = 15;

// A sequence that a drafter guesses for, when it begins.  Everything is borrowed for the call.
struct DraftSequence {
  uint64_t id = 0;                   // never reused
  std::span<const uint32_t> prompt;  // not empty
  const SamplingParams* sampling = nullptr;
  // What the client expects of the answer (OpenAI's `prediction`), as tokens; may be empty.
  std::span<const uint32_t> prediction;
};

// Asks for a chain.
struct DraftRequest {
  uint64_t sequence = 0;
  uint32_t num_decided = 0;  // tokens decided: the chain starts at this position
  uint32_t max_guesses = 0;  // 1..kMaxGuesses; fewer are welcome
  // The final-normed hidden state of the row that chose the last decided token, [hidden_dim].
  // Borrowed for the call.  Empty: unknown, or the drafter does not want it.
  std::span<const float> hidden;
};

// Guesses for positions [first_position, first_position + tokens.size()).  They follow the tokens
// that were decided when the chain was asked for.
struct DraftChain {
  uint64_t sequence = 0;
  uint32_t first_position = 0;
  std::vector<uint32_t> tokens;  // may be empty: the drafter knows none
  // By guess: how probable it is that the guess is accepted if those before it are.  Same size as
  // `tokens`, or empty: the drafter does not say, and the record of the sequence is used.
  std::vector<float> probabilities;
};

// A step that a drafter has run on devices.
struct DraftStep {
  struct Rows {
    uint64_t sequence = 0;
    uint32_t first_position = 0;
    uint32_t num_rows = 0;
  };
  uint64_t step_id = 0;  // the drafter's, increasing
  absl::Time begin, end;
  std::span<const Rows> rows;
  std::span<const SegmentTiming> segments;  // in order
  const Plan* plan = nullptr;               // Borrowed for the call
};
using ObserveDraftStep = std::function<void(const DraftStep&)>;

// All calls come from one thread, the engine's, and none may wait for a device, a lock that is held
// for long, or another process: a drafter with slow work has a thread of its own and copies what it
// needs.  Every error is the drafter's own: it logs it, says it in `status`, and returns no chains.
class Drafter {
 public:
  virtual ~Drafter() = default;

  // A label of metrics, status and traces: lower case, constant.  "lookup", "draft".
  virtual std::string_view name() const = 0;
  // Whether DraftRequest::hidden is wanted.
  virtual bool wants_hidden() const { return false; }
  // Empty: it guesses.  Else why it does not at the moment.  Holds until the next call.
  virtual std::string_view trouble() const { return {}; }

  // From any thread: what guesses and where, for status; empty: its name says it.
  virtual std::string about() const { return {}; }
  // From any thread: how long devices and workers have drafted since the start.
  virtual double busy_seconds() const { return 0.0; }
  // Calls `observe` with each step on devices from now on, from a thread of its own.
  virtual void Observe(const ObserveDraftStep& /*observe*/) {}
  // Gives back threads and workers.  Only about() and busy_seconds() are called afterwards.
  virtual void Stop() {}

  // A sequence begins: its prompt is about to be computed, nothing of its answer is decided.
  virtual void Begin(const DraftSequence& sequence) = 0;
  // Tokens of the answer were decided, in order: the next ones of the sequence.  The first
  // `num_accepted` of them were guesses of the last chain that was verified, whoever made it; the
  // chain's next guess, if there was one, was rejected.  Called also for tokens without guesses.
  virtual void Decided(uint64_t sequence, std::span<const uint32_t> tokens,
                       uint32_t num_accepted) = 0;
  // It has ended; chains for it that are still to come are dropped.  No effect if unknown.
  virtual void End(uint64_t sequence) = 0;

  // How long a chain of `max_guesses` for each of `num_sequences` takes at present, from Ask until
  // Take has it; zero: Take has it at once.  The engine lets a step wait for that long only if this
  // pays.
  virtual absl::Duration TimeFor(uint32_t num_sequences, uint32_t max_guesses) const = 0;
  // Asks for a chain for each of several sequences, all begun and not ended.  A request replaces
  // the sequence's earlier one, if that has no answer yet.
  virtual void Ask(std::span<const DraftRequest> requests) = 0;
  // Appends the chains that are ready, each once, in any order.  If `until` is in the future it
  // may wait until then for chains that were asked for, and returns as soon as all of them are
  // there.  A chain that comes later than its step is not lost: if the tokens decided meanwhile are
  // its first guesses, its other guesses are used in the next step.
  virtual void Take(absl::Time until, std::vector<DraftChain>& chains) = 0;
};

}  // namespace tandem::gateway

#include "services/gateway/engine/constraint_work.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

absl::Status Follow(const ForcedEncoder& encode, ConstraintWork& work) {
  if (!work.state.has_value()) {
    TANDEM_ASSIGN_OR_RETURN(work.state, work.grammar->Start());
  }
  if (work.token.has_value()) {
    TANDEM_ASSIGN_OR_RETURN(const bool fits, work.state->Advance(*work.token));
    if (!fits) {
      return absl::InternalError(
          absl::StrFormat("constraint: token %d was chosen, which may not come next", *work.token));
    }
  }
  work.done = work.state->Done();
  if (work.done) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(work.forced, work.state->ForcedTokens(encode));
  for (const uint32_t token : work.forced) {
    TANDEM_ASSIGN_OR_RETURN(const bool fits, work.state->Advance(token));
    if (!fits) return absl::InternalError("constraint: a forced token may not come next");
  }
  work.done = work.state->Done();
  if (work.done) return absl::OkStatus();
  const absl::Time begin = absl::Now();
  work.mask.resize(work.grammar->mask_words());
  TANDEM_RETURN_IF_ERROR(work.state->Mask(work.mask));
  work.time = absl::Now() - begin;
  if (std::ranges::all_of(work.mask, [](uint32_t word) { return word == 0; })) {
    return absl::FailedPreconditionError(
        "constraint: no token of the model's vocabulary can come next");
  }
  return absl::OkStatus();
}

// Whether the guess leads to a mask.
bool FollowGuess(const ForcedEncoder& encode, uint32_t guess, constraint::ConstraintState& state,
                 std::span<uint32_t> mask) {
  const absl::StatusOr<bool> fits = state.Advance(guess);
  if (!fits.ok() || !*fits || state.Done()) return false;
  const auto forced = state.ForcedTokens(encode);
  if (!forced.ok() || !forced->empty()) return false;
  if (!state.Mask(mask).ok()) return false;
  return std::ranges::any_of(mask, [](uint32_t word) { return word != 0; });
}

}  // namespace

ForcedEncoder ForcedEncoderOf(const Tokenizer& tokenizer) {
  return [&tokenizer](std::string_view text) {
    // Forced bytes may end within a character: then they are no text yet, and nothing is forced.
    return tokenizer.Encode(text).value_or(std::vector<uint32_t>());
  };
}

void RunConstraintWork(const ForcedEncoder& encode, ConstraintWork& work) {
  if (work.state.has_value()) {
    work.state->LimitWork(work.only_quick ? work.most_quick : UINT64_MAX);
  }
  work.status = Follow(encode, work);
  if (work.state.has_value()) work.grammar->NoteWork(work.state->work(), work.most_quick);
  work.cut_off = work.only_quick && absl::IsResourceExhausted(work.status);
  // Trying again would not help.
  if (absl::IsResourceExhausted(work.status)) {
    work.status = absl::InvalidArgumentError(std::string(work.status.message()));
  }
}

std::vector<std::vector<uint32_t>> GuessMasks(const ForcedEncoder& encode,
                                              constraint::Constraint& grammar, uint64_t most_quick,
                                              constraint::ConstraintState state,
                                              std::span<const uint32_t> mask,
                                              std::span<const uint32_t> guesses) {
  std::vector<std::vector<uint32_t>> masks;
  masks.reserve(guesses.size());  // `mask` refers to the last
  for (const uint32_t guess : guesses) {
    if (guess / 32 >= mask.size() || (mask[guess / 32] >> (guess % 32) & 1) == 0) break;
    std::vector<uint32_t> next(mask.size());
    state.LimitWork(most_quick);
    const bool known = FollowGuess(encode, guess, state, next);
    grammar.NoteWork(state.work(), most_quick);
    if (!known) break;
    masks.push_back(std::move(next));
    mask = masks.back();
  }
  return masks;
}

ConstraintPool::ConstraintPool(size_t num_threads, ForcedEncoder encode)
    : encode_(std::move(encode)) {
  for (size_t i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

ConstraintPool::~ConstraintPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    posted_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ConstraintPool::Post(std::unique_ptr<ConstraintWork> work) {
  MutexLock lock(mutex_);
  ++num_open_;
  const std::string sender = work->sender;
  waiting_.Push(sender, std::move(work));
  posted_.SignalOne();
}

void ConstraintPool::Forget(uint64_t request) {
  MutexLock lock(mutex_);
  num_open_ -= waiting_.EraseIf([&](const auto& work) { return work->request == request; });
  ended_.SignalAll();
}

std::vector<std::unique_ptr<ConstraintWork>> ConstraintPool::Take(absl::Time deadline, bool any) {
  MutexLock lock(mutex_);
  const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return any ? num_open_ == 0 || !done_.empty() : done_.size() == num_open_;
  };
  while (!enough() && ended_.WaitUntil(mutex_, deadline)) {
  }
  num_open_ -= done_.size();
  return std::exchange(done_, {});
}

bool ConstraintPool::busy() const {
  MutexLock lock(mutex_);
  return num_open_ > 0;
}

void ConstraintPool::Run() {
  for (;;) {
    std::unique_ptr<ConstraintWork> work;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stopping_) posted_.Wait(mutex_);
      if (stopping_) return;
      work = waiting_.Pop();
    }
    RunConstraintWork(encode_, *work);
    MutexLock lock(mutex_);
    done_.push_back(std::move(work));
    ended_.SignalAll();
  }
}

}  // namespace tandem::gateway

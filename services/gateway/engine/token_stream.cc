#include "services/gateway/engine/token_stream.h"

#include <iterator>
#include <utility>

#include "services/common/base/check.h"

namespace tandem::gateway {
namespace {

void MoveAppend(std::vector<Decision>& from, std::vector<Decision>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

TokenStream::PushResult TokenStream::Push(StreamUpdate update) {
  MutexLock lock(mutex_);
  TANDEM_CHECK(!ended_);
  if (unread_.tokens.size() + update.tokens.size() > max_unread_tokens_) return PushResult::kFull;
  unread_.text += update.text;
  MoveAppend(update.tokens, unread_.tokens);
  MoveAppend(update.prompt_tokens, unread_.prompt_tokens);
  return std::exchange(notifying_, true) ? PushResult::kMerged : PushResult::kNotify;
}

void TokenStream::End(StreamEnd end) {
  MutexLock lock(mutex_);
  TANDEM_CHECK(!ended_);
  ended_ = true;
  end_ = std::move(end);
}

void TokenStream::Notify() {
  if (!on_ready_) return;
  bool last = false;
  {
    MutexLock lock(mutex_);
    notifying_ = false;
    last = ended_;
  }
  on_ready_();
  if (last) on_ready_ = nullptr;
}

TokenStream::Batch TokenStream::Take() {
  MutexLock lock(mutex_);
  Batch batch;
  batch.update = std::exchange(unread_, {});
  batch.end = std::exchange(end_, std::nullopt);
  return batch;
}

void TokenStream::Cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
}

bool TokenStream::cancelled() const {
  MutexLock lock(mutex_);
  return cancelled_;
}

}  // namespace tandem::gateway

// Collects a stream for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/common/base/check.h"
#include "services/common/base/mutex.h"
#include "services/gateway/engine/token_stream.h"

namespace tandem::gateway::testing {

// Thread-safe.  Outlives its stream's notifications by sharing its state with them.
class StreamReader {
 public:
  explicit StreamReader(uint32_t max_unread_tokens = 100000) : state_(std::make_shared<State>()) {
    stream_ = std::make_shared<TokenStream>(max_unread_tokens, [state = state_] {
      MutexLock lock(state->mutex);
      state->ready = true;
      state->changed.SignalOne();
    });
  }

  const std::shared_ptr<TokenStream>& stream() const { return stream_; }

  // Takes what there is, waiting for at least one notification.
  void Read() {
    {
      MutexLock lock(state_->mutex);
      const absl::Time patience = absl::Now() + absl::Seconds(60);
      while (!state_->ready) TANDEM_CHECK(state_->changed.WaitUntil(state_->mutex, patience));
      state_->ready = false;
    }
    TokenStream::Batch batch = stream_->Take();
    text += batch.update.text;
    for (Decision& decision : batch.update.tokens) decisions.push_back(std::move(decision));
    for (Decision& decision : batch.update.prompt_tokens) prompt.push_back(std::move(decision));
    if (batch.end.has_value()) end = std::move(batch.end);
  }
  const StreamEnd& ReadToEnd() {
    while (!end.has_value()) Read();
    return *end;
  }
  std::vector<uint32_t> tokens() const {
    std::vector<uint32_t> ids;
    for (const Decision& decision : decisions) ids.push_back(decision.token);
    return ids;
  }

  std::string text;
  std::vector<Decision> decisions;
  std::vector<Decision> prompt;
  std::optional<StreamEnd> end;

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    bool ready ABSL_GUARDED_BY(mutex) = false;
  };
  std::shared_ptr<State> state_;
  std::shared_ptr<TokenStream> stream_;
};

}  // namespace tandem::gateway::testing

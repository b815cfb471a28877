// A responder that keeps what it is given, in place of a connection.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/mutex.h"
#include "services/gateway/http/http_message.h"

namespace tandem::gateway::testing {

// Thread-safe.  Drains at once unless it holds.
class RecordingResponder : public HttpResponder {
 public:
  bool Send(HttpResponse response) override {
    MutexLock lock(mutex_);
    if (gone_ || head_sent_) return false;
    response_ = std::move(response);
    Complete();
    return true;
  }
  bool SendFailure(const HttpFailure& failure) override {
    return Send({.status = failure.http_status, .body = std::string(failure.status.message())});
  }
  void BeginStream(HttpStreamStart start) override {
    MutexLock lock(mutex_);
    start_ = std::move(start);
  }
  bool Write(std::string_view bytes) override {
    std::function<void()> drained;
    {
      MutexLock lock(mutex_);
      if (gone_) return false;
      head_sent_ = true;
      written_ += std::string(bytes);
      ++num_writes_;
      changed_.SignalAll();
      if (!held_) drained = on_drained_;
    }
    if (drained) drained();
    return true;
  }
  void End() override {
    MutexLock lock(mutex_);
    Complete();
  }
  void Abort() override {
    MutexLock lock(mutex_);
    aborted_ = true;
    Complete();
  }
  void SetCallbacks(std::function<void()> on_drained, std::function<void()> on_gone) override {
    MutexLock lock(mutex_);
    on_drained_ = std::move(on_drained);
    on_gone_ = std::move(on_gone);
  }
  bool gone() const override {
    MutexLock lock(mutex_);
    return gone_;
  }

  // The client goes away.
  void Leave() {
    std::function<void()> on_gone;
    {
      MutexLock lock(mutex_);
      gone_ = true;
      on_gone = std::exchange(on_gone_, nullptr);
      on_drained_ = nullptr;
    }
    if (on_gone) on_gone();
  }
  // From now on nothing is drained until Drain.
  void Hold() {
    MutexLock lock(mutex_);
    held_ = true;
  }
  void Drain() {
    std::function<void()> drained;
    {
      MutexLock lock(mutex_);
      held_ = false;
      drained = on_drained_;
    }
    if (drained) drained();
  }
  // As if a keep-alive had gone out.
  void SendHead() {
    MutexLock lock(mutex_);
    head_sent_ = true;
  }

  void WaitForWrite() {
    MutexLock lock(mutex_);
    const absl::Time patience = absl::Now() + absl::Seconds(60);
    while (num_writes_ == 0) TANDEM_CHECK(changed_.WaitUntil(mutex_, patience));
  }
  void WaitForEnd() {
    MutexLock lock(mutex_);
    const absl::Time patience = absl::Now() + absl::Seconds(60);
    while (!complete_) TANDEM_CHECK(changed_.WaitUntil(mutex_, patience));
  }
  std::optional<HttpResponse> response() const {
    MutexLock lock(mutex_);
    return response_;
  }
  std::optional<HttpStreamStart> start() const {
    MutexLock lock(mutex_);
    return start_;
  }
  std::string written() const {
    MutexLock lock(mutex_);
    return written_;
  }
  int num_writes() const {
    MutexLock lock(mutex_);
    return num_writes_;
  }

 private:
  void Complete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    TANDEM_CHECK(!complete_);
    complete_ = true;
    on_drained_ = nullptr;
    on_gone_ = nullptr;
    changed_.SignalAll();
  }

  mutable Mutex mutex_;
  CondVar changed_;
  std::function<void()> on_drained_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_gone_ ABSL_GUARDED_BY(mutex_);
  std::optional<HttpResponse> response_ ABSL_GUARDED_BY(mutex_);
  std::optional<HttpStreamStart> start_ ABSL_GUARDED_BY(mutex_);
  std::string written_ ABSL_GUARDED_BY(mutex_);
  int num_writes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool head_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
};

// Counts the tokens charged.  Thread-safe.
class CountingClient : public HttpClient {
 public:
  const std::string& name() const override { return name_; }
  const std::string& tenant() const override { return name_; }
  void ChargeTokens(uint64_t prompt_tokens, uint64_t completion_tokens) override {
    MutexLock lock(mutex_);
    charged_ += prompt_tokens + completion_tokens;
  }
  uint64_t charged() const {
    MutexLock lock(mutex_);
    return charged_;
  }

 private:
  const std::string name_ = "nobody";
  mutable Mutex mutex_;
  uint64_t charged_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::gateway::testing

// The answer to one request, between the handler that writes it and the connection that sends it.
// Internal to the server.
//
//   handler (any thread)              connection (its strand)
//   Send, Write, End -> out_       -> Take -> the socket -> Take ... -> OnSent -> on_drained
//   on_gone                        <- Gone
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/gateway/http/body_budget.h"
#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

// Inputs to the head of an answer besides the handler's.
struct HttpAnswerContext {
  std::string method, path, id;
  RequestTrace trace;
  HttpHeaders headers;  // CORS and the like
  bool http10 = false;
  bool close = false;  // the connection ends with this answer
  size_t max_unsent_bytes = 0;
  std::string sender;  // uses its share of the memory for answers
};

// Thread-safe.
class HttpAnswer {
 public:
  // Events for the connection, from any thread and with no lock held.
  struct Listener {
    virtual ~Listener() = default;
    virtual void OnOutput() = 0;       // there is something to Take
    virtual void OnStreamBegun() = 0;  // keep-alives are due from now on
    virtual void OnAbort() = 0;        // cut the connection
    virtual HttpResponse Format(const std::string& path, const HttpFailure& failure) = 0;
    virtual bool closing() const = 0;  // the server drains
    // Memory for a whole answer, or for a large piece of a stream, of this many bytes; null: no
    // memory is left.  The connection is cut if the answer must make room for another.
    virtual std::shared_ptr<BodyBudget::Share> MakeRoom(const std::string& sender,
                                                        size_t bytes) = 0;
  };

  HttpAnswer(std::weak_ptr<Listener> listener, HttpAnswerContext context);

  // As in HttpResponder.
  bool Send(HttpResponse response);
  bool SendFailure(const HttpFailure& failure);
  void BeginStream(HttpStreamStart start);
  bool Write(std::string_view bytes);
  void End();
  void Abort();
  void SetCallbacks(std::function<void()> on_drained, std::function<void()> on_gone);
  bool gone() const;
  // The handler has released its last reference.
  void Abandon();

  // For the connection.
  // Takes the bytes to send; may be empty.
  std::string Take();
  // `num_bytes` more of the taken bytes are sent.
  void OnProgress(size_t num_bytes);
  // All taken bytes are sent.  True: the answer is complete.
  bool OnSent();
  // The client is gone.  Calls on_gone unless the answer is complete.
  void Gone();
  bool complete() const;
  bool close() const;
  int status() const;
  // Call SendKeepAlive after this time without output; nullopt: never.
  std::optional<absl::Duration> keep_alive_interval() const;
  void SendKeepAlive();
  const HttpAnswerContext& context() const { return context_; }

 private:
  enum class Phase { kOpen, kPending, kStreaming, kComplete, kGone };
  void Head(int status, std::string_view content_type, const HttpHeaders& headers,
            std::optional<size_t> body_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StreamHead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Chunk(std::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the connection must be notified.
  bool NeedsNotice() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Notify(bool needed);
  void AbortListener();

  const std::weak_ptr<Listener> listener_;  // the connection
  const HttpAnswerContext context_;
  mutable Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kOpen;
  HttpStreamStart start_ ABSL_GUARDED_BY(mutex_);
  std::string out_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<BodyBudget::Share> room_ ABSL_GUARDED_BY(mutex_);  // of a large answer or piece
  size_t moved_bytes_ ABSL_GUARDED_BY(mutex_) = 0;                   // sent since room_ last knew
  size_t taken_bytes_ ABSL_GUARDED_BY(mutex_) = 0;                   // and not sent
  bool noticed_ ABSL_GUARDED_BY(mutex_) = false;                     // OnOutput is on its way
  bool written_ ABSL_GUARDED_BY(mutex_) = false;                     // on_drained is owed
  bool close_ ABSL_GUARDED_BY(mutex_);
  int status_ ABSL_GUARDED_BY(mutex_) = 0;
  // Shared with a call of it under way.
  std::shared_ptr<std::function<void()>> on_drained_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_gone_ ABSL_GUARDED_BY(mutex_);
};

// The handlers' reference; when the last one goes, the answer is abandoned.
class HttpAnswerHandle final : public HttpResponder {
 public:
  explicit HttpAnswerHandle(std::shared_ptr<HttpAnswer> answer) : answer_(std::move(answer)) {}
  ~HttpAnswerHandle() override { answer_->Abandon(); }

  bool Send(HttpResponse response) override { return answer_->Send(std::move(response)); }
  bool SendFailure(const HttpFailure& failure) override { return answer_->SendFailure(failure); }
  void BeginStream(HttpStreamStart start) override { answer_->BeginStream(std::move(start)); }
  bool Write(std::string_view bytes) override { return answer_->Write(bytes); }
  void End() override { answer_->End(); }
  void Abort() override { answer_->Abort(); }
  void SetCallbacks(std::function<void()> on_drained, std::function<void()> on_gone) override {
    answer_->SetCallbacks(std::move(on_drained), std::move(on_gone));
  }
  bool gone() const override { return answer_->gone(); }

 private:
  const std::shared_ptr<HttpAnswer> answer_;  // shared with the connection
};

}  // namespace tandem::gateway

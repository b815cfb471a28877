#include "services/gateway/api/answer_run.h"

#include <utility>
#include <vector>

#include "services/common/base/client_text.h"
#include "services/common/base/mutex.h"
#include "services/gateway/api/constraint_member.h"
#include "services/gateway/model/client_limits.h"
#include "services/gateway/model/prepare_constraint.h"
#include "services/gateway/model/prepare_request.h"

namespace tandem::gateway {
namespace {

// Thread-safe: the engine's notifier and the server's threads call it.
class AnswerRun : public std::enable_shared_from_this<AnswerRun> {
 public:
  AnswerRun(std::unique_ptr<AnswerWriter> writer, std::shared_ptr<HttpClient> client,
            std::shared_ptr<HttpResponder> responder)
      : client_(std::move(client)),
        responder_(std::move(responder)),
        writer_(std::move(writer)),
        whole_(!writer_->streams()) {}

  void Start(const ServedModel& model, std::vector<EngineRequest> requests,
             const ConstraintNames& names, const AnswerRunOptions& options) {
    auto reservation = ReserveAnswers(client_, model, requests);
    if (!reservation.ok()) {
      responder_->SendStatus(writer_->TranslateError(reservation.status()));
      return;
    }
    reservation_ = *std::move(reservation);
    // The responder destroys both when the answer is complete or the client has gone.
    responder_->SetCallbacks([self = shared_from_this()] { self->OnDrained(); },
                             [self = shared_from_this()] { self->OnGone(); });
    Await(PrepareRequests(model, std::move(requests),
                          [self = shared_from_this(), &model, names,
                           options](absl::StatusOr<std::vector<EngineRequest>> prepared) {
                            if (!prepared.ok()) {
                              return self->Refuse(NameConstraint(prepared.status(), names));
                            }
                            self->Submit(model, *std::move(prepared), options);
                          }));
  }

 private:
  void Submit(const ServedModel& model, std::vector<EngineRequest> requests,
              const AnswerRunOptions& options) {
    const uint32_t most = options.max_unread_tokens;
    const uint32_t max_unread_tokens = whole_ ? most : MaxUnreadTokens(most, requests);
    for (EngineRequest& request : requests) {
      // The stream destroys it at its end.
      auto stream = std::make_shared<TokenStream>(max_unread_tokens,
                                                  [self = shared_from_this()] { self->Pump(); });
      const absl::Status status = model.replicas().Submit(std::move(request), stream);
      if (!status.ok()) return Refuse(status);
      MutexLock lock(mutex_);
      if (gone_) stream->Cancel();
      streams_.push_back(std::move(stream));
    }
    if (!whole_) {
      responder_->BeginStream({.content_type = std::string(writer_->content_type()),
                               .headers = {{"Cache-Control", "no-store"}},
                               .keep_alive = std::string(writer_->keep_alive()),
                               .keep_alive_interval = options.keep_alive_interval});
    }
    {
      MutexLock lock(mutex_);
      num_open_ = streams_.size();
      started_ = true;
    }
    Pump();
  }

  // The requests' pictures or constraint may be under way.
  void Await(RequestWait wait) {
    {
      MutexLock lock(mutex_);
      wait_ = wait;
      if (!gone_) return;
    }
    wait.Cancel();
  }

  // The engine refused one of the runs, or their constraint: cancels the others.
  void Refuse(const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      num_open_ = streams_.size();
      started_ = true;
      over_ = true;
      for (const auto& stream : streams_) stream->Cancel();
      // Before the client can see the end of this request and send the next.
      if (streams_.empty()) reservation_.reset();
    }
    responder_->SendStatus(writer_->TranslateError(status));
  }

  void OnDrained() {
    {
      MutexLock lock(mutex_);
      writing_ = false;
    }
    Pump();
  }

  void OnGone() {
    RequestWait wait;
    {
      MutexLock lock(mutex_);
      gone_ = true;
      for (const auto& stream : streams_) stream->Cancel();
      wait = wait_;
    }
    wait.Cancel();
    Pump();
  }

  // Takes all updates and sends them, unless a write is under way.
  void Pump() {
    std::string out;
    absl::Status failure;
    bool finished = false;
    {
      MutexLock lock(mutex_);
      if (!started_ || (writing_ && !gone_ && !over_)) return;
      const bool was_over = over_;
      failure = TakeAll(out);
      // Before the client can see the end of this request and send the next.
      if (num_open_ == 0) reservation_.reset();
      finished = !was_over && (num_open_ == 0 || !failure.ok());
      if (was_over || gone_) return;
      if (finished) over_ = true;
      if (finished && failure.ok()) {
        Begin(out);
        writer_->Finish(out);
      }
      if (out.empty() && !finished) return;
      writing_ = true;
    }
    // Without the lock from here on: the responder may call back before it returns.
    if (!failure.ok()) return Break(failure, std::move(out));
    if (whole_) {
      responder_->Send({.body = std::move(out)});
      return;
    }
    responder_->Write(out);
    if (finished) responder_->End();
  }

  // Appends the updates of all runs to `out`, as text for the client.  If a run failed, returns its
  // error and cancels the others.
  absl::Status TakeAll(std::string& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::Status failure;
    for (size_t i = 0; i < streams_.size(); ++i) {
      const TokenStream::Batch batch = streams_[i]->Take();
      const bool ended = batch.end.has_value();
      if (ended) {
        --num_open_;
        reservation_->Charge(batch.end->usage.prompt_tokens(),
                             batch.end->usage.completion_tokens());
      }
      if (over_ || gone_ || !failure.ok()) continue;
      if (!batch.update.empty()) {
        Begin(out);
        writer_->Update(i, batch.update, out);
      }
      if (!ended) continue;
      if (batch.end->status.ok()) {
        Begin(out);
        writer_->End(i, *batch.end, out);
      } else {
        failure = batch.end->status;
      }
    }
    if (!failure.ok()) {
      for (const auto& stream : streams_) stream->Cancel();
    }
    return failure;
  }

  void Begin(std::string& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!std::exchange(begun_, true)) writer_->Begin(out);
  }

  // Ends the answer with an error: as a plain response if nothing of the answer was sent.
  void Break(const absl::Status& failure, std::string out) {
    if (responder_->SendStatus(writer_->TranslateError(failure)) || responder_->gone()) return;
    {
      MutexLock lock(mutex_);
      writer_->Fail(ForClients(failure), out);
    }
    responder_->Write(out);
    responder_->End();
  }

  const std::shared_ptr<HttpClient> client_;        // shared with the server's table of keys
  const std::shared_ptr<HttpResponder> responder_;  // shared with the server
  const std::unique_ptr<AnswerWriter> writer_;
  const bool whole_;
  // Kept until no run of this request is left; the streams hold this object until then.
  std::unique_ptr<ClientReservation> reservation_;

  Mutex mutex_;  // also of *writer_, and of *reservation_ once the runs have started
  std::vector<std::shared_ptr<TokenStream>> streams_ ABSL_GUARDED_BY(mutex_);  // with the engine
  RequestWait wait_ ABSL_GUARDED_BY(mutex_);
  size_t num_open_ ABSL_GUARDED_BY(mutex_) = 0;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more is written
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

void StartAnswer(const ServedModel& model, ApiJob job, std::shared_ptr<HttpClient> client,
                 std::shared_ptr<HttpResponder> responder, const AnswerRunOptions& options) {
  std::make_shared<AnswerRun>(std::move(job.writer), std::move(client), std::move(responder))
      ->Start(model, std::move(job.runs), job.constraint_names, options);
}

}  // namespace tandem::gateway

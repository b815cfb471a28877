#include "services/gateway/api/answer_run.h"
#include "services/common/base/client_text.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "services/common/base/mutex.h"

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
             const AnswerRunOptions& options) {
    if (const absl::Status status = Reserve(model, requests); !status.ok()) {
      responder_->SendStatus(writer_->TranslateError(status));
      return;
    }
    // Dropped by the responder when the answer is complete or the client has gone.
    responder_->SetCallbacks([self = shared_from_this()] { self->OnDrained(); },
                             [self = shared_from_this()] { self->OnGone(); });
    for (EngineRequest& request : requests) {
      // Dropped by the stream when it has ended.
      auto stream = std::make_shared<TokenStream>(options.max_unread_tokens,
                                                  [self = shared_from_this()] { self->Pump(); });
      const absl::Status status = model.engine().Submit(std::move(request), stream);
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

 private:
  // Takes from the client's limits what the runs may use.  Answers without max_tokens get what the
  // key's limit leaves.
  absl::Status Reserve(const ServedModel& model, std::vector<EngineRequest>& requests) {
    const uint64_t context = model.engine().max_sequence_len();
    RequestCost cost{.sequences = std::max<uint64_t>(requests.size(), 1)};
    cost.at_once = cost.sequences;
    uint64_t num_open = 0;
    const auto room = [&](const EngineRequest& request) {
      return context > request.prompt.size() ? context - request.prompt.size() : 1;
    };
    for (EngineRequest& request : requests) {
      request.tenant = {client_->tenant(), client_->weight()};
      cost.tokens += request.prompt.size();
      if (request.max_tokens == kNoTokenLimit) {
        ++num_open;
      } else {
        cost.tokens += std::min<uint64_t>(request.max_tokens, room(request));
      }
    }
    const std::optional<uint64_t> left = client_->tokens_left();
    if (left.has_value() && num_open > 0) {
      const uint64_t each =
          std::max<uint64_t>(*left > cost.tokens ? (*left - cost.tokens) / num_open : 0, 1);
      for (EngineRequest& request : requests) {
        if (request.max_tokens != kNoTokenLimit) continue;
        request.max_tokens = static_cast<uint32_t>(std::min(each, room(request)));
        cost.tokens += request.max_tokens;
      }
    }
    auto reservation = ClientReservation::Make(client_, cost);
    if (!reservation.ok()) return reservation.status();
    reservation_ = *std::move(reservation);
    return absl::OkStatus();
  }

  // The engine did not take one of the runs: those it took are withdrawn.
  void Refuse(const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      num_open_ = streams_.size();
      started_ = true;
      over_ = true;
      for (const auto& stream : streams_) stream->Cancel();
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
    {
      MutexLock lock(mutex_);
      gone_ = true;
      for (const auto& stream : streams_) stream->Cancel();
    }
    Pump();
  }

  // Takes what there is, and sends it unless a write is under way.
  void Pump() {
    std::string out;
    absl::Status failure;
    bool finished = false;
    {
      MutexLock lock(mutex_);
      if (!started_ || (writing_ && !gone_ && !over_)) return;
      const bool was_over = over_;
      failure = TakeAll(out);
      // Before the client can know that this request is over, and send the next.
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
    // No lock from here on: the responder may call back before it returns.
    if (!failure.ok()) return Break(failure, std::move(out));
    if (whole_) {
      responder_->Send({.body = std::move(out)});
      return;
    }
    responder_->Write(out);
    if (finished) responder_->End();
  }

  // What all runs have brought, as text for the client.  The error of one that failed, after which
  // the others are withdrawn.
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

  // Ends the answer with an error: a response of its own if none of it is on its way yet.
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
  // Until nothing of this request runs any more: the streams hold this object until then.
  std::unique_ptr<ClientReservation> reservation_;

  Mutex mutex_;  // also of *writer_, and of *reservation_ once the runs have started
  std::vector<std::shared_ptr<TokenStream>> streams_ ABSL_GUARDED_BY(mutex_);  // with the engine
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
      ->Start(model, std::move(job.runs), options);
}

}  // namespace tandem::gateway

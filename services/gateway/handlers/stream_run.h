// Writes one request's stream to its client.
//
// At most one write is under way.  Meanwhile the TokenStream merges what the engine adds; the next
// message takes all of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/gateway/engine/token_stream.h"
#include "services/gateway/handlers/rpc_call.h"
#include "services/gateway/model/client_limits.h"
#include "services/gateway/model/prepare_constraint.h"
#include "services/gateway/model/prepare_request.h"
#include "services/gateway/model/response_writer.h"
#include "services/gateway/model/served_model.h"
#include "services/gateway/tool_calls/answer_reader.h"

namespace tandem::gateway {

// Response: v1::GenerateResponse or v1::ChatResponse.  Thread-safe.
template <class Response>
class StreamRun : public std::enable_shared_from_this<StreamRun<Response>> {
  struct Passkey {};

 public:
  // Submits the request to the engine, within the limits of the caller's key.
  // `model`: Borrowed; must outlive the server.
  // `calls`: how the answer is read; none of a GenerateResponse.
  static void Start(const ServedModel& model, EngineRequest request, bool with_logprobs,
                    CallOptions calls, uint32_t max_unread_tokens, std::shared_ptr<RpcCall> call) {
    auto reservation = ReserveAnswers(call->caller().client, model, {&request, 1});
    if (!reservation.ok()) return call->Finish(reservation.status());
    const auto run =
        std::make_shared<StreamRun>(Passkey(), model, request.request_id, with_logprobs,
                                    std::move(calls), call, *std::move(reservation));
    // The stream drops it when it has ended.
    const auto stream = std::make_shared<TokenStream>(max_unread_tokens, [run] { run->Pump(); });
    {
      MutexLock lock(run->mutex_);
      run->stream_ = stream;
    }
    call->SetCallbacks([run](bool ok) { run->OnWritten(ok); }, [run] { run->Cancel(); });
    const std::string field = request.constraint_field;
    run->Await(PrepareRequests(
        model, {std::move(request)},
        [run, stream, &model, field](absl::StatusOr<std::vector<EngineRequest>> prepared) {
          if (!prepared.ok()) return run->Refuse(NameConstraintField(prepared.status(), field));
          const absl::Status status = model.replicas().Submit(std::move(prepared->front()), stream);
          if (!status.ok()) run->Refuse(status);
        }));
  }

  StreamRun(Passkey, const ServedModel& model, std::string request_id, bool with_logprobs,
            CallOptions calls, std::shared_ptr<RpcCall> call,
            std::unique_ptr<ClientReservation> reservation)
      : model_(model),
        request_id_(std::move(request_id)),
        with_logprobs_(with_logprobs),
        reader_(std::move(calls)),
        call_(std::move(call)),
        response_(call_->response<Response>()),
        reservation_(std::move(reservation)) {}

 private:
  // The request's pictures or constraint may be under way.
  void Await(RequestWait wait) {
    {
      MutexLock lock(mutex_);
      wait_ = wait;
      if (!gone_) return;
    }
    wait.Cancel();
  }

  // The engine did not take the request.
  void Refuse(const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      over_ = true;
      stream_ = nullptr;
      reservation_ = nullptr;
    }
    call_->Finish(status);
  }

  // The client has gone: the engine ends the stream, or the request does not reach it.
  void Cancel() {
    RequestWait wait;
    {
      MutexLock lock(mutex_);
      gone_ = true;
      if (stream_ != nullptr) stream_->Cancel();
      wait = wait_;
    }
    wait.Cancel();
  }

  void OnWritten(bool ok) {
    std::optional<absl::Status> last;
    {
      MutexLock lock(mutex_);
      writing_ = false;
      last = std::exchange(after_write_, std::nullopt);
    }
    if (!ok) Cancel();
    if (last.has_value()) {
      call_->Finish(*std::move(last));
    } else {
      Pump();
    }
  }

  // Writes the next message if there is something to write and no write is under way.
  void Pump() {
    TokenStream::Batch batch;
    {
      MutexLock lock(mutex_);
      if (writing_ || over_) return;
      batch = stream_->Take();
      if (batch.update.empty() && !batch.end.has_value()) return;
      over_ = batch.end.has_value();
      writing_ = true;
      if (over_) {
        reservation_->Charge(batch.end->usage.prompt_tokens(),
                             batch.end->usage.completion_tokens());
        reservation_ = nullptr;  // before the client can send its next request
      }
      if (over_ && !batch.end->status.ok() && !batch.update.empty()) {
        after_write_ = batch.end->status;
      }
    }
    // Without the lock from here on: the transport may call back before Write or Finish returns.
    const bool failed = batch.end.has_value() && !batch.end->status.ok();
    if (failed && batch.update.empty()) return call_->Finish(batch.end->status);
    Fill(batch);
    if (batch.end.has_value() && !failed) {
      call_->Finish(absl::OkStatus());
    } else if (!call_->Write()) {
      OnWritten(false);
    }
  }

  void Fill(const TokenStream::Batch& batch) {
    response_.Clear();
    if (!std::exchange(begun_, true)) {
      response_.set_placement(model_.replicas().placement());
      response_.set_request_id(request_id_);
    }
    WriteUpdate(batch.update, model_.tokenizer(), with_logprobs_, response_);
    const bool ended = batch.end.has_value() && batch.end->status.ok();
    if constexpr (requires { response_.add_tool_calls(); }) {
      WriteCalls(batch.update.text, /*last=*/batch.end.has_value(), reader_, response_);
    }
    if (ended) {
      response_.set_finish_reason(reader_.ReasonOf(batch.end->reason));
      *response_.mutable_usage() = batch.end->usage;
    }
  }

  const ServedModel& model_;
  const std::string request_id_;
  const bool with_logprobs_;
  AnswerReader reader_;                  // only the write under way uses it
  const std::shared_ptr<RpcCall> call_;  // shared with the transport
  Response& response_;                   // the call's; only the write under way uses it
  bool begun_ = false;                   // likewise

  Mutex mutex_;
  std::shared_ptr<TokenStream> stream_ ABSL_GUARDED_BY(mutex_);  // with the engine
  std::unique_ptr<ClientReservation> reservation_ ABSL_GUARDED_BY(mutex_);
  RequestWait wait_ ABSL_GUARDED_BY(mutex_);
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> after_write_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway

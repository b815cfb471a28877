// Writes one request's stream to its client.
//
// At most one write is under way.  While it is, what the engine adds is merged in the TokenStream;
// when it is done, all of that becomes the next message.  Reactions only take, fill and start.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "services/common/base/mutex.h"
#include "services/gateway/engine/token_stream.h"
#include "services/gateway/service/client_status.h"
#include "services/gateway/service/response_writer.h"
#include "services/gateway/service/served_model.h"

namespace tandem::gateway {

// Response: v1::GenerateResponse or v1::ChatResponse.  Thread-safe.
template <class Response>
class StreamReactor : public grpc::ServerWriteReactor<Response> {
 public:
  // Hands the request to the engine and returns the reactor of its call.
  // `model`: Borrowed; must outlive the server.
  static grpc::ServerWriteReactor<Response>* Start(const ServedModel& model, EngineRequest request,
                                                   bool with_logprobs, uint32_t max_unread_tokens) {
    auto reactor =
        std::make_shared<StreamReactor>(Passkey(), model, request.request_id, with_logprobs);
    reactor->self_ = reactor;
    reactor->stream_ =
        std::make_shared<TokenStream>(max_unread_tokens, [shared = reactor] { shared->Pump(); });
    const absl::Status status = model.engine().Submit(std::move(request), reactor->stream_);
    if (!status.ok()) {
      reactor->stream_ = nullptr;
      reactor->Finish(ToClientStatus(status));
    }
    return reactor.get();
  }

  // A call that ends with an error before it begins.
  static grpc::ServerWriteReactor<Response>* Fail(const absl::Status& status) {
    class Failed : public grpc::ServerWriteReactor<Response> {
     public:
      void OnDone() override { delete this; }
    };
    auto* failed = new Failed();
    failed->Finish(ToClientStatus(status));
    return failed;
  }

 private:
  struct Passkey {};

 public:
  StreamReactor(Passkey, const ServedModel& model, std::string request_id, bool with_logprobs)
      : model_(model), request_id_(std::move(request_id)), with_logprobs_(with_logprobs) {}

  void OnWriteDone(bool ok) override {
    std::optional<grpc::Status> last;
    {
      MutexLock lock(mutex_);
      writing_ = false;
      last = std::exchange(after_write_, std::nullopt);
    }
    if (!ok) stream_->Cancel();  // nobody reads; the engine ends the stream
    if (last.has_value()) {
      this->Finish(*last);
    } else {
      Pump();
    }
  }
  void OnCancel() override {
    if (stream_ != nullptr) stream_->Cancel();
  }
  void OnDone() override { self_.reset(); }

 private:
  // Starts the next message if there is something to say and no write under way.
  void Pump() {
    TokenStream::Batch batch;
    {
      MutexLock lock(mutex_);
      if (writing_ || over_) return;
      batch = stream_->Take();
      if (batch.update.empty() && !batch.end.has_value()) return;
      over_ = batch.end.has_value();
      writing_ = true;
      if (over_ && !batch.end->status.ok() && !batch.update.empty()) {
        after_write_ = ToClientStatus(batch.end->status);
      }
    }
    // No lock from here on: gRPC may react before a call returns.
    if (batch.end.has_value() && !batch.end->status.ok() && batch.update.empty()) {
      this->Finish(ToClientStatus(batch.end->status));
      return;
    }
    Fill(batch);
    if (batch.end.has_value() && batch.end->status.ok()) {
      this->StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
    } else {
      this->StartWrite(&response_);
    }
  }

  void Fill(const TokenStream::Batch& batch) {
    response_.Clear();
    if (!std::exchange(begun_, true)) {
      response_.set_placement(model_.engine().placement());
      response_.set_request_id(request_id_);
    }
    WriteUpdate(batch.update, model_.tokenizer(), with_logprobs_, response_);
    if (batch.end.has_value() && batch.end->status.ok()) {
      response_.set_finish_reason(batch.end->reason);
      *response_.mutable_usage() = batch.end->usage;
    }
  }

  const ServedModel& model_;
  const std::string request_id_;
  const bool with_logprobs_;
  std::shared_ptr<TokenStream> stream_;  // shared with the engine
  std::shared_ptr<StreamReactor> self_;  // gRPC's hold, until OnDone; the other is the stream's
  Response response_;                    // of the writer under way alone
  bool begun_ = false;                   // likewise

  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> after_write_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway

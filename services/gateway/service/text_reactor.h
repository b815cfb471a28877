// Answers a unary call about a text on a thread that may take its time.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "services/common/base/cancellation.h"
#include "services/gateway/http/handler_pool.h"
#include "services/gateway/service/call_origin.h"
#include "services/gateway/service/client_status.h"
#include "services/gateway/service/unread_answers.h"

namespace tandem::gateway {

// Lives until gRPC is done with it, which is after its work is.
class TextReactor final : public grpc::ServerUnaryReactor {
 public:
  // Ends the call with what `work` returns, which fills `response`, the call's.  It runs on `pool`,
  // whose threads are not gRPC's, and is cancelled with the call (base/cancellation.h); a text of
  // few bytes is worked on at once.  Callers' works take turns.  `answers`: Borrowed; must outlive
  // the server.
  static grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext& context, HandlerPool& pool,
                                         UnreadAnswers& answers, size_t text_bytes,
                                         google::protobuf::Message& response,
                                         std::function<absl::Status()> work) {
    auto* reactor = new TextReactor;
    const std::string tenant = TenantOf(context).name;
    const auto end = [reactor, &answers, &response, tenant](absl::Status status) {
      if (status.ok()) {
        auto room = answers.Hold(tenant, response);
        status = room.status();
        if (room.ok()) reactor->room_ = *std::move(room);
      }
      if (!status.ok()) response.Clear();
      reactor->Finish(ToClientStatus(status));
    };
    if (text_bytes <= kShortBytes) {
      end(work());
      return reactor;
    }
    pool.Post(tenant, text_bytes, [&context, end, work = std::move(work)] {
      const CancellationScope scope([&context] { return context.IsCancelled(); });
      absl::Status status = CheckCancelled();
      if (status.ok()) status = work();
      end(std::move(status));
    });
    return reactor;
  }

  void OnDone() override { delete this; }

 private:
  static constexpr size_t kShortBytes = 4 << 10;
  TextReactor() = default;

  std::unique_ptr<BodyBudget::Share> room_;  // of the answer
};

}  // namespace tandem::gateway

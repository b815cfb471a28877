// Answers a unary call about a text on a thread that may take its time.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <string>
#include <utility>

#include "services/common/base/cancellation.h"
#include "services/gateway/http/handler_pool.h"
#include "services/gateway/service/call_origin.h"
#include "services/gateway/service/client_status.h"

namespace tandem::gateway {

// Lives until gRPC is done with it, which is after its work is.
class TextReactor final : public grpc::ServerUnaryReactor {
 public:
  // Ends the call with what `work` returns, which fills the call's response.  It runs on `pool`,
  // whose threads are not gRPC's, and is cancelled with the call (base/cancellation.h); a text of
  // few bytes is worked on at once.  Callers' works take turns.
  static grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext& context, HandlerPool& pool,
                                         size_t text_bytes, std::function<absl::Status()> work) {
    auto* reactor = new TextReactor;
    if (text_bytes <= kShortBytes) {
      reactor->Finish(ToClientStatus(work()));
      return reactor;
    }
    pool.Post(TenantOf(context).name, text_bytes, [reactor, &context, work = std::move(work)] {
      const CancellationScope scope([&context] { return context.IsCancelled(); });
      absl::Status status = CheckCancelled();
      if (status.ok()) status = work();
      reactor->Finish(ToClientStatus(status));
    });
    return reactor;
  }

  void OnDone() override { delete this; }

 private:
  static constexpr size_t kShortBytes = 4 << 10;
  TextReactor() = default;
};

}  // namespace tandem::gateway

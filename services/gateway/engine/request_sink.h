// Where requests go.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/engine/token_stream.h"

namespace tandem::gateway {

// Thread-safe.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // Hands a request over; its events and its end arrive in `stream`, which always ends.  After an
  // error nothing arrives in `stream`, and `request` is as it was.  Errors as Admission::Submit.
  virtual absl::Status Submit(EngineRequest&& request, std::shared_ptr<TokenStream> stream) = 0;
  // A copy of it.
  absl::Status Submit(const EngineRequest& request, std::shared_ptr<TokenStream> stream) {
    return Submit(EngineRequest(request), std::move(stream));
  }
};

}  // namespace tandem::gateway

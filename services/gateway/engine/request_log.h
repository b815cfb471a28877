// A line of the log for every request that ends.
//
//   event=request request_id=6f1c api=openai outcome=stop prompt_tokens=12 completion_tokens=40
//   seconds=1.204 cached_tokens=0 queue_seconds=0.000 first_token_seconds=0.081 trace_id=4bf9...
#pragma once

#include "services/gateway/engine/engine_observer.h"

namespace tandem::gateway {

class RequestLog final : public EngineObserver {
 public:
  // Nothing of the prompt or the answer but how long they are.
  void RequestEnded(const RequestReport& report) override;
};

}  // namespace tandem::gateway

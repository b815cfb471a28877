// Answers the methods of tandem.v1.Generation, for gRPC and REST alike.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "services/gateway/handlers/rpc_call.h"
#include "services/gateway/http/handler_pool.h"
#include "services/gateway/model/launcher.h"
#include "services/gateway/trace/trace_ring.h"

namespace tandem::gateway {

struct GenerationServiceOptions {
  std::string version;
  // Unread tokens at which a request ends, because its client reads too slowly.
  uint32_t max_unread_tokens = 4096;
  TraceSampler sampler;  // for gRPC calls whose metadata has no trace
  // Traces of requests that have ended.  Borrowed; must outlive this.  Null: none are kept.
  const TraceRing* traces = nullptr;
};

// Thread-safe.  Errors of each method are in generation.proto.
class GenerationHandlers {
 public:
  // `launcher`: Borrowed; must outlive this.
  GenerationHandlers(const Launcher& launcher, GenerationServiceOptions options);

  // An entry for each method.  Valid while this exists, which must outlive the calls.
  const RpcMethods& methods() const { return methods_; }
  const GenerationServiceOptions& options() const { return options_; }

 private:
  using Call = std::shared_ptr<RpcCall>;  // shared with the transport

  void Embed(const Call& call);
  void Tokenize(const Call& call);
  void Detokenize(const Call& call);
  void ListModels(const Call& call);
  void GetStatus(const Call& call);

  // Runs `work`, which fills the response, and ends `call` with the result.  A short text is
  // handled at once.  A longer one is handled on a thread of texts_, where callers take turns and
  // the work is cancelled with the call (base/cancellation.h).
  void AnswerText(const Call& call, size_t text_bytes, std::function<absl::Status()> work);
  absl::Status DoTokenize(RpcCall& call) const;
  absl::Status DoDetokenize(RpcCall& call) const;
  absl::Status DoGetTrace(RpcCall& call) const;

  const Launcher& launcher_;
  const GenerationServiceOptions options_;
  const absl::Time started_ = absl::Now();
  RpcMethods methods_;
  // Tokenises long texts: one long text at a time, and shorter ones beside it.
  HandlerPool texts_{2};
};

}  // namespace tandem::gateway

// The public API, tandem.v1.Generation.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "services/gateway/http/handler_pool.h"
#include "services/gateway/service/launcher.h"
#include "services/gateway/service/unread_answers.h"
#include "services/gateway/trace/trace_ring.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::gateway {

struct GenerationServiceOptions {
  std::string version;
  // Tokens that a reader may leave unread before its request is given up.
  uint32_t max_unread_tokens = 4096;
  TraceSampler sampler;  // of calls whose clients do not say
  // Of requests that have ended; Borrowed, must outlive the service.  Null: there are none.
  const TraceRing* traces = nullptr;
};

// Thread-safe.  Errors of each method are in generation.proto.
class GenerationService final : public v1::Generation::CallbackService {
 public:
  // `launcher`: Borrowed; must outlive the server.
  GenerationService(const Launcher& launcher, GenerationServiceOptions options);

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerWriteReactor<v1::ChatResponse>* Chat(grpc::CallbackServerContext* context,
                                                   const v1::ChatRequest* request) override;
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const v1::EmbedRequest* request,
                                  v1::EmbedResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* GetTrace(grpc::CallbackServerContext* context,
                                     const v1::GetTraceRequest* request,
                                     v1::GetTraceResponse* response) override;

 private:
  // `tenant`: whose traces alone may be seen; nullopt: all.
  absl::Status DoGetTrace(const v1::GetTraceRequest& request,
                          const std::optional<std::string>& tenant,
                          v1::GetTraceResponse& response) const;
  absl::Status DoTokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse& response) const;
  absl::Status DoDetokenize(const v1::DetokenizeRequest& request,
                            v1::DetokenizeResponse& response) const;

  const Launcher& launcher_;
  UnreadAnswers answers_;
  // Long texts to tokenise: one at a time, and short ones beside it.
  HandlerPool texts_{2};
  const GenerationServiceOptions options_;
  const absl::Time started_ = absl::Now();
};

}  // namespace tandem::gateway

// The public API, tandem.v1.Generation, over gRPC.
#pragma once

#include "services/gateway/grpc/unread_answers.h"
#include "services/gateway/handlers/generation_handlers.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::gateway {

// Thread-safe.  Errors of each method are in generation.proto.
class GenerationService final : public v1::Generation::CallbackService {
 public:
  // `launcher`: Borrowed; must outlive the server.
  GenerationService(const Launcher& launcher, GenerationServiceOptions options)
      : handlers_(launcher, std::move(options)) {}

  // The handlers, for other transports.  Their calls must end before this is destroyed.
  const RpcMethods& methods() const { return handlers_.methods(); }

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
  // `name`: of the method, "Chat".
  const RpcHandler& HandlerOf(const char* name) const;
  template <class Response>
  grpc::ServerWriteReactor<Response>* StartStream(const char* name,
                                                  grpc::CallbackServerContext& context,
                                                  const google::protobuf::Message& request);
  grpc::ServerUnaryReactor* StartUnary(const char* name, grpc::CallbackServerContext& context,
                                       const google::protobuf::Message& request,
                                       google::protobuf::Message& response);

  UnreadAnswers answers_;
  GenerationHandlers handlers_;
};

}  // namespace tandem::gateway

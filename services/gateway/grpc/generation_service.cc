#include "services/gateway/grpc/generation_service.h"

#include <string>

#include "services/gateway/grpc/grpc_call.h"

namespace tandem::gateway {

const RpcHandler& GenerationService::HandlerOf(const char* name) const {
  return methods().at(std::string(v1::Generation::service_full_name()) + "." + name).answer;
}

template <class Response>
grpc::ServerWriteReactor<Response>* GenerationService::StartStream(
    const char* name, grpc::CallbackServerContext& context,
    const google::protobuf::Message& request) {
  using Call = GrpcStreamCall<Response>;
  return Call::template Start<Call>(HandlerOf(name), context, handlers_.options().sampler, request);
}

grpc::ServerUnaryReactor* GenerationService::StartUnary(const char* name,
                                                        grpc::CallbackServerContext& context,
                                                        const google::protobuf::Message& request,
                                                        google::protobuf::Message& response) {
  return GrpcUnaryCall::Start<GrpcUnaryCall>(HandlerOf(name), context, handlers_.options().sampler,
                                             request, response, answers_);
}

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerationService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return StartStream<v1::GenerateResponse>("Generate", *context, *request);
}

grpc::ServerWriteReactor<v1::ChatResponse>* GenerationService::Chat(
    grpc::CallbackServerContext* context, const v1::ChatRequest* request) {
  return StartStream<v1::ChatResponse>("Chat", *context, *request);
}

grpc::ServerUnaryReactor* GenerationService::Embed(grpc::CallbackServerContext* context,
                                                   const v1::EmbedRequest* request,
                                                   v1::EmbedResponse* response) {
  return StartUnary("Embed", *context, *request, *response);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const v1::TokenizeRequest* request,
                                                      v1::TokenizeResponse* response) {
  return StartUnary("Tokenize", *context, *request, *response);
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const v1::DetokenizeRequest* request,
                                                        v1::DetokenizeResponse* response) {
  return StartUnary("Detokenize", *context, *request, *response);
}

grpc::ServerUnaryReactor* GenerationService::ListModels(grpc::CallbackServerContext* context,
                                                        const v1::ListModelsRequest* request,
                                                        v1::ListModelsResponse* response) {
  return StartUnary("ListModels", *context, *request, *response);
}

grpc::ServerUnaryReactor* GenerationService::GetStatus(grpc::CallbackServerContext* context,
                                                       const v1::GetStatusRequest* request,
                                                       v1::GetStatusResponse* response) {
  return StartUnary("GetStatus", *context, *request, *response);
}

grpc::ServerUnaryReactor* GenerationService::GetTrace(grpc::CallbackServerContext* context,
                                                      const v1::GetTraceRequest* request,
                                                      v1::GetTraceResponse* response) {
  return StartUnary("GetTrace", *context, *request, *response);
}

}  // namespace tandem::gateway

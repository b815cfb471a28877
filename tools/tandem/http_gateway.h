// The gateway's API over its HTTP port, for clients on other machines.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/server.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/v1/generation.grpc.pb.h"
#include "tools/tandem/gateway_address.h"

namespace tandem {

// A gRPC service inside this process that forwards each call to the REST routes of a gateway
// (docs/rest.md), so that the commands use one kind of stub.  Streams, deadlines, cancellation and
// the gateway's errors pass through.  UNAVAILABLE "failed to connect to URL: REASON": no answer, or
// the certificate is not trusted.  Thread-safe.
class HttpGateway final : public v1::Generation::Service {
 public:
  // REQUIRES: address.is_http().  Does not connect yet.
  explicit HttpGateway(GatewayAddress address);
  ~HttpGateway() override;

  // A channel to this service.  Calls end with it.
  std::shared_ptr<grpc::Channel> channel();

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override;
  grpc::Status Chat(grpc::ServerContext* context, const v1::ChatRequest* request,
                    grpc::ServerWriter<v1::ChatResponse>* writer) override;
  grpc::Status Embed(grpc::ServerContext* context, const v1::EmbedRequest* request,
                     v1::EmbedResponse* response) override;
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest* request,
                          v1::ListModelsResponse* response) override;
  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override;
  grpc::Status GetTrace(grpc::ServerContext* context, const v1::GetTraceRequest* request,
                        v1::GetTraceResponse* response) override;

 private:
  struct Transfer;
  using LineSink = std::function<grpc::Status(const std::string& line)>;

  // Calls a route: POST with `body`, or GET if it is null.  `sink`: takes each line of an answer
  // as it comes; null: the whole answer is put into `answer`.
  grpc::Status Call(const grpc::ServerContext& context, const std::string& path,
                    const std::string* body, const LineSink& sink, std::string* answer);
  grpc::Status Unary(const grpc::ServerContext& context, const std::string& path,
                     const google::protobuf::Message* request, google::protobuf::Message* response);
  template <typename Response>
  grpc::Status Stream(const grpc::ServerContext& context, const std::string& path,
                      const google::protobuf::Message& request,
                      grpc::ServerWriter<Response>& writer);
  // A handle whose connection may still be open, or a new one.
  void* TakeHandle();
  void GiveHandle(void* handle);

  const GatewayAddress address_;
  const std::string base_;  // the URL without a slash at its end
  std::mutex mutex_;
  std::vector<void*> handles_;  // idle CURL handles; guarded by mutex_
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tandem

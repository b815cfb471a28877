// A gateway for the commands' tests: it answers by rule and remembers what it was asked.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "services/common/rpc/server.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem {

// Generate streams the prompt back word by word; Chat says how many messages it got and repeats the
// last.  A prompt or message "fail" is an error, "forever" goes on until it is cancelled, and
// "nothing" is ended without a reason.
class FakeGateway final : public v1::Generation::Service {
 public:
  // Listens on a free port of its own.
  FakeGateway();
  const std::string& address() const { return server_->targets().front(); }

  std::vector<v1::GenerateRequest> generate_requests() const;
  std::vector<v1::ChatRequest> chat_requests() const;
  void set_state(const std::string& state);
  void set_model(const std::string& name, const std::string& id);
  // As a gateway that accepts pictures.
  void set_pictures(const v1::PictureStatus& pictures);

  // The streams' answers, for any transport.  `write` returns false when nobody reads any more.
  grpc::Status StreamGenerate(const v1::GenerateRequest& request,
                              const std::function<bool(const v1::GenerateResponse&)>& write);
  grpc::Status StreamChat(const v1::ChatRequest& request,
                          const std::function<bool(const v1::ChatResponse&)>& write);

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override;
  grpc::Status Chat(grpc::ServerContext* context, const v1::ChatRequest* request,
                    grpc::ServerWriter<v1::ChatResponse>* writer) override;
  // Of each text its length and its place in the call.
  grpc::Status Embed(grpc::ServerContext* context, const v1::EmbedRequest* request,
                     v1::EmbedResponse* response) override;
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest* request,
                          v1::ListModelsResponse* response) override;
  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override;

 private:
  mutable std::mutex mutex_;
  std::vector<v1::GenerateRequest> generate_requests_;
  std::vector<v1::ChatRequest> chat_requests_;
  std::string state_ = "ready";
  std::string model_ = "demo";
  std::string model_id_ = "abc123";
  std::optional<v1::PictureStatus> pictures_;
  std::unique_ptr<Server> server_;
};

}  // namespace tandem

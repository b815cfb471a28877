// Answers one call of Embed.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/service/client_status.h"
#include "services/gateway/service/embed_run.h"
#include "services/gateway/service/response_writer.h"
#include "services/gateway/service/served_model.h"

namespace tandem::gateway {

// Thread-safe.  Lives until gRPC is done with it, which is after its run is.
class EmbedReactor : public grpc::ServerUnaryReactor {
 public:
  // `model`: Borrowed; must outlive the server.  `response`: the call's, filled before it ends.
  static grpc::ServerUnaryReactor* Start(const ServedModel& model,
                                         std::vector<EngineRequest> requests,
                                         v1::EmbedResponse& response) {
    auto* reactor = new EmbedReactor;
    response.set_request_id(requests[0].request_id);
    reactor->run_ = EmbedRun::Create(model.engine(), std::move(requests),
                                     [reactor, &model, &response](const EmbedResult& result) {
                                       WriteEmbeddings(result, response);
                                       response.set_placement(model.engine().placement());
                                       reactor->Finish(ToClientStatus(result.status));
                                     });
    // gRPC reacts to nothing, and so keeps the reactor, before it has got it.
    reactor->run_->Start();
    return reactor;
  }

  void OnCancel() override { run_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  EmbedReactor() = default;

  std::shared_ptr<EmbedRun> run_;  // shared with the engine's streams
};

}  // namespace tandem::gateway

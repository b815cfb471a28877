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
#include "services/gateway/service/unread_answers.h"

namespace tandem::gateway {

// Thread-safe.  Lives until gRPC is done with it, which is after its run is.
class EmbedReactor : public grpc::ServerUnaryReactor {
 public:
  // `model`, `answers`: Borrowed; must outlive the server.  `response`: the call's, filled before it
  // ends.
  static grpc::ServerUnaryReactor* Start(const ServedModel& model, UnreadAnswers& answers,
                                         std::vector<EngineRequest> requests,
                                         v1::EmbedResponse& response) {
    auto* reactor = new EmbedReactor;
    const std::string tenant = requests[0].tenant.name;
    response.set_request_id(requests[0].request_id);
    reactor->run_ = EmbedRun::Create(
        model.engine(), std::move(requests),
        [=, &model, &answers, &response](const EmbedResult& result) {
          WriteEmbeddings(result, response);
          response.set_placement(model.engine().placement());
          auto room = answers.Hold(tenant, response);
          if (room.ok()) reactor->room_ = *std::move(room);
          reactor->Finish(ToClientStatus(result.status.ok() ? room.status() : result.status));
        });
    // gRPC reacts to nothing, and so keeps the reactor, before it has got it.
    reactor->run_->Start();
    return reactor;
  }

  void OnCancel() override { run_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  EmbedReactor() = default;

  std::shared_ptr<EmbedRun> run_;            // shared with the engine's streams
  std::unique_ptr<BodyBudget::Share> room_;  // of the answer
};

}  // namespace tandem::gateway

// The public API on a unix socket, with the toy model behind it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "services/common/rpc/channel.h"
#include "services/common/rpc/server.h"
#include "services/gateway/engine/testing/engine_harness.h"
#include "services/gateway/grpc/generation_service.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway::testing {

// A server on a unix socket with the toy model behind it.
class ServiceFixture : public ::testing::Test {
 protected:
  void Start(const FakeExecutorOptions& fake = {},
             const EngineOptions& options = {.max_sequences = 8,
                                             .max_rows = 64,
                                             .chunk_rows = 16,
                                             .max_waiting = 20},
             uint32_t max_unread_tokens = 4096, const ModelNameOptions& names = {}) {
    launcher_ = std::make_unique<Launcher>(
        [fake](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
          return std::make_unique<FakeExecutor>(fake);
        },
        options, names);
    service_ = std::make_unique<GenerationService>(
        *launcher_,
        GenerationServiceOptions{.version = "test", .max_unread_tokens = max_unread_tokens});
    path_ = std::filesystem::temp_directory_path() /
            ("tandem_service_test_" + std::to_string(::getpid()) + ".sock");
    auto server = Server::Start({.listen = {"unix:" + path_.string()}},
                                {{v1::Generation::service_full_name(), service_.get()}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::Generation::NewStub(CreateChannel(server_->targets()[0]));
    auto ready = std::make_shared<Gate>();
    launcher_->Begin([ready](bool) { ready->Open(); });
    ready->Wait();
  }

  void TearDown() override {
    launcher_->EndRequests();
    server_->Shutdown(absl::Seconds(1));
    server_.reset();
  }

  struct Answer {
    grpc::Status status;
    std::string text;
    std::vector<v1::Token> tokens;
    std::vector<v1::Token> prompt_tokens;
    std::vector<v1::GenerateResponse> messages;

    const v1::GenerateResponse& last() const { return messages.back(); }
    std::vector<uint32_t> ids() const {
      std::vector<uint32_t> ids;
      for (const v1::Token& token : tokens) ids.push_back(token.id());
      return ids;
    }
  };

  Answer Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto reader = stub_->Generate(&context, request);
    Answer answer;
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
      answer.text += message.text();
      answer.tokens.insert(answer.tokens.end(), message.tokens().begin(), message.tokens().end());
      answer.prompt_tokens.insert(answer.prompt_tokens.end(), message.prompt_tokens().begin(),
                                  message.prompt_tokens().end());
      answer.messages.push_back(message);
    }
    answer.status = reader->Finish();
    return answer;
  }

  v1::GetStatusResponse Status() {
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    EXPECT_TRUE(stub_->GetStatus(&context, {}, &response).ok());
    return response;
  }

  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<GenerationService> service_;
  std::filesystem::path path_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

inline v1::GenerateRequest Greedy(const EngineRequest& request) {
  v1::GenerateRequest proto;
  proto.mutable_tokens()->mutable_ids()->Assign(request.prompt.begin(), request.prompt.end());
  proto.mutable_sampling()->set_temperature(0.0f);
  proto.mutable_limits()->set_max_tokens(request.max_tokens);
  proto.mutable_limits()->set_ignore_eos(true);
  return proto;
}

}  // namespace tandem::gateway::testing

#include "services/gateway/grpc/call_origin.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "services/common/testing/temporary_directory.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::gateway {
namespace {

// Keeps the caller of its last call.
class Probe final : public v1::Generation::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* /*request*/,
                                      v1::GetStatusResponse* /*response*/) override {
    caller = CallerOf(*context, TraceSampler());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  RpcCaller caller;
};

class CallOriginTest : public ::testing::Test {
 protected:
  CallOriginTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&probe_);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.AddListeningPort(socket_, grpc::InsecureServerCredentials());
    server_ = builder.BuildAndStart();
  }
  void Call(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context) {
    v1::GetStatusResponse response;
    const grpc::Status status =
        v1::Generation::NewStub(channel)->GetStatus(&context, {}, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  std::shared_ptr<grpc::Channel> Tcp() const {
    // A connection of its own, which gRPC does not share with channels like it.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port_),
                                     grpc::InsecureChannelCredentials(), arguments);
  }
  std::shared_ptr<grpc::Channel> Unix() const {
    return grpc::CreateChannel(socket_, grpc::InsecureChannelCredentials());
  }

  const TemporaryDirectory folder_;
  const std::string socket_ = "unix:" + folder_.path() + "/s";
  Probe probe_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(CallOriginTest, ACallHasNoKeyAndItsOwnDeadlineAndTrace) {
  grpc::ClientContext context;
  const auto deadline = std::chrono::system_clock::now() + std::chrono::hours(1);
  context.set_deadline(deadline);
  context.AddMetadata(kTraceParent, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  Call(Tcp(), context);
  const RpcCaller& caller = probe_.caller;
  EXPECT_EQ(caller.api, Api::kGrpc);
  EXPECT_EQ(caller.client->weight(), 1u);
  EXPECT_FALSE(caller.client->tokens_left().has_value());
  EXPECT_NEAR(absl::ToDoubleSeconds(caller.deadline - absl::FromChrono(deadline)), 0.0, 60.0);
  EXPECT_EQ(FormatTraceParent(caller.trace.own).substr(0, 36),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-");
  EXPECT_EQ(caller.trace.parent_span_id, 0x00f067aa0ba902b7u);
  grpc::ClientContext without;
  Call(Tcp(), without);
  EXPECT_EQ(probe_.caller.deadline, absl::InfiniteFuture());
}

TEST_F(CallOriginTest, EachLoopbackConnectionIsATenantAndSoIsTheUnixSocket) {
  const auto tenant = [this](const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    Call(channel, context);
    return probe_.caller.client->tenant();
  };
  const auto first = Tcp(), second = Tcp();
  const std::string of_first = tenant(first);
  EXPECT_EQ(tenant(first), of_first);
  EXPECT_NE(tenant(second), of_first);
  EXPECT_NE(tenant(Unix()), of_first);
  EXPECT_EQ(tenant(Unix()), tenant(Unix()));
}

}  // namespace
}  // namespace tandem::gateway

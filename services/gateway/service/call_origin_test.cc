#include "services/gateway/service/call_origin.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "services/common/testing/temporary_directory.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::gateway {
namespace {

// Notes who its caller is.
class Probe final : public v1::Generation::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* /*request*/,
                                      v1::GetStatusResponse* /*response*/) override {
    tenant = TenantOf(*context);
    scope = TraceScopeOf(*context);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  TenantRef tenant;
  std::optional<std::string> scope;
};

class KeyHolder final : public HttpClient {
 public:
  const std::string& name() const override { return name_; }
  const std::string& tenant() const override { return tenant_; }
  uint32_t weight() const override { return 7; }
  bool sees_all() const override { return false; }
  void ChargeTokens(uint64_t /*prompt*/, uint64_t /*completion*/) override {}

 private:
  const std::string name_ = "a", tenant_ = "key:a";
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

TEST_F(CallOriginTest, CallsForHttpRequestsAreTheirClients) {
  for (const auto& channel : {server_->InProcessChannel({}), Unix(), Tcp()}) {
    grpc::ClientContext context;
    AddTenant(KeyHolder(), context);
    Call(channel, context);
    EXPECT_EQ(probe_.tenant.name, "key:a");
    EXPECT_EQ(probe_.tenant.weight, 7u);
    EXPECT_EQ(probe_.scope, "key:a");
  }
}

TEST_F(CallOriginTest, NobodyElseCanNameATenant) {
  for (const auto& channel : {Unix(), Tcp()}) {
    grpc::ClientContext context;
    context.AddMetadata(kEdgeMetadata, "00000000000000000000000000000000");
    context.AddMetadata(kTenantMetadata, "key:a");
    context.AddMetadata(kWeightMetadata, "1000");
    Call(channel, context);
    EXPECT_EQ(probe_.tenant.name.find("peer:"), 0u) << probe_.tenant.name;
    EXPECT_EQ(probe_.tenant.weight, 1u);
  }
}

TEST_F(CallOriginTest, EachLoopbackConnectionIsATenantAndSoIsTheUnixSocket) {
  const auto tenant = [this](const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    Call(channel, context);
    return probe_.tenant.name;
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

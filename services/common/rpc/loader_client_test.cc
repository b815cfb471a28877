// What clients make of loaders of other releases.
#include "services/common/rpc/loader_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "services/common/rpc/loader_protocol.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// Lends a model without tensors.
class OtherLoader final : public loader::v1::Loader::Service {
 public:
  grpc::Status LoadModel(grpc::ServerContext* /*context*/,
                         const loader::v1::LoadModelRequest* /*request*/,
                         grpc::ServerWriter<loader::v1::LoadModelResponse>* writer) override {
    loader::v1::LoadModelResponse response;
    *response.mutable_model() = model;
    writer->Write(response);
    return grpc::Status::OK;
  }
  grpc::Status AcquireLease(grpc::ServerContext* /*context*/,
                            const loader::v1::AcquireLeaseRequest* /*request*/,
                            grpc::ServerWriter<loader::v1::AcquireLeaseResponse>* writer) override {
    loader::v1::AcquireLeaseResponse response;
    response.set_lease_token(std::string(kLeaseTokenBytes, 't'));
    *response.mutable_model() = model;
    writer->Write(response);
    return grpc::Status::OK;
  }

  loader::v1::Model model;
};

class LoaderClientTest : public ::testing::Test {
 protected:
  LoaderClientTest() {
    loader_.model.set_name("m.gguf");
    StampLoaderProtocol(loader_.model);
    const std::string target = "unix:" + folder_.path() + "/l.sock";
    grpc::ServerBuilder builder;
    builder.AddListeningPort(target, grpc::InsecureServerCredentials());
    builder.RegisterService(&loader_);
    server_ = builder.BuildAndStart();
    client_ = LoaderClient::Create(target).value();
  }
  ~LoaderClientTest() override { server_->Shutdown(); }

  void ExpectRefused(const std::string& what) {
    for (const absl::Status& status :
         {client_->LoadModel("m.gguf").status(), client_->AcquireLease("id", "test").status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    }
  }

  const TemporaryDirectory folder_;
  OtherLoader loader_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<LoaderClient> client_;
};

TEST_F(LoaderClientTest, TakesModelsOfItsOwnRelease) {
  const auto model = client_->LoadModel("m.gguf");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->tile_layout(), kTileLayout);
  EXPECT_TRUE(client_->AcquireLease("id", "test").ok());
}

TEST_F(LoaderClientTest, RefusesAnotherTileLayoutByName) {
  loader_.model.set_tile_layout("rows64-z");
  ExpectRefused("in the tile layout 'rows64-z', and this process reads 'rows32-b'");
}

TEST_F(LoaderClientTest, RefusesAnotherVersionOfTheProtocol) {
  loader_.model.set_protocol_version(0);  // as loaders from before it had one
  ExpectRefused("version 0 of its protocol, and this process version 1");
}

}  // namespace
}  // namespace tandem

#include "services/common/rpc/tls.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <future>

#include "services/common/base/logging.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/server.h"
#include "services/common/rpc/testing/certificates.h"
#include "services/common/testing/eventually.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem {
namespace {

using testing::CertificateAuthority;
using ::testing::HasSubstr;
using testing::StatusIs;

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() { ca_ = std::make_unique<CertificateAuthority>(folder_, "ca"); }

  std::unique_ptr<Server> Serve(TlsFiles files) {
    auto server = Server::Start({.listen = {"127.0.0.1:0"}, .tls = std::move(files)}, {});
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  // Whether the client's call of the health service is answered.
  static bool Connects(const Server& server, const TlsFiles& client) {
    grpc::GenericStub stub(
        CreateRemoteChannel(server.targets()[0], MakeChannelCredentials(client), Keepalive::kOff));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    const grpc::Slice empty;
    grpc::ByteBuffer request(&empty, 1), response;
    std::promise<grpc::Status> ended;
    stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                   [&ended](grpc::Status status) { ended.set_value(std::move(status)); });
    const grpc::Status status = ended.get_future().get();
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE)
        << status.error_message();
    if (!status.ok()) LogInfo("refused", {{"reason", status.error_message()}});
    return status.ok();
  }

  const TemporaryDirectory temporary_;
  const std::string folder_ = temporary_.path();
  std::unique_ptr<CertificateAuthority> ca_;
};

TEST_F(TlsTest, FilesThatCannotServeAreRefusedByNameAndReason) {
  EXPECT_OK(CheckTlsFiles({}));
  const TlsFiles a = ca_->Issue("a", "DNS:a.example");
  EXPECT_OK(CheckTlsFiles(a));
  TlsFiles files = a;
  files.key.clear();
  EXPECT_THAT(CheckTlsFiles(files),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--tls-key is missing")));
  EXPECT_THAT(CheckTlsFiles({.allow = {"a.example"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--tls-allow needs")));
  files = a;
  files.ca = folder_ + "/none.pem";
  EXPECT_THAT(CheckTlsFiles(files),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("--tls-ca " + files.ca)));
  files = a;
  files.certificate = a.key;
  EXPECT_THAT(CheckTlsFiles(files),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("holds no certificate")));
  files = a;
  files.key = ca_->Issue("b", "DNS:b.example").key;
  EXPECT_THAT(CheckTlsFiles(files), StatusIs(absl::StatusCode::kFailedPrecondition,
                                             HasSubstr("is not the key of the certificate")));
  EXPECT_THAT(CheckTlsFiles(ca_->Issue("old", "DNS:a", {-7200, -3600})),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("expired on 20")));
  EXPECT_THAT(CheckTlsFiles(ca_->Issue("early", "DNS:a", {3600, 7200})),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("begins on 20")));
}

TEST_F(TlsTest, OnlyCertificatesOfTheAuthorityAndTheNameMeet) {
  const auto server = Serve(ca_->Issue("server", "IP:127.0.0.1"));
  EXPECT_TRUE(Connects(*server, ca_->Issue("client", "DNS:client.example")));
  EXPECT_FALSE(Connects(*server, ca_->Issue("old", "DNS:client.example", {-7200, -3600})));
  const CertificateAuthority other(folder_, "other");
  TlsFiles stranger = other.Issue("stranger", "DNS:client.example");
  EXPECT_FALSE(Connects(*server, stranger)) << "neither knows the other";
  stranger.ca = folder_ + "/ca.pem";
  EXPECT_FALSE(Connects(*server, stranger)) << "it knows the server, but not the other way round";
  const auto misnamed = Serve(ca_->Issue("misnamed", "DNS:b.example,IP:127.0.0.2"));
  EXPECT_FALSE(Connects(*misnamed, ca_->Issue("client", "DNS:client.example")));
  const auto expired = Serve(ca_->Issue("expired", "IP:127.0.0.1", {-7200, -3600}));
  EXPECT_FALSE(Connects(*expired, ca_->Issue("client", "DNS:client.example")));
}

TEST_F(TlsTest, NamesDecideWhoMayCall) {
  TlsFiles files = ca_->Issue("server", "IP:127.0.0.1");
  files.allow = {"gateway.example", "spiffe://cluster/gateway", "10.0.0.7"};
  const auto server = Serve(files);
  EXPECT_TRUE(Connects(*server, ca_->Issue("dns", "DNS:x.example,DNS:gateway.example")));
  EXPECT_TRUE(Connects(*server, ca_->Issue("uri", "URI:spiffe://cluster/gateway")));
  EXPECT_TRUE(Connects(*server, ca_->Issue("ip", "IP:10.0.0.7")));
  EXPECT_FALSE(Connects(*server, ca_->Issue("else", "DNS:gateway.example.org")));
  EXPECT_FALSE(Connects(*server, ca_->Issue("gateway.example", "DNS:x")))
      << "the common name does not count";
}

TEST_F(TlsTest, RenewedFilesAreUsedWithoutARestart) {
  TlsFiles files = ca_->Issue("server", "DNS:elsewhere.example");
  files.refresh_seconds = 1;
  const auto server = Serve(files);
  const TlsFiles client = ca_->Issue("client", "DNS:client.example");
  EXPECT_FALSE(Connects(*server, client));
  ca_->Issue("server", "IP:127.0.0.1");
  EXPECT_TRUE(testing::Eventually([&] { return Connects(*server, client); }));
}

TEST_F(TlsTest, BeyondLoopbackOnlyWithTls) {
  const auto clear = Server::Start({.listen = {"0.0.0.0:0"}}, {});
  EXPECT_THAT(clear.status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--tls-cert")));
  const auto encrypted =
      Server::Start({.listen = {"0.0.0.0:0"}, .tls = ca_->Issue("server", "IP:127.0.0.1")}, {});
  EXPECT_OK(encrypted.status());
}

}  // namespace
}  // namespace tandem

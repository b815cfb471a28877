// Messages about workers on other hosts that cannot be reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>

#include "services/common/base/unique_fd.h"
#include "services/common/rpc/server.h"
#include "services/common/rpc/testing/certificates.h"
#include "services/common/rpc/worker_client.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using testing::CertificateAuthority;
using ::testing::HasSubstr;
using testing::StatusIs;

class UnreachableWorkerTest : public ::testing::Test {
 protected:
  // Where a server with those files listens; without files in plain text.
  std::string Serve(const TlsFiles& files) {
    auto server = Server::Start({.listen = {"127.0.0.1:0"}, .tls = files}, {});
    EXPECT_TRUE(server.ok()) << server.status();
    servers_.push_back(*std::move(server));
    return servers_.back()->targets()[0];
  }
  // The message about a worker there.
  absl::Status Ask(const std::string& target) {
    WorkerClient client(ParseWorkerTarget(target).value(),
                        target.starts_with("tls:") ? MakeChannelCredentials(gateway_)
                                                   : grpc::InsecureChannelCredentials());
    return client.Describe(absl::Seconds(1)).status();
  }
  // It is unavailable, named, and `why`.
  static auto Says(const std::string& target, const std::string& why) {
    return StatusIs(absl::StatusCode::kUnavailable,
                    AllOf(HasSubstr("worker at " + target + " is not there"), HasSubstr(why)));
  }

  const TemporaryDirectory temporary_;
  const std::string folder_ = temporary_.path();
  const CertificateAuthority ca_{folder_, "ca"};
  const TlsFiles gateway_ = ca_.Issue("gateway", "DNS:gateway.example");
  std::vector<std::unique_ptr<Server>> servers_;
};

TEST_F(UnreachableWorkerTest, NobodyListens) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof(address);
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string target = "tls://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  EXPECT_THAT(Ask(target), Says(target, "Connection refused"));
  // And one who takes connections, and then neither speaks nor reads.
  ASSERT_EQ(::listen(fd.get(), 4), 0);
  EXPECT_THAT(Ask(target), Says(target, "no answer"));
}

TEST_F(UnreachableWorkerTest, PlainTextAndTlsDoNotMeet) {
  const std::string encrypted = "tcp://" + Serve(ca_.Issue("host", "IP:127.0.0.1"));
  EXPECT_THAT(Ask(encrypted), Says(encrypted, "if it expects TLS, name it tls://"));
  const std::string plain = "tls://" + Serve({});
  EXPECT_THAT(Ask(plain), Says(plain, "does it speak TLS?"));
}

TEST_F(UnreachableWorkerTest, CertificatesThatDoNotFit) {
  const std::string misnamed = "tls://" + Serve(ca_.Issue("named", "DNS:b.example"));
  EXPECT_THAT(Ask(misnamed), Says(misnamed, "its certificate is for another name"));
  const std::string expired = "tls://" + Serve(ca_.Issue("old", "IP:127.0.0.1", {-7200, -3600}));
  EXPECT_THAT(Ask(expired), Says(expired, "expired"));
  const CertificateAuthority other(folder_, "other");
  const std::string stranger = "tls://" + Serve(other.Issue("stranger", "IP:127.0.0.1"));
  EXPECT_THAT(Ask(stranger), Says(stranger, "not signed by an authority of --tls-ca"));
}

TEST_F(UnreachableWorkerTest, TheWorkerRefusesTheGateway) {
  TlsFiles files = ca_.Issue("host", "IP:127.0.0.1");
  files.allow = {"another.example"};
  const std::string picky = "tls://" + Serve(files);
  EXPECT_THAT(Ask(picky), Says(picky, "it may have refused this gateway's certificate"));
}

}  // namespace
}  // namespace tandem

// Layers of the demo model over two hosts, which are network namespaces: the services as they are,
// TCP with mutual TLS between them, and a cable that is pulled.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <thread>

#include "absl/time/clock.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/testing/certificates.h"
#include "services/common/testing/paths.h"
#include "tandem/v1/generation.grpc.pb.h"
#include "tests/integration/network.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);
// Enough that an answer is not complete before the client has read its fifth message.
constexpr uint32_t kTokens = 200;

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
}

class HostsTest : public ::testing::Test {
 protected:
  struct Answer {
    grpc::Status status;
    std::vector<uint32_t> tokens;
  };

  void SetUp() override {
    auto hosts = TwoHosts::Make();
    if (!hosts.ok()) GTEST_SKIP() << "no two hosts here: " << hosts.status().message();
    hosts_ = *std::move(hosts);
    for (const char host : {'a', 'b'}) {
      Start(host, "tandem-loader",
            {"--listen", Socket(host, "loader"), "--root", SourcePath("models/demo")});
    }
    Start('a', "reference_worker", {"--listen", Socket('a', "gpu"), "--name", "gpu0"});
    std::vector<std::string> flags = {
        "--listen", "0.0.0.0:7001", "--execution-port",    "7002",        "--name",
        "gpu1",     "--loader",     Socket('b', "loader"), "--tls-allow", "a.example"};
    Append(flags, TlsFlags(ca_.Issue("b", std::string("IP:") + TwoHosts::kAddressB)));
    Start('b', "reference_worker", flags);
  }
  void TearDown() override {
    gateway_.reset();
    processes_.clear();
    hosts_.reset();
  }

  static void Append(std::vector<std::string>& to, const std::vector<std::string>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }
  static std::vector<std::string> TlsFlags(const TlsFiles& files) {
    return {"--tls-cert", files.certificate, "--tls-key", files.key, "--tls-ca", files.ca};
  }
  std::string Socket(char host, const std::string& name) const {
    return "unix:" + directory_.path() + "/" + host + "_" + name + ".sock";
  }
  void Start(char host, const std::string& program, const std::vector<std::string>& arguments) {
    processes_[program + host] = hosts_->Start(host, program, arguments);
  }
  // In place of the one before; waits until it answers requests.
  void StartGateway(const std::vector<std::string>& flags) {
    processes_.erase("tandem-gatewaya");
    std::vector<std::string> all = {"--listen",   Socket('a', "gateway"),
                                    "--loader",   Socket('a', "loader"),
                                    "--worker",   Socket('a', "gpu"),
                                    "--model",    "demo.Q8_0.gguf",
                                    "--npu",      "off",
                                    "--max-rows", "32",
                                    "--context",  "256",
                                    "--http",     "off"};
    Append(all, flags);
    Start('a', "tandem-gateway", all);
    gateway_ = v1::Generation::NewStub(CreateChannel(Socket('a', "gateway")));
    WaitFor("ready");
  }
  v1::GetStatusResponse Status() {
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(5));
    context.set_wait_for_ready(true);
    v1::GetStatusResponse status;
    if (!gateway_->GetStatus(&context, {}, &status).ok()) status.set_state("no answer");
    return status;
  }
  void WaitFor(const std::string& state) {
    const absl::Time until = absl::Now() + kPatience;
    v1::GetStatusResponse status;
    while ((status = Status()).state() != state) {
      ASSERT_LT(absl::Now(), until) << "not " << state << ": " << status.ShortDebugString();
      absl::SleepFor(absl::Milliseconds(20));
    }
  }
  // Greedy; `on_message` sees the number of every message.
  Answer Generate(const std::function<void(int)>& on_message = nullptr) {
    v1::GenerateRequest request;
    request.set_text("The capital of");
    request.mutable_sampling()->set_temperature(0.0f);
    request.mutable_limits()->set_max_tokens(kTokens);
    request.mutable_limits()->set_ignore_eos(true);
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    auto reader = gateway_->Generate(&context, request);
    Answer answer;
    v1::GenerateResponse message;
    for (int n = 1; reader->Read(&message); ++n) {
      for (const v1::Token& token : message.tokens()) answer.tokens.push_back(token.id());
      if (on_message) on_message(n);
    }
    answer.status = reader->Finish();
    return answer;
  }

  const TemporaryDirectory directory_;
  const CertificateAuthority ca_{directory_.path(), "ca"};
  std::unique_ptr<TwoHosts> hosts_;
  std::map<std::string, std::unique_ptr<ChildProcess>> processes_;
  std::unique_ptr<v1::Generation::Stub> gateway_;
};

TEST_F(HostsTest, TokensAreThoseOfOneHostWhateverBecomesOfTheCable) {
  StartGateway({});
  const Answer alone = Generate();
  ASSERT_TRUE(alone.status.ok()) << alone.status.error_message();
  ASSERT_EQ(alone.tokens.size(), kTokens);

  std::vector<std::string> flags = {
      "--worker",  "tls://10.77.0.2:7001", "--layers", "gpu0=0-4",      "--layers",
      "gpu1=5-11", "--segment-deadline",   "3",        "--worker-wait", "3"};
  Append(flags, TlsFlags(ca_.Issue("a", "DNS:a.example")));
  StartGateway(flags);
  const Answer split = Generate();
  ASSERT_TRUE(split.status.ok()) << split.status.error_message();
  EXPECT_EQ(split.tokens, alone.tokens);
  const v1::GetStatusResponse status = Status();
  EXPECT_THAT(status.placement(), HasSubstr("gpu1"));
  EXPECT_EQ(status.workers(1).transport(), "mutual TLS");
  EXPECT_GT(status.workers(1).received_bytes(), 0u);

  // Cut off in mid-answer and back once the gateway has noticed: the request goes on.
  std::thread restorer;
  const Answer resumed = Generate([&](int n) {
    if (n != 5) return;
    hosts_->Cut();
    restorer = std::thread([this] {
      WaitFor("recovering");
      hosts_->Restore();
    });
  });
  if (restorer.joinable()) restorer.join();
  ASSERT_TRUE(resumed.status.ok()) << resumed.status.error_message();
  EXPECT_EQ(resumed.tokens, alone.tokens) << "none lost, none twice";

  // Away for longer than the gateway waits: the request ends, and says why.
  const Answer ended = Generate([&](int n) {
    if (n == 5) hosts_->Cut();
  });
  EXPECT_EQ(ended.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(ended.status.error_message(), HasSubstr("tls://10.77.0.2:7001"));
  hosts_->Restore();
  WaitFor("ready");
  const Answer next = Generate();
  ASSERT_TRUE(next.status.ok()) << next.status.error_message();
  EXPECT_EQ(next.tokens, alone.tokens);
}

}  // namespace
}  // namespace tandem::testing

// The client commands by the HTTP port: TLS, a key, and the routes of a gateway in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <semaphore>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/rpc/error_details.h"
#include "services/common/rpc/testing/certificates.h"
#include "services/common/testing/temporary_directory.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/rest/rest_routes.h"
#include "tools/tandem/commands/testing/child.h"
#include "tools/tandem/commands/testing/fake_gateway.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// printf %s secret | sha256sum
constexpr char kKeys[] =
    "me sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n";

// Answers a unary call as the gateway's method does.
template <class Request, class Response>
gateway::RpcHandler Unary(FakeGateway& fake,
                          grpc::Status (FakeGateway::*method)(grpc::ServerContext*, const Request*,
                                                              Response*)) {
  return [&fake, method](const std::shared_ptr<gateway::RpcCall>& call) {
    call->Finish(FromDetailedGrpcStatus(
        (fake.*method)(nullptr, &call->request<Request>(), &call->response<Response>())));
  };
}

// Answers a stream's call, on the caller's thread.
template <class Request, class Response>
gateway::RpcHandler Stream(FakeGateway& fake,
                           grpc::Status (FakeGateway::*method)(
                               const Request&, const std::function<bool(const Response&)>&)) {
  return [&fake, method](const std::shared_ptr<gateway::RpcCall>& call) {
    const auto written = std::make_shared<std::counting_semaphore<>>(0);
    call->SetCallbacks([written](bool) { written->release(); }, [] {});
    bool holds_message = false;  // in the response: Finish sends the last
    const grpc::Status status = (fake.*method)(call->request<Request>(), [&](const Response& next) {
      if (std::exchange(holds_message, true)) {
        if (!call->Write()) return false;
        written->acquire();
      }
      call->response<Response>() = next;
      return !call->gone();
    });
    call->Finish(FromDetailedGrpcStatus(status));
  };
}

gateway::RpcMethods MethodsOf(FakeGateway& fake) {
  const auto absent = [](const std::shared_ptr<gateway::RpcCall>& call) {
    call->Finish(absl::UnimplementedError("no command asks for this"));
  };
  gateway::RpcMethods methods;
  for (const auto& [name, answer] : std::map<std::string, gateway::RpcHandler>{
           {"Generate", Stream(fake, &FakeGateway::StreamGenerate)},
           {"Chat", Stream(fake, &FakeGateway::StreamChat)},
           {"Embed", Unary(fake, &FakeGateway::Embed)},
           {"ListModels", Unary(fake, &FakeGateway::ListModels)},
           {"GetStatus", Unary(fake, &FakeGateway::GetStatus)},
           {"Tokenize", absent},
           {"Detokenize", absent},
           {"GetTrace", absent}}) {
    methods["tandem.v1.Generation." + name] = {answer, nullptr};
  }
  return methods;
}

class HttpsTest : public ::testing::Test {
 protected:
  HttpsTest() {
    const TlsFiles tls = authority_.Issue("server", "DNS:localhost,IP:127.0.0.1");
    ca_file_ = tls.ca;
    gateway::HttpRouter router;
    TANDEM_CHECK(gateway::AddRestRoutes(router,
                                        *v1::GenerateRequest::descriptor()->file()->service(0),
                                        MethodsOf(gateway_))
                     .ok());
    auto keys = gateway::ApiKeys::Parse(kKeys);
    TANDEM_CHECK(keys.ok());
    auto server = gateway::HttpServer::Start({.listen = "127.0.0.1:0",
                                              .tls_certificate = tls.certificate,
                                              .tls_key = tls.key,
                                              .keys = *std::move(keys)},
                                             std::move(router));
    TANDEM_CHECK(server.ok());
    http_ = *std::move(server);
  }
  ~HttpsTest() override { http_->Shutdown(absl::Seconds(1)); }

  std::string url() const { return absl::StrFormat("https://localhost:%d", http_->port()); }

  struct Result {
    int code = 0;
    std::string output, errors;
  };
  static Result Run(const std::vector<std::string>& arguments, std::string_view input = "") {
    Child child(arguments);
    child.Write(input);
    child.CloseInput();
    const int code = child.Wait();
    return {code, child.output(), child.errors()};
  }
  // By the HTTP port, with a key and the authority.
  std::vector<std::string> Trusted(std::vector<std::string> arguments,
                                   const std::string& key = "secret") const {
    arguments.insert(arguments.begin() + 1,
                     {"--address", url(), "--ca-file", ca_file_, "--api-key", key});
    return arguments;
  }

  TemporaryDirectory folder_;
  testing::CertificateAuthority authority_{folder_.path(), "ca"};
  std::string ca_file_;
  FakeGateway gateway_;
  std::unique_ptr<gateway::HttpServer> http_;
};

TEST_F(HttpsTest, EveryCommandAnswersAsOverGrpc) {
  for (const auto& [command, input] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"generate", "one", "two three"}, ""},
           {{"generate", "--json", "--logprobs", "1", "a b"}, ""},
           {{"generate", "--chat", "Why?"}, ""},
           {{"generate", "--jsonl"}, "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n"},
           {{"generate", "fail"}, ""},
           {{"chat"}, "first\nsecond\n"},
           {{"embed"}, "a\n\nbb\n"},
           {{"models"}, ""},
           {{"status"}, ""},
           {{"status", "--json"}, ""}}) {
    SCOPED_TRACE(command[0]);
    std::vector<std::string> by_grpc = command;
    by_grpc.insert(by_grpc.begin() + 1, {"--address", gateway_.address()});
    const Result expected = Run(by_grpc, input);
    const Result result = Run(Trusted(command), input);
    EXPECT_EQ(result.code, expected.code);
    EXPECT_EQ(result.output, expected.output);
    EXPECT_EQ(result.errors, expected.errors);
  }
}

TEST_F(HttpsTest, AKeyIsAskedForAndTakenFromAFileToo) {
  const Result without = Run({"status", "--address", url(), "--ca-file", ca_file_});
  EXPECT_EQ(without.code, 1);
  EXPECT_THAT(without.errors, HasSubstr("--api-key or TANDEM_API_KEY"));
  EXPECT_EQ(Run(Trusted({"status"}, "wrong")).code, 1);
  const std::string file = folder_.path() + "/key";
  std::ofstream(file) << "secret\n";
  EXPECT_EQ(Run(Trusted({"status"}, "@" + file)).code, 0);
  const Result missing = Run(Trusted({"status"}, "@/nowhere/key"));
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.errors, HasSubstr("/nowhere/key"));
}

TEST_F(HttpsTest, ACertificateThatIsNotTrustedIsRefused) {
  const Result result = Run({"status", "--address", url(), "--api-key", "secret"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.errors, HasSubstr("its certificate is not trusted"));
  EXPECT_THAT(result.errors, HasSubstr("--ca-file"));
}

TEST_F(HttpsTest, NobodyThereIsAnErrorAtOnce) {
  http_->Shutdown(absl::Seconds(1));
  const Result result = Run(Trusted({"status"}));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.errors, HasSubstr("no gateway answers at " + url()));
}

TEST_F(HttpsTest, DeadlinesAndControlCEndAnAnswer) {
  const Result late = Run(Trusted({"generate", "--timeout", "2", "forever"}));
  EXPECT_EQ(late.code, 1);
  EXPECT_THAT(late.output, ::testing::StartsWith("forever"));
  EXPECT_THAT(late.errors, HasSubstr("DEADLINE_EXCEEDED"));
  Child chat(Trusted({"chat", "--quiet"}));
  chat.Write("forever\n");
  ASSERT_TRUE(chat.WaitForOutput("forever1 messages"));
  chat.Signal(SIGINT);
  chat.Write("and then\n/exit\n");
  EXPECT_EQ(chat.Wait(), 0);
  EXPECT_THAT(chat.output(), ::testing::EndsWith("\n3 messages: and then\n"));
}

}  // namespace
}  // namespace tandem

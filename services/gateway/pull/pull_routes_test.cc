// The routes on a real server, which pulls from a hub of the test's own.
#include "services/gateway/pull/pull_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "services/common/pull/testing/fake_hub.h"
#include "services/common/rpc/testing/certificates.h"
#include "services/common/testing/temporary_directory.h"
#include "services/gateway/api/json.h"
#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/engine/testing/gate.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/http/testing/http_test_client.h"

namespace tandem::gateway {
namespace {

using pull::testing::FakeHub;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::FakeExecutor;
using testing::Gate;
using ::testing::HasSubstr;
using testing::HttpTestClient;
using testing::HttpTestResponse;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

constexpr size_t kBytes = 3 << 20;

class PullRoutesTest : public ::testing::Test {
 protected:
  void Start(bool allowed, HttpServerOptions http = {}) {
    launcher_ = std::make_unique<Launcher>(
        [](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
          return std::make_unique<FakeExecutor>(testing::FakeExecutorOptions{});
        },
        EngineOptions{.max_sequences = 8, .max_rows = 64, .chunk_rows = 16, .max_waiting = 20});
    auto ready = std::make_shared<Gate>();
    launcher_->Begin([ready](bool) { ready->Open(); });
    ready->Wait();
    PullRouteOptions options;
    if (allowed) {
      options.how.folder = folder_.path();
      options.how.hub.endpoint = fake_.hub().url();
      options.how.transfer.segment_bytes = 256 << 10;
    }
    options.table = *pull::ModelTable::Parse(
        R"({"models": [{"names": ["small:1b"], "repo": "owner/repo", "file": "model-Q4_0.gguf"}]})");
    HttpRouter router;
    ASSERT_TRUE(AddPullRoutes(router, *launcher_, std::move(options)).ok());
    http.listen = "127.0.0.1:0";
    auto server = HttpServer::Start(http, std::move(router));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    launcher_->EndRequests();
    server_->Shutdown(absl::Seconds(5));
  }
  HttpTestResponse Call(const std::string& body, const char* method = "POST",
                        const char* path = "/api/pull", const std::string& headers = "") {
    return HttpTestClient(server_->port()).Call(method, path, body, headers);
  }
  std::string Path() const { return folder_.path() + "/owner/repo/model-Q4_0.gguf"; }

  FakeHub fake_{kBytes};
  TemporaryDirectory folder_;
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(PullRoutesTest, OffByDefaultAndSaysHowToAllowIt) {
  Start(/*allowed=*/false);
  const HttpTestResponse refused = Call(R"({"model": "small:1b"})");
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("--http-pull"));
  EXPECT_EQ(Call(R"({"model": "small:1b"})", "DELETE", "/api/delete").status, 403);
  EXPECT_THAT(fake_.hub().requests(), IsEmpty());
}

TEST_F(PullRoutesTest, TheServedModelIsThereAlready) {
  Start(/*allowed=*/false);
  const std::string name((*launcher_->model())->info().name());
  const HttpTestResponse answer = Call(absl::StrFormat(R"({"model": "%s:latest"})", name));
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr(R"({"status":"success"})"));
}

TEST_F(PullRoutesTest, StreamsProgressAsOllamaDoes) {
  Start(/*allowed=*/true);
  const HttpTestResponse answer = Call(R"({"model": "small:1b"})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Header("content-type"), "application/x-ndjson");
  const std::vector<std::string> lines = absl::StrSplit(answer.body, '\n', absl::SkipEmpty());
  ASSERT_GE(lines.size(), 4u) << answer.body;
  EXPECT_EQ(lines[0], R"({"status":"pulling manifest"})");
  const Json pulling = Json::parse(lines[1]);
  EXPECT_EQ(pulling["digest"], "sha256:" + FakeHub::Sha256(fake_.content()));
  EXPECT_EQ(pulling["total"], kBytes);
  EXPECT_TRUE(pulling.contains("completed"));
  const Json whole = Json::parse(lines[lines.size() - 4]);
  EXPECT_EQ(whole["completed"], kBytes) << answer.body;
  EXPECT_EQ(lines[lines.size() - 3], R"({"status":"verifying sha256 digest"})");
  EXPECT_EQ(lines[lines.size() - 2], R"({"status":"writing manifest"})");
  EXPECT_EQ(lines.back(), R"({"status":"success"})");
  EXPECT_EQ(std::filesystem::file_size(Path()), kBytes);
}

TEST_F(PullRoutesTest, AVisionEncoderIsASecondLayerOfTheModel) {
  const std::string encoder = FakeHub::MakeContent(1 << 20, 3);
  fake_.SetFile("mmproj-model-f16.gguf", encoder);
  Start(/*allowed=*/true);
  const HttpTestResponse answer = Call(R"({"model": "small:1b"})");
  EXPECT_EQ(answer.status, 200);
  std::map<std::string, uint64_t> completed;  // by digest
  const std::vector<std::string> lines = absl::StrSplit(answer.body, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const Json json = Json::parse(line);
    if (json.contains("digest")) completed[json["digest"]] = json["completed"];
  }
  EXPECT_THAT(completed, ElementsAre(Pair("sha256:" + FakeHub::Sha256(encoder), encoder.size()),
                                     Pair("sha256:" + FakeHub::Sha256(fake_.content()), kBytes)));
  EXPECT_THAT(answer.body, HasSubstr(R"({"status":"success"})"));
  EXPECT_EQ(Call(R"({"model": "small:1b"})", "DELETE", "/api/delete").status, 200);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(PullRoutesTest, OneAnswerWithoutAStream) {
  Start(/*allowed=*/true);
  const HttpTestResponse answer =
      Call(R"({"name": "hf:owner/repo:model-Q4_0.gguf", "stream": false})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, R"({"status":"success"})");
  EXPECT_TRUE(std::filesystem::exists(Path()));
}

TEST_F(PullRoutesTest, WhatCannotBePulledIsNamed) {
  Start(/*allowed=*/true);
  EXPECT_EQ(Call(R"({"model": "big:99b"})").status, 404);
  EXPECT_EQ(Call(R"({"model": "../../etc/passwd"})").status, 400);
  EXPECT_EQ(Call(R"({"model": "hf:owner/..:x.gguf"})").status, 400);
  EXPECT_EQ(Call(R"({})").status, 400);
  EXPECT_EQ(Call(R"({"model": 5})").status, 400);
  EXPECT_EQ(Call(R"({"model": "hf:owner/none:x-Q4_0.gguf", "stream": false})").status, 404);
  // Once the stream has begun, its last line says it.
  const HttpTestResponse late = Call(R"({"model": "hf:owner/none:x-Q4_0.gguf"})");
  EXPECT_THAT(late.body, HasSubstr(R"({"error":)"));
}

TEST_F(PullRoutesTest, AModelIsDeleted) {
  Start(/*allowed=*/true);
  ASSERT_EQ(Call(R"({"model": "small:1b", "stream": false})").status, 200);
  EXPECT_EQ(Call(R"({"model": "small:1b"})", "DELETE", "/api/delete").status, 200);
  EXPECT_FALSE(std::filesystem::exists(Path()));
  EXPECT_EQ(Call(R"({"model": "small:1b"})", "DELETE", "/api/delete").status, 404);
  const std::string name((*launcher_->model())->info().name());
  EXPECT_NE(Call(absl::StrFormat(R"({"model": "%s"})", name), "DELETE", "/api/delete").status, 200);
}

TEST_F(PullRoutesTest, APageOfAnotherOriginAndAProxysClientMayNot) {
  Start(/*allowed=*/true);
  EXPECT_EQ(
      Call(R"({"model": "small:1b"})", "POST", "/api/pull", "Origin: https://evil.example\r\n")
          .status,
      403);
  EXPECT_EQ(Call(R"({"model": "small:1b"})", "POST", "/api/pull", "X-Forwarded-For: 192.0.2.1\r\n")
                .status,
            403);
  EXPECT_THAT(fake_.hub().requests(), IsEmpty());
}

TEST_F(PullRoutesTest, AClientThatGoesStopsItsPull) {
  Start(/*allowed=*/true);
  fake_.Set({.cut_every = 1});
  HttpTestClient client(server_->port());
  client.Request("POST", "/api/pull", R"({"model": "small:1b"})");
  client.ReadHead();
  client.Close();
  // Another client can have the model once the first one's pull has ended, and at the latest then.
  fake_.Set({});
  EXPECT_EQ(Call(R"({"model": "small:1b", "stream": false})").status, 200);
}

// How a hub is reached that serves HTTPS.
TEST(PullTlsTest, CertificatesAreVerified) {
  const TemporaryDirectory folder;
  const tandem::testing::CertificateAuthority authority(folder.path(), "authority");
  const TlsFiles right = authority.Issue("right", "IP:127.0.0.1");
  const TlsFiles other = authority.Issue("other", "DNS:hub.example");
  const auto ask = [](const TlsFiles& files, const std::string& ca_file) {
    HttpRouter router;
    const auto server = HttpServer::Start(
        {.listen = "127.0.0.1:0", .tls_certificate = files.certificate, .tls_key = files.key},
        std::move(router));
    EXPECT_TRUE(server.ok()) << server.status();
    pull::HttpOptions options;
    options.ca_file = ca_file;
    const std::string url = absl::StrFormat("https://127.0.0.1:%d/x", (*server)->port());
    const auto reply = pull::Ask("HEAD", url, options);
    (*server)->Shutdown(absl::Seconds(1));
    return reply.status();
  };
  EXPECT_TRUE(ask(right, right.ca).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(ask(right, "")));
  EXPECT_TRUE(absl::IsFailedPrecondition(ask(other, right.ca)));
}

}  // namespace
}  // namespace tandem::gateway

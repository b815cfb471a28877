// The page as it is served, after requests by every API and after hostile ones.
#include "services/gateway/metrics/metrics_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <sstream>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/testing/eventually.h"
#include "services/gateway/grpc/testing/service_fixture.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/http/testing/http_test_client.h"
#include "services/gateway/metrics/key_metrics.h"
#include "services/gateway/ollama/ollama_routes.h"
#include "services/gateway/openai/openai_routes.h"
#include "services/gateway/rest/rest_routes.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;
using testing::HttpTestClient;
using testing::HttpTestResponse;
using ::testing::Not;

// printf %s secret | sha256sum
constexpr char kKeys[] =
    "tester sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n"
    // "one" and "two"
    "one sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\n"
    "two sha256:3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3 admin\n";
constexpr char kHeaders[] = "Authorization: Bearer secret\r\n";
constexpr char kOpenAiBody[] =
    R"({"prompt": "the hat", "temperature": 0, "ignore_eos": true, "max_tokens": 5})";

class MetricsPageTest : public testing::ServiceFixture {
 protected:
  void SetUp() override {
    meters_.keys = ApiKeys::Parse(kKeys).value();
    Start({}, {.max_sequences = 8,
               .max_rows = 64,
               .chunk_rows = 16,
               .max_waiting = 20,
               .observers = {&meters_.engine}});
    HttpRouter router;
    ASSERT_TRUE(AddMetricsRoute(router, GatewayPage(meters_, *launcher_, "test")).ok());
    ASSERT_TRUE(AddOpenAiRoutes(router, *launcher_).ok());
    ASSERT_TRUE(AddOllamaRoutes(router, *launcher_, "test").ok());
    const auto& service = *v1::GenerateRequest::descriptor()->file()->service(0);
    ASSERT_TRUE(AddRestRoutes(router, service, service_->methods()).ok());
    HttpServerOptions options{.listen = "127.0.0.1:0", .traffic = &meters_.http};
    options.keys = meters_.keys;
    auto http = HttpServer::Start(options, std::move(router));
    ASSERT_TRUE(http.ok()) << http.status();
    http_ = *std::move(http);
  }
  void TearDown() override {
    launcher_->EndRequests();
    http_->Shutdown(absl::Seconds(5));
    ServiceFixture::TearDown();
  }

  HttpTestResponse Call(const std::string& method, const std::string& path,
                        const std::string& body = "", const std::string& headers = kHeaders) {
    return HttpTestClient(http_->port()).Call(method, path, body, headers);
  }
  std::string Page() { return Call("GET", "/metrics", "", "").body; }

  GatewayMeters meters_;
  std::unique_ptr<HttpServer> http_;
};

size_t NumSeries(const std::string& page) {
  size_t count = 0;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    // Metrics of the process itself; their number is constant.
    if (!line.empty() && line[0] != '#') ++count;
  }
  return count;
}

TEST_F(MetricsPageTest, RequestsOfEveryApiAreCountedAndThoseRefusedToo) {
  v1::GenerateRequest request;
  request.mutable_tokens()->add_ids(testing::kToyBos);
  request.mutable_limits()->set_max_tokens(3);
  request.mutable_limits()->set_ignore_eos(true);
  ASSERT_TRUE(Generate(request).status.ok());
  request.set_model("another");
  EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Call("POST", "/v1/completions", kOpenAiBody).status, 200);
  EXPECT_EQ(Call("POST", "/v1/completions", R"({"prompt": 7.5})").status, 400);
  EXPECT_EQ(Call("POST", "/api/generate",
                 R"({"model": "toy", "prompt": "a", "raw": true, "options": {"num_predict": 2}})")
                .status,
            200);
  EXPECT_EQ(Call("POST", "/api/generate", "{").status, 400);
  EXPECT_EQ(Call("POST", "/tandem/v1/generate",
                 R"({"tokens": {"ids": [1]}, "limits": {"maxTokens": 2, "ignoreEos": true}})")
                .status,
            200);
  EXPECT_EQ(Call("POST", "/tandem/v1/generate", R"({"no such field": 1})").status, 400);
  EXPECT_EQ(Call("POST", "/tandem/v1/generate", R"({"model": "another"})").status, 404);
  // REST's refusals are counted just after their answers.
  const std::string refusals = "tandem_requests_total{api=\"rest\",outcome=\"refused\"} 2\n";
  std::string page;
  EXPECT_TRUE(tandem::testing::Eventually([&] {
    page = Page();
    return page.find(refusals) != std::string::npos;
  }));
  for (const char* api : {"grpc", "rest", "openai"}) {
    EXPECT_THAT(page, HasSubstr(std::string("tandem_requests_total{api=\"") + api +
                                "\",outcome=\"length\"} 1\n"));
  }
  EXPECT_THAT(page, HasSubstr("tandem_requests_total{api=\"grpc\",outcome=\"refused\"} 1\n"));
  EXPECT_THAT(page, HasSubstr(refusals));
  EXPECT_THAT(page, HasSubstr("tandem_requests_total{api=\"openai\",outcome=\"refused\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tandem_requests_total{api=\"ollama\",outcome=\"refused\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tandem_request_errors_total{api=\"rest\",code=\"not_found\"} 1\n"));
  EXPECT_THAT(page,
              HasSubstr("tandem_request_errors_total{api=\"rest\",code=\"invalid_argument\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tandem_http_requests_total{route=\"/v1/completions\","
                              "status=\"200\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tandem_gateway_ready 1\n"));
  EXPECT_THAT(page, HasSubstr("tandem_placement_info{worker=\"toy0\",device=\"none\","));
  EXPECT_THAT(page, HasSubstr("tandem_http_connections "));
  EXPECT_THAT(page, HasSubstr("process_cpu_seconds_total "));
}

TEST_F(MetricsPageTest, UsageIsCountedByTheNameOfTheKey) {
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Call("POST", "/v1/completions", kOpenAiBody).status, 200);
  EXPECT_EQ(Call("POST", "/tandem/v1/generate",
                 R"({"tokens": {"ids": [1, 2, 1]}, "limits": {"maxTokens": 4, "ignoreEos": true}})")
                .status,
            200);
  EXPECT_EQ(Call("GET", "/v1/models").status, 200);
  EXPECT_EQ(Call("POST", "/v1/completions", kOpenAiBody, "").status, 401);
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("tandem_key_requests_total{key=\"tester\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("tandem_key_requests_running{key=\"tester\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("tandem_key_tokens_total{key=\"tester\",kind=\"completion\"} 14\n"));
  EXPECT_THAT(page, HasSubstr("tandem_key_requests_rejected_total{key=\"tester\","
                              "limit=\"concurrency\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("tandem_key_unknown_total 1\n"));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
}

TEST(KeyMetricsTest, KeysBeyondTheFirstHundredAreCountedTogether) {
  std::string file;
  for (int i = 0; i < 120; ++i) {
    file += absl::StrFormat("%s sha256:%064x\n", i == 7 ? "other" : absl::StrFormat("k%d", i), i);
  }
  const auto keys = ApiKeys::Parse(file);
  ASSERT_TRUE(keys.ok()) << keys.status();
  const std::string page =
      MetricsText([&](MetricSamples& samples) { AddKeyMetrics(**keys, samples); });
  EXPECT_THAT(page, HasSubstr("tandem_key_requests_total{key=\"k0\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("tandem_key_requests_total{key=\"k100\"} 0\n"));
  EXPECT_THAT(page, Not(HasSubstr("key=\"k101\"")));
  const std::string other = "tandem_key_requests_total{key=\"other\"}";
  ASSERT_THAT(page, HasSubstr(other));
  EXPECT_EQ(page.find(other), page.rfind(other)) << "a key of that name is one of them";
}

TEST_F(MetricsPageTest, ThePageIsForThisMachineOrHoldersOfAKey) {
  EXPECT_EQ(Call("GET", "/metrics", "", "").status, 200);
  EXPECT_EQ(Call("HEAD", "/metrics", "", "").status, 200);
  // A request that a proxy on this machine forwards does not count as from this machine.
  for (const char* header :
       {"X-Forwarded-For: 203.0.113.7\r\n", "Forwarded: for=_x\r\n", "Via: 1.1 somewhere\r\n"}) {
    EXPECT_EQ(Call("GET", "/metrics", "", header).status, 401) << header;
    EXPECT_EQ(Call("GET", "/metrics", "", std::string(header) + kHeaders).status, 200) << header;
  }
}

TEST_F(MetricsPageTest, AKeySeesItsOwnFiguresAndAnAdminsKeySeesAll) {
  const auto page = [this](const std::string& key) {
    return Call("GET", "/metrics", "", "Via: 1.1 x\r\nAuthorization: Bearer " + key + "\r\n").body;
  };
  const std::string own = "tandem_key_requests_total{key=\"one\"}";
  const std::string others = "tandem_key_requests_total{key=\"tester\"}";
  EXPECT_THAT(page("one"), HasSubstr(own));
  EXPECT_THAT(page("one"), Not(HasSubstr("tester")));
  EXPECT_THAT(page("one"), HasSubstr("tandem_steps_total"));
  for (const std::string& all : {page("two"), Page()}) {
    EXPECT_THAT(all, HasSubstr(own));
    EXPECT_THAT(all, HasSubstr(others));
  }
}

TEST_F(MetricsPageTest, WithoutKeysThePageIsForThisMachineAlone) {
  HttpRouter router;
  ASSERT_TRUE(AddMetricsRoute(router, GatewayPage(meters_, *launcher_, "test")).ok());
  auto server = HttpServer::Start({.listen = "127.0.0.1:0"}, std::move(router));
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  EXPECT_EQ(HttpTestClient(port).Call("GET", "/metrics").status, 200);
  EXPECT_EQ(HttpTestClient(port).Call("GET", "/metrics", "", "Via: 1.1 somewhere\r\n").status, 403);
}

// All that a client can choose: paths, methods, models, keys, ids, user agents, forwarded names.
TEST_F(MetricsPageTest, NothingThatClientsSendAddsASeries) {
  std::mt19937 random(7);
  const auto word = [&random] {
    std::string text;
    for (uint32_t i = 0, n = 1 + random() % 24; i < n; ++i) {
      text += static_cast<char>('a' + random() % 26);
    }
    return text;
  };
  const auto hammer = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      const std::string headers =
          std::string(kHeaders) + "X-Request-Id: " + word() + "\r\nUser-Agent: " + word() + "\r\n";
      EXPECT_EQ(Call("GET", "/" + word() + "/" + word(), "", headers).status, 404);
      EXPECT_EQ(Call("GET", "/v1/models/" + word(), "", headers).status, 404);
      EXPECT_EQ(
          Call("POST", "/v1/completions", R"({"prompt": "a", "model": ")" + word() + "\"}", headers)
              .status,
          404);
      EXPECT_EQ(Call("POST", "/v1/" + word(), "{}", headers).status, 404);
      EXPECT_EQ(Call(word(), "/v1/models", "", headers).status, 405);
      EXPECT_EQ(Call("GET", "/v1/models?" + word(), "", "Authorization: Bearer " + word() + "\r\n")
                    .status,
                401);
      EXPECT_EQ(Call("GET", "/metrics?" + word(), "", "X-Forwarded-For: " + word() + "\r\n").status,
                401);
      v1::GenerateRequest request;
      request.set_model(word());
      EXPECT_FALSE(Generate(request).status.ok());
      request.clear_model();
      request.set_request_id(word());
      request.mutable_tokens()->add_ids(testing::kToyBos);
      request.mutable_limits()->set_max_tokens(1 + random() % 3);
      EXPECT_TRUE(Generate(request).status.ok());
    }
  };
  hammer(1);
  Page();  // this request shows on the next page
  const size_t before = NumSeries(Page());
  EXPECT_GT(before, 100u);
  hammer(40);
  const std::string page = Page();
  EXPECT_EQ(NumSeries(page), before) << page;
}

}  // namespace
}  // namespace tandem::gateway

// The public API over gRPC and REST, with the toy model behind both.
#pragma once

#include <memory>
#include <utility>

#include "services/gateway/grpc/testing/service_fixture.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/http/testing/http_test_client.h"
#include "services/gateway/rest/health_routes.h"
#include "services/gateway/rest/rest_routes.h"

namespace tandem::gateway::testing {

class RestFixture : public ServiceFixture {
 protected:
  void StartRest(const FakeExecutorOptions& fake = {}, HttpServerOptions options = {}) {
    Start(fake);
    options.listen = "127.0.0.1:0";
    HttpRouter router;
    ASSERT_TRUE(AddHealthRoutes(router, *launcher_, /*api_keys=*/false).ok());
    const auto& service = *v1::GenerateRequest::descriptor()->file()->service(0);
    ASSERT_TRUE(AddRestRoutes(router, service, service_->methods()).ok());
    auto http = HttpServer::Start(options, std::move(router));
    ASSERT_TRUE(http.ok()) << http.status();
    http_ = *std::move(http);
  }
  void TearDown() override {
    launcher_->EndRequests();
    if (http_ != nullptr) http_->Shutdown(absl::Seconds(1));
    ServiceFixture::TearDown();
  }
  HttpTestClient Connect() const { return HttpTestClient(http_->port()); }

  std::unique_ptr<HttpServer> http_;
};

}  // namespace tandem::gateway::testing

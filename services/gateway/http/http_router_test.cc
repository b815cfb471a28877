#include "services/gateway/http/http_router.h"

#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

HttpRoute Route(const char* method, const char* path) { return {method, path, nullptr}; }

TEST(HttpRouterTest, TheMostSpecificRouteAnswers) {
  HttpRouter router;
  for (const char* path :
       {"/**", "/v1/{model=**}", "/v1/{model=**}:generate", "/v1/models", "/v1/models/{id}"}) {
    ASSERT_TRUE(router.Add(Route("GET", path)).ok()) << path;
  }
  const auto found = [&router](const char* path) {
    return router.Find("GET", path).route->path_template;
  };
  EXPECT_EQ(found("/"), "/**");
  EXPECT_EQ(found("/v1/models"), "/v1/models");
  EXPECT_EQ(found("/v1/models/a"), "/v1/models/{id}");
  EXPECT_EQ(found("/v1/a/b"), "/v1/{model=**}");
  EXPECT_EQ(found("/v1/a/b:generate"), "/v1/{model=**}:generate");
  EXPECT_EQ(router.Find("GET", "/v1/a/b:generate").variables[0].second, "a/b");
}

TEST(HttpRouterTest, AMethodThatIsNotThereLeavesTheLessSpecificRoutes) {
  HttpRouter router;
  ASSERT_TRUE(router.Add(Route("POST", "/v1/a")).ok());
  ASSERT_TRUE(router.Add(Route("GET", "/v1/{name}")).ok());
  EXPECT_EQ(router.Find("GET", "/v1/a").route->path_template, "/v1/{name}");
  EXPECT_EQ(router.Find("HEAD", "/v1/a").route->method, "GET");
  const auto none = router.Find("PUT", "/v1/a");
  EXPECT_EQ(none.route, nullptr);
  EXPECT_EQ(none.allow, "GET, HEAD, OPTIONS, POST");
  EXPECT_EQ(router.Find("GET", "/v2").allow, "");
}

TEST(HttpRouterTest, ASlashAtTheEndIsOverlookedWhereNothingWantsIt) {
  HttpRouter router;
  for (const char* path : {"/", "/v1/chat", "/v1/models/{name=**}"}) {
    ASSERT_TRUE(router.Add(Route("POST", path)).ok()) << path;
  }
  EXPECT_EQ(router.Find("POST", "/v1/chat/").route->path_template, "/v1/chat");
  EXPECT_EQ(router.Find("GET", "/v1/chat/").allow, "OPTIONS, POST");
  EXPECT_EQ(router.Find("POST", "/v1/chat//").route, nullptr);
  EXPECT_EQ(router.Find("POST", "/v1/models/a/").variables[0].second, "a/");
  EXPECT_EQ(router.Find("POST", "/").route->path_template, "/");
  EXPECT_EQ(router.Find("POST", "//").route->path_template, "/");
  EXPECT_EQ(router.Find("POST", std::string(16000, '/')).route, nullptr);
}

TEST(HttpRouterTest, RefusesTemplatesThatAreWrongOrThereAlready) {
  HttpRouter router;
  ASSERT_TRUE(router.Add(Route("GET", "/v1/{a}")).ok());
  EXPECT_EQ(router.Add(Route("GET", "/v1/{b=*}")).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(router.Add(Route("GET", "v1")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(router.Add(Route("POST", "/v1/{b}")).ok());
}

TEST(HttpRouterTest, TheLongestPrefixWritesErrors) {
  HttpRouter router;
  const auto writer = [](const char* text) {
    return [text](const HttpFailure&) { return HttpResponse{.body = text}; };
  };
  router.SetErrorFormat("/v1/", writer("short"));
  router.SetErrorFormat("/v1/chat/", writer("long"));
  const HttpFailure failure = FailureOf(absl::NotFoundError("x"));
  EXPECT_EQ(router.Format("/v1/chat/x", failure).body, "long");
  EXPECT_EQ(router.Format("/v1/y", failure).body, "short");
  EXPECT_EQ(router.Format("/v1", failure).body, "short");
  EXPECT_EQ(router.Format("/v1x", failure).body, R"({"code":5,"message":"x","details":[]})");
  EXPECT_EQ(router.Format("/", failure).body, R"({"code":5,"message":"x","details":[]})");
}

}  // namespace
}  // namespace tandem::gateway

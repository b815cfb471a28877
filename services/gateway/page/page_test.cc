#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <regex>
#include <string>

#include "services/gateway/http/http_server.h"
#include "services/gateway/http/testing/http_test_client.h"
#include "services/gateway/page/page_routes.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HttpRouter router;
    ASSERT_TRUE(AddPageRoutes(router).ok());
    auto server = HttpServer::Start({.listen = "127.0.0.1:0"}, std::move(router));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  static std::string File(std::string_view name) {
    for (const PageFile& file : PageFiles()) {
      if (file.name == name) return std::string(file.bytes);
    }
    return "";
  }
  std::unique_ptr<HttpServer> server_;
};

TEST_F(PageTest, TheRootIsThePageAndAllThatItNamesIsThere) {
  testing::HttpTestClient client(server_->port());
  const auto root = client.Call("GET", "/");
  EXPECT_EQ(root.status, 200);
  EXPECT_EQ(root.body, File("index.html"));
  const std::regex reference("(?:src|href)=\"(page/[^\"]+)\"");
  int num_references = 0;
  for (std::sregex_iterator it(root.body.begin(), root.body.end(), reference), end; it != end;
       ++it) {
    EXPECT_EQ(client.Call("GET", "/" + (*it)[1].str()).status, 200) << (*it)[1];
    ++num_references;
  }
  EXPECT_GE(num_references, 4);
  EXPECT_EQ(client.Call("GET", "/page/none.js").status, 404);
}

TEST_F(PageTest, NothingMayComeFromElsewhereOrBeParsedFromText) {
  testing::HttpTestClient client(server_->port());
  const auto root = client.Call("GET", "/");
  const std::string policy = root.Header("content-security-policy");
  for (const char* rule : {"default-src 'none'", "script-src 'self'", "connect-src 'self'",
                           "frame-ancestors 'none'", "trusted-types 'none'"}) {
    EXPECT_THAT(policy, HasSubstr(rule));
  }
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  for (const PageFile& file : PageFiles()) {
    const std::string text(file.bytes);
    for (const char* parses : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                               "eval(", "new Function"}) {
      EXPECT_THAT(text, Not(HasSubstr(parses))) << file.name;
    }
  }
}

TEST_F(PageTest, AFileThatHasNotChangedIsNotSentAgain) {
  testing::HttpTestClient client(server_->port());
  const auto first = client.Call("GET", "/page/app.js");
  ASSERT_EQ(first.status, 200);
  EXPECT_THAT(first.Header("content-type"), HasSubstr("text/javascript"));
  // The connection's end is where the answer ends, were there a body.
  const auto again =
      client.Call("GET", "/page/app.js", "",
                  "Connection: close\r\nIf-None-Match: " + first.Header("etag") + "\r\n");
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
}

}  // namespace
}  // namespace tandem::gateway

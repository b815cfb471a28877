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
                           "font-src 'self'", "frame-ancestors 'none'", "trusted-types 'none'"}) {
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

TEST_F(PageTest, FilesAreCompressedForThoseWhoAsk) {
  testing::HttpTestClient client(server_->port());
  const auto plain = client.Call("GET", "/page/app.js");
  const auto packed =
      client.Call("GET", "/page/app.js", "", "Accept-Encoding: deflate, gzip;q=0.8\r\n");
  EXPECT_EQ(plain.body, File("app.js"));
  EXPECT_EQ(plain.Header("content-encoding"), "");
  EXPECT_EQ(packed.status, 200);
  EXPECT_EQ(packed.Header("content-encoding"), "gzip");
  EXPECT_EQ(packed.Header("vary"), "Accept-Encoding");
  EXPECT_EQ(packed.body.substr(0, 3), "\x1f\x8b\x08");
  EXPECT_EQ(packed.body.substr(4, 4), std::string(4, '\0')) << "the time of the build is not in it";
  EXPECT_LT(packed.body.size(), plain.body.size());
  EXPECT_NE(packed.Header("etag"), plain.Header("etag"));
  EXPECT_EQ(client.Call("GET", "/page/app.js", "", "Accept-Encoding: gzip;q=0\r\n").body,
            plain.body);
  const auto font =
      client.Call("GET", "/page/KaTeX_Main-Regular.woff2", "", "Accept-Encoding: gzip\r\n");
  EXPECT_EQ(font.Header("content-type"), "font/woff2");
  EXPECT_EQ(font.Header("content-encoding"), "") << "fonts are compressed already";
}

TEST_F(PageTest, LicencesOfTheLibrariesAreServed) {
  const std::string licences = File("licences.txt");
  for (const char* library : {"katex 0", "markdown-it 15", "entities", "linkify-it"}) {
    EXPECT_THAT(licences, HasSubstr(library));
  }
}

}  // namespace
}  // namespace tandem::gateway

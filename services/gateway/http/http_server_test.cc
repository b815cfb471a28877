// The server's ordinary life: answers, streams, keep-alive, access.
#include "services/gateway/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "services/gateway/http/testing/http_server_fixture.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;
using testing::HttpServerFixture;
using testing::HttpTestClient;
using testing::HttpTestResponse;
using ::testing::MatchesRegex;

class HttpServerTest : public HttpServerFixture {};

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  StartServer();
  HttpTestClient client = Connect();
  for (int i = 0; i < 3; ++i) {
    const HttpTestResponse response = client.Call("POST", "/echo?q=1", "hello");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /echo q=1 hello");
    EXPECT_EQ(response.Header("connection"), "");
    EXPECT_THAT(response.Header("x-request-id"), MatchesRegex("[0-9a-f]{16}"));
    EXPECT_THAT(response.Header("date"), HasSubstr("GMT"));
  }
  EXPECT_EQ(client.Call("GET", "/echo", "", "X-Request-Id: a-1\r\n").Header("x-request-id"), "a-1");
  EXPECT_NE(client.Call("GET", "/echo", "", "X-Request-Id: a b\r\n").Header("x-request-id"), "a b");
}

TEST_F(HttpServerTest, GoesOnWithTheClientsTraceOrBeginsOne) {
  StartServer();
  HttpTestClient client = Connect();
  const auto traceparent = [&client](const std::string& headers) {
    return client.Call("GET", "/echo", "", headers).Header("traceparent");
  };
  const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-";
  const std::string header = "Traceparent: " + trace + "00f067aa0ba902b7-01\r\n";
  EXPECT_THAT(traceparent(header), MatchesRegex(trace + "[0-9a-f]{16}-01"));
  EXPECT_NE(traceparent(header), trace + "00f067aa0ba902b7-01") << "the request's own span";
  for (const std::string& none :
       {std::string(), std::string("traceparent: 00-xyz\r\n"), header + header}) {
    EXPECT_THAT(traceparent(none), MatchesRegex("00-[0-9a-f]{32}-[0-9a-f]{16}-00"));
    EXPECT_NE(traceparent(none).substr(0, trace.size()), trace);
  }
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  StartServer();
  HttpTestClient client = Connect();
  client.Send(
      "GET /echo?1 HTTP/1.1\r\nHost: h\r\n\r\n"
      "POST /echo?2 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab"
      "\r\n"
      "POST /later?3 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "1;x=y\r\na\r\n2\r\nbc\r\n0\r\nTrailer: t\r\n\r\n"
      "GET /echo?4 HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.Read().body, "GET /echo 1 ");
  EXPECT_EQ(client.Read().body, "POST /echo 2 ab");
  EXPECT_EQ(client.Read().body, "POST /later 3 abc");
  EXPECT_EQ(client.Read().body, "GET /echo 4 ");
}

TEST_F(HttpServerTest, TakesRequestsByteByByte) {
  StartServer();
  HttpTestClient client = Connect();
  for (const char c : std::string("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
                                  "\r\n3\r\nabc\r\n0\r\n\r\n")) {
    client.Send(std::string(1, c));
  }
  EXPECT_EQ(client.Read().body, "POST /echo  abc");
}

TEST_F(HttpServerTest, HeadHasNoBodyButItsLength) {
  StartServer();
  HttpTestClient client = Connect();
  const HttpTestResponse head = client.Call("HEAD", "/echo");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.Header("content-length"), "12");
  EXPECT_EQ(client.Call("HEAD", "/count?3").Header("transfer-encoding"), "chunked");
  EXPECT_EQ(client.Call("GET", "/echo").body, "GET /echo  ");
}

TEST_F(HttpServerTest, SpeaksHttp10) {
  StartServer();
  HttpTestClient client = Connect();
  client.Send("GET /count?3 HTTP/1.0\r\n\r\n");
  const HttpTestResponse response = client.Read();
  EXPECT_EQ(response.Header("connection"), "close");
  EXPECT_EQ(response.Header("transfer-encoding"), "");
  EXPECT_EQ(response.body, "0\n1\n2\n");
  HttpTestClient keeping = Connect();
  keeping.Send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(keeping.Read().Header("connection"), "keep-alive");
  keeping.Send("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_EQ(keeping.Read().Header("connection"), "close");
  EXPECT_EQ(keeping.ReadUntilClosed(), "");
}

TEST_F(HttpServerTest, StreamsPieceByPiece) {
  StartServer();
  HttpTestClient client = Connect();
  const HttpTestResponse response = client.Call("GET", "/count?1000");
  EXPECT_TRUE(response.complete);
  std::string expected;
  for (int i = 0; i < 1000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_EQ(response.body, expected);
  EXPECT_EQ(client.Call("GET", "/echo").status, 200) << "the connection goes on";
}

TEST_F(HttpServerTest, KeepAliveCommentsFillSilence) {
  StartServer();
  HttpTestClient client = Connect();
  client.Request("GET", "/silent");
  EXPECT_EQ(client.ReadHead().Header("content-type"), "text/event-stream");
  EXPECT_EQ(client.ReadChunk(), ": still here\n\n");
  EXPECT_EQ(client.ReadChunk(), ": still here\n\n");
  TakeSilent()->End();
  std::optional<std::string> chunk = client.ReadChunk();
  while (chunk == ": still here\n\n") chunk = client.ReadChunk();
  EXPECT_EQ(chunk, "");
}

TEST_F(HttpServerTest, AFailureBeforeTheFirstByteOfAStreamIsAPlainResponse) {
  StartServer();
  HttpTestClient client = Connect();
  client.Request("GET", "/held");
  const auto responder = TakeHeld();
  responder->BeginStream({});
  EXPECT_TRUE(responder->SendStatus(absl::ResourceExhaustedError("full")));
  const HttpTestResponse response = client.Read();
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.Header("retry-after"), "1");
  EXPECT_EQ(response.body, R"({"code":8,"message":"full","details":[]})");
  client.Request("GET", "/held");
  const auto streaming = TakeHeld();
  streaming->BeginStream({});
  EXPECT_TRUE(streaming->Write("a"));
  EXPECT_FALSE(streaming->SendStatus(absl::InternalError("late")));
  streaming->End();
  EXPECT_FALSE(streaming->Write("b"));
  EXPECT_EQ(client.Read().body, "a");
}

TEST_F(HttpServerTest, ARequestGivenUpIsAnsweredAllTheSame) {
  StartServer();
  HttpTestClient client = Connect();
  client.Request("GET", "/held");
  TakeHeld().reset();
  EXPECT_EQ(client.Read().status, 500);
  client.Request("GET", "/held");
  {
    const auto responder = TakeHeld();
    responder->BeginStream({});
    responder->Write("half");
  }
  const HttpTestResponse cut = client.Read();
  EXPECT_EQ(cut.body, "half");
  EXPECT_FALSE(cut.complete);
}

TEST_F(HttpServerTest, RoutesByMethodAndPath) {
  StartServer();
  HttpTestClient client = Connect();
  EXPECT_EQ(client.Call("GET", "/models/a%2Fb").body, "model a/b");
  EXPECT_EQ(client.Call("GET", "/nowhere").status, 404);
  const HttpTestResponse wrong = client.Call("DELETE", "/models/a");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.Header("allow"), "GET, HEAD, OPTIONS");
  const HttpTestResponse options = client.Call("OPTIONS", "/models/a");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.Header("allow"), "GET, HEAD, OPTIONS");
  const HttpTestResponse special = client.Call("GET", "/special/none");
  EXPECT_EQ(special.status, 404);
  EXPECT_EQ(special.body, "special: 'GET /special/none': no such path");
}

TEST_F(HttpServerTest, OtherOriginsMustBeAllowed) {
  StartServer({.cors_origins = {"https://chat.example"}});
  HttpTestClient client = Connect();
  EXPECT_EQ(client.Call("GET", "/echo", "", "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(client.Call("GET", "/echo", "", "Origin: http://localhost\r\n").status, 200);
  EXPECT_EQ(client.Call("GET", "/echo", "", "Origin: null\r\n").status, 403);
  const HttpTestResponse allowed =
      client.Call("GET", "/echo", "", "Origin: https://chat.example\r\n");
  EXPECT_EQ(allowed.status, 200);
  EXPECT_EQ(allowed.Header("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(allowed.Header("vary"), "Origin");
  const HttpTestResponse preflight =
      client.Call("OPTIONS", "/echo", "",
                  "Origin: https://chat.example\r\nAccess-Control-Request-Method: POST\r\n"
                  "Access-Control-Request-Headers: authorization,content-type\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_THAT(preflight.Header("access-control-allow-methods"), HasSubstr("POST"));
  EXPECT_EQ(preflight.Header("access-control-allow-headers"), "authorization,content-type");
}

TEST_F(HttpServerTest, NamesThatAreNotItsOwnAreRefusedOnLoopback) {
  StartServer({.names = {"models.example"}});
  for (const auto& [host, status] : {std::pair{"localhost:80", 200},
                                     {"[::1]:8080", 200},
                                     {"127.0.0.1", 200},
                                     {"Models.Example:1", 200},
                                     {"api.localhost", 200},
                                     {"evil.example", 403},
                                     {"localhost.evil.example", 403},
                                     {"", 403}}) {
    HttpTestClient client = Connect();
    client.Send(absl::StrFormat("GET /echo HTTP/1.1\r\nHost: %s\r\n\r\n", host));
    EXPECT_EQ(client.Read().status, status) << host;
  }
}

TEST_F(HttpServerTest, KeysAreAskedForAndTheirLimitsKept) {
  // sha256 of "one" and "two".
  auto keys = ApiKeys::Parse(
      "# comment\n"
      "first sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed concurrency=1 "
      "tokens=10\n"
      "second sha256:3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3 "
      "requests=2\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  StartServer({.keys = *keys});
  HttpTestClient client = Connect();
  EXPECT_EQ(client.Call("GET", "/open").status, 200);
  const HttpTestResponse without = client.Call("GET", "/echo");
  EXPECT_EQ(without.status, 401);
  EXPECT_EQ(without.Header("www-authenticate"), "Bearer");
  EXPECT_EQ(client.Call("GET", "/echo", "", "Authorization: Bearer three\r\n").status, 401);
  // Before a body that has no key is read:
  HttpTestClient large = Connect();
  large.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(large.Read().status, 401);
  const char* two = "Authorization: bearer two\r\n";
  EXPECT_EQ(client.Call("POST", "/echo", "", two).status, 200);
  EXPECT_EQ(client.Call("POST", "/echo", "", "X-Api-Key: two\r\n").status, 200);
  const HttpTestResponse third = client.Call("POST", "/echo", "", two);
  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(third.Header("retry-after"), "30");
  EXPECT_EQ(client.Call("GET", "/echo", "", two).status, 200) << "looking costs nothing";
  // One at a time, and free again afterwards.
  const char* one = "Authorization: Bearer one\r\n";
  HttpTestClient other = Connect();
  other.Request("POST", "/held", "", one);
  const auto held = TakeHeld();
  EXPECT_EQ(client.Call("POST", "/echo", "", one).status, 429);
  held->Send({.body = "done"});
  EXPECT_EQ(other.Read().body, "done");
  EXPECT_EQ(client.Call("POST", "/charge?15", "", one).status, 200);
  const HttpTestResponse owing = client.Call("POST", "/echo", "", one);
  EXPECT_EQ(owing.status, 429);
  EXPECT_THAT(owing.body, HasSubstr("10 tokens a minute"));
}

TEST_F(HttpServerTest, AnAllowedPageOfAnotherOriginSeesThatAKeyIsMissing) {
  // sha256 of "one".
  const auto keys =
      ApiKeys::Parse("a sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  StartServer({.cors_origins = {"https://chat.example"}, .keys = *keys});
  HttpTestClient client = Connect();
  const std::string origin = "Origin: https://chat.example\r\n";
  const std::string asks = "Access-Control-Request-Method: POST\r\n";
  EXPECT_EQ(client.Call("OPTIONS", "/echo", "", origin + asks).status, 204)
      << "no key goes with it";
  const HttpTestResponse keyless = client.Call("POST", "/echo", "", origin);
  EXPECT_EQ(keyless.status, 401);
  EXPECT_EQ(keyless.Header("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(client.Call("POST", "/echo", "", origin + "Authorization: Bearer one\r\n").status, 200);
}

TEST_F(HttpServerTest, BodiesAreSentAndTakenAsTheyAre) {
  StartServer();
  HttpTestClient client = Connect();
  const HttpTestResponse plain = client.Call(
      "POST", "/echo", "x", "Accept-Encoding: gzip, br\r\nContent-Encoding: identity\r\n");
  EXPECT_EQ(plain.body, "POST /echo  x");
  EXPECT_EQ(plain.Header("content-encoding"), "");
  EXPECT_EQ(client.Call("POST", "/echo", "x", "Content-Encoding: gzip\r\n").status, 415);
}

TEST_F(HttpServerTest, DrainsAndEnds) {
  StartServer();
  HttpTestClient idle = Connect();
  EXPECT_EQ(idle.Call("GET", "/echo").status, 200);
  HttpTestClient busy = Connect();
  busy.Request("GET", "/held");
  const auto held = TakeHeld();
  server_->BeginDrain();
  EXPECT_EQ(idle.ReadUntilClosed(), "");
  HttpTestClient late = Connect();
  const HttpTestResponse response = late.Call("GET", "/echo");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.Header("connection"), "close");
  std::thread ending([&] { server_->Shutdown(absl::Seconds(20)); });
  held->Send({.body = "last"});
  EXPECT_EQ(busy.Read().body, "last");
  EXPECT_EQ(busy.ReadUntilClosed(), "");
  ending.join();
  EXPECT_EQ(server_->counts().connections, 0u);
}

TEST_F(HttpServerTest, ShutdownTellsHandlersThatTheirClientsAreGone) {
  StartServer();
  HttpTestClient client = Connect();
  client.Request("GET", "/held");
  const auto held = TakeHeld();
  bool gone = false;
  held->SetCallbacks([] {}, [&gone] { gone = true; });
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_TRUE(gone);
  EXPECT_TRUE(held->gone());
  EXPECT_FALSE(held->Send({}));
}

TEST_F(HttpServerTest, RefusesAddressesAndFilesThatAreWrong) {
  EXPECT_EQ(HttpServer::Start({.listen = "nonsense"}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      HttpServer::Start({.listen = "127.0.0.1:0", .tls_certificate = "/none"}, {}).status().code(),
      absl::StatusCode::kInvalidArgument);
  StartServer();
  EXPECT_EQ(HttpServer::Start({.listen = "127.0.0.1:" + std::to_string(server_->port())}, {})
                .status()
                .code(),
            absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace tandem::gateway

// What clients do wrong, on purpose or not: FAULTS.md's requests against the real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/rpc/testing/certificates.h"
#include "services/common/testing/eventually.h"
#include "services/common/testing/temporary_directory.h"
#include "services/gateway/http/testing/http_server_fixture.h"

namespace tandem::gateway {
namespace {

using tandem::testing::Eventually;
using ::testing::HasSubstr;
using testing::HttpServerFixture;
using testing::HttpTestClient;
using testing::HttpTestResponse;

using HttpFaultsTest = HttpServerFixture;

TEST_F(HttpFaultsTest, AHeaderThatTakesTooLongIs408) {
  StartServer({.header_timeout = absl::Milliseconds(100)});
  HttpTestClient client = Connect();
  client.Send("GET /echo HTTP/1.1\r\nHost: h\r\nX-Slow: ");
  const HttpTestResponse response = client.Read();
  EXPECT_EQ(response.status, 408);
  EXPECT_EQ(response.Header("connection"), "close");
  EXPECT_EQ(client.ReadUntilClosed(), "");
}

TEST_F(HttpFaultsTest, AHeaderThatComesByteByByteIs408AllTheSame) {
  StartServer({.header_timeout = absl::Milliseconds(100)});
  HttpTestClient client = Connect();
  client.Send("GET /echo HTTP/1.1\r\nHost: h\r\n");
  const absl::Time begin = absl::Now();
  while (absl::Now() < begin + absl::Seconds(30) && client.TrySend("x")) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_LT(absl::Now(), begin + absl::Seconds(30));
  EXPECT_EQ(client.Read().status, 408);
}

TEST_F(HttpFaultsTest, ABodyThatTakesTooLongIs408) {
  StartServer({.body_timeout = absl::Milliseconds(100)});
  HttpTestClient client = Connect();
  client.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(client.Read().status, 408);
}

// Twenty answers of 16 MiB that nobody reads: memory for two.
TEST_F(HttpFaultsTest, WholeAnswersThatAreNotReadAreBoundedTogetherAndGiveWay) {
  constexpr size_t kAnswer = 16 << 20;
  const std::string target = absl::StrFormat("/large?%d", kAnswer);
  StartServer({.max_answers_bytes = 4 * kAnswer,
               .answer_stall = absl::Milliseconds(500),
               .idle_timeout = absl::Milliseconds(200)});
  EXPECT_EQ(Connect().Call("GET", target).body.size(), kAnswer);
  const HttpTestResponse too_large =
      Connect().Call("GET", absl::StrFormat("/large?%d", 4 * kAnswer));
  EXPECT_EQ(too_large.status, 503);
  EXPECT_THAT(too_large.body, HasSubstr("no memory for an answer of 67108864 bytes"));
  std::deque<HttpTestClient> sleepers;
  for (int i = 0; i < 20; ++i) {
    sleepers.push_back(Connect());
    sleepers.back().Request("GET", target);
  }
  // Sleepers are refused when memory is used up; one that holds it makes room for a client that
  // reads.
  const absl::Time patience = absl::Now() + absl::Seconds(60);
  HttpTestResponse response;
  while (response.status != 200 && absl::Now() < patience) response = Connect().Call("GET", target);
  EXPECT_EQ(response.body.size(), kAnswer);
  int num_whole = 0;
  for (HttpTestClient& sleeper : sleepers) {
    if (sleeper.ReadUntilClosed().size() >= kAnswer) ++num_whole;
  }
  EXPECT_LE(num_whole, 2);
}

TEST_F(HttpFaultsTest, AnIdleConnectionIsClosed) {
  StartServer({.idle_timeout = absl::Milliseconds(100)});
  HttpTestClient client = Connect();
  EXPECT_EQ(client.Call("GET", "/echo").status, 200);
  EXPECT_EQ(client.ReadUntilClosed(), "");
}

TEST_F(HttpFaultsTest, ABodyOverTheLimitIs413BeforeItIsSent) {
  StartServer({.max_body_bytes = 1000});
  HttpTestClient declared = Connect();
  declared.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_EQ(declared.Read().status, 413);
  HttpTestClient chunked = Connect();
  chunked.Send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n");
  EXPECT_EQ(chunked.Read().status, 413);
  // One that sends all of it regardless still gets to read the answer.
  HttpTestClient eager = Connect();
  const std::string body(200000, 'x');
  eager.Request("POST", "/echo", body);
  EXPECT_EQ(eager.Read().status, 413);
}

TEST_F(HttpFaultsTest, BodiesTogetherAreBounded) {
  StartServer(
      {.max_body_bytes = 1000, .max_bodies_bytes = 2000, .body_stall = absl::InfiniteDuration()});
  HttpTestClient first = Connect();
  first.Send(
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(first.Read().status, 100);
  first.Send(std::string(900, 'a'));
  HttpTestClient second = Connect();
  HttpTestResponse refused;
  ASSERT_TRUE(Eventually([&] {  // the first one's bytes are on their way
    second = Connect();
    refused = second.Call("POST", "/echo", std::string(900, 'b'));
    return refused.status != 200;
  }));
  EXPECT_EQ(refused.status, 503);
  first.Send(std::string(100, 'a'));
  EXPECT_EQ(first.Read().status, 200);
  // The server counts the first one's bytes until it has sent its answer.
  ASSERT_TRUE(Eventually(
      [&] { return Connect().Call("POST", "/echo", std::string(800, 'b')).status == 200; }));
}

TEST_F(HttpFaultsTest, AClientThatLeavesWithinItsBodyGivesItsMemoryBack) {
  StartServer({.max_body_bytes = 1000, .max_bodies_bytes = 2000});
  for (int i = 0; i < 20; ++i) {
    HttpTestClient leaving = Connect();
    leaving.Send(
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n");
    ASSERT_EQ(leaving.Read().status, 100);
    leaving.Send(std::string(900, 'a'));
    leaving.ShutdownWrite();
    leaving.ReadUntilClosed();
  }
  EXPECT_EQ(Connect().Call("POST", "/echo", std::string(1000, 'b')).status, 200);
}

TEST_F(HttpFaultsTest, BodiesThatStandStillMakeRoomForOthers) {
  StartServer({.max_body_bytes = 1 << 20,
               .max_bodies_bytes = 2 << 20,
               .body_stall = absl::Milliseconds(100)});
  std::deque<HttpTestClient> slow;
  for (int i = 0; i < 16; ++i) {
    slow.push_back(Connect());
    slow.back().Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n");
    slow.back().TrySend(std::string((1 << 20) - 1, 'a'));
  }
  EXPECT_EQ(Connect().Call("POST", "/echo", std::string(1000, 'b')).status, 200)
      << "small bodies have a reserve";
  HttpTestResponse large;
  ASSERT_TRUE(Eventually([&] {  // until those who hold the memory have stood still for long enough
    large = Connect().Call("POST", "/echo", std::string(1 << 20, 'b'));
    return large.status == 200;
  }));
  EXPECT_GT(large.body.size(), size_t{1} << 20);
}

TEST_F(HttpFaultsTest, WorkIsCancelledWithItsClient) {
  StartServer();
  HttpTestClient client = Connect();
  client.Request("POST", "/work", "body");
  ASSERT_TRUE(Eventually([this] { return num_working_ == 1; }));
  EXPECT_EQ(num_cancelled_, 0);
  client.Close();
  ASSERT_TRUE(Eventually([this] { return num_cancelled_ == 1; }));
}

TEST_F(HttpFaultsTest, WorkDoesNotOutlastTheServer) {
  StartServer();
  std::deque<HttpTestClient> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(Connect());
    clients.back().Request("POST", "/work", "body");
  }
  ASSERT_TRUE(Eventually([this] { return num_working_ == 4; }));
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(num_cancelled_, num_working_);
}

TEST_F(HttpFaultsTest, BadFramingIsRefusedAndTheConnectionEnds) {
  StartServer();
  for (const auto& [bytes, status] : std::vector<std::pair<std::string, int>>{
           {"GET / HTTP/1.1\r\n\r\n", 400},
           {"nonsense\r\n\r\n", 400},
           {"GET / HTTP/3.0\r\nHost: h\r\n\r\n", 505},
           {"GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(20000, 'x') + "\r\n\r\n", 431},
           {"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
           {"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nab\r\n", 400},
           {"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: " +
                std::string(20000, 'x'),
            431},
           {"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501}}) {
    HttpTestClient client = Connect();
    client.TrySend(bytes);
    EXPECT_EQ(client.Read().status, status) << bytes.substr(0, 60);
    EXPECT_EQ(client.ReadUntilClosed(), "");
  }
  // A request hidden behind a bad one is not answered.
  HttpTestClient smuggler = Connect();
  smuggler.Send(
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
      "0\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(smuggler.Read().status, 400);
  EXPECT_EQ(smuggler.ReadUntilClosed(), "");
}

TEST_F(HttpFaultsTest, TrailersInPiecesAreReadOrRefused) {
  StartServer();
  const std::string head = "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const auto& [body, status] :
       {std::pair{"0\r\na: b\r\n\r\n", 200}, {"0\r\nabc\r\n0rter-.0\r\n\r\n", 400}}) {
    HttpTestClient client = Connect();
    client.Send(head);
    for (const char c : std::string(body)) client.TrySend(std::string(1, c));
    EXPECT_EQ(client.Read().status, status) << body;
  }
  EXPECT_EQ(Connect().Call("GET", "/echo").status, 200);
}

TEST_F(HttpFaultsTest, ABodyOverTheLimitIsRefusedAsItsPathDoes) {
  StartServer({.max_body_bytes = 1000});
  HttpTestClient client = Connect();
  client.Send("POST /special/a HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n");
  const HttpTestResponse response = client.Read();
  EXPECT_EQ(response.status, 413);
  EXPECT_EQ(response.body, "special: the body is too long");
}

TEST_F(HttpFaultsTest, AReaderThatFallsBehindIsCutOffWithinItsBound) {
  StartServer({.max_unsent_bytes = 256 << 10});
  HttpTestClient client = Connect();
  client.Request("GET", "/held");
  const auto responder = TakeHeld();
  std::atomic<bool> gone = false;
  responder->BeginStream({});
  responder->SetCallbacks([] {}, [&gone] { gone = true; });
  // A handler that writes without waiting: the kernel's buffers fill, then ours, then it ends.
  const std::string piece(16 << 10, 'x');
  size_t written = 0;
  while (responder->Write(piece)) {
    written += piece.size();
    ASSERT_LT(written, size_t{256} << 20);
  }
  ASSERT_TRUE(Eventually([&gone] { return gone.load(); }));
  EXPECT_TRUE(responder->gone());
  ASSERT_TRUE(Eventually([this] { return server_->counts().requests == 0; }));
}

TEST_F(HttpFaultsTest, APieceAboveTheLimitArrivesWholeAtAReaderThatReads) {
  constexpr size_t kPiece = 2 << 20;
  StartServer({.max_unsent_bytes = 1 << 20, .max_answers_bytes = 16 << 20});
  HttpTestClient client = Connect();
  client.Request("GET", "/held");
  const auto responder = TakeHeld();
  std::atomic<int> pieces = 0;
  std::atomic<bool> refused = false;
  responder->BeginStream({});
  // More pieces than memory for answers: what was sent gives its memory back.
  responder->SetCallbacks(
      [&pieces, &refused, responder] {
        if (++pieces == 12) return responder->End();
        if (!responder->Write(std::string(kPiece, 'x'))) refused = true;
      },
      [] {});
  EXPECT_TRUE(responder->Write(std::string(kPiece, 'x')));
  const HttpTestResponse response = client.Read();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body.size(), 12 * kPiece);
  EXPECT_FALSE(refused);
}

TEST_F(HttpFaultsTest, APieceAboveTheLimitArrivesAfterAKeepAliveThatIsUnread) {
  StartServer({.max_unsent_bytes = 1 << 20});
  HttpTestClient client = Connect();
  client.Request("GET", "/silent");
  const auto responder = TakeSilent();
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_TRUE(responder->Write("begun"));  // perhaps unsent when the next one comes
  EXPECT_TRUE(responder->Write(std::string(2 << 20, 'x')));
  responder->End();
  size_t bytes = 0;
  for (auto chunk = client.ReadChunk(); chunk.has_value() && !chunk->empty();
       chunk = client.ReadChunk()) {
    bytes += static_cast<size_t>(std::count(chunk->begin(), chunk->end(), 'x'));
  }
  EXPECT_EQ(bytes, size_t{2} << 20);
}

TEST_F(HttpFaultsTest, AReaderThatLeavesALargePieceUnreadIsCutAtTheNext) {
  StartServer({.max_unsent_bytes = 1 << 20});
  HttpTestClient client = Connect();
  client.Request("GET", "/held");
  const auto responder = TakeHeld();
  std::atomic<bool> gone = false;
  responder->BeginStream({});
  responder->SetCallbacks([] {}, [&gone] { gone = true; });
  EXPECT_TRUE(responder->Write(std::string(64 << 20, 'x')));
  EXPECT_FALSE(responder->Write("more"));
  EXPECT_TRUE(Eventually([&gone] { return gone.load(); }));
}

TEST_F(HttpFaultsTest, LargePiecesThatAreNotReadAreBoundedTogether) {
  constexpr size_t kPiece = 16 << 20;
  StartServer({.max_answers_bytes = 4 * kPiece, .answer_stall = absl::InfiniteDuration()});
  std::deque<HttpTestClient> clients;
  std::vector<std::shared_ptr<HttpResponder>> responders;
  int num_taken = 0;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(Connect());
    clients.back().Request("GET", "/held");
    responders.push_back(TakeHeld());
    responders.back()->BeginStream({});
    if (responders.back()->Write(std::string(kPiece, 'x'))) ++num_taken;
  }
  EXPECT_GE(num_taken, 1);
  EXPECT_LT(num_taken, 4);
}

TEST_F(HttpFaultsTest, AReaderThatStandsStillHoldsBackItsOwnStreamAndEndsInTime) {
  StartServer({.write_timeout = absl::Milliseconds(200)});
  HttpTestClient client = Connect();
  client.Request("GET", "/held");
  const auto responder = TakeHeld();
  std::atomic<bool> gone = false;
  std::atomic<int> pieces = 0;
  const std::string piece(64 << 10, 'x');
  responder->BeginStream({});
  responder->SetCallbacks(
      [&] {
        ++pieces;
        responder->Write(piece);
      },
      [&gone] { gone = true; });
  responder->Write(piece);
  // Others are served meanwhile.
  HttpTestClient other = Connect();
  EXPECT_EQ(other.Call("GET", "/echo").status, 200);
  ASSERT_TRUE(Eventually([&gone] { return gone.load(); }));
  EXPECT_LT(pieces, 1000) << "64 MiB must not fit anywhere";
}

TEST_F(HttpFaultsTest, AClientThatGoesIsNoticedAtOnce) {
  StartServer();
  for (const bool streaming : {false, true}) {
    HttpTestClient client = Connect();
    client.Request("GET", "/held");
    const auto responder = TakeHeld();
    std::atomic<bool> gone = false;
    responder->SetCallbacks([] {}, [&gone] { gone = true; });
    if (streaming) {
      responder->BeginStream({});
      responder->Write("first");
      EXPECT_EQ(client.ReadHead().status, 200);
      EXPECT_EQ(client.ReadChunk(), "first");
    }
    EXPECT_FALSE(gone);
    client.Close();
    ASSERT_TRUE(Eventually([&gone] { return gone.load(); }));
    EXPECT_FALSE(responder->Write("more"));
    EXPECT_FALSE(responder->Send({}));
  }
}

TEST_F(HttpFaultsTest, CallbacksOfAClientThatHasGoneAreCalledAtOnce) {
  StartServer();
  HttpTestClient client = Connect();
  client.Request("GET", "/held");
  const auto responder = TakeHeld();
  client.Close();
  ASSERT_TRUE(Eventually([&] { return responder->gone(); }));
  bool gone = false;
  responder->SetCallbacks([] {}, [&gone] { gone = true; });
  EXPECT_TRUE(gone);
}

TEST_F(HttpFaultsTest, OverTheLimitIdleConnectionsMakeRoomAndBusyOnesDoNot) {
  StartServer({.max_connections = 3});
  HttpTestClient busy[3] = {Connect(), Connect(), Connect()};
  std::vector<std::shared_ptr<HttpResponder>> held;
  for (HttpTestClient& client : busy) {
    client.Request("GET", "/held");
    held.push_back(TakeHeld());
  }
  HttpTestClient refused = Connect();
  const HttpTestResponse response = refused.Read();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.Header("retry-after"), "1");
  for (size_t i = 0; i < 3; ++i) {
    held[i]->Send({});
    EXPECT_EQ(busy[i].Read().status, 200);
  }
  HttpTestClient next = Connect();
  EXPECT_EQ(next.Call("GET", "/echo").status, 200);
  EXPECT_EQ(busy[0].ReadUntilClosed(), "") << "idle longest";
}

TEST_F(HttpFaultsTest, ConnectionsWithUnfinishedHeadersMakeRoom) {
  StartServer({.max_connections = 8});
  HttpTestClient busy = Connect();
  busy.Request("GET", "/held");
  const auto held = TakeHeld();
  std::vector<HttpTestClient> unfinished;
  for (int i = 0; i < 200; ++i) {
    unfinished.emplace_back(server_->port());
    unfinished.back().Send("P");
    if (i % 20 != 0) continue;
    HttpTestClient victim(server_->port());
    EXPECT_EQ(victim.Call("GET", "/echo").status, 200) << i;
  }
  EXPECT_LE(server_->counts().connections, 8u + 32);
  held->Send({});
  EXPECT_EQ(busy.Read().status, 200) << "one with a request stays";
  unfinished.clear();
  ASSERT_TRUE(Eventually([this] { return server_->counts().connections <= 1; }));
}

TEST_F(HttpFaultsTest, AFloodOfUnfinishedHeadersClosesNoConnectionBetweenTwoRequests) {
  StartServer({.max_connections = 8});
  HttpTestClient victim = Connect();
  EXPECT_EQ(victim.Call("GET", "/echo").status, 200);
  std::vector<HttpTestClient> flood;
  for (int i = 0; i < 200; ++i) {
    flood.emplace_back(server_->port());
    flood.back().Send("G");
    if (i % 20 == 0) {
      ASSERT_EQ(victim.Call("GET", "/echo").status, 200) << i;
    }
  }
}

TEST_F(HttpFaultsTest, TwoThousandConnectionsAreServed) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit old = limit;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_GE(limit.rlim_cur, 4200u) << "2,000 connections have 4,000 ends";
  StartServer();
  std::vector<HttpTestClient> clients;
  for (int i = 0; i < 2000; ++i) {
    clients.push_back(Connect());
    clients.back().Request("GET", "/echo?" + std::to_string(i));
  }
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(clients[i].Read().body, "GET /echo " + std::to_string(i) + " ") << i;
  }
  EXPECT_EQ(server_->counts().connections, 2000u);
  clients.clear();
  ASSERT_TRUE(Eventually([this] { return server_->counts().connections == 0; }));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
}

TEST_F(HttpFaultsTest, DescriptorsUsedUpComeBack) {
  StartServer();
  HttpTestClient before = Connect();
  EXPECT_EQ(before.Call("GET", "/echo").status, 200);
  before.Request("GET", "/held");
  const auto held = TakeHeld();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit old = limit;
  HttpTestClient waiting(server_->port());
  EXPECT_EQ(waiting.Call("GET", "/echo").status, 200) << "accepted: no descriptor is still due";
  // Every descriptor is taken, and a connection waits in the kernel: accepting fails.
  const int highest = ::dup(waiting.fd());
  ::close(highest);
  limit.rlim_cur = static_cast<rlim_t>(highest) + 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<UniqueFd> taken;
  std::vector<HttpTestClient> more;
  while (true) {
    UniqueFd fd(::dup(waiting.fd()));
    if (!fd.valid()) break;
    taken.push_back(std::move(fd));
  }
  ASSERT_GE(taken.size(), 1u);
  taken.pop_back();
  more.emplace_back(server_->port());  // takes the last one: nothing is left to accept it with
  more.back().Request("GET", "/echo");
  // What there is goes on meanwhile.
  held->Send({.body = "still here"});
  EXPECT_EQ(before.Read().body, "still here");
  taken.clear();
  EXPECT_EQ(more.back().Read().status, 200);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  HttpTestClient after = Connect();
  EXPECT_EQ(after.Call("GET", "/echo").status, 200);
}

tandem::TlsFiles MakeCertificate(const std::string& folder) {
  return tandem::testing::CertificateAuthority(folder, "authority")
      .Issue("server", "DNS:localhost");
}

TEST_F(HttpFaultsTest, TlsServesHttpsAndSurvivesPlainText) {
  const TemporaryDirectory folder;
  const tandem::TlsFiles files = MakeCertificate(folder.path());
  StartServer({.tls_certificate = files.certificate, .tls_key = files.key});
  EXPECT_THAT(server_->url(), HasSubstr("https://"));
  HttpTestClient plain = Connect();
  plain.Request("GET", "/echo");
  plain.ReadUntilClosed();
  HttpTestClient socket = Connect();
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  ASSERT_EQ(SSL_CTX_load_verify_locations(context, files.ca.c_str(), nullptr), 1);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL* tls = SSL_new(context);
  SSL_set_fd(tls, socket.fd());
  ASSERT_EQ(SSL_connect(tls), 1);
  const std::string request =
      "GET /count?3 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(SSL_write(tls, request.data(), static_cast<int>(request.size())),
            static_cast<int>(request.size()));
  std::string answer;
  char bytes[4096];
  for (int got = 0; (got = SSL_read(tls, bytes, sizeof(bytes))) > 0;) {
    answer.append(bytes, static_cast<size_t>(got));
  }
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("2\r\n0\n\r\n2\r\n1\n\r\n2\r\n2\n\r\n0\r\n\r\n"));
  EXPECT_EQ(SSL_get_shutdown(tls) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN)
      << "the end is the server's, not somebody's who cut the wire";
  SSL_free(tls);
  SSL_CTX_free(context);
}

TEST_F(HttpFaultsTest, AHandshakeThatTakesTooLongIsCutOff) {
  const TemporaryDirectory folder;
  const tandem::TlsFiles files = MakeCertificate(folder.path());
  StartServer({.tls_certificate = files.certificate,
               .tls_key = files.key,
               .header_timeout = absl::Milliseconds(100)});
  HttpTestClient client = Connect();
  client.Send("\x16\x03\x01");
  EXPECT_EQ(client.ReadUntilClosed(), "");
}

}  // namespace
}  // namespace tandem::gateway

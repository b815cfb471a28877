// Framing: which requests are taken, which are refused and how, however they are split.
#include "services/gateway/http/request_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"

namespace tandem::gateway {
namespace {

using State = HttpRequestReader::State;

struct ReadOutcome {
  std::string requests;  // those that were whole, a line each
  int http_status = -1;  // of the failure; 0: all requests are whole; -1: more is needed
  std::string failure;
  size_t used = 0;

  bool operator==(const ReadOutcome&) const = default;
};

// Reads requests, to the end of `bytes` or to the first that is refused.  Feeds the bytes up to
// `cut`, then the others, `piece` at a time.
ReadOutcome Read(const std::string& bytes, size_t cut, size_t piece) {
  HttpRequestReader reader({.max_header_bytes = 2048, .max_body_bytes = 1024});
  ReadOutcome outcome;
  std::string in;
  for (size_t at = 0; at < bytes.size() && reader.state() != State::kFailed;) {
    const size_t size = at < cut ? cut : std::min(piece, bytes.size() - at);
    in.append(bytes, at, size);
    at += size;
    while (!in.empty() && reader.state() != State::kFailed) {
      const size_t used = reader.Feed(in);
      EXPECT_TRUE(used > 0 && used <= in.size());
      in.erase(0, used);
      outcome.used += used;
      if (reader.state() != State::kDone) continue;
      const bool http10 = reader.http10();
      const bool keep_alive = reader.keep_alive();
      const HttpRequest request = reader.Take();
      outcome.requests += absl::StrFormat("%s %s?%s %d%d '%s'", request.method, request.path,
                                          request.query, http10, keep_alive, request.body);
      for (const auto& [name, value] : request.headers)
        outcome.requests += name + "=" + value + ",";
      outcome.requests += "\n";
    }
  }
  if (reader.state() == State::kIdle) outcome.http_status = 0;
  if (reader.state() == State::kFailed) {
    outcome.http_status = reader.failure().http_status;
    outcome.failure = std::string(reader.failure().status.message());
  }
  return outcome;
}

struct FramingCase {
  const char* what;
  std::string bytes;
  int expected;
};

std::string Get(const std::string& rest) { return "GET /a HTTP/1.1\r\nHost: h\r\n" + rest; }
std::string Chunked(const std::string& body) {
  return "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + body;
}

std::vector<FramingCase> Cases() {
  std::string many;
  for (int i = 0; i < 101; ++i) many += "X: y\r\n";
  return {
      {"plain", Get("\r\n"), 0},
      {"empty lines first", "\r\n\r\n" + Get("\r\n"), 0},
      {"absolute target", "GET http://h/a HTTP/1.1\r\nHost: h\r\n\r\n", 0},
      {"HTTP/1.0 without Host", "GET /a HTTP/1.0\r\n\r\n", 0},
      {"body", Get("Content-Length: 3\r\n\r\nabc"), 0},
      {"body cut", Get("Content-Length: 3\r\n\r\nab"), -1},
      {"chunks", Chunked("3\r\nabc\r\n0\r\n\r\n"), 0},
      {"chunk extension", Chunked("3;a=b\r\nabc\r\n0\r\n\r\n"), 0},
      {"chunk cut", Chunked("3\r\nab"), -1},
      {"no chunk but the last", Chunked("0\r\n\r\n"), 0},
      {"trailers", Chunked("0\r\nA: b\r\n\r\n"), 0},
      {"a trailer cut after its first byte", Chunked("0\r\na"), -1},
      {"no Host", "GET /a HTTP/1.1\r\n\r\n", 400},
      {"two Hosts", Get("Host: i\r\n\r\n"), 400},
      {"no version", "GET /a\r\nHost: h\r\n\r\n", 400},
      {"other version", "GET /a HTTP/2.0\r\nHost: h\r\n\r\n", 505},
      {"HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"TLS to a plain port", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), 400},
      {"target without slash", "GET a HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"target with half an escape", "GET /%4 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"blank before the colon", Get("A : b\r\n\r\n"), 400},
      {"field without colon", Get("A\r\n\r\n"), 400},
      {"control character", Get(std::string("A: b\0c\r\n\r\n", 11)), 400},
      {"length that is no number", Get("Content-Length: x\r\n\r\n"), 400},
      {"negative length", Get("Content-Length: -1\r\n\r\n"), 400},
      {"length over 64 bits", Get("Content-Length: 99999999999999999999\r\n\r\n"), 400},
      {"two lengths", Get("Content-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400},
      {"length and chunks", Get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), 400},
      {"chunks and length", Get("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"), 400},
      {"unknown encoding", Get("Transfer-Encoding: gzip\r\n\r\n"), 501},
      {"two encodings", Get("Transfer-Encoding: gzip, chunked\r\n\r\n"), 501},
      {"chunks in HTTP/1.0", "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"chunk size that is no number", Chunked("x\r\nabc\r\n"), 400},
      {"chunk size over 64 bits", Chunked("fffffffffffffffff\r\n"), 400},
      {"chunk longer than said", Chunked("1\r\nabc\r\n0\r\n\r\n"), 400},
      {"trailer without colon", Chunked("0\r\nabc\r\n0rter-.0\r\n\r\n"), 400},
      {"trailers too long", Chunked("0\r\nA: " + std::string(3000, 'x')), 431},
      {"LF alone ends a chunk's size", Chunked("3\nabc\r\n0\r\n\r\n"), 400},
      {"LF alone ends a line", "GET /a HTTP/1.1\nHost: h\n\n", 400},
      {"CR alone ends a line", "GET /a HTTP/1.1\rHost: h\r\r", 400},
      {"folded field", Get("A: b\r\n c\r\n\r\n"), 400},
      {"four words", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"two blanks", "GET  /a HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"another protocol's first line", "SSH-2.0-client\r\n", 400},
      {"header of the longest length", Get("A: " + std::string(2015, 'x') + "\r\n\r\n"), 0},
      {"header a byte longer", Get("A: " + std::string(2016, 'x') + "\r\n\r\n"), 431},
      {"body too long", Get("Content-Length: 2000\r\n\r\n"), 413},
      {"chunk too long", Chunked("800\r\n"), 413},
      {"chunks too long", Chunked("300\r\n" + std::string(0x300, 'x') + "\r\n300\r\n"), 413},
      {"compressed body", Get("Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"), 415},
      {"unknown expectation", Get("Expect: miracle\r\n\r\n"), 417},
      {"header too long", Get("A: " + std::string(3000, 'x') + "\r\n\r\n"), 431},
      {"header without end", Get("A: " + std::string(3000, 'x')), 431},
      {"target too long", "GET /" + std::string(3000, 'x'), 431},
      {"too many fields", Get(many + "\r\n"), 431},
      {"chunk extension without end", Chunked("1;" + std::string(3000, 'x')), 400},
  };
}

TEST(HttpRequestReaderTest, TakesAndRefusesWhateverThePieces) {
  for (const FramingCase& c : Cases()) {
    SCOPED_TRACE(c.what);
    const ReadOutcome whole = Read(c.bytes, 0, c.bytes.size());
    EXPECT_EQ(whole.http_status, c.expected) << whole.failure;
    EXPECT_EQ(Read(c.bytes, 0, 1), whole) << "byte by byte";
    EXPECT_EQ(Read(c.bytes, 0, 7), whole) << "by sevens";
    for (size_t cut = 1; cut < c.bytes.size(); ++cut) {
      EXPECT_EQ(Read(c.bytes, cut, c.bytes.size()), whole) << "cut at " << cut;
    }
  }
}

TEST(HttpRequestReaderTest, ReadsOneRequestAfterAnother) {
  const std::string bytes = Get("\r\n") + "\r\n" + Chunked("1\r\na\r\n0\r\nT: t\r\n\r\n") +
                            "PUT /b?c HTTP/1.0\r\nContent-Length: 2\r\n\r\nbc" +
                            Get("Connection: close\r\n\r\n") + Chunked("0\r\nabc\r\n\r\n");
  const ReadOutcome whole = Read(bytes, 0, bytes.size());
  EXPECT_EQ(whole.requests,
            "GET /a? 01 ''Host=h,\n"
            "POST /a? 01 'a'Host=h,Transfer-Encoding=chunked,\n"
            "PUT /b?c 10 'bc'Content-Length=2,\n"
            "GET /a? 00 ''Host=h,Connection=close,\n");
  EXPECT_EQ(whole.http_status, 400);
  EXPECT_EQ(whole.failure, "malformed trailers");
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    EXPECT_EQ(Read(bytes, cut, bytes.size()), whole) << "cut at " << cut;
    EXPECT_EQ(Read(bytes, cut, 1), whole) << "cut at " << cut << ", then byte by byte";
  }
}

// Many short fields, each in a piece of its own, go over the limit no less than a long one.
TEST(HttpRequestReaderTest, HoldsAHeaderToItsLimitWhateverThePieces) {
  std::string line = "A: b\r\n";
  HttpRequestReader reader({.max_header_bytes = 2048});
  ASSERT_EQ(reader.Feed("GET /a HTTP/1.1\r\n"), 17u);
  size_t num_bytes = 17;
  while (reader.state() == State::kHeader && num_bytes < 4096) num_bytes += reader.Feed(line);
  EXPECT_EQ(num_bytes, 2048u);
  ASSERT_EQ(reader.state(), State::kFailed);
  EXPECT_EQ(reader.failure().http_status, 431);
}

TEST(HttpRequestReaderTest, StopsAfterTheHeaderAndAfterTheBody) {
  HttpRequestReader reader({});
  const std::string head =
      "POST /a%20b?c=d HTTP/1.1\r\nHost: h\r\nA:  b \r\nContent-Length: 2\r\n"
      "Expect: 100-continue\r\n\r\n";
  const std::string bytes = head + "xyGET";
  EXPECT_EQ(reader.Feed(bytes), head.size());
  EXPECT_EQ(reader.state(), State::kBody);
  EXPECT_TRUE(reader.expects_continue());
  EXPECT_EQ(reader.head().path, "/a%20b");
  EXPECT_EQ(reader.head().query, "c=d");
  EXPECT_EQ(reader.head().Header("a"), "b");
  EXPECT_EQ(reader.Feed(bytes.substr(head.size())), 2u);
  EXPECT_EQ(reader.state(), State::kDone);
  EXPECT_EQ(reader.Take().body, "xy");
  EXPECT_EQ(reader.state(), State::kIdle);
  EXPECT_EQ(reader.Feed("GET"), 3u);
  EXPECT_EQ(reader.state(), State::kHeader);
}

}  // namespace
}  // namespace tandem::gateway

// Framing: what is taken, what is refused and how, whatever the pieces it comes in.
#include "services/gateway/http/request_reader.h"

#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

using State = HttpRequestReader::State;

// Feeds `bytes` in pieces of `piece` bytes; returns the status of the failure, 0 if the request is
// whole, -1 if more is needed.
int Feed(HttpRequestReader& reader, const std::string& bytes, size_t piece) {
  std::string in;
  size_t at = 0;
  while (true) {
    const size_t used = reader.Feed(in);
    in.erase(0, used);
    if (reader.state() == State::kFailed) return reader.failure().http_status;
    if (reader.state() == State::kDone) return 0;
    if (used > 0 && !in.empty()) continue;
    if (at == bytes.size()) return -1;
    in.append(bytes, at, piece);
    at = std::min(bytes.size(), at + piece);
  }
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
      {"length that is none", Get("Content-Length: x\r\n\r\n"), 400},
      {"negative length", Get("Content-Length: -1\r\n\r\n"), 400},
      {"length over 64 bits", Get("Content-Length: 99999999999999999999\r\n\r\n"), 400},
      {"two lengths", Get("Content-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400},
      {"length and chunks", Get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), 400},
      {"chunks and length", Get("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"), 400},
      {"unknown encoding", Get("Transfer-Encoding: gzip\r\n\r\n"), 501},
      {"two encodings", Get("Transfer-Encoding: gzip, chunked\r\n\r\n"), 501},
      {"chunks in HTTP/1.0", "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"chunk size that is none", Chunked("x\r\nabc\r\n"), 400},
      {"chunk size over 64 bits", Chunked("fffffffffffffffff\r\n"), 400},
      {"chunk longer than said", Chunked("1\r\nabc\r\n0\r\n\r\n"), 400},
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
    for (const size_t piece : {c.bytes.size(), size_t{1}, size_t{7}}) {
      HttpRequestReader reader({.max_header_bytes = 2048, .max_body_bytes = 1024});
      EXPECT_EQ(Feed(reader, c.bytes, piece), c.expected) << c.what << " by " << piece;
    }
  }
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
  EXPECT_EQ(reader.Feed("GET"), 0u) << "left in place until the line is whole";
}

}  // namespace
}  // namespace tandem::gateway

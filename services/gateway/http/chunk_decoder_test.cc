// Chunked bodies: what they carry, and why some are refused.
#include "services/gateway/http/chunk_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tandem::gateway {
namespace {

constexpr ChunkLimits kLimits = {.max_body_bytes = 64, .max_trailer_bytes = 32};

struct Decoded {
  std::string body;
  size_t used = 0;
  bool done = false;
  int http_status = 0;  // 0: not refused
  std::string failure;

  bool operator==(const Decoded&) const = default;
};

// Feeds the bytes up to `cut`, then the others, `piece` at a time.
Decoded Decode(const std::string& bytes, size_t cut, size_t piece) {
  ChunkDecoder decoder(kLimits);
  Decoded decoded;
  const std::string_view all = bytes;
  size_t at = 0;
  while (at < all.size() && !decoder.done() && !decoder.failure().has_value()) {
    const size_t size = at < cut ? cut : std::min(piece, all.size() - at);
    decoded.used += decoder.Feed(all.substr(at, size), decoded.body);
    at += size;
  }
  decoded.done = decoder.done();
  if (decoder.failure().has_value()) {
    decoded.http_status = decoder.failure()->http_status;
    decoded.failure = decoder.failure()->what;
  }
  return decoded;
}

struct ChunkCase {
  const char* what;
  std::string bytes;
  Decoded expected;
};

Decoded WholeBody(const std::string& body, size_t used) {
  return {.body = body, .used = used, .done = true};
}
Decoded CutBody(const std::string& body, size_t used) { return {.body = body, .used = used}; }
Decoded RefusedBody(const std::string& body, size_t used, int http_status, const std::string& why) {
  return {.body = body, .used = used, .http_status = http_status, .failure = why};
}

std::vector<ChunkCase> ChunkCases() {
  const std::string no_number = "a chunk's size is no hexadecimal number";
  const std::string extension = "malformed chunk extension";
  const std::string line_end = "a chunk's size line does not end with CR LF";
  const std::string past = "a chunk goes on past its size";
  const std::string trailers = "malformed trailers";
  const std::string sixty_four(64, 'x');
  const std::string longest(ChunkDecoder::kMaxSizeLineBytes - 2, 'y');
  return {
      {"nothing", "", CutBody("", 0)},
      {"the last chunk alone", "0\r\n\r\n", WholeBody("", 5)},
      {"and what follows", "0\r\n\r\nGET", WholeBody("", 5)},
      {"two chunks", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", WholeBody("abcde", 20)},
      {"CR LF within a chunk", "4\r\n\r\n\r\n\r\n0\r\n\r\n", WholeBody("\r\n\r\n", 14)},
      {"letter case of digits", "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
       WholeBody("01234567890123456789", 35)},
      {"leading zeros", "0000000000000000000003\r\nabc\r\n000\r\n\r\n", WholeBody("abc", 36)},
      {"extensions", "1;a\r\nx\r\n1 ;\tb=\"c;\"; d\r\ny\r\n0;e\r\n\r\n", WholeBody("xy", 33)},
      {"the longest size line", "1;" + longest + "\r\nx\r\n0\r\n\r\n", WholeBody("x", 1034)},
      {"trailers", "0\r\nA: b\r\nC:\r\n\r\n", WholeBody("", 15)},
      {"as much as is taken", "40\r\n" + sixty_four + "\r\n0\r\n\r\n", WholeBody(sixty_four, 75)},
      {"cut within data", "3\r\nab", CutBody("ab", 5)},
      {"cut within a size", "3", CutBody("", 1)},
      {"cut before the last line", "0\r\n", CutBody("", 3)},
      {"cut within the last line end", "0\r\n\r", CutBody("", 4)},
      {"no digit", "\r\n", RefusedBody("", 1, 400, no_number)},
      {"another number", "1g\r\n", RefusedBody("", 2, 400, no_number)},
      {"a sign", "-1\r\n", RefusedBody("", 1, 400, no_number)},
      {"a blank before", " 1\r\n", RefusedBody("", 1, 400, no_number)},
      {"a prefix", "0x1\r\n", RefusedBody("", 2, 400, no_number)},
      {"a blank and no extension", "1 \r\n", RefusedBody("", 3, 400, extension)},
      {"a control character", "1;a\001\r\n", RefusedBody("", 4, 400, extension)},
      {"LF alone after a size", "1\nx\r\n", RefusedBody("", 2, 400, no_number)},
      {"LF alone after an extension", "1;a\nx\r\n", RefusedBody("", 4, 400, extension)},
      {"CR alone after a size", "1\rx", RefusedBody("", 3, 400, line_end)},
      {"size over 64 bits", "10000000000000000\r\n",
       RefusedBody("", 17, 400, "a chunk's size goes over 64 bits")},
      {"size of 64 bits", "ffffffffffffffff\r\n", RefusedBody("", 17, 413, "the body is too long")},
      {"a byte too many", "41\r\n", RefusedBody("", 3, 413, "the body is too long")},
      {"too many in all", "40\r\n" + sixty_four + "\r\n1\r\nx",
       RefusedBody(sixty_four, 72, 413, "the body is too long")},
      {"size line without end", std::string(2000, '0'),
       RefusedBody("", 1025, 400, "a chunk's size line is too long")},
      {"data go on", "1\r\nxy\r\n", RefusedBody("x", 5, 400, past)},
      {"LF alone after data", "1\r\nx\n", RefusedBody("x", 5, 400, past)},
      {"CR alone after data", "1\r\nx\r1", RefusedBody("x", 6, 400, past)},
      {"a trailer without colon", "0\r\nabc\r\n0rter-.0\r\n\r\n",
       RefusedBody("", 7, 400, trailers)},
      {"a trailer without name", "0\r\n: a\r\n\r\n", RefusedBody("", 4, 400, trailers)},
      {"a folded trailer", "0\r\nA: b\r\n c\r\n\r\n", RefusedBody("", 10, 400, trailers)},
      {"LF alone after a trailer", "0\r\nA: b\n\r\n", RefusedBody("", 8, 400, trailers)},
      {"trailers too long", "0\r\nA: " + std::string(40, 'b') + "\r\n\r\n",
       RefusedBody("", 35, 431, "the trailers are too long")},
  };
}

TEST(ChunkDecoderTest, GivesTheSameWhateverThePieces) {
  for (const ChunkCase& c : ChunkCases()) {
    SCOPED_TRACE(c.what);
    const Decoded whole = Decode(c.bytes, 0, c.bytes.size());
    EXPECT_EQ(whole.body, c.expected.body);
    EXPECT_EQ(whole.used, c.expected.used);
    EXPECT_EQ(whole.done, c.expected.done);
    EXPECT_EQ(whole.http_status, c.expected.http_status);
    EXPECT_EQ(whole.failure, c.expected.failure);
    EXPECT_EQ(Decode(c.bytes, 0, 1), whole) << "byte by byte";
    for (size_t cut = 1; cut < c.bytes.size(); ++cut) {
      EXPECT_EQ(Decode(c.bytes, cut, c.bytes.size()), whole) << "cut at " << cut;
    }
  }
}

}  // namespace
}  // namespace tandem::gateway

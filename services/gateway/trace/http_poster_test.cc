// Answers in the forms that collectors and their proxies send.
#include "services/gateway/trace/http_poster.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

// Sends one answer after another over one connection, byte by byte, then closes it.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> answers)
      : answers_(std::move(answers)), thread_([this] { Serve(); }) {}
  ~ScriptedServer() { thread_.join(); }

  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()) + "/";
  }

 private:
  void Serve() {
    tcp::socket socket = acceptor_.accept();
    socket.set_option(tcp::no_delay(true));
    std::string in;
    boost::system::error_code error;
    for (const std::string& answer : answers_) {
      in.erase(0, asio::read_until(socket, asio::dynamic_buffer(in), "the body", error));
      for (const char& c : answer) asio::write(socket, asio::buffer(&c, 1), error);
    }
  }

  const std::vector<std::string> answers_;
  asio::io_context io_;
  tcp::acceptor acceptor_{io_, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0)};
  std::thread thread_;
};

constexpr char kChunked[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const absl::Duration kPatience = absl::Seconds(20);

TEST(HttpPosterTest, ReadsBodiesOfEveryKindOverOneConnection) {
  ScriptedServer server({
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
      std::string(kChunked) + "1\r\nc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
      std::string(kChunked) + "0\r\nA: b\r\n\r\n",
      "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n",
      "HTTP/1.1 204 None\r\n\r\n",
      "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end",
  });
  HttpPoster poster(server.url(), "");
  std::string all;
  for (int i = 0; i < 6; ++i) {
    const auto result = poster.Post("text/plain", "the body", kPatience);
    ASSERT_TRUE(result.ok()) << i << ": " << result.status();
    all +=
        absl::StrFormat("%d '%s' %d;", result->status, result->body,
                        absl::ToInt64Seconds(result->retry_after.value_or(absl::ZeroDuration())));
  }
  EXPECT_EQ(all, "200 'ab' 0;200 'cde' 0;200 '' 0;503 '' 7;204 '' 0;200 'to the end' 0;");
}

TEST(HttpPosterTest, RefusesChunksThatAreNone) {
  for (const char* body : {"0\r\nabc\r\n0rter-.0\r\n\r\n", "x\r\n", "2\r\nabc\r\n", "2\r\na"}) {
    ScriptedServer server({std::string(kChunked) + body});
    HttpPoster poster(server.url(), "");
    const auto result = poster.Post("text/plain", "the body", kPatience);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable) << body;
  }
}

}  // namespace
}  // namespace tandem::gateway

#include "tests/bench/stream_clients.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/rpc/channel.h"
#include "services/gateway/http/testing/http_test_client.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::gateway {
namespace {

class HttpStream {
 public:
  HttpStream(uint16_t port, const HttpStreamKind& kind) : kind_(kind), client_(port) {
    client_.Request("POST", kind.path, kind.body, kind.headers + "Connection: close\r\n");
  }
  int fd() const { return client_.fd(); }
  // Takes what has come; false at the stream's end.
  bool Read() {
    char buffer[8192];
    const ssize_t got = ::recv(client_.fd(), buffer, sizeof(buffer), 0);
    const absl::Time now = absl::Now();
    if (got <= 0) return false;
    size_t at = bytes_.size() - std::min(bytes_.size(), kind_.token.size() - 1);
    bytes_.append(buffer, static_cast<size_t>(got));
    for (; (at = bytes_.find(kind_.token, at)) != std::string::npos; ++at) tokens_.push_back(now);
    return true;
  }
  ClientStream Result() const {
    constexpr std::string_view kName = "\r\nX-Request-Id: ";
    const size_t at = bytes_.find(kName);
    TANDEM_CHECK(at != std::string::npos);
    const size_t begin = at + kName.size();
    return {bytes_.substr(begin, bytes_.find('\r', begin) - begin), tokens_};
  }

 private:
  const HttpStreamKind& kind_;
  testing::HttpTestClient client_;
  std::string bytes_;  // head included
  std::vector<absl::Time> tokens_;
};

class GrpcStream final : public grpc::ClientReadReactor<v1::ChatResponse> {
 public:
  GrpcStream(v1::Generation::Stub& stub, int number, int num_tokens, absl::BlockingCounter& open)
      : open_(open) {
    stream_.request_id = absl::StrFormat("grpc-%d", number);
    v1::ChatMessage* message = request_.add_messages();
    message->set_role("user");
    message->set_content("hat");
    request_.set_request_id(stream_.request_id);
    request_.mutable_sampling()->set_temperature(0);
    request_.mutable_limits()->set_ignore_eos(true);
    request_.mutable_limits()->set_max_tokens(static_cast<uint32_t>(num_tokens));
    stub.async()->Chat(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    stream_.tokens.insert(stream_.tokens.end(), static_cast<size_t>(response_.tokens_size()),
                          absl::Now());
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    TANDEM_CHECK(status.ok());
    open_.DecrementCount();
  }
  const ClientStream& stream() const { return stream_; }

 private:
  absl::BlockingCounter& open_;
  grpc::ClientContext context_;
  v1::ChatRequest request_;
  v1::ChatResponse response_;
  ClientStream stream_;
};

}  // namespace

std::vector<ClientStream> RunHttpStreams(uint16_t port, const HttpStreamKind& kind,
                                         int num_streams) {
  std::deque<HttpStream> streams;
  std::vector<pollfd> polled;
  for (int i = 0; i < num_streams; ++i) {
    polled.push_back({streams.emplace_back(port, kind).fd(), POLLIN, 0});
  }
  for (size_t num_open = streams.size(); num_open > 0;) {
    ::poll(polled.data(), polled.size(), -1);
    for (size_t i = 0; i < polled.size(); ++i) {
      if ((polled[i].revents & (POLLIN | POLLHUP)) == 0 || streams[i].Read()) continue;
      polled[i].fd = -1;
      --num_open;
    }
  }
  std::vector<ClientStream> results;
  for (const HttpStream& stream : streams) results.push_back(stream.Result());
  return results;
}

std::vector<ClientStream> RunGrpcStreams(const std::string& target, int num_tokens,
                                         int num_streams) {
  const auto stub = v1::Generation::NewStub(CreateChannel(target));
  absl::BlockingCounter open(num_streams);
  std::deque<GrpcStream> streams;
  for (int i = 0; i < num_streams; ++i) streams.emplace_back(*stub, i, num_tokens, open);
  open.Wait();
  std::vector<ClientStream> results;
  for (const GrpcStream& stream : streams) results.push_back(stream.stream());
  return results;
}

}  // namespace tandem::gateway

// One connection: a state machine on a strand.  Internal to the server.
//
//   (TLS handshake) -> idle -> header -> [refused | body] -> handler -> answer sent -> idle ...
//                                                                    -> closing (lingers) -> closed
//
// While a handler works, reading goes on: it finds out that the client has gone, and keeps what a
// pipelining client sends ahead (up to kMaxAheadBytes, then TCP holds it back).
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "services/gateway/http/api_keys.h"
#include "services/gateway/http/http_answer.h"
#include "services/gateway/http/http_core.h"
#include "services/gateway/http/request_reader.h"

namespace tandem::gateway {

// Everything runs on the strand but where it says otherwise.
class HttpConnection final : public HttpAnswer::Listener,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  // `socket`'s executor is the connection's strand.
  HttpConnection(std::shared_ptr<HttpCore> core, boost::asio::ip::tcp::socket socket);
  ~HttpConnection() override;

  // Any thread.
  void Start();
  void StartAndRefuse(HttpFailure failure);
  void CloseIfIdle();
  // Idle, or with an unfinished handshake or header.
  void CloseIfWaiting();
  void Cut();
  void OnOutput() override;
  void OnStreamBegun() override;
  void OnAbort() override { Cut(); }
  HttpResponse Format(const std::string& path, const HttpFailure& failure) override;
  bool closing() const override { return core_->draining; }
  std::shared_ptr<BodyBudget::Share> MakeRoom(const std::string& sender, size_t bytes) override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kHandshake, kIdle, kHeader, kBody, kAnswering, kLingering, kClosed };
  static constexpr size_t kMaxAheadBytes = 64 << 10;

  HttpCore::Waiting WaitingIn(Phase phase) const;
  void Begin();
  void Handshake();
  void Read();
  void OnRead(const boost::system::error_code& error, size_t num_bytes);
  void Process();
  void EnterPhase(Phase phase, absl::Duration limit);

  // Whether the request may go on (http_admission.h).  Otherwise it has been answered.
  bool Admit();
  bool FindRoute(const HttpRequest& head);
  bool AdmitGet(const HttpRequest& head);
  bool AccountBody();
  void GiveWay();
  // Whose share of memory and threads the request takes: its key, or its address.
  std::string Sender() const;
  // The holder of its key, or anonymous_.
  std::shared_ptr<HttpClient> Client() const;
  void Refuse(const HttpFailure& failure, HttpHeaders headers = {});
  void Dispatch();
  void BeginAnswer(const HttpRequest& head, bool close);

  void Flush();
  void WriteMore();
  void OnWritten(const boost::system::error_code& error, size_t num_bytes);
  void FinishAnswer();
  void ClientGone();
  void Linger();
  void Close();

  void Arm();
  void OnTimer();
  // Logs and counts the request that has ended.
  void Account(const HttpAnswerContext& context, int status);

  const std::shared_ptr<HttpCore> core_;  // shared with the server and the other connections
  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  boost::asio::steady_timer timer_;
  Clock::time_point armed_ = Clock::time_point::max();
  Clock::time_point phase_ends_ = Clock::time_point::max();
  Clock::time_point write_ends_ = Clock::time_point::max();
  Clock::time_point last_sent_;

  Phase phase_ = Phase::kHandshake;
  bool reading_ = false;
  bool writing_ = false;
  bool end_of_input_ = false;
  std::string peer_;
  std::shared_ptr<HttpClient> anonymous_;  // who sends requests without a key; shared with those
  std::string chunk_;                      // of the read under way
  std::string in_;                         // read and not yet parsed
  std::string out_;                        // being written
  size_t out_begin_ = 0;

  HttpRequestReader reader_;
  // Of the request under way.
  bool admitted_ = false;
  bool is_get_ = false;  // that counts (GetLimiter)
  const HttpRoute* route_ = nullptr;
  HttpRequest route_variables_;  // variables alone
  std::optional<KeyLease> lease_;
  HttpHeaders cors_;
  std::unique_ptr<BodyBudget::Share> body_;  // while it is read
  std::shared_ptr<HttpAnswer> answer_;       // shared with its handler
  Clock::time_point began_;                  // or the last one; 0: no request yet
  uint64_t sent_bytes_ = 0;
};

}  // namespace tandem::gateway

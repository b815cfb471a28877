#include "services/gateway/http/http_connection.h"

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "absl/time/clock.h"
#include "services/common/base/logging.h"
#include "services/gateway/http/access_log.h"
#include "services/gateway/http/anonymous_client.h"
#include "services/gateway/http/http_traffic.h"
#include "services/gateway/http/peer_tenant.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;

constexpr absl::Duration kLingerTime = absl::Seconds(2);

std::chrono::steady_clock::duration ToSteady(absl::Duration duration) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      absl::ToChronoNanoseconds(duration));
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpCore> core, asio::ip::tcp::socket socket)
    : core_(std::move(core)),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      reader_({.max_header_bytes = core_->options.max_header_bytes,
               .max_body_bytes = core_->options.max_body_bytes}) {
  boost::system::error_code error;
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
  const auto remote = socket_.remote_endpoint(error);
  if (!error) peer_ = remote.address().to_string();
  anonymous_ = std::make_shared<AnonymousClient>(PeerTenant(peer_, error ? 0 : remote.port()));
}

HttpConnection::~HttpConnection() { core_->Remove(this); }

void HttpConnection::Start() {
  core_->Add(shared_from_this());
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] { self->Begin(); });
}

void HttpConnection::StartAndRefuse(HttpFailure failure) {
  core_->Add(shared_from_this());
  asio::dispatch(socket_.get_executor(), [self = shared_from_this(), failure = std::move(failure)] {
    self->Refuse(failure);
    self->Arm();
  });
}

void HttpConnection::CloseIfIdle() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->phase_ == Phase::kIdle) self->Close();
  });
}

void HttpConnection::CloseIfWaiting() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->WaitingIn(self->phase_) != HttpCore::Waiting::kNo) self->Close();
  });
}

std::shared_ptr<BodyBudget::Share> HttpConnection::MakeRoom(const std::string& sender,
                                                            size_t bytes) {
  const absl::Time now = absl::Now();
  const std::weak_ptr<HttpConnection> weak = weak_from_this();
  const auto give_way = [weak] {
    if (const auto self = weak.lock()) self->Cut();
  };
  auto room = core_->answers.Begin(sender, give_way, now);
  if (!room->Grow(bytes, now)) return nullptr;
  // The core outlives the share: a handler may hold the answer longer than its connection lasts.
  return {room.release(), [core = core_](BodyBudget::Share* share) { delete share; }};
}

void HttpConnection::Cut() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->phase_ != Phase::kClosed) self->ClientGone();
  });
}

void HttpConnection::OnOutput() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Flush(); });
}

void HttpConnection::OnStreamBegun() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->last_sent_ = Clock::now();
    self->Arm();
  });
}

HttpResponse HttpConnection::Format(const std::string& path, const HttpFailure& failure) {
  return core_->router.Format(path, failure);
}

void HttpConnection::Begin() {
  if (core_->has_tls()) return Handshake();
  EnterPhase(Phase::kIdle, core_->options.idle_timeout);
  Read();
}

HttpCore::Waiting HttpConnection::WaitingIn(Phase phase) const {
  switch (phase) {
    case Phase::kIdle:
      return began_ == Clock::time_point() ? HttpCore::Waiting::kUnfinished
                                           : HttpCore::Waiting::kIdle;
    case Phase::kHandshake:
    case Phase::kHeader:
      return HttpCore::Waiting::kUnfinished;
    default:
      return HttpCore::Waiting::kNo;
  }
}

void HttpConnection::Handshake() {
  EnterPhase(Phase::kHandshake, core_->options.header_timeout);
  tls_ = std::make_unique<asio::ssl::stream<asio::ip::tcp::socket&>>(socket_, *core_->tls());
  tls_->async_handshake(asio::ssl::stream_base::server,
                        [self = shared_from_this()](const boost::system::error_code& error) {
                          if (self->phase_ == Phase::kClosed) return;
                          if (error) return self->Close();
                          self->EnterPhase(Phase::kIdle, self->core_->options.idle_timeout);
                          self->Read();
                        });
}

void HttpConnection::EnterPhase(Phase phase, absl::Duration limit) {
  core_->SetWaiting(this, WaitingIn(phase));
  phase_ = phase;
  phase_ends_ =
      limit == absl::InfiniteDuration() ? Clock::time_point::max() : Clock::now() + ToSteady(limit);
  if (phase == Phase::kIdle) in_.shrink_to_fit();
  Arm();
}

void HttpConnection::Read() {
  if (reading_ || phase_ == Phase::kClosed || end_of_input_) return;
  if (phase_ == Phase::kAnswering && in_.size() >= kMaxAheadBytes) return;
  reading_ = true;
  chunk_.resize(phase_ == Phase::kBody ? 64 << 10 : 2 << 10);
  chunk_.shrink_to_fit();
  const auto done = [self = shared_from_this()](const boost::system::error_code& error,
                                                size_t num_bytes) {
    self->OnRead(error, num_bytes);
  };
  if (tls_ != nullptr) {
    tls_->async_read_some(asio::buffer(chunk_), done);
  } else {
    socket_.async_read_some(asio::buffer(chunk_), done);
  }
}

void HttpConnection::OnRead(const boost::system::error_code& error, size_t num_bytes) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) {
    end_of_input_ = true;
    // A complete answer may still be on its way to a client that sends no more.
    if (phase_ == Phase::kAnswering && answer_ != nullptr && answer_->complete()) return;
    return ClientGone();
  }
  if (phase_ == Phase::kLingering) return Read();
  in_.append(chunk_, 0, num_bytes);
  Process();
  Read();
}

void HttpConnection::Process() {
  while (phase_ == Phase::kIdle || phase_ == Phase::kHeader || phase_ == Phase::kBody) {
    const size_t used = reader_.Feed(in_);
    in_.erase(0, used);
    switch (reader_.state()) {
      case HttpRequestReader::State::kIdle:
        return;
      case HttpRequestReader::State::kHeader:
        if (phase_ == Phase::kIdle) EnterPhase(Phase::kHeader, core_->options.header_timeout);
        return;
      case HttpRequestReader::State::kFailed:
        return Refuse(reader_.failure());
      case HttpRequestReader::State::kBody:
        if (phase_ != Phase::kBody) {
          EnterPhase(Phase::kBody, core_->options.body_timeout);
          if (!Admit()) return;
          if (reader_.expects_continue() && in_.empty()) {
            out_ += "HTTP/1.1 100 Continue\r\n\r\n";
            WriteMore();
          }
        }
        if (!AccountBody()) return;
        if (in_.empty() || used == 0) return;
        break;
      case HttpRequestReader::State::kDone:
        if (!admitted_ && !Admit()) return;
        if (!AccountBody()) return;
        return Dispatch();
    }
  }
}

void HttpConnection::Flush() {
  if (writing_ || answer_ == nullptr || phase_ != Phase::kAnswering) return;
  out_ = answer_->Take();
  out_begin_ = 0;
  if (!out_.empty()) {
    WriteMore();
  } else if (answer_->OnSent()) {
    FinishAnswer();  // an end without bytes: of HTTP/1.0's streams, and of HEAD's
  }
}

void HttpConnection::WriteMore() {
  writing_ = true;
  write_ends_ = Clock::now() + ToSteady(core_->options.write_timeout);
  Arm();
  const auto rest = asio::buffer(out_) + out_begin_;
  const auto done = [self = shared_from_this()](const boost::system::error_code& error,
                                                size_t num_bytes) {
    self->OnWritten(error, num_bytes);
  };
  if (tls_ != nullptr) {
    tls_->async_write_some(rest, done);
  } else {
    socket_.async_write_some(rest, done);
  }
}

void HttpConnection::OnWritten(const boost::system::error_code& error, size_t num_bytes) {
  writing_ = false;
  write_ends_ = Clock::time_point::max();
  if (phase_ == Phase::kClosed) return;
  if (error) return ClientGone();
  sent_bytes_ += num_bytes;
  last_sent_ = Clock::now();
  out_begin_ += num_bytes;
  if (answer_ != nullptr) answer_->OnProgress(num_bytes);
  if (out_begin_ < out_.size()) return WriteMore();
  std::string().swap(out_);  // an assignment would keep the memory
  out_begin_ = 0;
  if (answer_ == nullptr) return;  // "100 Continue"
  out_ = answer_->Take();
  if (!out_.empty()) return WriteMore();
  if (answer_->OnSent()) return FinishAnswer();
  Flush();
}

void HttpConnection::FinishAnswer() {
  const auto answer = std::move(answer_);
  answer_ = nullptr;
  Account(answer->context(), answer->status());
  lease_.reset();
  admitted_ = false;
  core_->EndRequest();
  out_ = {};
  if (answer->close() || core_->draining || end_of_input_ ||
      reader_.state() != HttpRequestReader::State::kIdle) {
    return Linger();
  }
  EnterPhase(Phase::kIdle, core_->options.idle_timeout);
  Process();
  Read();
}

void HttpConnection::ClientGone() {
  const auto answer = std::move(answer_);
  answer_ = nullptr;
  const auto self = shared_from_this();
  Close();
  if (answer == nullptr) return;
  Account(answer->context(), answer->complete() ? answer->status() : 499);
  answer->Gone();
  lease_.reset();
  core_->EndRequest();
}

// Closing at once would reset the connection, and with it an answer on its way, when the client has
// sent what nobody has read.
void HttpConnection::Linger() {
  if (end_of_input_) return Close();
  EnterPhase(Phase::kLingering, kLingerTime);
  in_ = {};
  if (tls_ != nullptr) {
    tls_->async_shutdown([self = shared_from_this()](const boost::system::error_code&) {
      if (self->phase_ != Phase::kClosed) self->Close();
    });
    return;
  }
  boost::system::error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  if (error) return Close();
  Read();
}

void HttpConnection::Close() {
  if (phase_ == Phase::kClosed) return;
  EnterPhase(Phase::kClosed, absl::InfiniteDuration());
  timer_.cancel();
  boost::system::error_code error;
  socket_.close(error);
  in_ = {};
  body_ = nullptr;
  core_->Remove(this);
}

void HttpConnection::Arm() {
  if (phase_ == Phase::kClosed) return;
  Clock::time_point next = std::min(phase_ends_, write_ends_);
  if (answer_ != nullptr && !writing_) {
    if (const auto interval = answer_->keep_alive_interval()) {
      next = std::min(next, last_sent_ + ToSteady(*interval));
    }
  }
  if (next >= armed_) return;  // an earlier wait comes back here
  armed_ = next;
  timer_.expires_at(next);
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error == asio::error::operation_aborted || self->phase_ == Phase::kClosed) return;
    self->armed_ = Clock::time_point::max();
    self->OnTimer();
    self->Arm();
  });
}

void HttpConnection::OnTimer() {
  const Clock::time_point now = Clock::now();
  if (now >= write_ends_) return ClientGone();
  if (now >= phase_ends_) {
    if (phase_ == Phase::kHeader || phase_ == Phase::kBody) {
      return Refuse(
          {408, absl::DeadlineExceededError("the request took too long to arrive"), std::nullopt});
    }
    return Close();
  }
  if (answer_ == nullptr || writing_) return;
  const auto interval = answer_->keep_alive_interval();
  if (!interval.has_value() || now < last_sent_ + ToSteady(*interval)) return;
  last_sent_ = now;
  answer_->SendKeepAlive();
}

void HttpConnection::Account(const HttpAnswerContext& context, int status) {
  // Successful GETs and HEADs look at things: probes, scrapes, and pages that poll the status.
  const bool looks = (context.method == "GET" || context.method == "HEAD") && status < 400;
  LogAccess(context, {.status = status,
                      .sent_bytes = sent_bytes_,
                      .taken = absl::FromChrono(Clock::now() - began_),
                      .peer = peer_,
                      .client = lease_.has_value() ? lease_->client()->name() : "-",
                      .level = looks ? LogLevel::kDebug : LogLevel::kInfo});
  if (core_->options.traffic != nullptr) {
    core_->options.traffic->CountAnswer(route_ != nullptr ? route_->path_template : "other",
                                        status);
  }
  if (std::exchange(is_get_, false)) {
    core_->gets.Charge(Client()->tenant(), sent_bytes_, absl::Now());
  }
  route_ = nullptr;
}

}  // namespace tandem::gateway

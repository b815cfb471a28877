#include "services/gateway/http/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/http/http_connection.h"
#include "services/gateway/http/http_core.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

constexpr auto kAcceptPause = std::chrono::milliseconds(10);
// Connections above the limit that are closing or are refused at a time: part of the reserve.
constexpr uint64_t kMostAbove = 32;

absl::StatusOr<tcp::endpoint> ParseAddress(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  uint32_t port = 0;
  std::string host = listen.substr(0, colon == std::string::npos ? 0 : colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (colon == std::string::npos || error || !absl::SimpleAtoi(listen.substr(colon + 1), &port) ||
      port > 65535) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "HTTP address '%s' is not ADDRESS:PORT, like 127.0.0.1:8080 or [::1]:8080", listen));
  }
  return tcp::endpoint(address, static_cast<uint16_t>(port));
}

absl::Status BindError(const std::string& listen, const boost::system::error_code& error) {
  const std::string message = absl::StrFormat("cannot listen on '%s': %s", listen, error.message());
  if (error == asio::error::address_in_use) return absl::AlreadyExistsError(message);
  if (error == asio::error::access_denied) return absl::PermissionDeniedError(message);
  return absl::InvalidArgumentError(message);
}

}  // namespace

absl::Status CheckHttpAddress(const std::string& listen) { return ParseAddress(listen).status(); }

class HttpServer::Impl {
 public:
  Impl(const HttpServerOptions& options, HttpRouter router)
      : core_(std::make_shared<HttpCore>(options, std::move(router))),
        acceptor_(core_->io),
        pause_(core_->io),
        work_(asio::make_work_guard(core_->io)),
        pool_(std::in_place, core_->options.num_handlers) {
    core_->pool = &*pool_;
  }
  ~Impl() {
    Shutdown(absl::ZeroDuration());
    pool_.reset();  // drops handlers that have not started
    // The last answer, on any thread, may still hold a connection and post to it.  Wait, so that
    // the routes' objects are destroyed here and not there.
    while (core_.use_count() > 1) {
      PollOnce();
      absl::SleepFor(absl::Microseconds(100));
    }
  }

  absl::Status Listen() {
    if (core_->options.tls_certificate.empty() != core_->options.tls_key.empty()) {
      return absl::InvalidArgumentError("TLS needs both a certificate and a key");
    }
    if (core_->has_tls()) TANDEM_RETURN_IF_ERROR(core_->LoadTls());
    TANDEM_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, ParseAddress(core_->options.listen));
    boost::system::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return BindError(core_->options.listen, error);
    endpoint_ = acceptor_.local_endpoint();
    core_->check_names = endpoint_.address().is_loopback() && core_->options.keys == nullptr;
    return absl::OkStatus();
  }

  void Run() {
    Accept();
    for (uint32_t i = 0; i < core_->options.num_threads; ++i) {
      threads_.emplace_back([core = core_] { core->io.run(); });
    }
  }

  std::string Url() const {
    const std::string host = endpoint_.address().to_string();
    return absl::StrFormat("%s://%s:%d", core_->has_tls() ? "https" : "http",
                           endpoint_.address().is_v6() ? "[" + host + "]" : host, endpoint_.port());
  }
  uint16_t port() const { return endpoint_.port(); }
  HttpServerCounts counts() const { return core_->counts(); }

  bool Reload() {
    const HttpServerOptions& options = core_->options;
    bool all = true;
    if (core_->has_tls()) {
      const absl::Status status = core_->LoadTls();
      all = status.ok();
      if (all) {
        LogInfo("TLS certificate read again", {{"file", options.tls_certificate}});
      } else {
        LogError("TLS certificate stays as it was", {{"error", std::string(status.message())}});
      }
    }
    if (options.keys == nullptr) return all;
    const auto change = options.keys->Reload();
    if (change.ok()) {
      LogInfo(
          "API keys read again",
          {{"kept", change->num_kept}, {"new", change->num_new}, {"removed", change->num_removed}});
    } else {
      LogError("API keys stay as they were", {{"error", std::string(change.status().message())}});
    }
    return all && change.ok();
  }

  void BeginDrain() {
    core_->draining = true;
    core_->CloseIdle();
  }

  void Shutdown(absl::Duration grace) {
    if (threads_.empty()) return;
    BeginDrain();
    asio::post(core_->io, [this] {
      boost::system::error_code error;
      acceptor_.close(error);
      pause_.cancel();
    });
    core_->WaitForNoRequest(absl::Now() + grace);
    core_->CutAll();
    pool_->Stop();  // handlers that have begun end
    while (!core_->WaitForNoConnection(absl::Now() + absl::Milliseconds(20))) core_->CutAll();
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    PollOnce();
  }

 private:
  // Runs what was posted since the threads ended.
  void PollOnce() {
    core_->io.restart();
    core_->io.poll();
  }
  void Accept() {
    acceptor_.async_accept(asio::make_strand(core_->io),
                           [this](const boost::system::error_code& error, tcp::socket socket) {
                             OnAccept(error, std::move(socket));
                           });
  }

  // Accepts the next connection; those that find no room wait in the listener's backlog.
  void AcceptNext() {
    if (core_->counts().connections < core_->options.max_connections + kMostAbove) return Accept();
    core_->EvictWaiting();
    AcceptLater();
  }

  void AcceptLater() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled && acceptor_.is_open()) AcceptNext();
    });
  }

  void OnAccept(const boost::system::error_code& error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (error) {
      // Most likely out of descriptors: make room, and try again when some may have been freed.
      if (!std::exchange(starved_, true)) {
        LogWarning("http accept failed", {{"error", error.message()}});
      }
      core_->EvictWaiting();
      return AcceptLater();
    }
    if (std::exchange(starved_, false)) LogInfo("http accepts again");
    auto connection = std::make_shared<HttpConnection>(core_, std::move(socket));
    if (core_->counts().connections < core_->options.max_connections || core_->EvictWaiting()) {
      connection->Start();
    } else if (core_->has_tls()) {
      connection = nullptr;  // no answer without a handshake
    } else {
      connection->StartAndRefuse(FailureOf(absl::UnavailableError("too many connections")));
    }
    AcceptNext();
  }

  const std::shared_ptr<HttpCore> core_;  // shared with the connections
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::optional<HandlerPool> pool_;
  tcp::endpoint endpoint_;
  bool starved_ = false;
  std::vector<std::thread> threads_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              HttpRouter router) {
  auto impl = std::make_unique<Impl>(options, std::move(router));
  TANDEM_RETURN_IF_ERROR(impl->Listen());
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(impl)));
  server->url_ = server->impl_->Url();
  server->port_ = server->impl_->port();
  server->impl_->Run();
  LogInfo("listening", {{"target", server->url_}});
  return server;
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Shutdown(absl::ZeroDuration()); }
HttpServerCounts HttpServer::counts() const { return impl_->counts(); }
bool HttpServer::Reload() { return impl_->Reload(); }
void HttpServer::BeginDrain() { impl_->BeginDrain(); }
void HttpServer::Shutdown(absl::Duration grace) { impl_->Shutdown(grace); }

}  // namespace tandem::gateway

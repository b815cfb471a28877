// State shared by a server's connections.  Internal to the server.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/gateway/http/body_budget.h"
#include "services/gateway/http/get_limiter.h"
#include "services/gateway/http/handler_pool.h"
#include "services/gateway/http/http_server.h"

namespace tandem::gateway {

class HttpConnection;

// Thread-safe.
class HttpCore {
 public:
  HttpCore(HttpServerOptions server_options, HttpRouter server_router)
      : options(std::move(server_options)),
        router(std::move(server_router)),
        bodies({.total_bytes = std::max(options.max_bodies_bytes, 2 * options.max_body_bytes),
                .body_bytes = options.max_body_bytes,
                .stall = options.body_stall}),
        answers({.total_bytes = options.max_answers_bytes,
                 .body_bytes = options.max_answers_bytes / 3 * 2,
                 .stall = options.answer_stall}),
        gets(options.gets_per_second),
        io(static_cast<int>(options.num_threads)) {}

  const HttpServerOptions options;
  const HttpRouter router;
  BodyBudget bodies;
  BodyBudget answers;
  GetLimiter gets;
  boost::asio::io_context io;
  HandlerPool* pool = nullptr;  // Borrowed; outlives the threads that run `io`
  bool check_names = false;     // likewise; see HttpServerOptions::names
  std::atomic<bool> draining = false;

  bool has_tls() const { return !options.tls_certificate.empty(); }
  // Reads certificate and key for new connections.  After an error nothing has changed.
  // INVALID_ARGUMENT names the file.
  absl::Status LoadTls();
  // For new connections; null before LoadTls.
  std::shared_ptr<boost::asio::ssl::context> tls() const;

  void Add(const std::shared_ptr<HttpConnection>& connection);
  void Remove(HttpConnection* connection);
  // Connections that have no complete request.
  enum class Waiting {
    kNo,
    kIdle,  // between two requests
    kUnfinished,  // its first request's header, or TLS handshake, has not arrived whole; or a later header
  };
  void SetWaiting(HttpConnection* connection, Waiting waiting);
  // Closes the connection that has waited longest in the larger of the two groups, idle or
  // unfinished: an attacker that holds places is in the larger group.  False if every connection
  // has a request.
  bool EvictWaiting();
  void CloseIdle();
  void CutAll();

  void BeginRequest();
  void EndRequest();

  HttpServerCounts counts() const;
  // Waits until no request, or no connection, is left; false if some are left at the deadline.
  bool WaitForNoRequest(absl::Time deadline);
  bool WaitForNoConnection(absl::Time deadline);

 private:
  struct Member {
    std::weak_ptr<HttpConnection> connection;
    std::list<HttpConnection*>* list = nullptr;  // idle_, unfinished_ or none
    std::list<HttpConnection*>::iterator place;  // in `list`
  };
  std::vector<std::shared_ptr<HttpConnection>> All() const;
  void LeaveList(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<HttpConnection> TakeFirst(std::list<HttpConnection*>& list)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  // Shared with the connections that began under it.
  std::shared_ptr<boost::asio::ssl::context> tls_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<HttpConnection*, Member> members_ ABSL_GUARDED_BY(mutex_);
  // Longest waiting first.
  std::list<HttpConnection*> idle_ ABSL_GUARDED_BY(mutex_);
  std::list<HttpConnection*> unfinished_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_requests_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::gateway

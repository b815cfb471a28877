#include "services/gateway/http/http_core.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/gateway/http/http_connection.h"
#include "services/gateway/http/http_traffic.h"

namespace tandem::gateway {

absl::Status HttpCore::LoadTls() {
  namespace ssl = boost::asio::ssl;
  auto tls = std::make_shared<ssl::context>(ssl::context::tls_server);
  boost::system::error_code error;
  tls->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                       ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 |
                       SSL_OP_NO_RENEGOTIATION,
                   error);
  SSL_CTX_set_mode(tls->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  tls->use_certificate_chain_file(options.tls_certificate, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrFormat("TLS certificate '%s': %s", options.tls_certificate, error.message()));
  }
  tls->use_private_key_file(options.tls_key, ssl::context::pem, error);
  if (error || SSL_CTX_check_private_key(tls->native_handle()) != 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("TLS key '%s': %s", options.tls_key,
                        error ? error.message() : "it does not belong to the certificate"));
  }
  MutexLock lock(mutex_);
  tls_ = std::move(tls);
  return absl::OkStatus();
}

std::shared_ptr<boost::asio::ssl::context> HttpCore::tls() const {
  MutexLock lock(mutex_);
  return tls_;
}

void HttpCore::Add(const std::shared_ptr<HttpConnection>& connection) {
  MutexLock lock(mutex_);
  members_[connection.get()].connection = connection;
  if (options.traffic != nullptr) options.traffic->SetConnections(members_.size());
}

void HttpCore::Remove(HttpConnection* connection) {
  MutexLock lock(mutex_);
  const auto found = members_.find(connection);
  if (found == members_.end()) return;
  LeaveList(found->second);
  members_.erase(found);
  if (options.traffic != nullptr) options.traffic->SetConnections(members_.size());
  if (members_.empty()) changed_.SignalAll();
}

void HttpCore::LeaveList(Member& member) {
  if (member.list != nullptr) member.list->erase(member.place);
  member.list = nullptr;
}

void HttpCore::SetWaiting(HttpConnection* connection, Waiting waiting) {
  MutexLock lock(mutex_);
  const auto found = members_.find(connection);
  if (found == members_.end()) return;
  Member& member = found->second;
  std::list<HttpConnection*>* const list = waiting == Waiting::kNo     ? nullptr
                                           : waiting == Waiting::kIdle ? &idle_
                                                                       : &unfinished_;
  if (list == member.list) return;  // it has waited since it joined
  LeaveList(member);
  member.list = list;
  if (list != nullptr) member.place = list->insert(list->end(), connection);
}

std::shared_ptr<HttpConnection> HttpCore::TakeFirst(std::list<HttpConnection*>& list) {
  while (!list.empty()) {
    Member& member = members_[list.front()];
    LeaveList(member);
    if (auto connection = member.connection.lock()) return connection;
  }
  return nullptr;
}

bool HttpCore::EvictWaiting() {
  std::shared_ptr<HttpConnection> longest;
  {
    MutexLock lock(mutex_);
    const bool idle_first = idle_.size() >= unfinished_.size();
    longest = TakeFirst(idle_first ? idle_ : unfinished_);
    if (longest == nullptr) longest = TakeFirst(idle_first ? unfinished_ : idle_);
  }
  if (longest == nullptr) return false;
  longest->CloseIfWaiting();
  return true;
}

std::vector<std::shared_ptr<HttpConnection>> HttpCore::All() const {
  std::vector<std::shared_ptr<HttpConnection>> all;
  MutexLock lock(mutex_);
  for (const auto& [pointer, member] : members_) {
    if (auto connection = member.connection.lock()) all.push_back(std::move(connection));
  }
  return all;
}

void HttpCore::CloseIdle() {
  for (const auto& connection : All()) connection->CloseIfIdle();
}

void HttpCore::CutAll() {
  for (const auto& connection : All()) connection->Cut();
}

void HttpCore::BeginRequest() {
  MutexLock lock(mutex_);
  ++num_requests_;
}

void HttpCore::EndRequest() {
  MutexLock lock(mutex_);
  if (--num_requests_ == 0) changed_.SignalAll();
}

HttpServerCounts HttpCore::counts() const {
  MutexLock lock(mutex_);
  return {members_.size(), num_requests_};
}

bool HttpCore::WaitForNoRequest(absl::Time deadline) {
  MutexLock lock(mutex_);
  while (num_requests_ > 0) {
    if (!changed_.WaitUntil(mutex_, deadline)) return num_requests_ == 0;
  }
  return true;
}

bool HttpCore::WaitForNoConnection(absl::Time deadline) {
  MutexLock lock(mutex_);
  while (!members_.empty()) {
    if (!changed_.WaitUntil(mutex_, deadline)) return members_.empty();
  }
  return true;
}

}  // namespace tandem::gateway

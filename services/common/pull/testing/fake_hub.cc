#include "services/common/pull/testing/fake_hub.h"

#include <openssl/sha.h>

#include <algorithm>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <cstdio>
#include <random>
#include <sstream>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "services/common/base/check.h"

namespace tandem::pull::testing {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {
constexpr char kModelFile[] = "model-Q4_0.gguf";
}  // namespace

std::string TestRequest::Field(const std::string& name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : found->second;
}

TestServer::TestServer(Handler handler)
    : handler_(std::move(handler)),
      acceptor_(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
      port_(acceptor_.local_endpoint().port()),
      acceptor_thread_([this] { Accept(); }) {}

TestServer::~TestServer() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    boost::system::error_code ignored;
    for (auto& [socket, thread] : connections_)
      socket->shutdown(tcp::socket::shutdown_both, ignored);
  }
  // Wakes the acceptor.
  boost::system::error_code ignored;
  tcp::socket knock(io_);
  knock.connect(tcp::endpoint(asio::ip::address_v4::loopback(), static_cast<uint16_t>(port_)),
                ignored);
  acceptor_thread_.join();
  std::list<std::pair<std::shared_ptr<Socket>, std::thread>> connections;
  {
    const MutexLock lock(mutex_);
    connections.swap(connections_);
  }
  for (auto& [socket, thread] : connections) thread.join();
}

std::string TestServer::url() const { return absl::StrFormat("http://127.0.0.1:%d", port_); }

std::vector<TestRequest> TestServer::requests() const {
  const MutexLock lock(mutex_);
  return requests_;
}

uint64_t TestServer::body_bytes() const {
  const MutexLock lock(mutex_);
  return body_bytes_;
}

void TestServer::Accept() {
  for (;;) {
    auto socket = std::make_shared<Socket>(io_);
    boost::system::error_code error;
    acceptor_.accept(*socket, error);
    const MutexLock lock(mutex_);
    if (ending_) return;
    if (error) continue;
    connections_.emplace_back(socket, std::thread([this, socket] { Serve(*socket); }));
  }
}

void TestServer::Serve(Socket& socket) {
  std::string buffer;
  while (ServeOne(socket, buffer)) {
  }
  boost::system::error_code ignored;
  socket.shutdown(tcp::socket::shutdown_both, ignored);
}

bool TestServer::ServeOne(Socket& socket, std::string& buffer) {
  boost::system::error_code error;
  const size_t head = asio::read_until(socket, asio::dynamic_buffer(buffer), "\r\n\r\n", error);
  if (error) return false;
  std::istringstream lines(buffer.substr(0, head));
  buffer.erase(0, head);
  TestRequest request;
  std::string line, version;
  lines >> request.method >> request.target >> version;
  std::getline(lines, line);
  while (std::getline(lines, line) && line != "\r") {
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;
    std::string value = line.substr(colon + 1);
    absl::StripAsciiWhitespace(&value);
    request.fields[absl::AsciiStrToLower(line.substr(0, colon))] = value;
  }
  {
    const MutexLock lock(mutex_);
    requests_.push_back(request);
  }
  const TestReply reply = handler_(request);
  std::string out = absl::StrFormat("HTTP/1.1 %d Test\r\n", reply.status);
  for (const auto& [name, value] : reply.fields) out += absl::StrFormat("%s: %s\r\n", name, value);
  if (reply.length) out += absl::StrFormat("Content-Length: %d\r\n", reply.body.size());
  out += "\r\n";
  asio::write(socket, asio::buffer(out), error);
  if (error || request.method == "HEAD") return !error;
  const size_t size = std::min(reply.body.size(), reply.cut_after);
  const size_t sent = asio::write(socket, asio::buffer(reply.body.data(), size), error);
  const MutexLock lock(mutex_);
  body_bytes_ += sent;
  return !error && size == reply.body.size() && reply.length;
}

FakeHub::FakeHub(size_t file_bytes)
    : cdn_(std::make_unique<TestServer>([this](const TestRequest& r) { return AnswerCdn(r); })),
      hub_(std::make_unique<TestServer>([this](const TestRequest& r) { return AnswerHub(r); })) {
  SetContent(MakeContent(file_bytes));
}

std::string FakeHub::MakeContent(size_t bytes, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string content(bytes + 8, '\0');
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = random();
    std::copy_n(reinterpret_cast<const char*>(&word), 8, content.data() + i);
  }
  content.resize(bytes);
  content.replace(0, 4, "GGUF");
  return content;
}

std::string FakeHub::Sha256(const std::string& bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  ::SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(digest), sizeof(digest)));
}

std::string FakeHub::content() const {
  const MutexLock lock(mutex_);
  return *files_.at(kModelFile).content;
}

void FakeHub::SetContent(std::string content) { SetFile(kModelFile, std::move(content)); }

void FakeHub::SetFile(const std::string& path, std::string content) {
  const MutexLock lock(mutex_);
  files_[path].sha256 = Sha256(content);
  files_[path].content = std::make_shared<const std::string>(std::move(content));
}

void FakeHub::RemoveFile(const std::string& path) {
  const MutexLock lock(mutex_);
  files_.erase(path);
}

void FakeHub::Set(Faults faults) {
  const MutexLock lock(mutex_);
  faults_ = std::move(faults);
}

FakeHub::Hook::Hook(FakeHub& hub, Place& place, TestServer::Handler call)
    : hub_(hub), place_(place) {
  const MutexLock lock(hub_.mutex_);
  TANDEM_CHECK(place_.call == nullptr);  // one at a time
  place_.call = std::make_shared<const TestServer::Handler>(std::move(call));
}

FakeHub::Hook::~Hook() {
  const MutexLock lock(hub_.mutex_);
  place_.call = nullptr;
  while (place_.num_running > 0) hub_.hook_ended_.Wait(hub_.mutex_);
}

TestReply FakeHub::AskHook(Hook::Place& place, const TestRequest& request) {
  std::shared_ptr<const TestServer::Handler> call;
  {
    const MutexLock lock(mutex_);
    call = place.call;
    if (call == nullptr) return {.status = 0};
    ++place.num_running;
  }
  TestReply reply = (*call)(request);
  const MutexLock lock(mutex_);
  --place.num_running;
  hook_ended_.SignalAll();
  return reply;
}

// Files that nobody pulls, then those that are there.
std::string FakeHub::ListFiles() {
  std::string list = R"([{"type": "file", "path": "README.md", "size": 5},
                         {"type": "file", "path": "../evil-Q4_0.gguf", "size": 7},
                         {"type": "file", "path": "../mmproj-f16.gguf", "size": 7},
                         {"type": "file", "path": "model-f16.gguf", "size": 9})";
  const MutexLock lock(mutex_);
  for (const auto& [path, file] : files_) {
    list += absl::StrFormat(R"(,
        {"type": "file", "path": "%s", "size": %d, "lfs": {"oid": "%s"}})",
                            path, file.content->size(), file.sha256);
  }
  return list + "]";
}

TestReply FakeHub::AnswerHub(const TestRequest& request) {
  Faults faults;
  {
    const MutexLock lock(mutex_);
    faults = faults_;
  }
  if (TestReply reply = AskHook(hub_hook_, request); reply.status != 0) return reply;
  if (request.target == "/api/models/owner/repo/tree/main?recursive=true") {
    return {.body = ListFiles()};
  }
  constexpr std::string_view kResolve = "/owner/repo/resolve/main/";
  const MutexLock lock(mutex_);
  const auto found = request.target.starts_with(kResolve)
                         ? files_.find(request.target.substr(kResolve.size()))
                         : files_.end();
  if (found == files_.end()) {
    return {.status = 404, .fields = {{"X-Error-Code", "EntryNotFound"}}};
  }
  const auto& [path, file] = *found;
  const std::string place = path == kModelFile ? "" : "/" + path;
  const size_t size = faults.wrong_size != 0 ? faults.wrong_size : file.content->size();
  const std::string& sha256 = faults.wrong_sha256.empty() ? file.sha256 : faults.wrong_sha256;
  return {.status = 302,
          .fields = {{"Location", cdn_->url() + "/blob" + place + "?signature=secret"},
                     {"X-Repo-Commit", "0123456789012345678901234567890123456789"},
                     {"X-Linked-Size", absl::StrFormat("%d", size)},
                     {"X-Linked-Etag", "\"" + sha256 + "\""}}};
}

TestReply FakeHub::AnswerCdn(const TestRequest& request) {
  Faults faults;
  std::string sha256;
  std::shared_ptr<const std::string> content;
  // "/blob?..." is the model, "/blob/PATH?..." another file.
  const std::string place = request.target.substr(0, request.target.find('?'));
  const std::string path = place == "/blob" ? kModelFile : place.substr(sizeof("/blob/") - 1);
  if (TestReply reply = AskHook(cdn_hook_, request); reply.status != 0) return reply;
  {
    const MutexLock lock(mutex_);
    faults = faults_;
    const File& file = files_.at(path);
    sha256 = file.sha256;
    content = file.content;
  }
  TestReply reply;
  if (!faults.no_etag) reply.fields.emplace_back("ETag", "\"" + sha256.substr(0, 32) + "\"");
  reply.cut_after = faults.cut_every;
  const std::string range = request.Field("range"), if_range = request.Field("if-range");
  const bool same = if_range.empty() || if_range == "\"" + sha256.substr(0, 32) + "\"";
  size_t begin = 0, end = 0;
  if (faults.ignore_ranges || !same ||
      std::sscanf(range.c_str(), "bytes=%zu-%zu", &begin, &end) != 2) {
    reply.body = *content;
    return reply;
  }
  if (begin >= content->size()) {
    return {.status = 416,
            .fields = {{"Content-Range", absl::StrFormat("bytes */%d", content->size())}}};
  }
  end = std::min(end, content->size() - 1);
  reply.status = 206;
  reply.fields.emplace_back("Content-Range",
                            absl::StrFormat("bytes %d-%d/%d", begin, end, content->size()));
  reply.body = content->substr(begin, end - begin + 1);
  return reply;
}

}  // namespace tandem::pull::testing

// A hub for tests, on ports of its own: the hub itself, which redirects, and the host of the bytes.
//
// What it does wrong is set before or between requests.  It counts what it sends.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"

namespace tandem::pull::testing {

struct TestRequest {
  std::string method, target;
  std::map<std::string, std::string> fields;  // names in small letters
  std::string Field(const std::string& name) const;
};

struct TestReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> fields;
  std::string body;             // not sent to HEAD
  size_t cut_after = SIZE_MAX;  // bytes of the body; then the connection is closed
  bool length = true;           // whether Content-Length is among the fields
};

// One listening port; a thread for each connection.  Thread-safe.
class TestServer {
 public:
  using Handler = std::function<TestReply(const TestRequest&)>;
  explicit TestServer(Handler handler);
  ~TestServer();

  std::string url() const;  // "http://127.0.0.1:PORT"
  int port() const { return port_; }
  std::vector<TestRequest> requests() const;
  uint64_t body_bytes() const;  // sent

 private:
  using Socket = boost::asio::ip::tcp::socket;
  void Accept();
  void Serve(Socket& socket);
  bool ServeOne(Socket& socket, std::string& buffer);

  const Handler handler_;
  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  int port_ = 0;
  mutable Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<TestRequest> requests_ ABSL_GUARDED_BY(mutex_);
  uint64_t body_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<std::pair<std::shared_ptr<Socket>, std::thread>> connections_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_thread_;
};

// A repository "owner/repo" with one model, "model-Q4_0.gguf", at a hub that sends clients to
// another host for its bytes, as Hugging Face does.
class FakeHub {
 public:
  static constexpr char kName[] = "hf:owner/repo:model-Q4_0.gguf";
  explicit FakeHub(size_t file_bytes);

  TestServer& hub() { return *hub_; }
  TestServer& cdn() { return *cdn_; }
  std::string content() const;
  void SetContent(std::string content);
  // Adds or replaces another file of the repository.
  void SetFile(const std::string& path, std::string content);
  void RemoveFile(const std::string& path);
  // Bytes that look like a GGUF file and otherwise like nothing.
  static std::string MakeContent(size_t bytes, unsigned seed = 1);
  static std::string Sha256(const std::string& bytes);

  // To be set before requests come.
  struct Faults {
    size_t cut_every = SIZE_MAX;  // each answer of the CDN ends after so many bytes
    bool ignore_ranges = false;
    bool no_etag = false;
    std::string wrong_sha256;  // the hub claims this
    uint64_t wrong_size = 0;   // the hub claims this
  };
  void Set(Faults faults);

  // Asked before the hub or the CDN answers, while this lives; a reply with a status other than 0
  // is sent instead.  Its end waits for calls under way, because a client that gave up leaves some:
  // so it may use whatever was declared before it.
  class [[nodiscard]] Hook {
   public:
    ~Hook();
    Hook(const Hook&) = delete;
    Hook& operator=(const Hook&) = delete;

   private:
    friend class FakeHub;
    struct Place {
      std::shared_ptr<const TestServer::Handler> call;
      int num_running = 0;
    };
    Hook(FakeHub& hub, Place& place, TestServer::Handler call);
    FakeHub& hub_;
    Place& place_;
  };
  Hook HookHub(TestServer::Handler call) { return Hook(*this, hub_hook_, std::move(call)); }
  Hook HookCdn(TestServer::Handler call) { return Hook(*this, cdn_hook_, std::move(call)); }

 private:
  struct File {
    std::shared_ptr<const std::string> content;  // shared with answers under way
    std::string sha256;
  };
  std::string ListFiles();
  TestReply AskHook(Hook::Place& place, const TestRequest& request);
  TestReply AnswerHub(const TestRequest& request);
  TestReply AnswerCdn(const TestRequest& request);

  mutable Mutex mutex_;
  std::map<std::string, File> files_ ABSL_GUARDED_BY(mutex_);  // by path
  Faults faults_ ABSL_GUARDED_BY(mutex_);
  Hook::Place hub_hook_, cdn_hook_;  // guarded by mutex_
  CondVar hook_ended_;
  std::unique_ptr<TestServer> cdn_, hub_;
};

}  // namespace tandem::pull::testing

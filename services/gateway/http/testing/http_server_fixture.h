// A server with handlers that do what tests ask for.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/cancellation.h"
#include "services/common/base/mutex.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/http/testing/http_test_client.h"

namespace tandem::gateway::testing {

// Responders on their way from a handler to a test.  Thread-safe.
class ResponderQueue {
 public:
  void Put(std::shared_ptr<HttpResponder> responder) {
    MutexLock lock(mutex_);
    responders_.push_back(std::move(responder));
    changed_.SignalOne();
  }
  // Waits for one.  REQUIRES it comes within a minute.
  std::shared_ptr<HttpResponder> Take() {
    MutexLock lock(mutex_);
    const absl::Time patience = absl::Now() + absl::Minutes(1);
    while (responders_.empty()) TANDEM_CHECK(changed_.WaitUntil(mutex_, patience));
    auto responder = std::move(responders_.front());
    responders_.pop_front();
    return responder;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<HttpResponder>> responders_ ABSL_GUARDED_BY(mutex_);
};

// Routes:  /echo says what it was asked;  /large?N has N bytes;  /later the same from another thread;  /count?N streams N
// lines, each when the last is drained;  /silent streams keep-alives alone, /held does nothing: the
// test takes their responders;  /work works until it is cancelled;  /charge?N counts tokens;  /models/{model=**};  /open needs no key.
class HttpServerFixture : public ::testing::Test {
 protected:
  void StartServer(HttpServerOptions options = {}) {
    options.listen = "127.0.0.1:0";
    options.names.push_back("h");
    auto server = HttpServer::Start(options, MakeRouter());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  HttpTestClient Connect() const { return HttpTestClient(server_->port()); }
  std::shared_ptr<HttpResponder> TakeHeld() { return held_.Take(); }
  std::shared_ptr<HttpResponder> TakeSilent() { return silent_.Take(); }

  static HttpResponse Echo(const HttpRequest& request) {
    return {.content_type = "text/plain",
            .body = absl::StrFormat("%s %s %s %s", request.method, request.path, request.query,
                                    request.body)};
  }

  HttpRouter MakeRouter() {
    HttpRouter router;
    const auto add = [&router](const char* method, const char* path, HttpHandler handler,
                               bool open = false) {
      EXPECT_TRUE(router.Add({method, path, std::move(handler), open}).ok()) << path;
    };
    for (const char* method : {"GET", "POST"}) {
      add(method, "/echo", [](const HttpRequest& request, const auto& responder) {
        responder->Send(Echo(request));
      });
    }
    add(
        "GET", "/open",
        [](const HttpRequest& request, const auto& responder) { responder->Send(Echo(request)); },
        /*open=*/true);
    add("GET", "/large", [](const HttpRequest& request, const auto& responder) {
      responder->Send({.body = std::string(std::stoul(request.query), 'x')});
    });
    EXPECT_TRUE(router
                    .Add({.method = "GET",
                          .path_template = "/counts",
                          .handler = [](const HttpRequest& request,
                                        const auto& responder) { responder->Send(Echo(request)); },
                          .counts = true})
                    .ok());
    add("POST", "/later", [this](const HttpRequest& request, auto responder) {
      workers_.Run([request, responder] { responder->Send(Echo(request)); });
    });
    add("GET", "/count", [](const HttpRequest& request, const auto& responder) {
      Count(std::stoi(request.query), responder);
    });
    for (const char* method : {"GET", "POST"}) {
      add(method, "/held", [this](const HttpRequest&, auto responder) { held_.Put(responder); });
    }
    add("GET", "/silent", [this](const HttpRequest&, auto responder) {
      responder->BeginStream(
          {.keep_alive = ": still here\n\n", .keep_alive_interval = absl::Milliseconds(10)});
      silent_.Put(responder);
    });
    add("POST", "/work", [this](const HttpRequest&, const auto& responder) {
      ++num_working_;
      const absl::Time patience = absl::Now() + absl::Seconds(60);
      while (CheckCancelled().ok() && absl::Now() < patience) absl::SleepFor(absl::Milliseconds(1));
      if (!CheckCancelled().ok()) ++num_cancelled_;
      responder->Send({});
    });
    add("POST", "/charge", [](const HttpRequest& request, const auto& responder) {
      request.client->ChargeTokens(std::stoul(request.query), 0);
      responder->Send({});
    });
    add("GET", "/models/{model=*}", [](const HttpRequest& request, const auto& responder) {
      responder->Send({.body = "model " + std::string(request.Variable("model"))});
    });
    router.SetErrorFormat("/special/", [](const HttpFailure& failure) {
      return HttpResponse{.status = failure.http_status,
                          .body = "special: " + std::string(failure.status.message())};
    });
    return router;
  }

  // One line at a time, each as soon as the last is with the kernel.
  static void Count(int num_lines, const std::shared_ptr<HttpResponder>& responder) {
    auto next = std::make_shared<int>(0);
    const auto write = [responder, next, num_lines] {
      if (*next == num_lines) return responder->End();
      responder->Write(std::to_string((*next)++) + "\n");
    };
    responder->BeginStream({.content_type = "text/plain"});
    responder->SetCallbacks(write, [] {});
    write();
  }

  // Threads that end before the fixture does.
  class Workers {
   public:
    ~Workers() {
      for (std::thread& thread : threads_) thread.join();
    }
    void Run(std::function<void()> work) {
      MutexLock lock(mutex_);
      threads_.emplace_back(std::move(work));
    }

   private:
    Mutex mutex_;
    std::vector<std::thread> threads_;
  };

  std::atomic<int> num_working_ = 0;    // requests of /work that began
  std::atomic<int> num_cancelled_ = 0;  // those that ended since nobody waited
  ResponderQueue held_;
  ResponderQueue silent_;
  Workers workers_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace tandem::gateway::testing

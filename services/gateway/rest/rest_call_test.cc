// Calls that do not just run to their end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "services/common/testing/eventually.h"
#include "services/gateway/engine/testing/unfinished.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/rest/testing/rest_fixture.h"

namespace tandem::gateway {
namespace {

using tandem::testing::Eventually;
using testing::FakeExecutorOptions;
using testing::Gate;
using ::testing::HasSubstr;
using testing::HttpTestClient;
using testing::HttpTestResponse;
using ::testing::StartsWith;
using testing::Unfinished;

class RestCallTest : public testing::RestFixture {
 protected:
  // Waits until the engine has nothing left, which a client that left must bring about.
  void ExpectFreed() {
    const absl::Time patience = absl::Now() + absl::Seconds(30);
    while (Unfinished(Status().scheduler()) > 0) {
      ASSERT_LT(absl::Now(), patience);
    }
    EXPECT_EQ(Status().scheduler().kv_blocks_used(0), 0u);
  }
  // The body of a stream whose engine fails once a part of it has been read.
  std::string BreakOffInMidStream(const char* headers);
};

constexpr char kEndless[] =
    R"({"tokens": {"ids": [5, 6]}, "limits": {"ignoreEos": true}, "sampling": {"temperature": 0}})";

std::string RestCallTest::BreakOffInMidStream(const char* headers) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch& step) {
    if (step.header.step_id <= 10) return absl::OkStatus();
    go->Wait();
    return absl::InternalError("segment 2: refused");
  };
  StartRest(fake);
  HttpTestClient client = Connect();
  client.Request("POST", "/tandem/v1/generate", kEndless, headers);
  EXPECT_EQ(client.ReadHead().status, 200);
  std::string body;
  for (auto chunk = client.ReadChunk(); chunk.has_value() && !chunk->empty();
       chunk = client.ReadChunk()) {
    body += *chunk;
    go->Open();
  }
  return body;
}

TEST_F(RestCallTest, AClientThatGoesAwayInDecodingFreesItsPlace) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(1));
    return absl::OkStatus();
  };
  StartRest(fake);
  HttpTestClient client = Connect();
  client.Request("POST", "/tandem/v1/generate", kEndless);
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_THAT(client.ReadChunk().value_or(""), HasSubstr("\"tokens\""));
  client.Close();
  ExpectFreed();
}

TEST_F(RestCallTest, AClientThatGoesAwayInThePromptOrTheQueueFreesItsPlace) {
  auto go = std::make_shared<Gate>();
  auto begun = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go, begun](const StepBatch&) {
    begun->Open();
    go->Wait();
    return absl::OkStatus();
  };
  StartRest(fake);
  std::vector<HttpTestClient> clients;
  for (int i = 0; i < 12; ++i) {  // eight places, four wait
    clients.push_back(Connect());
    clients.back().Request("POST", "/tandem/v1/generate", kEndless);
  }
  begun->Wait();
  EXPECT_TRUE(Eventually([&] { return http_->counts().requests == 12; }));
  clients.clear();
  EXPECT_TRUE(Eventually([&] { return http_->counts().requests == 0; }));
  go->Open();
  ExpectFreed();
}

TEST_F(RestCallTest, AServerThatGoesEndsItsCalls) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(1));
    return absl::OkStatus();
  };
  StartRest(fake);
  std::vector<HttpTestClient> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(Connect());
    clients.back().Request("POST", "/tandem/v1/generate", kEndless);
    clients.push_back(Connect());
    clients.back().Request("POST", "/tandem/v1/tokenize", R"({"text": "hat"})");
  }
  ASSERT_TRUE(Eventually([&] { return http_->counts().requests >= 10; }));
  http_.reset();
  ExpectFreed();
}

TEST_F(RestCallTest, AnErrorInMidStreamIsItsLastLine) {
  const std::string body = BreakOffInMidStream("");
  EXPECT_THAT(body, StartsWith("{\"text\":"));
  const std::string last = body.substr(body.rfind('\n', body.size() - 2) + 1);
  EXPECT_EQ(last, R"({"error":{"code":13,"message":"segment 2: refused","details":[]}})"
                  "\n");
}

TEST_F(RestCallTest, AnErrorInMidStreamIsAnEventOfItsOwn) {
  const std::string body = BreakOffInMidStream("Accept: text/event-stream\r\n");
  EXPECT_THAT(body, StartsWith("data: {"));
  EXPECT_THAT(body, ::testing::EndsWith(
                        "event: error\n"
                        "data: {\"code\":13,\"message\":\"segment 2: refused\",\"details\":[]}"
                        "\n\n"));
}

TEST_F(RestCallTest, TimeoutsAreDeadlines) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(5));
    return absl::OkStatus();
  };
  StartRest(fake);
  HttpTestClient client = Connect();
  const HttpTestResponse late =
      client.Call("POST", "/tandem/v1/generate", kEndless, "Grpc-Timeout: 50m\r\n");
  EXPECT_THAT(late.body, HasSubstr("\"code\":4"));
  ExpectFreed();
  EXPECT_EQ(client.Call("POST", "/tandem/v1/generate", kEndless, "Grpc-Timeout: soon\r\n").status,
            400);
}

TEST_F(RestCallTest, UnaryAnswersThatAreLateAre504) {
  StartRest();
  HttpTestClient client = Connect();
  const char* late = "Grpc-Timeout: 1n\r\n";
  for (const char* path :
       {"/tandem/v1/status", "/tandem/v1/models", "/tandem/v1/tokenize?text=a"}) {
    const HttpTestResponse response = client.Call("GET", path, "", late);
    EXPECT_EQ(response.status, 504) << path;
    EXPECT_THAT(response.body, HasSubstr("\"code\":4"));
    EXPECT_EQ(client.Call("GET", path, "", "Grpc-Timeout: 1H\r\n").status, 200) << path;
  }
  const std::string text(20000, 'a');  // worked on elsewhere
  EXPECT_EQ(client.Call("POST", "/tandem/v1/tokenize", "{\"text\": \"" + text + "\"}", late).status,
            504);
}

// In one connection: a thread that serves connections must not wait for a text.
TEST_F(RestCallTest, AnswersToRequestsWithoutABodyAreMadeOnTheHandlersThreads) {
  Start();
  std::set<std::thread::id> connections, handlers;
  std::mutex mutex;
  HttpRouter router;
  const auto note = [&mutex](std::set<std::thread::id>& threads) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  };
  ASSERT_TRUE(router
                  .Add({"GET", "/here",
                        [&](const HttpRequest&, const auto& responder) {
                          note(connections);
                          responder->Send({});
                        }})
                  .ok());
  RpcMethods methods = service_->methods();
  RpcMethod& tokenize = methods["tandem.v1.Generation.Tokenize"];
  tokenize.answer = [&, answer = tokenize.answer](std::shared_ptr<RpcCall> call) {
    note(handlers);
    answer(std::move(call));
  };
  const auto& service = *v1::GenerateRequest::descriptor()->file()->service(0);
  ASSERT_TRUE(AddRestRoutes(router, service, methods).ok());
  auto http = HttpServer::Start({.listen = "127.0.0.1:0"}, std::move(router));
  ASSERT_TRUE(http.ok()) << http.status();
  http_ = *std::move(http);
  HttpTestClient client = Connect();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(client.Call("GET", "/here").status, 200);
    EXPECT_EQ(client.Call("GET", "/tandem/v1/tokenize?text=a").status, 200);
  }
  for (const std::thread::id thread : handlers) EXPECT_FALSE(connections.contains(thread));
}

TEST_F(RestCallTest, AMethodThatNothingAnswersHasNoRoutes) {
  Start();
  RpcMethods methods = service_->methods();
  methods.erase("tandem.v1.Generation.Tokenize");
  HttpRouter router;
  const absl::Status status =
      AddRestRoutes(router, *v1::GenerateRequest::descriptor()->file()->service(0), methods);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tandem.v1.Generation.Tokenize"));
}

TEST_F(RestCallTest, AFullQueueIs429WithRetryAfter) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch&) {
    go->Wait();
    return absl::OkStatus();
  };
  StartRest(fake);
  std::vector<HttpTestClient> clients;
  // Eight places, twenty wait; as many again, since each connection is a tenant of its own.
  for (int i = 0; i < 56; ++i) {
    clients.push_back(Connect());
    clients.back().Request("POST", "/tandem/v1/generate", kEndless);
  }
  ASSERT_TRUE(Eventually([&] { return Unfinished(Status().scheduler()) >= 56; }));
  HttpTestClient refused = Connect();
  const HttpTestResponse response = refused.Call("POST", "/tandem/v1/generate", kEndless);
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.Header("retry-after"), "1");
  const auto error = nlohmann::json::parse(response.body);
  EXPECT_EQ(error["code"], 8);
  EXPECT_EQ(error["details"][0]["@type"], "type.googleapis.com/google.rpc.RetryInfo");
  EXPECT_EQ(refused.Call("GET", "/health").status, 200) << "health answers all the same";
  clients.clear();
  go->Open();
  ExpectFreed();
}

TEST_F(RestCallTest, OfManyRequestsAtOnceTheExcessIs429AndHealthAnswers) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit old = limit;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch&) {
    go->Wait();
    return absl::OkStatus();
  };
  StartRest(fake);
  constexpr int kNumRequests = 1280;
  constexpr int kNumTaken = 56;  // twice eight places and twenty that wait: each is a tenant
  std::vector<HttpTestClient> clients;
  for (int i = 0; i < kNumRequests; ++i) clients.push_back(Connect());
  for (HttpTestClient& client : clients) client.Request("POST", "/tandem/v1/generate", kEndless);
  // The best of some: what the machine does besides is not the server's doing.
  absl::Duration health = absl::InfiniteDuration();
  for (int i = 0; i < 5; ++i) {
    HttpTestClient probe = Connect();
    const absl::Time begin = absl::Now();
    EXPECT_EQ(probe.Call("GET", "/health").status, 200);
    health = std::min(health, absl::Now() - begin);
  }
  EXPECT_LT(health, absl::Milliseconds(100));
  EXPECT_TRUE(Eventually([&] { return http_->counts().requests <= kNumTaken; }));
  int num_refused = 0;
  for (HttpTestClient& client : clients) {
    pollfd polled{client.fd(), POLLIN, 0};
    if (::poll(&polled, 1, 0) == 0) continue;
    EXPECT_EQ(client.Read().status, 429);
    ++num_refused;
  }
  EXPECT_EQ(num_refused, kNumRequests - kNumTaken);
  clients.clear();
  go->Open();
  ExpectFreed();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
}

TEST_F(RestCallTest, BadBodiesAre400AndNameTheFault) {
  StartRest();
  HttpTestClient client = Connect();
  const auto call = [&client](const std::string& body) {
    const HttpTestResponse response = client.Call("POST", "/tandem/v1/tokenize", body);
    EXPECT_EQ(response.status, 400) << body.substr(0, 40);
    return response.body;
  };
  EXPECT_THAT(call("{"), HasSubstr("body"));
  EXPECT_THAT(call(R"({"nothing": 1})"), HasSubstr("nothing"));
  EXPECT_THAT(call("{\"text\": \"\xFF\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(call(R"({"text": "\udc00"})"), HasSubstr("surrogate"));
  EXPECT_THAT(call(std::string(100000, '[')), HasSubstr("deeper"));
  std::string ids = "5";
  for (int i = 0; i < 2000; ++i) ids += ",5";
  EXPECT_THAT(
      client.Call("POST", "/tandem/v1/generate", R"({"tokens": {"ids": [)" + ids + "]}}").body,
      HasSubstr("context_length_exceeded"));
}

TEST_F(RestCallTest, TheRequestIdAndTokensAreCounted) {
  // sha256 of "one".
  const auto keys = ApiKeys::Parse(
      "a sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed tokens=6\n");
  ASSERT_TRUE(keys.ok());
  StartRest({}, {.keys = *keys});
  HttpTestClient client = Connect();
  const char* headers = "Authorization: Bearer one\r\nX-Request-Id: mine\r\n";
  const char* body =
      R"({"tokens": {"ids": [5, 6]}, "limits": {"maxTokens": 4, "ignoreEos": true}})";
  const HttpTestResponse first = client.Call("POST", "/tandem/v1/generate", body, headers);
  EXPECT_THAT(first.body, HasSubstr(R"("requestId":"mine")"));
  EXPECT_EQ(client.Call("POST", "/tandem/v1/generate", body, headers).status, 429);
  client = Connect();  // refused before its body was read
  EXPECT_EQ(client.Call("GET", "/ready").status, 200);
  EXPECT_EQ(client.Call("GET", "/tandem/v1/status").status, 401);
}

TEST_F(RestCallTest, EmbeddingsAreReservedToo) {
  const auto keys = ApiKeys::Parse(
      "a sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed tokens=6 "
      "requests=3\n");
  ASSERT_TRUE(keys.ok());
  StartRest({}, {.keys = *keys});
  HttpTestClient client = Connect();
  const auto embed = [&client](const std::string& inputs) {
    return client.Call("POST", "/tandem/v1/embed", "{\"inputs\": [" + inputs + "]}",
                       "Authorization: Bearer one\r\n");
  };
  const std::string pair = R"({"tokens": {"ids": [5, 6]}})";
  const HttpTestResponse long_one = embed(R"({"tokens": {"ids": [5, 6, 7, 8, 9, 10, 11]}})");
  EXPECT_EQ(long_one.status, 400) << "it never fits";
  EXPECT_THAT(long_one.body, HasSubstr("asks for 7 tokens"));
  EXPECT_EQ(embed(pair + "," + pair + "," + pair).status, 429) << "2 of 3 sequences are left";
  const HttpTestResponse good = embed(pair);
  EXPECT_EQ(good.status, 200) << good.body;
  EXPECT_EQ(nlohmann::json::parse(good.body)["embeddings"].size(), 1u);
  EXPECT_EQ((*keys)->Usage()[0].prompt_tokens, 2u);
}

}  // namespace
}  // namespace tandem::gateway

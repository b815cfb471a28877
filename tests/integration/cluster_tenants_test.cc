// What one client's load does to another's requests, on the services as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/testing/eventually.h"
#include "services/gateway/http/testing/http_test_client.h"
#include "tests/integration/cluster_fixture.h"

namespace tandem::testing {
namespace {

using gateway::testing::HttpTestClient;
using gateway::testing::HttpTestResponse;
using ::testing::HasSubstr;

// sha256 of "one" and "two".
constexpr char kKeys[] =
    "a sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed%s\n"
    "b sha256:3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\n";
constexpr char kLoader[] = "Authorization: Bearer one\r\n";
constexpr char kVictim[] = "Authorization: Bearer two\r\n";
constexpr int kNumRequests = 9;

// What one request for one token took.
struct Taken {
  uint64_t steps = 0;  // that ended between its sending and its answer
  absl::Duration time;
};

template <class T, class Of>
T MedianOf(std::vector<Taken> all, Of of) {
  std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end(),
                   [&of](const Taken& a, const Taken& b) { return of(a) < of(b); });
  return of(all[all.size() / 2]);
}
uint64_t MedianSteps(const std::vector<Taken>& all) {
  return MedianOf<uint64_t>(all, [](const Taken& one) { return one.steps; });
}
absl::Duration MedianTime(const std::vector<Taken>& all) {
  return MedianOf<absl::Duration>(all, [](const Taken& one) { return one.time; });
}

class ClusterTenantsTest : public ClusterFixture {
 protected:
  // `limits`: of key a; nullptr: no keys.
  void StartServices(const char* limits) {
    ClusterSetup setup{.npu = false, .serve = true, .context_len = 1024, .http = "127.0.0.1:0"};
    if (limits != nullptr) {
      const std::string path = keys_.path() + "/keys";
      std::ofstream(path) << absl::StrFormat(kKeys, limits);
      setup.gateway_flags = {"--http-api-keys", path};
    }
    StartCluster(setup);
    const std::string log = LogOf("gateway"), url = "http://127.0.0.1:";
    ASSERT_NE(log.find(url), std::string::npos) << log;
    port_ = static_cast<uint16_t>(std::stoi(log.substr(log.find(url) + url.size())));
  }
  // A connection of its own; its answers may take minutes.
  HttpTestClient Connect() const { return HttpTestClient(port_, absl::Minutes(4)); }

  uint64_t NumSteps() {
    const std::string page = Connect().Call("GET", "/metrics").body;
    const std::string name = "\ntandem_steps_total ";
    const size_t at = page.find(name);
    return at == std::string::npos ? 0 : std::stoull(page.substr(at + name.size()));
  }
  std::vector<Taken> AskForOneToken(HttpTestClient& victim, const char* headers) {
    std::vector<Taken> all;
    for (int i = 0; i < kNumRequests; ++i) {
      const std::string body = absl::StrFormat(
          R"({"prompt": "%d is a number", "max_tokens": 1, "temperature": 0})", ++num_asked_);
      const uint64_t before = NumSteps();
      const absl::Time begin = absl::Now();
      const HttpTestResponse answer = victim.Call("POST", "/v1/completions", body, headers);
      const absl::Duration time = absl::Now() - begin;
      EXPECT_EQ(answer.status, 200) << answer.body;
      all.push_back({NumSteps() - before, time});
    }
    return all;
  }
  // Has a client without and then with another's load ask for one token at a time.
  void ExpectShortWaits(const char* loaders_key, const char* victims_key) {
    HttpTestClient victim = Connect();
    AskForOneToken(victim, victims_key);  // connections and caches
    const std::vector<Taken> alone = AskForOneToken(victim, victims_key);
    HttpTestClient load = Connect();
    load.Request("POST", "/v1/completions",
                 R"({"prompt": "The capital of", "n": 128, "max_tokens": 600, "ignore_eos": true,
                     "seed": 1})",
                 loaders_key);
    WaitForStatus("loaded", [](const v1::GetStatusResponse& status) {
      return status.scheduler().running() + status.scheduler().waiting() == 128;
    });
    const uint64_t before = NumSteps();
    const absl::Time begin = absl::Now();
    ASSERT_TRUE(Eventually([&] { return NumSteps() >= before + 10; }));
    const absl::Duration step = (absl::Now() - begin) / static_cast<double>(NumSteps() - before);
    const std::vector<Taken> beside = AskForOneToken(victim, victims_key);
    EXPECT_GT(Status().scheduler().running(), 1u) << "the load ended too early";
    // One that runs and one that is queued behind it, then the request's own; and what runs between
    // the request and the looks at the counter.
    EXPECT_LE(MedianSteps(beside), 2 * MedianSteps(alone) + 3);
    // Whatever this machine does besides: nobody waits for the load's end, thousands of steps later.
    for (const Taken& one : beside) EXPECT_LE(one.steps, 100u) << one.time;
    // Steps beside a load are longer than alone; without shares it is hundreds of them.
    EXPECT_LE(MedianTime(beside), 2 * MedianTime(alone) + 10 * step);
    GTEST_LOG_(INFO) << "alone " << MedianTime(alone) << " in " << MedianSteps(alone)
                     << " steps; beside n=128, steps of " << step << ": " << MedianTime(beside)
                     << " in " << MedianSteps(beside) << " steps";
  }

  const TemporaryDirectory keys_;
  uint16_t port_ = 0;
  int num_asked_ = 0;
};

TEST_F(ClusterTenantsTest, AnotherKeysLoadDelaysARequestByAStepOrTwo) {
  StartServices("");
  ExpectShortWaits(kLoader, kVictim);
}

TEST_F(ClusterTenantsTest, AnotherConnectionsLoadDelaysARequestByAStepOrTwo) {
  StartServices(nullptr);
  ExpectShortWaits("", "");
}

TEST_F(ClusterTenantsTest, RequestsAtOnceCannotPassAKeysTokensTogether) {
  StartServices(" tokens=600");
  constexpr int kNumAtOnce = 16;
  std::vector<std::unique_ptr<HttpTestClient>> clients;
  for (int i = 0; i < kNumAtOnce; ++i) {
    clients.push_back(std::make_unique<HttpTestClient>(Connect()));
    clients.back()->Request(
        "POST", "/v1/completions",
        R"({"prompt": "The capital of", "max_tokens": 190, "ignore_eos": true})", kLoader);
  }
  int num_served = 0;
  for (const auto& client : clients) {
    const HttpTestResponse answer = client->Read();
    if (answer.status == 200) {
      ++num_served;
      continue;
    }
    EXPECT_EQ(answer.status, 429) << answer.body;
    EXPECT_NE(answer.Header("retry-after"), "");
  }
  EXPECT_GE(num_served, 1);
  EXPECT_LE(num_served, 3) << "600 tokens a minute, 190 and a prompt each";
  // Neither n nor many short requests get around it.
  const HttpTestResponse many =
      Connect().Call("POST", "/v1/completions",
                     R"({"prompt": "The capital of", "n": 128, "max_tokens": 600})", kLoader);
  EXPECT_EQ(many.status, 400) << "it never fits: " << many.body;
  EXPECT_EQ(Connect()
                .Call("POST", "/v1/completions", R"({"prompt": "b", "max_tokens": 2})", kVictim)
                .status,
            200)
      << "another key's";
}

}  // namespace
}  // namespace tandem::testing

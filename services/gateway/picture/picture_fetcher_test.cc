#include "services/gateway/picture/picture_fetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/pull/testing/fake_hub.h"
#include "services/common/testing/status_matchers.h"

namespace tandem::gateway {
namespace {

using pull::testing::TestReply;
using pull::testing::TestRequest;
using pull::testing::TestServer;
using tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Strings = std::vector<std::string>;

class PictureFetcherTest : public ::testing::Test {
 protected:
  // Blocked answers go on before the server ends.
  ~PictureFetcherTest() override {
    fetcher_ = nullptr;
    go_on_.set_value();
  }
  TestReply Answer(const TestRequest& request) {
    const std::string& target = request.target;
    if (target.starts_with("/hangs")) {
      may_go_on_.wait();
      return {};
    }
    if (target == "/missing") return {.status = 404, .body = "a secret"};
    if (target == "/large") return {.body = std::string(5000, 'a')};
    if (target == "/large-unsaid") return {.body = std::string(5000, 'a'), .length = false};
    if (target == "/headers") {
      TestReply reply;
      for (int i = 0; i < 100; ++i) reply.fields.emplace_back("X-Field", std::string(1000, 'a'));
      return reply;
    }
    if (target == "/cut") return {.body = std::string(500, 'a'), .cut_after = 100};
    if (target.starts_with("/hops/")) {
      const int left = std::atoi(target.c_str() + 6);
      if (left == 0) return {.body = "the end"};
      return Redirect(absl::StrFormat("/hops/%d", left - 1));
    }
    if (target == "/to-private") return Redirect("http://10.0.0.1/secret-place");
    if (target == "/to-file") return Redirect("file:///etc/passwd");
    if (target == "/to-localhost") return Redirect(absl::StrFormat("http://localhost:%d/", port()));
    if (target == "/to-nowhere") return {.status = 302};
    return {.body = "file " + target};
  }
  static TestReply Redirect(const std::string& to) {
    return {.status = 302, .fields = {{"Location", to}}, .body = "moved"};
  }
  int port() const { return server_.port(); }
  std::string Url(const std::string& target) const {
    return absl::StrFormat("http://127.0.0.1:%d%s", port(), target);
  }

  void Make(PictureFetcherOptions options = {}) {
    if (options.hosts.empty()) options.hosts = {absl::StrFormat("127.0.0.1:%d", port())};
    options.limits.max_file_bytes = 1000;
    options.on_fetched = [this](absl::Time begin) {
      EXPECT_LE(begin, absl::Now());
      ++num_fetched_;
    };
    options.on_failed = [this](const absl::Status&) { ++num_failed_; };
    auto made = PictureFetcher::Create(std::move(options));
    ASSERT_OK(made.status());
    fetcher_ = *std::move(made);
  }
  static FetchJob Job(Strings urls, const std::string& sender = "somebody") {
    FetchJob job = {.sender = sender};
    job.files = std::make_shared<const Strings>(urls.size(), "given");
    job.urls = std::make_shared<const Strings>(std::move(urls));
    return job;
  }
  std::future<absl::StatusOr<Strings>> Start(FetchJob job,
                                             PictureFetcher::Ticket* ticket = nullptr) {
    auto result = std::make_shared<std::promise<absl::StatusOr<Strings>>>();
    const auto started =
        fetcher_->Get(std::move(job), [result](const absl::StatusOr<FetchJob::Strings>& files) {
          result->set_value(files.ok() ? absl::StatusOr<Strings>(**files) : files.status());
        });
    if (ticket != nullptr) *ticket = started;
    return result->get_future();
  }
  absl::StatusOr<Strings> Get(FetchJob job) { return Start(std::move(job)).get(); }
  // The error of a request with this picture.
  std::string ErrorOf(const std::string& url) {
    const absl::Status status = Get(Job({url})).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }
  void AwaitTransfers(uint32_t num) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (fetcher_->counts().transfers != num && absl::Now() < end) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_EQ(fetcher_->counts().transfers, num);
  }

  std::promise<void> go_on_;
  const std::shared_future<void> may_go_on_ = go_on_.get_future().share();
  TestServer server_{[this](const TestRequest& request) { return Answer(request); }};
  std::atomic<int> num_fetched_ = 0, num_failed_ = 0;
  std::unique_ptr<PictureFetcher> fetcher_;
};

TEST_F(PictureFetcherTest, FilesAreFetchedOnceAndGivenOnesStay) {
  Make();
  ASSERT_OK_AND_ASSIGN(const Strings files,
                       Get(Job({Url("/a"), "", Url("/b"), Url("/a"), Url("/hops/3")})));
  EXPECT_THAT(files, ElementsAre("file /a", "given", "file /b", "file /a", "the end"));
  const std::vector<TestRequest> requests = server_.requests();
  EXPECT_THAT(requests, SizeIs(6));
  EXPECT_EQ(num_fetched_, 3);
  EXPECT_EQ(num_failed_, 0);
  for (const TestRequest& request : requests) {
    EXPECT_EQ(request.method, "GET");
    EXPECT_EQ(request.Field("accept-encoding"), "identity");
    EXPECT_EQ(request.Field("authorization"), "");
    EXPECT_EQ(request.Field("cookie"), "");
    EXPECT_THAT(request.Field("accept"), HasSubstr("image/png"));
  }
}

// Each time that an URL is there costs a copy.
TEST_F(PictureFetcherTest, BytesCountAsOftenAsTheirUrlIsThere) {
  PictureFetcherOptions options;
  options.max_job_bytes = 30;
  Make(options);
  EXPECT_OK(Get(Job({Url("/abcd"), Url("/abcd"), Url("/ab")})).status());  // 10 + 10 + 8
  EXPECT_THAT(Get(Job(Strings(4, Url("/abcd")))).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("images[0]: it is in the request too often")));
}

TEST_F(PictureFetcherTest, FilesThatWaitForOthersAreBoundedByTheirBytes) {
  PictureFetcherOptions options;
  options.max_running = 1;
  options.max_waiting_bytes_per_sender = 12;  // of files "given"
  Make(options);
  const auto job = [&] { return Job({Url("/hangs"), ""}, "greedy"); };
  const auto running = Start(job());
  AwaitTransfers(1);
  const auto waiting = Start(job());
  EXPECT_TRUE(absl::IsResourceExhausted(Get(job()).status()));
  fetcher_->Stop(absl::UnavailableError("the end"));
}

// As with a name whose address changes after it was looked at: what counts is where the connection leads.
TEST_F(PictureFetcherTest, ANameThatLeadsToAPrivateAddressIsRefusedWhenItConnects) {
  Make({.hosts = {absl::StrFormat("localhost:%d", port())}});
  const std::string url = absl::StrFormat("http://localhost:%d/a", port());
  EXPECT_THAT(ErrorOf(url), AllOf(HasSubstr("images[0]: "), HasSubstr("from localhost: "),
                                  HasSubstr("address"), Not(HasSubstr("127.0.0.1"))));
  EXPECT_THAT(server_.requests(), SizeIs(0));
  Make({.hosts = {absl::StrFormat("localhost:%d", port()),
                  absl::StrFormat("127.0.0.1:%d", port())}});
  EXPECT_OK(Get(Job({url})).status());
}

TEST_F(PictureFetcherTest, NoProxyOfTheEnvironmentIsUsed) {
  for (const char* name : {"http_proxy", "https_proxy", "all_proxy"}) {
    ::setenv(name, "http://127.0.0.1:9", 1);
  }
  Make();
  EXPECT_OK(Get(Job({Url("/a")})).status());
  for (const char* name : {"http_proxy", "https_proxy", "all_proxy"}) ::unsetenv(name);
}

TEST_F(PictureFetcherTest, RedirectsAreFewAndUnderTheSameRules) {
  Make();
  EXPECT_THAT(ErrorOf(Url("/hops/4")), HasSubstr("redirects more than 3 times"));
  for (const char* target : {"/to-private", "/to-file", "/to-localhost", "/to-nowhere"}) {
    EXPECT_THAT(ErrorOf(Url(target)),
                AllOf(HasSubstr("from 127.0.0.1: it redirects to where pictures are not fetched"),
                      Not(HasSubstr("secret")), Not(HasSubstr("localhost")), Not(HasSubstr("10."))))
        << target;
  }
}

TEST_F(PictureFetcherTest, ErrorsNameTheHostAndTheReasonAlone) {
  PictureFetcherOptions options;
  options.hosts = {absl::StrFormat("127.0.0.1:%d", port()), "127.0.0.1:1"};
  options.max_job_bytes = 1500;
  options.limits.connect_timeout =
      absl::Milliseconds(500);  // the server waits for a TLS client's request
  Make(options);
  EXPECT_THAT(ErrorOf(Url("/missing")), AllOf(HasSubstr("status 404"), Not(HasSubstr("secret"))));
  EXPECT_THAT(ErrorOf(Url("/large")), HasSubstr("more than 1000 bytes"));
  EXPECT_THAT(ErrorOf(Url("/large-unsaid")), HasSubstr("more than 1000 bytes"));
  EXPECT_THAT(ErrorOf(Url("/headers")), HasSubstr("headers are too long"));
  EXPECT_THAT(ErrorOf(Url("/cut")), HasSubstr("from 127.0.0.1: "));
  EXPECT_THAT(ErrorOf("http://127.0.0.1:1/"), HasSubstr("no connection"));
  EXPECT_THAT(ErrorOf("https://" + Url("/a").substr(7)), HasSubstr("from 127.0.0.1: "));
  const absl::Status second = Get(Job({Url("/a"), Url("/missing")})).status();
  EXPECT_THAT(std::string(second.message()), HasSubstr("images[1]: "));
  // Each of them is small enough.
  const std::string name(700, 'a');
  EXPECT_THAT(
      std::string(
          Get(Job({Url("/1" + name), Url("/2" + name), Url("/3" + name)})).status().message()),
      HasSubstr("too many bytes together"));
  EXPECT_EQ(num_failed_, 9);
}

TEST_F(PictureFetcherTest, SlowServersAreGivenUp) {
  PictureFetcherOptions options;
  options.limits.timeout = absl::Milliseconds(100);
  Make(options);
  EXPECT_THAT(ErrorOf(Url("/hangs")), HasSubstr("too slow"));
  options.limits.timeout = absl::Minutes(5);
  options.limits.stall_timeout = absl::Seconds(1);
  Make(options);
  EXPECT_THAT(ErrorOf(Url("/hangs")), HasSubstr("too slow"));
  FetchJob late = Job({Url("/hangs")});
  late.deadline = absl::Now() + absl::Milliseconds(50);
  EXPECT_THAT(Get(late).status(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("dead")));
  late.deadline = absl::InfinitePast();
  EXPECT_THAT(Get(late).status(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("dead")));
}

TEST_F(PictureFetcherTest, ACancelledJobEndsItsConnections) {
  Make();
  PictureFetcher::Ticket ticket;
  auto result = Start(Job({Url("/hangs"), Url("/hangs?2")}), &ticket);
  AwaitTransfers(2);
  fetcher_->Cancel(ticket);
  EXPECT_TRUE(absl::IsCancelled(result.get().status()));
  AwaitTransfers(0);
  fetcher_->Cancel(ticket);  // changes nothing
  EXPECT_OK(Get(Job({Url("/a")})).status());
}

TEST_F(PictureFetcherTest, StopEndsAllAndRefusesTheRest) {
  PictureFetcherOptions options;
  options.max_running_per_sender = 1;
  Make(options);
  auto running = Start(Job({Url("/hangs")}));
  auto waiting = Start(Job({Url("/hangs")}));
  AwaitTransfers(1);
  EXPECT_EQ(fetcher_->counts().waiting, 1u);
  fetcher_->Stop(absl::UnavailableError("the end"));
  EXPECT_TRUE(absl::IsUnavailable(running.get().status()));
  EXPECT_TRUE(absl::IsUnavailable(waiting.get().status()));
  AwaitTransfers(0);
  EXPECT_TRUE(absl::IsUnavailable(Get(Job({Url("/a")})).status()));
}

TEST_F(PictureFetcherTest, FetchesAreBoundedAndSendersDoNotHoldUpOthers) {
  PictureFetcherOptions options;
  options.max_fetches = 2;
  options.max_running = 3;
  options.max_running_per_sender = 2;
  options.max_waiting_per_sender = 1;
  Make(options);
  std::vector<std::future<absl::StatusOr<Strings>>> held;
  std::vector<PictureFetcher::Ticket> tickets(4);
  for (int i = 0; i < 2; ++i) {
    held.push_back(
        Start(Job({Url("/hangs"), Url("/hangs?2"), Url("/hangs?3")}, "greedy"), &tickets[i]));
    AwaitTransfers(2 * (i + 1));  // of three
  }
  held.push_back(Start(Job({Url("/a")}, "greedy"), &tickets[2]));
  EXPECT_TRUE(absl::IsResourceExhausted(Get(Job({Url("/a")}, "greedy")).status()));
  EXPECT_OK(Get(Job({Url("/a")}, "other")).status());
  EXPECT_EQ(held[2].wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  fetcher_->Cancel(tickets[0]);
  EXPECT_OK(held[2].get().status());
  options.job_timeout = absl::Milliseconds(50);
  Make(options);
  held.push_back(Start(Job({Url("/hangs")}, "greedy")));
  EXPECT_THAT(held.back().get().status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("50ms")));
}

TEST(PictureFetcherOptionsTest, WrongHostsAreNamed) {
  EXPECT_THAT(PictureFetcher::Create({.hosts = {"example.org", "http://a"}}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'http://a'")));
}

}  // namespace
}  // namespace tandem::gateway

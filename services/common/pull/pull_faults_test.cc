// Hosts that do what hosts should not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/pull/pull.h"
#include "services/common/pull/testing/pull_fixture.h"

namespace tandem::pull {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::FakeHub;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::PullTest;
using testing::TestReply;
using testing::TestRequest;

// Answers as usual.
TestReply Usual() { return {.status = 0}; }

TEST_F(PullTest, AHostThatIgnoresRangesIsReadFromTheStart) {
  fake_.Set({.ignore_ranges = true});
  ExpectWhole(Pull());
  // Asked for ranges at the same time, and then once for the whole.
  const auto requests = fake_.cdn().requests();
  EXPECT_TRUE(std::any_of(requests.begin(), requests.end(), [](const TestRequest& request) {
    return request.Field("range").empty();
  }));
}

TEST_F(PullTest, AHostThatIgnoresRangesAndCutsIsGivenUp) {
  options_.transfer.max_failures = 3;
  fake_.Set({.cut_every = kBytes / 2, .ignore_ranges = true});
  const absl::Status status = Pull().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Files(), Not(Contains("model-Q4_0.gguf")));
}

TEST_F(PullTest, AFileThatChangesIsReadAnew) {
  std::atomic<int> asked = 0;
  const std::string newer = FakeHub::MakeContent(kBytes, 7);
  const auto hook = fake_.HookCdn([&](const TestRequest&) {
    if (++asked == 5) fake_.SetContent(newer);
    return Usual();
  });
  ExpectWhole(Pull());
  EXPECT_EQ(Read(folder_.path() + "/owner/repo/model-Q4_0.gguf"), newer);
}

TEST_F(PullTest, AFileThatChangesItsSizeIsReadAnew) {
  std::atomic<int> asked = 0;
  fake_.Set({.no_etag = true});
  const auto hook = fake_.HookCdn([&](const TestRequest&) {
    if (++asked == 5) fake_.SetContent(FakeHub::MakeContent(kBytes / 2, 7));
    return Usual();
  });
  ExpectWhole(Pull());
}

TEST_F(PullTest, AFileThatKeepsChangingIsGivenUp) {
  std::atomic<unsigned> seed = 10;
  const auto hook = fake_.HookCdn([&](const TestRequest&) {
    fake_.SetContent(FakeHub::MakeContent(kBytes, ++seed));
    return Usual();
  });
  const absl::Status status = Pull().status();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(Files(), Not(Contains("model-Q4_0.gguf")));
}

TEST_F(PullTest, BytesThatAreNotTheFilesAreThrownAway) {
  fake_.Set({.wrong_sha256 = std::string(64, 'a')});
  const absl::Status status = Pull().status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(64, 'a')));
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(PullTest, APageInsteadOfAModelIsThrownAway) {
  fake_.SetContent("<html>" + std::string(1000, 'x'));
  EXPECT_TRUE(absl::IsDataLoss(Pull().status()));
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(PullTest, ASizeThatIsALieFillsNoDisk) {
  fake_.Set({.wrong_size = uint64_t{1} << 60});
  EXPECT_TRUE(absl::IsResourceExhausted(Pull().status()));
  EXPECT_THAT(fake_.cdn().requests(), IsEmpty());
  fake_.Set({.wrong_size = kBytes + 1});
  EXPECT_TRUE(absl::IsAborted(Pull().status()));
  fake_.Set({.wrong_size = kBytes - 1});
  EXPECT_TRUE(absl::IsAborted(Pull().status()));
  EXPECT_THAT(Files(), Not(Contains("model-Q4_0.gguf")));
}

TEST_F(PullTest, MoreBytesThanWereAskedForAreNotTaken) {
  const auto hook = fake_.HookCdn([&](const TestRequest& request) {
    size_t begin = 0, end = 0;
    std::sscanf(request.Field("range").c_str(), "bytes=%zu-%zu", &begin, &end);
    // The range is as asked; the body and its length go on.
    return TestReply{
        .status = 206,
        .fields = {{"Content-Range", absl::StrFormat("bytes %d-%d/%d", begin, end, kBytes)}},
        .body = fake_.content().substr(begin, end - begin + 1) + std::string(5000, 'x')};
  });
  ExpectWhole(Pull());
}

TEST_F(PullTest, AnotherRangeThanWasAskedForIsNotTaken) {
  std::atomic<int> asked = 0;
  const auto hook = fake_.HookCdn([&](const TestRequest&) {
    if (++asked > 3) return Usual();
    return TestReply{.status = 206,
                     .fields = {{"Content-Range", absl::StrFormat("bytes 1-9/%d", kBytes)}},
                     .body = "123456789"};
  });
  ExpectWhole(Pull());
}

TEST_F(PullTest, ARangeThatIsSaidNotToBeThereIsAskedForAgain) {
  std::atomic<int> asked = 0;
  const auto hook = fake_.HookCdn([&](const TestRequest&) {
    if (++asked != 2) return Usual();
    return TestReply{.status = 416,
                     .fields = {{"Content-Range", absl::StrFormat("bytes */%d", kBytes)}}};
  });
  ExpectWhole(Pull());
}

TEST_F(PullTest, AHostThatIsBusyIsWaitedFor) {
  std::atomic<int> asked = 0;
  const auto hook = fake_.HookCdn([&](const TestRequest&) {
    const int n = ++asked;
    if (n == 2)
      return TestReply{.status = 429, .fields = {{"Retry-After", "1"}}, .body = "slow down"};
    if (n == 3 || n == 5) return TestReply{.status = 503};
    if (n == 6) return TestReply{.status = 500, .body = "oops"};
    return Usual();
  });
  const absl::Time begin = absl::Now();
  ExpectWhole(Pull());
  EXPECT_GE(absl::Now() - begin, absl::Seconds(1));
}

TEST_F(PullTest, AHostThatStaysBusyIsGivenUpAndWhatCameIsKept) {
  options_.transfer.connections = 1;
  options_.transfer.max_failures = 2;
  {
    std::atomic<int> asked = 0;
    const auto hook = fake_.HookCdn(
        [&](const TestRequest&) { return ++asked < 4 ? Usual() : TestReply{.status = 503}; });
    const absl::Status status = Pull().status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("answers 503"), HasSubstr("pull again"), Not(HasSubstr("secret"))));
  }
  ExpectWhole(Pull());
  EXPECT_EQ(fake_.cdn().body_bytes(), kBytes);
}

TEST_F(PullTest, ALongWaitIsNotWaited) {
  const auto hook = fake_.HookCdn([](const TestRequest&) {
    return TestReply{.status = 429, .fields = {{"Retry-After", "86400"}}};
  });
  const absl::Status status = Pull().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("24h"));
}

TEST_F(PullTest, AnAddressThatEndsToHoldIsAskedForAnew) {
  // Each address holds for six requests.
  std::mutex mutex;
  size_t addresses = 0;
  int asked = 0;
  const auto hook = fake_.HookCdn([&](const TestRequest&) {
    const std::lock_guard lock(mutex);
    if (const size_t given = fake_.hub().requests().size(); given != addresses) {
      addresses = given;
      asked = 0;
    }
    return ++asked > 6 ? TestReply{.status = 403} : Usual();
  });
  ExpectWhole(Pull());
  EXPECT_GT(fake_.hub().requests().size(), 2u);
}

TEST_F(PullTest, AHostThatRefusesIsNotAskedForEver) {
  const auto hook = fake_.HookCdn([](const TestRequest&) { return TestReply{.status = 403}; });
  const absl::Status status = Pull().status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
}

TEST_F(PullTest, ARedirectOfTheBytesIsFollowedWithoutTheToken) {
  options_.hub.http.token = "hf_secret";
  FakeHub other(10);
  other.SetContent(fake_.content());
  const auto hook = fake_.HookCdn([&](const TestRequest&) {
    return TestReply{.status = 307, .fields = {{"Location", other.cdn().url() + "/blob"}}};
  });
  ExpectWhole(Pull());
  for (const TestRequest& request : other.cdn().requests()) {
    EXPECT_EQ(request.Field("authorization"), "");
  }
}

TEST_F(PullTest, ARedirectToAFileOrRoundAndRoundIsRefused) {
  const auto redirect_to = [](const std::string& target) {
    return [target](const TestRequest&) {
      return TestReply{.status = 302, .fields = {{"Location", target}}};
    };
  };
  {
    const auto hook = fake_.HookCdn(redirect_to("file:///etc/passwd"));
    EXPECT_TRUE(absl::IsPermissionDenied(Pull().status()));
  }
  {
    const auto hook = fake_.HookCdn(redirect_to("/blob?again"));
    EXPECT_TRUE(absl::IsUnavailable(Pull().status()));
  }
  const auto hook = fake_.HookHub(redirect_to("file:///etc/passwd"));
  EXPECT_TRUE(absl::IsPermissionDenied(Pull().status()));
  EXPECT_THAT(Files(), Not(Contains("model-Q4_0.gguf")));
}

TEST_F(PullTest, AnotherPullOfTheSameFileIsRefused) {
  const std::string path = folder_.path() + "/owner/repo/model-Q4_0.gguf";
  const auto held = PartFile::Open(path, {.size = 1, .content = "x"});
  ASSERT_TRUE(held.ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Pull().status()));
}

TEST_F(PullTest, AConnectionThatSaysNothingIsGivenUp) {
  options_.hub.http.stall_timeout = absl::Seconds(1);
  std::atomic<int> asked = 0;
  const auto hook = fake_.HookCdn([&](const TestRequest&) {
    if (++asked == 2) absl::SleepFor(absl::Milliseconds(3500));
    return Usual();
  });
  ExpectWhole(Pull());
}

}  // namespace
}  // namespace tandem::pull

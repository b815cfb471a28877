#include "services/common/pull/pull.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "services/common/pull/testing/pull_fixture.h"

namespace tandem::pull {
namespace {

using testing::FakeHub;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PullTest;
using testing::TestReply;
using testing::TestRequest;

TEST_F(PullTest, BringsAFileOverSeveralConnections) {
  const auto result = Pull();
  ExpectWhole(result);
  EXPECT_FALSE(result->was_there);
  EXPECT_EQ(result->received_bytes, kBytes);
  EXPECT_EQ(fake_.cdn().body_bytes(), kBytes);
  EXPECT_EQ(result->model.path, folder_.path() + "/owner/repo/model-Q4_0.gguf");
  EXPECT_EQ(result->model.name, FakeHub::kName);
  EXPECT_EQ(fake_.cdn().requests().size(), (kBytes + (64 << 10) - 1) / (64 << 10));
  EXPECT_EQ(last_.phase, PullPhase::kVerifying);
  EXPECT_EQ(last_.total_bytes, kBytes);
}

TEST_F(PullTest, TheTokenStaysWithTheHub) {
  options_.hub.http.token = "hf_secret";
  ExpectWhole(Pull());
  for (const TestRequest& request : fake_.hub().requests()) {
    EXPECT_EQ(request.Field("authorization"), "Bearer hf_secret");
  }
  for (const TestRequest& request : fake_.cdn().requests()) {
    EXPECT_EQ(request.Field("authorization"), "");
  }
  EXPECT_THAT(Read(folder_.path() + "/owner/repo/.model-Q4_0.gguf.json"),
              ::testing::Not(HasSubstr("secret")));
}

TEST_F(PullTest, AModelThatIsThereIsNotBroughtAgain) {
  ExpectWhole(Pull());
  const auto again = Pull("hf:owner/repo");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->was_there);
  EXPECT_EQ(fake_.cdn().body_bytes(), kBytes);
  // One that was put there by hand is taken by its checksum.
  std::filesystem::remove(folder_.path() + "/owner/repo/.model-Q4_0.gguf.json");
  EXPECT_TRUE(Pull()->was_there);
  EXPECT_EQ(fake_.cdn().body_bytes(), kBytes);
}

TEST_F(PullTest, ANewerFileTakesTheOldOnesPlace) {
  ExpectWhole(Pull());
  fake_.SetContent(FakeHub::MakeContent(kBytes, 2));
  ExpectWhole(Pull());
  EXPECT_EQ(fake_.cdn().body_bytes(), 2 * kBytes);
}

TEST_F(PullTest, OneThatWasStoppedGoesOnLater) {
  options_.transfer.connections = 1;
  stop_at_ = kBytes / 2;
  EXPECT_TRUE(absl::IsCancelled(Pull().status()));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/owner/repo/model-Q4_0.gguf"));
  stop_at_ = 0;
  const auto result = Pull();
  ExpectWhole(result);
  EXPECT_LT(result->received_bytes, kBytes / 2 + 1);
}

TEST_F(PullTest, ANameOfTheTableIsAFileOfTheHub) {
  table_ = *ModelTable::Parse(
      R"({"models": [{"names": ["toy:1b", "toy"], "repo": "owner/repo", "file": "model-Q4_0.gguf"}]})");
  ExpectWhole(Pull("toy"));
  const auto found = FindPulled("toy:1b", table_, {folder_.path()});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->name, "toy:1b");
}

TEST_F(PullTest, AChecksumOfTheTableCountsToo) {
  table_ = *ModelTable::Parse(
      R"({"models": [{"names": ["toy"], "repo": "owner/repo", "file": "model-Q4_0.gguf", "sha256": ")" +
      std::string(64, '0') + R"("}]})");
  EXPECT_TRUE(absl::IsDataLoss(Pull("toy").status()));
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(PullTest, AQuantisationNamesAFile) { ExpectWhole(Pull("hf:owner/repo:Q4_0")); }

TEST_F(PullTest, PartsOfModelsAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(Pull("hf:owner/repo:mmproj-model-f16.gguf").status()));
  EXPECT_TRUE(absl::IsNotFound(Pull("hf:owner/repo:none.gguf").status()));
  EXPECT_TRUE(absl::IsNotFound(Pull("gemma3:9b").status()));
}

TEST_F(PullTest, AProxyOfTheEnvironmentIsAsked) {
  testing::TestServer proxy([](const TestRequest& request) {
    EXPECT_THAT(request.target, HasSubstr("http://hub.invalid/owner/repo"));
    return TestReply{.status = 404};
  });
  ::setenv("http_proxy", proxy.url().c_str(), 1);
  options_.hub.endpoint = "http://hub.invalid";
  EXPECT_TRUE(absl::IsNotFound(Pull().status()));
  ::unsetenv("http_proxy");
  EXPECT_EQ(proxy.requests().size(), 1u);
}

// TANDEM_PULL_MEGABYTES=200 asks for the size of a real file.
TEST_F(PullTest, ManyCutsCostNoByteTwice) {
  const char* megabytes = std::getenv("TANDEM_PULL_MEGABYTES");
  const size_t bytes =
      megabytes != nullptr ? std::strtoul(megabytes, nullptr, 10) * 1000000 : 20000000;
  const size_t cut = bytes / 40;
  options_.transfer.segment_bytes = TransferOptions().segment_bytes;
  fake_.SetContent(FakeHub::MakeContent(bytes));
  fake_.Set({.cut_every = cut});
  const auto begin = std::chrono::steady_clock::now();
  const auto result = Pull();
  ExpectWhole(result);
  std::printf("%zu bytes, cut every %zu: %zu sent in %zu answers, %.2f s\n", bytes, cut,
              static_cast<size_t>(fake_.cdn().body_bytes()), fake_.cdn().requests().size(),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  EXPECT_EQ(fake_.cdn().body_bytes(), bytes);
  EXPECT_GE(fake_.cdn().requests().size(), 40u);
}

}  // namespace
}  // namespace tandem::pull

#include "services/gateway/http/http_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "services/common/rpc/error_details.h"
#include "services/common/testing/temporary_directory.h"
#include "services/gateway/http/api_keys.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;

TEST(HttpMessageTest, CodesMapAsGooglesDo) {
  const std::pair<int, int> expected[] = {{0, 200},  {1, 499},  {2, 500},  {3, 400},  {4, 504},
                                          {5, 404},  {6, 409},  {7, 403},  {8, 429},  {9, 400},
                                          {10, 409}, {11, 400}, {12, 501}, {13, 500}, {14, 503},
                                          {15, 500}, {16, 401}};
  for (const auto& [code, http] : expected) {
    EXPECT_EQ(HttpStatusOf(static_cast<absl::StatusCode>(code)), http) << code;
  }
}

TEST(HttpMessageTest, RetryAfterComesFromRetryInfo) {
  const absl::Status plain = absl::ResourceExhaustedError("full");
  EXPECT_EQ(FailureOf(plain).retry_after_seconds, 1);
  EXPECT_EQ(FailureOf(absl::InternalError("x")).retry_after_seconds, std::nullopt);
  EXPECT_EQ(FailureOf(WithRetryAfter(plain, absl::Milliseconds(2500))).retry_after_seconds, 3);
  EXPECT_EQ(FailureOf(WithRetryAfter(plain, absl::ZeroDuration())).retry_after_seconds, 1);
  EXPECT_EQ(StatusResponse(FailureOf(WithRetryAfter(plain, absl::Milliseconds(2500)))).body,
            R"({"code":8,"message":"full","details":[)"
            R"({"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2.500s"}]})");
}

TEST(HttpMessageTest, DetailsSurviveGrpcAndUnknownOnesAreLeftOut) {
  absl::Status status = WithRetryAfter(absl::UnavailableError("gone"), absl::Seconds(7));
  EXPECT_EQ(FromDetailedGrpcStatus(ToDetailedGrpcStatus(status)), status);
  EXPECT_EQ(FromDetailedGrpcStatus(ToDetailedGrpcStatus(absl::InternalError("x"))),
            absl::InternalError("x"));
  EXPECT_TRUE(FromDetailedGrpcStatus(ToDetailedGrpcStatus(absl::OkStatus())).ok());
  status.SetPayload("type.googleapis.com/nobody.Knows", absl::Cord("x"));
  EXPECT_EQ(StatusResponse(FailureOf(status)).body, R"({"code":14,"message":"gone","details":[]})");
}

TEST(HttpMessageTest, AcceptNamesTypesWithWeights) {
  const auto accepts = [](const char* field) {
    HttpRequest request;
    request.headers = {{"accept", field}};
    return request.Accepts("text/event-stream");
  };
  for (const char* yes : {"text/event-stream", "TEXT/Event-Stream", "text/html, text/event-stream",
                          "text/event-stream;q=0.5", "text/event-stream ; charset=utf-8"}) {
    EXPECT_TRUE(accepts(yes)) << yes;
  }
  for (const char* no : {"", "*/*", "text/*", "text/event-stream;q=0", "text/event-streams"}) {
    EXPECT_FALSE(accepts(no)) << no;
  }
}

TEST(HttpMessageTest, AcceptEncodingNamesCodingsWithWeights) {
  const auto accepts = [](const char* field) {
    HttpRequest request;
    request.headers = {{"Accept-Encoding", field}};
    return request.AcceptsEncoding("gzip");
  };
  for (const char* yes : {"gzip", "GZIP", "br, gzip", "gzip;q=0.1", "deflate;q=1, gzip ; q=0.5"}) {
    EXPECT_TRUE(accepts(yes)) << yes;
  }
  for (const char* no : {"", "*", "identity", "gzip;q=0", "br, gzip;q=0.0", "gzipped"}) {
    EXPECT_FALSE(accepts(no)) << no;
  }
}

// sha256 of "one".
constexpr char kOne[] = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";

TEST(ApiKeysTest, ReadsNamesHashesAndLimits) {
  const std::string line = std::string("a sha256:") + kOne;
  EXPECT_TRUE(ApiKeys::Parse("# x\n\n  " + line + " requests=1 tokens=2\tconcurrency=3\r\n").ok());
  for (const std::string& bad :
       {std::string(""), std::string("a"), std::string("a sha256:12"), "a md5:" + std::string(kOne),
        line + " requests=0", line + " requests", line + " tokens=-1", line + " x=1",
        line + "\n" + line, line + "\nb sha256:" + kOne}) {
    EXPECT_EQ(ApiKeys::Parse(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(ApiKeys::Load("/nonexistent").status().code(), absl::StatusCode::kNotFound);
}

TEST(ApiKeysTest, BucketsFillEvenly) {
  const auto keys = ApiKeys::Parse(std::string("a sha256:") + kOne + " requests=60");
  ASSERT_TRUE(keys.ok());
  const absl::Time start = absl::UnixEpoch();
  for (int i = 0; i < 60; ++i) {
    EXPECT_TRUE(std::holds_alternative<KeyLease>((*keys)->Admit("one", start))) << i;
  }
  const auto refused = (*keys)->Admit("one", start);
  ASSERT_TRUE(std::holds_alternative<HttpFailure>(refused));
  EXPECT_EQ(std::get<HttpFailure>(refused).retry_after_seconds, 1);
  const auto admitted = [&keys](absl::Time now) {
    return std::holds_alternative<KeyLease>((*keys)->Admit("one", now));
  };
  EXPECT_FALSE(admitted(start + absl::Milliseconds(900)));
  EXPECT_TRUE(admitted(start + absl::Milliseconds(1001)));
  EXPECT_FALSE(admitted(start + absl::Milliseconds(1500)));
  EXPECT_FALSE(admitted(start)) << "a clock set back earns nothing";
}

TEST(ApiKeysTest, TokensMayBeOwed) {
  const auto keys = ApiKeys::Parse(std::string("a sha256:") + kOne + " tokens=600");
  ASSERT_TRUE(keys.ok());
  const absl::Time start = absl::UnixEpoch();
  {
    const auto lease = (*keys)->Admit("one", start);
    ASSERT_TRUE(std::holds_alternative<KeyLease>(lease));
    std::get<KeyLease>(lease).client()->ChargeTokens(200, 1000);
  }
  const auto refused = (*keys)->Admit("one", start);
  ASSERT_TRUE(std::holds_alternative<HttpFailure>(refused));
  EXPECT_EQ(std::get<HttpFailure>(refused).retry_after_seconds, 61);
  EXPECT_TRUE(std::holds_alternative<KeyLease>((*keys)->Admit("one", start + absl::Seconds(61))));
  EXPECT_EQ(std::get<HttpFailure>((*keys)->Admit("two", start)).http_status, 401);
}

TEST(ApiKeysTest, ARequestOfManySequencesCountsForEachOfThem) {
  const auto keys = ApiKeys::Parse(std::string("a sha256:") + kOne +
                                   " requests=10 concurrency=4 weight=3 priority=-5");
  ASSERT_TRUE(keys.ok()) << keys.status();
  const auto lease = (*keys)->Admit("one", absl::Now());
  ASSERT_TRUE(std::holds_alternative<KeyLease>(lease));
  HttpClient& client = *std::get<KeyLease>(lease).client();
  EXPECT_EQ(client.weight(), 3u);
  EXPECT_EQ(client.max_at_once(), 4u);
  EXPECT_EQ(client.least_priority(), -5);
  EXPECT_EQ(client.cache_scope(), client.tenant()) << "prefixes are the key's own";
  const absl::Status many = client.Reserve({.sequences = 128, .at_once = 128});
  EXPECT_THAT(std::string(many.message()),
              HasSubstr("asks for 128 sequences at a time, its limit concurrency=4 never allows"));
  // Waiting does not help, so there is no Retry-After.
  EXPECT_EQ(FailureOf(many).http_status, 400);
  EXPECT_FALSE(FailureOf(many).retry_after_seconds.has_value());
  EXPECT_EQ(FailureOf(client.Reserve({.sequences = 11, .at_once = 1})).http_status, 400);
  const RequestCost cost{.sequences = 8, .at_once = 4};
  ASSERT_TRUE(client.Reserve(cost).ok());
  EXPECT_TRUE(std::holds_alternative<HttpFailure>((*keys)->Admit("one", absl::Now())))
      << "a fifth sequence at a time";
  client.Release(cost);
  EXPECT_TRUE(std::holds_alternative<KeyLease>((*keys)->Admit("one", absl::Now())));
  const absl::Status later = client.Reserve(cost);
  EXPECT_EQ(FailureOf(later).http_status, 429) << "9 of 10 sequences a minute were used";
  EXPECT_GE(FailureOf(later).retry_after_seconds, 1);
}

TEST(ApiKeysTest, TokensAreReservedAndWhatIsNotUsedComesBack) {
  const auto keys = ApiKeys::Parse(std::string("a sha256:") + kOne + " tokens=200");
  ASSERT_TRUE(keys.ok());
  const auto lease = (*keys)->Admit("one", absl::Now());
  HttpClient& client = *std::get<KeyLease>(lease).client();
  EXPECT_EQ(client.tokens_left(), 200u);
  const absl::Status never = client.Reserve({.tokens = 12000});
  EXPECT_THAT(std::string(never.message()), HasSubstr("asks for 12000 tokens"));
  EXPECT_THAT(std::string(never.message()), HasSubstr("tokens=200 never allows such a request"));
  EXPECT_EQ(FailureOf(never).http_status, 400);
  const RequestCost cost{.tokens = 150};
  ASSERT_TRUE(client.Reserve(cost).ok());
  const absl::Status later = client.Reserve(cost);
  EXPECT_EQ(later.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(FailureOf(later).retry_after_seconds, 25);  // 100 tokens are missing
  client.ChargeTokens(10, 20);
  client.Release(cost);
  EXPECT_GE(*client.tokens_left(), 170u);
  EXPECT_LE(*client.tokens_left(), 180u);
}

TEST(ApiKeysTest, TokensThatWereUsedAreNoLongerReserved) {
  const auto keys = ApiKeys::Parse(std::string("a sha256:") + kOne + " tokens=200");
  ASSERT_TRUE(keys.ok());
  const auto lease = (*keys)->Admit("one", absl::Now());
  const auto client = std::get<KeyLease>(lease).client();
  auto reservation = ClientReservation::Make(client, {.tokens = 150});
  ASSERT_TRUE(reservation.ok());
  EXPECT_LE(*client->tokens_left(), 55u);
  (*reservation)->Charge(30, 70);
  EXPECT_GE(*client->tokens_left(), 50u) << "used or reserved, and not both";
  EXPECT_LE(*client->tokens_left(), 60u);
  (*reservation)->Charge(10, 90);  // more than was reserved
  EXPECT_LE(*client->tokens_left(), 10u);
  reservation->reset();
  EXPECT_LE(*client->tokens_left(), 10u);
}

TEST(ApiKeysTest, RequestsAtOnceCannotPassTheLimitTogether) {
  const auto keys =
      ApiKeys::Parse(std::string("a sha256:") + kOne + " tokens=1000 concurrency=1000");
  ASSERT_TRUE(keys.ok());
  std::atomic<int> num_let_in = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j) {
        const auto lease = (*keys)->Admit("one", absl::Now());
        if (!std::holds_alternative<KeyLease>(lease)) continue;
        if (std::get<KeyLease>(lease).client()->Reserve({.tokens = 200}).ok()) ++num_let_in;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_let_in, 5);
}

TEST(ApiKeysTest, OnlyAnAdminKeySeesAll) {
  for (const char* admin : {"", " admin"}) {
    const auto keys = ApiKeys::Parse(std::string("a sha256:") + kOne + admin);
    ASSERT_TRUE(keys.ok()) << keys.status();
    const auto lease = (*keys)->Admit("one", absl::Now());
    EXPECT_EQ(std::get<KeyLease>(lease).client()->sees_all(), admin[0] != '\0');
    EXPECT_EQ(std::get<KeyLease>(lease).client()->tenant(), std::string("key:") + kOne);
  }
}

TEST(ApiKeysTest, AWeightHasBounds) {
  for (const char* weight : {"weight=0", "weight=1001", "weight=x", "priority=101", "priority=-101",
                             "priority=x", "priority"}) {
    EXPECT_FALSE(ApiKeys::Parse(std::string("a sha256:") + kOne + " " + weight).ok()) << weight;
  }
}

TEST(ApiKeysTest, WhatIsUsedIsCountedByKeyAndOutlivesANewNameAndLimits) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/keys";
  std::ofstream(path) << "a sha256:" << kOne << " requests=2 tokens=100\n";
  const auto keys = ApiKeys::Load(path);
  ASSERT_TRUE(keys.ok()) << keys.status();
  const absl::Time start = absl::UnixEpoch();
  {
    const auto lease = (*keys)->Admit("one", start);
    ASSERT_TRUE(std::holds_alternative<KeyLease>(lease));
    std::get<KeyLease>(lease).client()->ChargeTokens(200, 1000);
    EXPECT_EQ((*keys)->Usage()[0].running, 1u);
  }
  EXPECT_TRUE(std::holds_alternative<KeyLease>((*keys)->Admit("one", start, /*counts=*/false)));
  EXPECT_EQ(std::get<HttpFailure>((*keys)->Admit("one", start)).http_status, 429);
  EXPECT_EQ(std::get<HttpFailure>((*keys)->Admit("no such key", start)).http_status, 401);
  std::ofstream(path) << "b sha256:" << kOne << " requests=1\n";
  ASSERT_TRUE((*keys)->Reload().ok());
  EXPECT_TRUE(std::holds_alternative<KeyLease>((*keys)->Admit("one", start)));
  EXPECT_EQ(std::get<HttpFailure>((*keys)->Admit("one", start)).http_status, 429);
  const std::vector<KeyCounts> usage = (*keys)->Usage();
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_EQ(usage[0].name, "b");
  EXPECT_EQ(usage[0].requests, 2u) << "GETs do not count";
  EXPECT_EQ(usage[0].running, 0u);
  EXPECT_EQ(usage[0].prompt_tokens, 200u);
  EXPECT_EQ(usage[0].completion_tokens, 1000u);
  EXPECT_EQ(usage[0].over_tokens, 1u);
  EXPECT_EQ(usage[0].over_requests, 1u);
  EXPECT_EQ(usage[0].over_concurrency, 0u);
  EXPECT_EQ((*keys)->num_unknown(), 1u);
}

TEST(ErrorDetailsTest, MessagesFitIntoAHeaderWhateverWasEchoed) {
  for (const absl::Status& status :
       {absl::NotFoundError(std::string(100000, 'x') + "\n\xFF"),
        WithRetryAfter(absl::UnavailableError(std::string(100000, '\xC3')), absl::Seconds(1))}) {
    const grpc::Status sent = ToDetailedGrpcStatus(status);
    EXPECT_LT(sent.error_message().size() + sent.error_details().size(), 4096u);
    for (const char c : sent.error_message()) EXPECT_TRUE(c >= ' ' && c <= '~');
    EXPECT_EQ(FromDetailedGrpcStatus(sent).code(), status.code());
  }
}

}  // namespace
}  // namespace tandem::gateway

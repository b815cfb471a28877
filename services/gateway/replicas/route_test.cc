#include "services/gateway/replicas/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;

std::vector<uint32_t> Ranked(std::vector<RouteCandidate> candidates, uint32_t prompt_tokens) {
  std::vector<uint32_t> replicas;
  for (const RouteCandidate& candidate : RankReplicas(std::move(candidates), prompt_tokens)) {
    replicas.push_back(candidate.replica);
  }
  return replicas;
}

TEST(RouteTest, AReplicaWhereTheRequestEndsMuchLaterIsBehindTheOthers) {
  EXPECT_THAT(Ranked({{.replica = 0, .seconds = 4.0, .num_requests = 1},
                      {.replica = 1, .seconds = 1.0, .num_requests = 9},
                      {.replica = 2, .seconds = 1.4, .num_requests = 3}},
                     1000),
              ElementsAre(2, 1, 0));
}

TEST(RouteTest, AForecastCountsForLessTheLongerTheReplicaWasIdle) {
  EXPECT_THAT(Ranked({{.replica = 0, .seconds = 3.0, .idle_seconds = 5.0},
                      {.replica = 1, .seconds = 1.0, .num_requests = 2}},
                     0),
              ElementsAre(1, 0));
  EXPECT_THAT(Ranked({{.replica = 0, .seconds = 3.0, .idle_seconds = 25.0},
                      {.replica = 1, .seconds = 1.0, .num_requests = 2}},
                     0),
              ElementsAre(0, 1));
}

TEST(RouteTest, TheLongestPrefixUnlessTheRequestEndsMuchLaterThere) {
  EXPECT_THAT(Ranked({{.replica = 0, .seconds = 1.0},
                      {.replica = 1, .cached_tokens = 500, .seconds = 1.4, .num_requests = 9}},
                     1000),
              ElementsAre(1, 0));
  EXPECT_THAT(Ranked({{.replica = 0, .seconds = 1.0},
                      {.replica = 1, .cached_tokens = 500, .seconds = 1.6, .num_requests = 9}},
                     1000),
              ElementsAre(0, 1));
}

TEST(RouteTest, TheFirstWordsOfATemplateDecideNothing) {
  EXPECT_THAT(Ranked({{.replica = 0, .cached_tokens = 16, .num_requests = 2},
                      {.replica = 1, .num_requests = 1}},
                     400),
              ElementsAre(1, 0));
}

TEST(RouteTest, WithoutMeasurementsThoseWithFewerRequestsThenThoseGivenFewer) {
  EXPECT_THAT(Ranked({{.replica = 0, .seconds = 1.0, .num_requests = 1, .num_given = 7},
                      {.replica = 1, .num_requests = 1, .num_given = 6},
                      {.replica = 2, .num_requests = 0, .num_given = 9}},
                     0),
              ElementsAre(2, 1, 0));
  EXPECT_TRUE(Ranked({}, 10).empty());
}

}  // namespace
}  // namespace tandem::gateway

#include "services/gateway/metrics/picture_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/common/metrics/metrics_server.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;

TEST(PictureMetricsTest, ThePageCountsOutcomesAndStages) {
  PictureCounters counters;
  counters.Add(PictureOutcome::kEncoded);
  counters.Add(PictureOutcome::kCached);
  counters.Add(PictureOutcome::kCached);
  counters.Add(PictureOutcome::kRefused);
  counters.AddStage(PictureStage::kDecode, absl::Milliseconds(3));
  counters.AddStage(PictureStage::kEncode, absl::Milliseconds(250));
  const std::string page = MetricsText([&](MetricSamples& samples) {
    counters.AddTo({.waiting = 4, .cached = 5, .cached_bytes = 600}, samples);
  });
  for (const char* line :
       {"tandem_pictures_total{outcome=\"cached\"} 2\n",
        "tandem_pictures_total{outcome=\"encoded\"} 1\n",
        "tandem_pictures_total{outcome=\"refused\"} 1\n",
        "tandem_pictures_total{outcome=\"failed\"} 0\n",
        "tandem_picture_seconds_count{stage=\"decode\"} 1\n",
        "tandem_picture_seconds_bucket{stage=\"decode\",le=\"0.005\"} 1\n",
        "tandem_picture_seconds_count{stage=\"prepare\"} 0\n",
        "tandem_picture_seconds_sum{stage=\"encode\"} 0.25\n",
        "tandem_picture_requests_waiting 4\n", "tandem_picture_cache_pictures 5\n",
        "tandem_picture_cache_bytes 600\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

}  // namespace
}  // namespace tandem::gateway

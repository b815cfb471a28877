#include "services/gateway/trace/span_exporter.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/rpc/testing/certificates.h"
#include "services/common/testing/eventually.h"
#include "services/common/testing/temporary_directory.h"
#include "services/gateway/trace/testing/fake_collector.h"

namespace tandem::gateway {
namespace {

using testing::FakeCollector;

class FakeSource final : public SpanSource {
 public:
  FakeSource(std::string name, size_t num_spans) : name_(std::move(name)), num_spans_(num_spans) {}
  size_t num_spans() const override { return num_spans_; }
  void AppendSpans(otlp::v1::ScopeSpans& spans) const override {
    for (size_t i = 0; i < num_spans_; ++i) spans.add_spans()->set_name(name_);
  }

 private:
  const std::string name_;
  const size_t num_spans_;
};

void Add(SpanExporter& exporter, const std::string& name, size_t num_spans = 1) {
  exporter.Add(std::make_shared<FakeSource>(name, num_spans));
}

SpanExporterOptions Options(const std::string& url) {
  return {.url = url,
          .resource = {{"service.name", "tandem-gateway"}},
          .max_queued_spans = 100,
          .max_batch_spans = 10,
          .batch_delay = absl::Milliseconds(5),
          .min_pause = absl::Milliseconds(2),
          .max_pause = absl::Milliseconds(4)};
}

std::unique_ptr<SpanExporter> Start(SpanExporterOptions options) {
  auto exporter = SpanExporter::Start(std::move(options));
  EXPECT_TRUE(exporter.ok()) << exporter.status();
  return *std::move(exporter);
}

uint64_t Dropped(const SpanExporter& exporter, SpanDrop reason) {
  return exporter.counts().dropped[static_cast<size_t>(reason)];
}

// Waits until nothing is queued.
void Settle(const SpanExporter& exporter) {
  EXPECT_TRUE(tandem::testing::Eventually([&] { return exporter.counts().queued == 0; }));
}

TEST(SpanExporterTest, SendsWhatItIsGivenInBatches) {
  FakeCollector collector;
  auto exporter = Start(Options(collector.url()));
  for (int i = 0; i < 25; ++i) Add(*exporter, absl::StrFormat("span %d", i));
  ASSERT_TRUE(collector.WaitForSpans(25));
  EXPECT_EQ(collector.content_type(), "application/x-protobuf");
  const auto spans = collector.spans();
  for (int i = 0; i < 25; ++i) EXPECT_EQ(spans[i].name(), absl::StrFormat("span %d", i));
  for (const auto& batch : collector.batches()) {
    ASSERT_EQ(batch.resource_spans_size(), 1);
    const auto& resource = batch.resource_spans(0);
    EXPECT_EQ(resource.resource().attributes(0).key(), "service.name");
    EXPECT_EQ(resource.resource().attributes(0).value().string_value(), "tandem-gateway");
    EXPECT_EQ(resource.scope_spans(0).scope().name(), "tandem");
    EXPECT_LE(resource.scope_spans(0).spans_size(), 10);
  }
  Settle(*exporter);
  EXPECT_EQ(exporter->counts().exported, 25u);
}

TEST(SpanExporterTest, SendsASourceOfMoreSpansThanABatchAlone) {
  FakeCollector collector;
  auto exporter = Start(Options(collector.url()));
  Add(*exporter, "small");
  Add(*exporter, "large", 64);
  ASSERT_TRUE(collector.WaitForSpans(65));
  const auto batches = collector.batches();
  EXPECT_EQ(batches.back().resource_spans(0).scope_spans(0).spans_size(), 64);
}

TEST(SpanExporterTest, DropsWhatTheQueueCannotHoldAndNeverWaits) {
  // Answers nothing: the first batch is under way for ever.
  FakeCollector collector([](int) { return HttpResponse{.status = 0}; });
  SpanExporterOptions options = Options(collector.url());
  options.flush = absl::Milliseconds(1);
  auto exporter = Start(options);
  for (int i = 0; i < 100; ++i) Add(*exporter, "kept");
  EXPECT_EQ(Dropped(*exporter, SpanDrop::kQueueFull), 0u);
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 1000; ++i) Add(*exporter, "dropped");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
  EXPECT_EQ(Dropped(*exporter, SpanDrop::kQueueFull), 1000u);
  EXPECT_EQ(exporter->counts().queued, 100u);
  ASSERT_TRUE(collector.WaitForBatches(1));
}

TEST(SpanExporterTest, TriesAgainWhenTheCollectorIsBusy) {
  FakeCollector collector([](int n) {
    constexpr int kBusy[] = {429, 503, 502, 504};
    return HttpResponse{.status = n < 4 ? kBusy[n] : 200};
  });
  auto exporter = Start(Options(collector.url()));
  Add(*exporter, "patient");
  ASSERT_TRUE(collector.WaitForSpans(1));
  EXPECT_EQ(collector.num_posts(), 5u);
  Settle(*exporter);
  EXPECT_EQ(exporter->counts().exported, 1u);
  EXPECT_EQ(exporter->counts().dropped, (std::array<uint64_t, kNumSpanDrops>{}));
}

TEST(SpanExporterTest, WaitsAsLongAsRetryAfterSays) {
  std::array<absl::Time, 2> came;
  FakeCollector collector([&came](int n) {
    came.at(n) = absl::Now();
    HttpResponse response{.status = n == 0 ? 503 : 200};
    if (n == 0) response.headers.emplace_back("Retry-After", "1");
    return response;
  });
  auto exporter = Start(Options(collector.url()));
  Add(*exporter, "patient");
  ASSERT_TRUE(collector.WaitForSpans(1));
  EXPECT_GE(came[1] - came[0], absl::Milliseconds(999));
}

TEST(SpanExporterTest, DropsWhatTheCollectorRefuses) {
  FakeCollector collector([](int n) { return HttpResponse{.status = n == 0 ? 400 : 200}; });
  auto exporter = Start(Options(collector.url()));
  Add(*exporter, "refused", 3);
  Settle(*exporter);
  EXPECT_EQ(Dropped(*exporter, SpanDrop::kRejected), 3u);
  Add(*exporter, "taken", 2);
  ASSERT_TRUE(collector.WaitForSpans(2));
  EXPECT_EQ(collector.num_posts(), 2u);
}

TEST(SpanExporterTest, CountsWhatTheCollectorTookInPart) {
  FakeCollector collector([](int) {
    otlp::v1::ExportTraceServiceResponse response;
    response.mutable_partial_success()->set_rejected_spans(2);
    return HttpResponse{.body = response.SerializeAsString()};
  });
  auto exporter = Start(Options(collector.url()));
  Add(*exporter, "in part", 5);
  Settle(*exporter);
  EXPECT_EQ(exporter->counts().exported, 3u);
  EXPECT_EQ(Dropped(*exporter, SpanDrop::kRejected), 2u);
}

TEST(SpanExporterTest, GivesUpWhatNobodyTakes) {
  std::string url;
  { url = FakeCollector().url(); }  // gone: connections to it are refused
  SpanExporterOptions options = Options(url);
  options.max_batch_age = absl::Milliseconds(50);
  auto exporter = Start(options);
  Add(*exporter, "lost", 4);
  Settle(*exporter);
  EXPECT_EQ(Dropped(*exporter, SpanDrop::kUnreachable), 4u);
}

TEST(SpanExporterTest, GivesUpACollectorThatDoesNotAnswer) {
  FakeCollector collector([](int n) { return HttpResponse{.status = n == 0 ? 0 : 200}; });
  SpanExporterOptions options = Options(collector.url());
  options.timeout = absl::Milliseconds(50);
  auto exporter = Start(options);
  Add(*exporter, "late");
  ASSERT_TRUE(collector.WaitForSpans(1));
  EXPECT_EQ(collector.num_posts(), 2u);
}

TEST(SpanExporterTest, FlushesAtTheEnd) {
  FakeCollector collector;
  SpanExporterOptions options = Options(collector.url());
  options.batch_delay = absl::Hours(1);
  auto exporter = Start(options);
  Add(*exporter, "last", 7);
  exporter.reset();
  EXPECT_EQ(collector.spans().size(), 7u);
}

TEST(SpanExporterTest, EndsInTimeWhenTheCollectorHangs) {
  FakeCollector collector([](int) { return HttpResponse{.status = 0}; });
  SpanExporterOptions options = Options(collector.url());
  options.flush = absl::Milliseconds(100);
  auto exporter = Start(options);
  for (int i = 0; i < 50; ++i) Add(*exporter, "lost");
  ASSERT_TRUE(collector.WaitForBatches(1));
  const absl::Time begin = absl::Now();
  exporter.reset();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

TEST(SpanExporterTest, SendsOverTlsToATrustedCollector) {
  const TemporaryDirectory folder;
  const tandem::testing::CertificateAuthority authority(folder.path(), "authority");
  const tandem::testing::CertificateAuthority other(folder.path(), "other");
  const TlsFiles files = authority.Issue("collector", "IP:127.0.0.1");
  FakeCollector collector(nullptr, files);
  ASSERT_TRUE(collector.url().starts_with("https://")) << collector.url();
  SpanExporterOptions options = Options(collector.url());
  options.ca_file = folder.path() + "/other.pem";
  options.max_batch_age = absl::Milliseconds(50);
  auto exporter = Start(options);
  Add(*exporter, "secret", 3);
  Settle(*exporter);
  EXPECT_EQ(Dropped(*exporter, SpanDrop::kUnreachable), 3u);
  EXPECT_EQ(collector.num_posts(), 0u);

  options.ca_file = files.ca;
  exporter = Start(options);
  Add(*exporter, "secret", 3);
  EXPECT_TRUE(collector.WaitForSpans(3));
}

TEST(SpanExporterTest, ReadsUrls) {
  const std::pair<const char*, const char*> good[] = {
      {"http://collector:4318/v1/traces", "http://collector:4318/v1/traces"},
      {"https://collector/otlp", "https://collector/otlp"},
      {"http://[::1]:4318", "http://[::1]:4318/v1/traces"},
      {"https://collector:4318/", "https://collector:4318/v1/traces"}};
  for (const auto& [text, whole] : good) {
    const auto url = ParseCollectorUrl(text);
    ASSERT_TRUE(url.ok()) << url.status();
    EXPECT_EQ(*url, whole);
  }
  for (const char* bad : {"", "collector:4318", "ftp://collector", "http://", "http:///traces",
                          "http://:80", "http://a:0", "http://a:65536", "http://a:b", "http://u@a",
                          "http://a b", "http://a#b", "http://lo%calhost:4318", "http://a%01b"}) {
    const auto refused = ParseCollectorUrl(bad);
    EXPECT_FALSE(refused.ok()) << bad;
    EXPECT_FALSE(SpanExporter::Start({.url = bad}).ok()) << bad;
  }
}

}  // namespace
}  // namespace tandem::gateway

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/time/clock.h"
#include "services/common/metrics/amdgpu_metrics.h"
#include "services/common/metrics/histogram.h"
#include "services/common/metrics/metrics_server.h"
#include "services/common/metrics/process_metrics.h"
#include "services/common/testing/status_matchers.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr MetricSpec kCount{
    "test_things_total", MetricType::kCounter, "Things.", {"kind", "place"}};
constexpr MetricSpec kLevel{"test_level", MetricType::kGauge, "Level."};

void AddTest(MetricSamples& samples) {
  samples.Add(kCount, 3, {"round", "here"});
  samples.Add(kLevel, -1.5);
  samples.Add(kCount, 4, {"a \"b\"\n", "there"});
}

TEST(MetricSpecTest, PagesHoldEachMetricOnceWithItsHelpAndType) {
  EXPECT_THAT(MetricsText(AddTest),
              ::testing::StartsWith("# HELP test_things_total Things.\n"
                                    "# TYPE test_things_total counter\n"
                                    "test_things_total{kind=\"round\",place=\"here\"} 3\n"
                                    "test_things_total{kind=\"a \\\"b\\\"\\n\",place=\"there\"} 4\n"
                                    "# HELP test_level Level.\n"
                                    "# TYPE test_level gauge\n"
                                    "test_level -1.5\n"));
}

TEST(MetricSpecTest, TablesNameTypeLabelsAndMeaning) {
  EXPECT_EQ(DescribeMetrics("Test", {kCount, kLevel}),
            "## Test\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
            "| `test_things_total` | counter | `kind`, `place` | Things. |\n"
            "| `test_level` | gauge |  | Level. |\n\n");
}

constexpr double kBuckets[] = {0.5, 2};
constexpr MetricSpec kSizes{"test_sizes", MetricType::kHistogram, "Sizes.", {"kind"}, kBuckets};

TEST(HistogramTest, ABucketHoldsWhatIsAtMostItsBoundAndThoseBefore) {
  Histogram histogram(kSizes);
  for (const double value : {0.5, 0.51, 2.0, 2.5, -1.0}) histogram.Observe(value);
  EXPECT_THAT(MetricsText([&](MetricSamples& samples) { histogram.AddTo(samples, {"odd"}); }),
              ::testing::StartsWith(
                  "# HELP test_sizes Sizes.\n# TYPE test_sizes histogram\n"
                  "test_sizes_count{kind=\"odd\"} 5\ntest_sizes_sum{kind=\"odd\"} 4.51\n"
                  "test_sizes_bucket{kind=\"odd\",le=\"0.5\"} 2\n"
                  "test_sizes_bucket{kind=\"odd\",le=\"2\"} 4\n"
                  "test_sizes_bucket{kind=\"odd\",le=\"+Inf\"} 5\n# HELP tandem_build_info"));
}

TEST(HistogramTest, ThreadsLoseNothing) {
  Histogram histogram(kSizes);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&histogram] {
      for (int i = 0; i < 10000; ++i) histogram.Observe(i % 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string page =
      MetricsText([&](MetricSamples& samples) { histogram.AddTo(samples, {"odd"}); });
  EXPECT_THAT(page, HasSubstr("test_sizes_sum{kind=\"odd\"} 20000\n"));
  EXPECT_THAT(page, HasSubstr("le=\"0.5\"} 20000\n"));
  EXPECT_THAT(page, HasSubstr("le=\"+Inf\"} 40000\n"));
}

TEST(ProcessMetricsTest, SayWhatTheKernelSays) {
  MetricSamples samples;
  AddProcessMetrics(samples);
  std::map<std::string, double> values;
  for (const auto& family : std::move(samples).Take()) {
    const auto& metric = family.metric.at(0);
    values[family.name] =
        family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
  }
  EXPECT_EQ(values.size(), ProcessMetrics::All().size());
  EXPECT_EQ(values.at("tandem_build_info"), 1);
  EXPECT_GT(values.at("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(values.at("process_threads"), 1);
  EXPECT_GE(values.at("process_open_fds"), 3);
  EXPECT_EQ(values.at("process_max_fds"), static_cast<double>(::sysconf(_SC_OPEN_MAX)));
  const auto now = static_cast<double>(::time(nullptr));
  EXPECT_LE(values.at("process_start_time_seconds"), now + 1);
  EXPECT_GT(values.at("process_start_time_seconds"), now - 86400);
}

TEST(AmdgpuMetricsTest, ReadsWhatTheDriverShowsAndLeavesOutTheRest) {
  const fs::path root = fs::path(::testing::TempDir()) / "amdgpu-metrics";
  fs::remove_all(root);
  const auto write = [&root](const std::string& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  };
  const std::string device = "sys/class/drm/card1/device/";
  write(device + "gpu_busy_percent", "37");
  write(device + "mem_info_vram_used", "1000");
  write(device + "mem_info_vram_total", "4000");
  write(device + "mem_info_gtt_used", "broken");
  write(device + "hwmon/hwmon3/power1_average", "25000000");
  write(device + "hwmon/hwmon3/temp1_input", "61500");
  write("sys/class/drm/card1-DP-1/device/gpu_busy_percent", "99");
  write("sys/class/drm/card2/device/vendor", "0x8086");
  const std::string text =
      MetricsText([&root](MetricSamples& samples) { AddAmdgpuMetrics(root, samples); });
  EXPECT_THAT(text, HasSubstr("tandem_amdgpu_busy_ratio{card=\"card1\"} 0.37\n"));
  EXPECT_THAT(text, HasSubstr("memory_used_bytes{card=\"card1\",heap=\"vram\"} 1000\n"));
  EXPECT_THAT(text, HasSubstr("memory_bytes{card=\"card1\",heap=\"vram\"} 4000\n"));
  EXPECT_THAT(text, Not(HasSubstr("\"gtt\"")));
  EXPECT_THAT(text, Not(HasSubstr("card2")));
  EXPECT_THAT(text, HasSubstr("tandem_amdgpu_power_watts{card=\"card1\"} 25\n"));
  EXPECT_THAT(text, HasSubstr("tandem_amdgpu_temperature_celsius{card=\"card1\"} 61.5\n"));
}

int Connect(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

std::string Get(int port, const std::string& path, const std::string& fields = "") {
  const int fd = Connect(port);
  const std::string request = "GET " + path + " HTTP/1.0\r\n" + fields + "\r\n";
  EXPECT_EQ(::write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char bytes[4096];
  for (ssize_t n; (n = ::read(fd, bytes, sizeof(bytes))) > 0;) answer.append(bytes, n);
  ::close(fd);
  return answer;
}

TEST(MetricsServerTest, IdleConnectionsDoNotHoldThePageBack) {
  ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("127.0.0.1:0", false, AddTest));
  for (const int num_idle : {2, 24}) {
    std::vector<int> idle;
    for (int i = 0; i < num_idle; ++i) idle.push_back(Connect(server->port()));
    const absl::Time begin = absl::Now();
    EXPECT_THAT(Get(server->port(), "/metrics"), HasSubstr("test_level -1.5\n"));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(10)) << num_idle;
    for (const int fd : idle) ::close(fd);
  }
}

TEST(MetricsServerTest, OnLoopbackThePageHasNoOtherName) {
  ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("127.0.0.1:0", false, AddTest));
  for (const char* host : {"127.0.0.1", "127.0.0.1:9464", "localhost:9464", "[::1]:9464"}) {
    EXPECT_THAT(Get(server->port(), "/metrics", std::string("Host: ") + host + "\r\n"),
                HasSubstr("test_level -1.5\n"))
        << host;
  }
  for (const char* host : {"evil.example", "127.0.0.1.evil.example:80"}) {
    const std::string answer =
        Get(server->port(), "/metrics", std::string("Host: ") + host + "\r\n");
    EXPECT_THAT(answer, HasSubstr(" 403 "));
    EXPECT_THAT(answer, Not(HasSubstr("test_level"))) << host;
  }
}

TEST(MetricsServerTest, ServesThePageOnLoopbackAlone) {
  ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("127.0.0.1:0", false, AddTest));
  EXPECT_THAT(Get(server->port(), "/metrics"), HasSubstr("test_level -1.5\n"));
  EXPECT_THAT(Get(server->port(), "/metrics"), HasSubstr("process_cpu_seconds_total "));
  EXPECT_THAT(Get(server->port(), "/other"), HasSubstr("404"));
  const std::string used = "127.0.0.1:" + std::to_string(server->port());
  EXPECT_THAT(MetricsServer::Start(used, false, AddTest).status(),
              testing::HasCode(absl::StatusCode::kAlreadyExists));
  for (const char* address : {"0.0.0.0:0", "localhost", "127.0.0.1:", "127.0.0.1:70000", ":1"}) {
    EXPECT_THAT(MetricsServer::Start(address, false, AddTest).status(),
                testing::HasCode(absl::StatusCode::kInvalidArgument))
        << address;
  }
}

TEST(MetricsServerTest, EndsAtOnce) {
  for (const char* address : {"127.0.0.1:0", "127.0.0.3:0", "[::1]:0", "0.0.0.0:0"}) {
    auto server = MetricsServer::Start(address, true, AddTest);
    if (!server.ok()) continue;  // no IPv6 here
    if (std::string(address) == "127.0.0.1:0") Get((*server)->port(), "/metrics");
    const absl::Time begin = absl::Now();
    server->reset();
    EXPECT_LT(absl::Now() - begin, absl::Seconds(2)) << address;
  }
}

}  // namespace
}  // namespace tandem

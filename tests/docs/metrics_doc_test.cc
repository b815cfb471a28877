// docs/metrics.md is what the tables in the code say.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "services/common/energy/device_energy.h"
#include "services/common/metrics/amdgpu_metrics.h"
#include "services/common/metrics/gpu_metrics.h"
#include "services/common/metrics/process_metrics.h"
#include "services/common/testing/paths.h"
#include "services/gateway/metrics/edge_metrics.h"
#include "services/gateway/metrics/gateway_metrics.h"
#include "services/gateway/metrics/key_metrics.h"
#include "services/gateway/metrics/picture_metrics.h"
#include "services/gateway/trace/tracing.h"
#include "services/loader/service/loader_metrics.h"
#include "services/npu_worker/xrt/npu_sensors.h"
#include "services/worker_host/worker_metrics.h"
#include "tools/tandem/supervisor/supervisor_metrics.h"

namespace tandem {
namespace {

struct Section {
  std::string heading;
  std::vector<MetricSpec> specs;
};

std::vector<Section> Sections() {
  return {{"Gateway", gateway::GatewayMetrics::All()},
          {"Gateway's gRPC connections", gateway::EdgeMetrics::All()},
          {"Gateway with --http-api-keys", gateway::KeyMetrics::All()},
          {"Gateway that accepts pictures", gateway::PictureMetrics::All()},
          {"Gateway with --otlp", gateway::TraceMetrics::All()},
          {"GPU and NPU workers", WorkerMetrics::All()},
          {"GPU workers", GpuMetrics::All()},
          {"GPU workers on AMD's driver (not verified on hardware)", AmdgpuMetrics::All()},
          {"GPU workers whose power can be read", EnergyMetrics::All()},
          {"NPU workers on XRT's devices (not verified on hardware)", npu::NpuSensorMetrics::All()},
          {"Loader", loader::LoaderMetrics::All()},
          {"tandem serve", SupervisorMetrics::All()},
          {"Every process", ProcessMetrics::All()}};
}

std::string Document() {
  std::string text =
      "# Metrics\n\n"
      "`--metrics HOST:PORT` gives a service a page for Prometheus at `/metrics`. HOST must be "
      "loopback, unless\n"
      "`--metrics-remote` is given too. `tandem serve --metrics` gives every service a page: "
      "the gateway on port 9464, the GPU\n"
      "worker on 9465, the NPU worker on 9466, the loader on 9467, itself on 9468.\n"
      "\n"
      "The gateway's HTTP port has the gateway's page too, for clients on this machine and for "
      "holders of an API key. A key\n"
      "without `admin` sees all metrics, but of those by key only its own. A request that a "
      "proxy forwards always needs a key.\n"
      "\n"
      "Histograms have the buckets of OpenTelemetry's conventions for generative AI. Labels "
      "are names of workers, stages,\n"
      "routes, models and the like, so clients cannot add series. The label `key` is a key's "
      "name in the key file; the first\n"
      "100 keys have series of their own, and the rest are `other`.\n"
      "\n"
      "This document is made from the tables in the code. To renew it, run `metrics_doc_test` "
      "and do what it prints.\n"
      "\n";
  for (const Section& section : Sections()) text += DescribeMetrics(section.heading, section.specs);
  text.pop_back();
  return text;
}

TEST(MetricsDocTest, TheDocumentIsWhatTheCodeDeclares) {
  std::ifstream file(SourcePath("docs/metrics.md"));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string made = BuildPath("metrics.md");
  std::ofstream(made) << Document();
  EXPECT_TRUE(text == Document()) << "to renew it: cp " << made << " docs/metrics.md";
}

TEST(MetricsDocTest, NamesAndLabelsFollowPrometheussRules) {
  std::set<std::string_view> names;
  for (const Section& section : Sections()) {
    for (const MetricSpec& spec : section.specs) {
      EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
      EXPECT_EQ(spec.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos);
      EXPECT_EQ(spec.type == MetricType::kCounter, spec.name.ends_with("_total")) << spec.name;
      EXPECT_TRUE(spec.help.ends_with('.')) << spec.name;
    }
  }
}

}  // namespace
}  // namespace tandem

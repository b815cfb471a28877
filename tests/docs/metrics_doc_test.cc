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
#include "services/common/worker/service/worker_metrics.h"
#include "services/gateway/metrics/edge_metrics.h"
#include "services/gateway/metrics/gateway_metrics.h"
#include "services/gateway/metrics/key_metrics.h"
#include "services/gateway/trace/tracing.h"
#include "services/loader/service/loader_metrics.h"
#include "services/npu_worker/xrt/npu_sensors.h"
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
      "`--metrics HOST:PORT` gives a service a page for Prometheus at `/metrics`, on loopback "
      "unless `--metrics-remote` is\ngiven too. The gateway has the same page on its HTTP port, "
      "for clients on this machine and for holders of an API key (a key\nwithout `admin` sees its "
      "own figures by key and no other key's);\na request that a proxy hands "
      "on needs a key wherever it comes from. `tandem serve --metrics` gives every service a "
      "page:\nthe gateway on port 9464, the GPU worker on 9465, the NPU worker on 9466, the "
      "loader on 9467, itself on 9468.\n\n"
      "Buckets of histograms are those of OpenTelemetry's conventions for generative AI. Labels "
      "are names of workers,\nstages, routes, models and the like: nothing that a client sends "
      "adds a series. API keys are counted by their names in the\nkey file, a hundred of them at "
      "most; the rest are `other`. This list is made from the tables in\nthe code; "
      "`metrics_doc_test` says "
      "how to renew it.\n\n";
  for (const Section& section : Sections()) text += DescribeMetrics(section.heading, section.specs);
  text.pop_back();
  return text;
}

TEST(MetricsDocTest, TheDocumentIsWhatTheCodeDeclares) {
  std::ifstream file(TANDEM_SOURCE_DIR "/docs/metrics.md");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string made = TANDEM_BINARY_DIR "/metrics.md";
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
